"""The Temporal server of the tests starts on any machine, and what it acknowledged survives its end."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from postgresql_server import ServerMissing
from temporal_server import NOT_FOUND, PROGRAM_VARIABLE, TemporalServer, find_program


def run_cli(server: TemporalServer, namespace: str, *arguments: str) -> Any:
    command = subprocess.run(
        [
            find_program(),
            *arguments,
            "--address",
            server.address,
            "--namespace",
            namespace,
            "--output",
            "json",
        ],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert command.returncode == 0, command.stderr
    return json.loads(command.stdout)


def start_workflow(server: TemporalServer, namespace: str) -> None:
    run_cli(server, namespace, "workflow", "start", "--type=t", "--task-queue=q", "--workflow-id=w")


def read_state(server: TemporalServer, namespace: str) -> str:
    description = run_cli(server, namespace, "workflow", "describe", "--workflow-id=w")
    state: str = description["workflowExecutionInfo"]["status"]
    return state


def test_each_test_has_an_empty_namespace(temporal_server: TemporalServer, temporal_url: str) -> None:
    assert temporal_url.startswith(f"temporal://127.0.0.1:{temporal_server.port}/")
    other = temporal_server.create_namespace()
    start_workflow(temporal_server, other)
    namespace = temporal_url.rpartition("/")[2]
    assert run_cli(temporal_server, namespace, "workflow", "count") == {}


def test_an_acknowledged_start_survives_a_killed_server(temporal_server: TemporalServer) -> None:
    with TemporalServer() as server:
        namespace = server.create_namespace()
        start_workflow(server, namespace)
        server.kill()
        server.start()
        assert read_state(server, namespace) == "WORKFLOW_EXECUTION_STATUS_RUNNING"
    assert not server.folder.exists()


def test_a_missing_server_has_a_clear_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(PROGRAM_VARIABLE, str(tmp_path / "temporal"))
    with pytest.raises(ServerMissing) as raised:
        TemporalServer()
    assert str(raised.value) == NOT_FOUND


def test_a_server_ends_with_the_process_that_started_it(temporal_server: TemporalServer) -> None:
    code = """
import sys
from temporal_server import TemporalServer
with TemporalServer() as server:
    print(server._process.pid, server.folder, flush=True)
    sys.stdin.read()
"""
    process = subprocess.Popen(
        [sys.executable, "-c", code],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parent,
    )
    assert process.stdout is not None
    pid, folder = process.stdout.readline().split()
    os.kill(int(pid), 0)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    deadline = time.monotonic() + 30
    while Path(f"/proc/{pid}/cmdline").exists() and Path(f"/proc/{pid}/cmdline").read_bytes():
        assert time.monotonic() < deadline, "the server is still running"
        time.sleep(0.01)
    for path in Path(folder).iterdir():
        path.unlink()
    Path(folder).rmdir()
