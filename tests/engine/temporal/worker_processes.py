"""Workers as processes, with a database: what the fault tests kill."""

from __future__ import annotations

import json
import os
from pathlib import Path
from types import TracebackType

from faults import networked_nerve
from nerve_processes import Process


class WorkerProcess:
    """`nerve worker` with some options, until the end of the `with` statement.

    With an `address`, it reaches Temporal there.
    """

    def __init__(
        self, folder: Path, temporal_url: str, postgresql_url: str, *options: str, address: str | None = None
    ) -> None:
        self._folder, self._options = folder, options
        self._variables = {"NERVE_ENGINE": temporal_url, "NERVE_STORE": postgresql_url}
        self._module: str | None = None
        if address is not None:
            self._module = networked_nerve.__name__
            tests = Path(networked_nerve.__file__).parents[1]
            self._variables |= {networked_nerve.ADDRESS_VARIABLE: address, "PYTHONPATH": str(tests)}

    def __enter__(self) -> WorkerProcess:
        self.start()
        return self

    def start(self) -> None:
        kept = {name: value for name, value in os.environ.items() if not name.startswith("NERVE_")}
        environment = {**kept, "NERVE_HOME": str(self._folder / "home"), **self._variables}
        arguments = ["worker", *self._options, "--json", "--quiet"]
        with (self._folder / "worker.log").open("ab") as log:
            self.process = Process(
                *arguments, cwd=self._folder, stderr=log, environment=environment, module=self._module
            )

    def wait_until_ready(self) -> None:
        assert self.process.stdout is not None
        ready = self.process.stdout.readline()
        assert ready, (self._folder / "worker.log").read_text()
        assert "queues" in json.loads(ready), ready

    def kill(self) -> None:
        """End the process without a chance to write anything."""
        self.process.kill()
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()
