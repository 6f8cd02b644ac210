"""A project served by a process of its own: `python project.py FOLDER`, for the tests to stop and to kill."""

import sys
from pathlib import Path

from nerve.server import uvicorn_server
from nerve.server.serve import RunningServer, serve


def ready(serving: RunningServer) -> None:
    sys.stdout.write(f"{serving.url} {serving.workflows} {serving.recovered} {len(serving.problems)}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    uvicorn_server.SHUTDOWN_GRACE_S = 1  # that requests may end is tested in a second as well as in five
    sys.exit(serve(folder, port=0, ready=ready, log_json=sys.argv[2:] == ["--log-json"]))
