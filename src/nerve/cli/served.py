"""What `nerve resume` and `runs` do where a server has the store: the same, by asking it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from nerve.api import ApiError
from nerve.api.models import RunTold
from nerve.cli.answers import Answers, name_of
from nerve.cli.common import Common, Door, answering
from nerve.cli.going import gone_on
from nerve.client import Client

STILL = ("paused", "held")
PAGE = 1000
"""Runs that are asked for at once."""


def resumed(run: str, going: dict[str, Any], answers: tuple[str, ...], common: Common) -> int:
    """Let a run go on that stands still, and show it until it ends or waits."""

    async def do(door: Door) -> int:
        before = await door.client.run(run=run)
        if before.state in STILL:
            await door.client.resume(run=before.run_id, **going)
        return await gone_on(door, before, True, Answers(answers), before.last_seq)

    return answering(common, do)


async def listed(workflow: str | None) -> list[dict[str, Any]]:
    """What is told of every run, the newest last."""
    client = Client.of_project(Path())
    if client is None:
        raise ApiError("busy", "the server has ended just now", "Try again.")
    async with client:
        found = await all_of(client, workflow)
    return [
        {
            "run_id": run.run_id,
            "workflow": run.workflow,
            "state": run.state,
            "started_at": run.started_at.isoformat() if run.started_at else None,
            "ended_at": run.ended_at.isoformat() if run.ended_at else None,
            "label": run.label,
            "held": run.held,
            "gates": [{"name": name_of(gate), **gate.model_dump(mode="json")} for gate in run.gates],
        }
        for run in reversed(found)
        if run.parent is None
    ]


async def all_of(client: Client, workflow: str | None) -> list[RunTold]:
    """Every run, the newest first, page by page."""
    found: list[RunTold] = []
    before, more = None, True
    while more:
        page = await client.runs(workflow=workflow, limit=PAGE, largest=0, before=before)
        found += page.runs
        before, more = found[-1].run_id if found else None, page.more
    return found
