"""`nerve resume` and `nerve runs` against a running server."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from nerve.api import ApiError
from nerve.api.models import RunResponse
from nerve.cli.context import CliContext, CommonOptions, run_with_api
from nerve.cli.gate_answers import PresetAnswers, gate_display_name
from nerve.cli.run_reporting import follow_or_report
from nerve.client import Client

RESUMABLE_STATES = ("paused", "held")
RUNS_PER_PAGE = 1000
"""Runs per request."""


def resume_on_server(
    run: str, resume_options: dict[str, Any], answers: tuple[str, ...], common: CommonOptions
) -> int:
    """Resume a paused or held run on the server and follow it until it ends or waits."""

    async def do(context: CliContext) -> int:
        before = await context.client.run(run=run)
        if before.state in RESUMABLE_STATES:
            await context.client.resume(run=before.run_id, **resume_options)
        return await follow_or_report(context, before, True, PresetAnswers(answers), before.last_seq)

    return run_with_api(common, do)


async def list_server_runs(workflow: str | None) -> list[dict[str, Any]]:
    """Return a summary of every root run, newest last."""
    client = Client.of_project(Path())
    if client is None:
        raise ApiError("busy", "The server has just stopped", "Try again.")
    async with client:
        runs = await fetch_all_runs(client, workflow)
    return [
        {
            "run_id": run.run_id,
            "workflow": run.workflow,
            "state": run.state,
            "started_at": run.started_at.isoformat() if run.started_at else None,
            "ended_at": run.ended_at.isoformat() if run.ended_at else None,
            "label": run.label,
            "held": run.held,
            "gates": [
                {"name": gate_display_name(gate), **gate.model_dump(mode="json")} for gate in run.gates
            ],
        }
        for run in reversed(runs)
        if run.parent is None
    ]


async def fetch_all_runs(client: Client, workflow: str | None) -> list[RunResponse]:
    """Return all runs, newest first."""
    runs: list[RunResponse] = []
    before, more = None, True
    while more:
        page = await client.runs(workflow=workflow, limit=RUNS_PER_PAGE, largest=0, before=before)
        runs += page.runs
        before, more = runs[-1].run_id if runs else None, page.more
    return runs
