"""A run that has ended stays as it is: no command, and no worker that wakes up, changes its journal."""

from __future__ import annotations

import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from engine.temporal.api_servers import open_servers, wait_for_end, wait_for_gate
from engine.temporal.test_killed_workers import open_cluster, running_workers
from engine.temporal.test_leaf_worker import is_running
from engine.temporal.test_leaves_of_runs import read_pid
from nerve import Session, WorkflowContext
from nerve.api import Api, ApiError

PRINTING = """
name: printing
body:
  kind: bash
  id: work
  command: "echo $$ >> pids; while true; do echo line; sleep 0.1; done"
"""


def register(session: Session) -> None:
    @session.workflow
    async def ask(ctx: WorkflowContext) -> Any:
        ctx.update("add", lambda number: number)
        return await ctx.gate("Continue?")


@pytest.fixture
async def servers(temporal_url: str, postgresql_url: str, tmp_path: Path) -> AsyncIterator[list[Api]]:
    async with open_servers(temporal_url, postgresql_url, tmp_path, register) as apis:
        yield apis


async def test_no_command_changes_a_run_that_has_ended(servers: list[Api]) -> None:
    first, second = servers
    run = await first.start(workflow="ask")
    gate = await wait_for_gate(first, run.run_id)
    await first.answer(run=run.run_id, answer="yes")
    ended = await wait_for_end(second, run.run_id)
    assert (await second.stop(run=run.run_id)).state == "completed"
    late = [
        ("answer", {"gate": gate.gate_id, "answer": "no"}),
        ("pause", {}),
        ("resume", {}),
        ("update", {"update": "add", "value": 1}),
        ("send", {"channel": "c", "value": 1}),
        ("skip", {"path": "/x"}),
    ]
    for name, arguments in late:
        for api in servers:
            with pytest.raises(ApiError) as refused:
                await api.perform(name, {"run": run.run_id, **arguments})
            assert refused.value.code in ("conflict", "gone"), name
    after = await first.run(run=run.run_id)
    assert (after.state, after.result, after.last_seq) == ("completed", "yes", ended.last_seq)


@pytest.mark.full
async def test_a_worker_that_wakes_up_writes_nothing_into_a_run_that_was_stopped_meanwhile(
    tmp_path: Path, temporal_url: str, postgresql_url: str
) -> None:
    (tmp_path / "printing.yaml").write_text(PRINTING)
    async with open_cluster(tmp_path, temporal_url, postgresql_url) as runs:
        runs.session.load(PRINTING, "yaml")
        run = await runs.start("printing")
        options = "--bodies", "--leaves bash --with printing.yaml"
        with running_workers(tmp_path, temporal_url, postgresql_url, *options) as [_, leaves]:
            pid = await read_pid(run, tmp_path)
            await run.until(lambda: "output_chunk" in run.types)
            leaves.process.send_signal(signal.SIGSTOP)
            try:
                await run.command("stop", reason="enough")
                await run.until(lambda: run.state == "cancelled")
                rows = run.rows
            finally:
                leaves.process.send_signal(signal.SIGCONT)
            await run.until(lambda: not is_running(pid))
        assert run.rows == rows
        assert rows[-1].type == "workflow_cancelled"
