"""Servers whose runs a Temporal cluster executes, as processes: any of them may end."""

import json
import signal
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from nerve_processes import Process, done
from server.moving_streams import check_moving_stream
from server.processes import ServerProcess, wait_for_result


@pytest.fixture
def servers(
    tmp_path: Path, postgresql_url: str, temporal_url: str, monkeypatch: pytest.MonkeyPatch
) -> Iterator[list[ServerProcess]]:
    """Two servers, and a worker for bodies and steps."""
    monkeypatch.setenv("NERVE_STORE", postgresql_url)
    monkeypatch.setenv("NERVE_ENGINE", temporal_url)
    with ExitStack() as stack:
        servers = []
        for name in ("alpha", "beta"):
            server = ServerProcess(tmp_path / name, postgresql_url, temporal_url)
            stack.callback(server.end)
            assert not server.wait_ready()["executes_runs"]
            servers.append(server)
        arguments = ["worker", "--bodies", "--leaves", "bash", "--with", "work.py", "--quiet"]
        with (tmp_path / "worker.log").open("w") as log:
            worker = Process(*arguments, cwd=servers[0].folder, stderr=log)
        stack.callback(worker.communicate)
        stack.callback(worker.send_signal, signal.SIGTERM)
        yield servers


async def test_a_run_outlives_the_server_that_has_started_it(servers: list[ServerProcess]) -> None:
    first, second = servers
    async with first.client() as client:
        run = await client.start(workflow="ask", wait=True, label="kept")
        assert (run.state, len(run.gates)) == ("waiting", 1)
    first.process.kill()
    async with second.client() as client:
        assert (await client.run(run="kept")).gates[0].gate_id == run.gates[0].gate_id
        await client.answer(run=run.run_id, answer="yes")
        assert await wait_for_result(client, run.run_id) == "yes"
    check_commands(first.folder)


@pytest.mark.full
async def test_a_stream_moves_from_server_to_server_without_a_gap(servers: list[ServerProcess]) -> None:
    await check_moving_stream(servers)


def check_commands(folder: Path) -> None:
    """Check that commands without a server use the cluster."""
    status, started, doctor = (
        done(*arguments, cwd=folder)
        for arguments in (["status"], ["start", "ask", "--json", "--with", "work.py"], ["doctor", "--json"])
    )
    assert "temporal://" in status.stdout, status
    assert json.loads(started.stdout)["state"] == "running", started
    findings = {finding["name"]: finding for finding in json.loads(doctor.stdout)["findings"]}
    for name in ("engine", "body workers", "leaf workers", "store owner"):
        assert findings[name]["state"] == "ok", findings[name]
