"""Steps of runs on leaf workers that are processes of their own: stopped, killed, and kept from secrets."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from engine.temporal.temporal_runs import TemporalRun
from engine.temporal.test_killed_workers import open_cluster, running_workers
from engine.temporal.test_leaf_worker import is_running
from engine.temporal.worker_processes import WorkerProcess
from faults.tcp_proxy import TcpProxy

if TYPE_CHECKING:
    from engine.temporal.temporal_runs import TemporalRuns

STEPS = """
name: NAME
body:
  kind: bash
  id: work
  effect: EFFECT
  command: "echo $$ >> pids; env > environment; sleep 600"
"""


async def read_pid(run: TemporalRun, folder: Path) -> int:
    """Return the process of the step, which has begun once."""
    file = folder / "pids"
    [pid] = await run.until(lambda: file.read_text().split() if file.exists() else [])
    return int(pid)


async def start_step(runs: TemporalRuns, folder: Path, effect: str) -> TemporalRun:
    session = runs.session
    session.load(STEPS.replace("NAME", "long").replace("EFFECT", effect), "yaml")
    (folder / "file.yaml").write_text(STEPS.replace("NAME", "long").replace("EFFECT", effect))
    return await runs.start("long")


async def test_a_stop_is_acknowledged_when_the_processes_on_the_worker_have_ended(
    tmp_path: Path, temporal_url: str, postgresql_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TEMPORAL_GRPC_META_TEAM", "not-for-steps")
    monkeypatch.setenv("SERVICE_API_KEY", "not-for-steps")
    async with open_cluster(tmp_path, temporal_url, postgresql_url) as runs:
        run = await start_step(runs, tmp_path, "repeat")
        with running_workers(tmp_path, temporal_url, postgresql_url, "--bodies", "--leaves bash"):
            pid = await read_pid(run, tmp_path)
            assert is_running(pid)
            await run.command("stop", reason="enough")
            assert not is_running(pid)
    environment = (tmp_path / "environment").read_text()
    assert "NERVE_IDEMPOTENCY_KEY=" in environment
    for name in ("NERVE_STORE", "NERVE_ENGINE", "TEMPORAL_", "SERVICE_API_KEY"):
        assert name not in environment


@pytest.mark.full
async def test_a_stop_is_acknowledged_when_the_processes_of_a_killed_worker_have_ended(
    tmp_path: Path, temporal_url: str, postgresql_url: str
) -> None:
    async with open_cluster(tmp_path, temporal_url, postgresql_url) as runs:
        run = await start_step(runs, tmp_path, "repeat")
        with running_workers(tmp_path, temporal_url, postgresql_url, "--bodies", "--leaves bash") as workers:
            pid = await read_pid(run, tmp_path)
            workers[1].kill()
            await run.command("stop", reason="enough")
            assert not is_running(pid)
            await run.until(lambda: run.state == "cancelled")
    assert len((tmp_path / "pids").read_text().split()) == 1


@pytest.mark.full
async def test_a_stop_is_acknowledged_when_a_worker_that_is_cut_off_has_ended_its_processes(
    tmp_path: Path, temporal_url: str, postgresql_url: str
) -> None:
    place, _, _ = temporal_url.removeprefix("temporal://").partition("/")
    files = ["--leaves", "bash", "--with", "project.py", "--with", "file.yaml"]
    async with open_cluster(tmp_path, temporal_url, postgresql_url) as runs:
        run = await start_step(runs, tmp_path, "repeat")
        with (
            TcpProxy(int(place.rpartition(":")[2])) as network,
            running_workers(tmp_path, temporal_url, postgresql_url, "--bodies"),
            WorkerProcess(
                tmp_path, temporal_url, postgresql_url, *files, address=f"127.0.0.1:{network.port}"
            ) as worker,
        ):
            worker.wait_until_ready()
            pid = await read_pid(run, tmp_path)
            network.cut()
            await run.command("stop", reason="enough")
            assert not is_running(pid)
            assert worker.process.poll() is None
            await run.until(lambda: run.state == "cancelled")


async def test_a_step_with_effect_once_of_a_killed_worker_holds_its_run_until_a_person_decides(
    tmp_path: Path, temporal_url: str, postgresql_url: str
) -> None:
    async with open_cluster(tmp_path, temporal_url, postgresql_url) as runs:
        run = await start_step(runs, tmp_path, "once")
        with running_workers(tmp_path, temporal_url, postgresql_url, "--bodies", "--leaves bash") as workers:
            pid = await read_pid(run, tmp_path)
            workers[1].kill()
            workers[1].start()
            workers[1].wait_until_ready()
            [hold] = await run.until(lambda: [row for row in run.rows if row.type == "workflow_held"])
            data = json.loads(hold.data)
            assert (data["reason"], data["path"]) == ("in doubt", "/work")
            assert not is_running(pid)
            await run.command("decide", path="/work", decision="skip", value="done by hand")
            assert await run.wait() == "done by hand"
    assert len((tmp_path / "pids").read_text().split()) == 1
