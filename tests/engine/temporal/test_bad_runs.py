"""A run whose body blocks, or ends its worker, delays itself and not the others."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from engine.temporal.api_servers import open_server
from engine.temporal.test_killed_workers import open_cluster, running_workers
from nerve.api import ApiError

if TYPE_CHECKING:
    from engine.temporal.temporal_runs import TemporalRun, TemporalRuns

PROJECT = """
import os
import time
from pathlib import Path

from nerve import Workflow


async def ask(ctx):
    return await ctx.gate("Done?")


async def block(ctx):
    if Path("bad").exists():
        time.sleep(3)
    return "continued"


async def end_worker(ctx):
    if Path("bad").exists():
        os._exit(1)
    return "continued"


def register(session):
    for function in ask, block, end_worker:
        Workflow(function.__name__, session, function)
"""
OTHERS = 5
FAILED_TASKS = 1


async def count_failed_tasks(run: TemporalRun) -> int:
    """Return how often Temporal has tried the task of a run that is still open."""
    description = (await run.handle.describe()).raw_description
    return max(0, description.pending_workflow_task.attempt - 1)


async def answer_others(runs: TemporalRuns) -> None:
    """Execute runs from their start to their end."""
    others = [await runs.start("ask") for _ in range(OTHERS)]
    for run in others:
        await run.next_wait()
        await run.command("answer", value="yes")
    assert [await run.wait() for run in others] == ["yes"] * OTHERS


async def check_others(runs: TemporalRuns, name: str, keep_worker: Callable[[], None]) -> None:
    """Execute other runs beside a bad one, whose task fails again and again, until its code is repaired."""

    async def keep() -> None:
        while True:
            await asyncio.to_thread(keep_worker)
            await asyncio.sleep(0.05)

    bad = runs.session.project / "bad"
    await asyncio.to_thread(bad.touch)
    keeper = asyncio.ensure_future(keep())
    run = await runs.start(name)
    others = asyncio.ensure_future(answer_others(runs))
    failed = 0
    async with asyncio.timeout(120):
        while failed < FAILED_TASKS or not others.done():
            failed = max(failed, await count_failed_tasks(run))
            await asyncio.sleep(0.05)
    await others
    assert "workflow_completed" not in run.types
    await asyncio.to_thread(bad.unlink)
    assert await run.wait() == "continued"
    keeper.cancel()


async def test_a_body_that_blocks_delays_only_its_own_run(
    tmp_path: Path, temporal_url: str, postgresql_url: str
) -> None:
    async with open_cluster(tmp_path, temporal_url, postgresql_url, PROJECT) as runs:
        with running_workers(tmp_path, temporal_url, postgresql_url, "--bodies") as [worker]:
            await check_others(runs, "block", lambda: None)
            assert worker.process.poll() is None
            assert "Potential deadlock" in (tmp_path / "worker.log").read_text()


@pytest.mark.full
async def test_a_body_that_ends_its_worker_delays_only_its_own_run(
    tmp_path: Path, temporal_url: str, postgresql_url: str
) -> None:
    async with open_cluster(tmp_path, temporal_url, postgresql_url, PROJECT) as runs:
        with running_workers(tmp_path, temporal_url, postgresql_url, "--bodies") as [worker]:
            ends = []

            def keep_worker() -> None:
                """Start the worker again, as a service manager does."""
                if worker.process.poll() is not None:
                    ends.append(worker.process.returncode)
                    worker.kill()
                    worker.start()
                    worker.wait_until_ready()

            await check_others(runs, "end_worker", keep_worker)
            assert len(ends) >= FAILED_TASKS
            assert set(ends) == {1}


@pytest.mark.full
async def test_commands_for_a_run_whose_tasks_fail_are_refused_as_busy_with_the_reason(
    tmp_path: Path, temporal_url: str, postgresql_url: str
) -> None:
    project: dict[str, Any] = {}
    exec(PROJECT, project)  # noqa: S102
    (tmp_path / "bad").touch()
    async with (
        open_cluster(tmp_path, temporal_url, postgresql_url, PROJECT),
        open_server(temporal_url, postgresql_url, tmp_path, project["register"]) as api,
        asyncio.timeout(180),
    ):
        with running_workers(tmp_path, temporal_url, postgresql_url, "--bodies"):
            run = await api.start(workflow="block")
            message = ""
            while "has failed, and workers try it again" not in message:
                with pytest.raises(ApiError) as refused:
                    await api.pause(run=run.run_id)
                assert refused.value.code == "busy"
                message = refused.value.message
