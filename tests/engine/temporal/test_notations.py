"""The same workflow does the same in Temporal, in every notation, as on the local engine."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from runpy import run_path
from typing import Any

import pytest

from engine.temporal.temporal_runs import TemporalRun, open_runs
from nerve import Session, Workflow
from nerve.core.events import WorkflowEvent
from nerve.core.nodes import MockNode
from nerve.errors import WorkflowFailed
from nerve.journal.events import make_event
from nerve.testing.trace import trace
from notations.test_same_workflow import FILES, asking, scripted, told

QUICK_FOLDER = "failures"
PARAMETERS = [
    pytest.param(file, id=told(file), marks=[] if file.parent.name == QUICK_FOLDER else pytest.mark.full)
    for file in FILES
]


@pytest.mark.parametrize("file", PARAMETERS)
async def test_a_workflow_leaves_the_same_trace_in_temporal(file: Path, temporal_url: str) -> None:
    scene = json.loads((file.parent / "scene.json").read_text())
    session = Session(project=file.parent)
    for name, answers in scene["answers"].items():
        MockNode(name, session, scripted(answers))
        Workflow(f"ask-{name}", session, asking(name))
    if file.suffix == ".py":
        run_path(str(file))["register"](session)
    else:
        session.load(file)
    async with open_runs(temporal_url, session) as runs:
        run = await runs.start(file.parent.name, scene["input"])
        ending = asyncio.ensure_future(run.wait())
        await answer_in_turn(run, ending, list(scene["gates"]))
        value = None
        try:
            value = await ending
        except (WorkflowFailed, asyncio.CancelledError):
            pass

        def read_events(run_id: str) -> list[WorkflowEvent]:
            row = runs.store.run(run_id)
            assert row is not None
            rows = runs.projection.body_rows(run_id)
            return [make_event(run_id, row.workflow, each, False) for each in rows]

        found = {"state": run.state, "value": value, "trace": trace(read_events(run.run_id), read_events)}
    assert found == json.loads((file.parent / "expected.json").read_text())


async def answer_in_turn(run: TemporalRun, ending: asyncio.Future[Any], answers: list[Any]) -> None:
    """Give the answers of a scene to the gates of a family, in the order in which they open."""
    answered = set[str]()
    while not ending.done():
        for row in run.store.runs():
            for wait in run.store.waits_of_run(row.run):
                if wait.kind == "gate" and f"{row.run}{wait.path}" not in answered:
                    answered.add(f"{row.run}{wait.path}")
                    await run.family_of(row.run).command("answer", gate=wait.path, value=answers.pop(0))
        await asyncio.sleep(0.02)
