"""Histories of earlier builds are replayed by this one: the engine sends the same in the same order.

A change that fails here needs a new build of the body workers, which open runs reach in a new history. Write
the histories again with `python -m engine.temporal.keep_histories`.
"""

from __future__ import annotations

import json
import re
from typing import get_args

import pytest
from temporalio.client import WorkflowHistory
from temporalio.worker import Replayer, UnsandboxedWorkflowRunner
from temporalio.workflow import NondeterminismError

from engine.temporal.history_scenes import play
from engine.temporal.keep_histories import ALL_NAMES, HISTORIES, make_session
from engine.temporal.memory_projection import MemoryProjection
from engine.temporal.temporal_runs import open_runs
from journals.keep import HERE
from journals.workflows import register
from nerve import Session
from nerve.engine.hosted_engines import HostedEngines
from nerve.engine.leaf_references import LEAF_KINDS
from nerve.engine.temporal import history_rows
from nerve.engine.temporal.carried_runs import carry_run
from nerve.engine.temporal.history_rows import HistoryContent
from nerve.engine.temporal.messages import (
    APPEND_ACTIVITY,
    CLOSE_ACTIVITY,
    LEAF_ACTIVITY,
    SHARED_STATE_ACTIVITY,
    RunCommand,
)
from nerve.engine.temporal.payloads import make_data_converter
from nerve.engine.temporal.run_workflow import HostedSession, RunWorkflow, hosted_sessions
from nerve.spec.models import Node
from nerve.store.memory import MemoryStore
from nerve.store.port import EventRow, RunRow


def make_replayer() -> Replayer:
    session = make_session()
    session.use_engine(HostedEngines())
    hosted_sessions[session.name] = HostedSession(session, MemoryStore)
    return Replayer(
        workflows=[RunWorkflow],
        data_converter=make_data_converter(MemoryProjection()),
        workflow_runner=UnsandboxedWorkflowRunner(),
        debug_mode=True,  # a task may take longer than two seconds where other programs use the processor
    )


def read_history(name: str) -> WorkflowHistory:
    return WorkflowHistory.from_json(name, (HISTORIES / f"{name}.json").read_text())


def test_there_is_a_history_of_every_workflow() -> None:
    assert {file.stem for file in HISTORIES.glob("*.json")} == set(ALL_NAMES)


@pytest.mark.parametrize("name", ALL_NAMES)
async def test_a_history_is_replayed(name: str) -> None:
    await make_replayer().replay_workflow(read_history(name))


NOT_KEPT = {
    "day_budget": "a daily budget is kept in the database; see test_cluster_budget.py",
    "slot": "the slots of a queue are kept in the database; see test_cluster_queues.py",
}
"""What no history shows, and why."""


async def read_contents() -> list[HistoryContent]:
    converter = make_data_converter(MemoryProjection())
    return [await history_rows.read_history(read_history(name).events, converter) for name in ALL_NAMES]


async def test_the_histories_show_every_command_leaf_and_activity() -> None:
    contents = await read_contents()
    verbs = re.findall(r"^    \| `(\w+)` \|", RunCommand.__doc__ or "", re.MULTILINE)
    shown = {command.verb for content in contents for command, _ in content.commands}
    shown |= {str(each.leaf.reference.get("kind")) for content in contents for each in content.leaves}
    shown |= {
        event.activity_task_scheduled_event_attributes.activity_type.name
        for name in ALL_NAMES
        for event in read_history(name).events
    }
    activities = {LEAF_ACTIVITY, APPEND_ACTIVITY, SHARED_STATE_ACTIVITY, CLOSE_ACTIVITY}
    assert len(verbs) > 15
    assert {*verbs, *LEAF_KINDS, *activities} - shown == set(NOT_KEPT)


async def test_the_histories_show_every_kind_of_node() -> None:
    texts = [
        part.definition.canonical
        for content in await read_contents()
        for part in content.parts
        if part.definition is not None
    ]
    kinds = {get_args(model.model_fields["kind"].annotation)[0] for model in get_args(get_args(Node)[0])}
    assert len(kinds) > 20
    assert {kind for kind in kinds if not any(f'"kind":"{kind}"' in text for text in texts)} == set()


async def test_another_order_of_commands_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    # A change as small as a write in a turn of its own: rows are then written before a leaf takes them.
    monkeypatch.setattr("nerve.engine.temporal.outbox.MAX_CARRIED_ROWS", 0)
    with pytest.raises(NondeterminismError):
        await make_replayer().replay_workflow(read_history("function"))


@pytest.mark.parametrize("name", ["function", "control", "gave_up"])
async def test_a_journal_of_the_local_engine_continues_from_its_middle(temporal_url: str, name: str) -> None:
    [file] = HERE.glob(f"*/{name}.json")
    kept = json.loads(file.read_text())
    [row] = [RunRow(*values) for values in kept["rows"]]
    events = [EventRow._make(event) for event in kept["journals"][row.run]]
    done: list[str] = []
    session = Session(row.session)
    register(session, done)
    async with open_runs(temporal_url, session) as runs:
        for count in range(2, len(events), len(events) // 3):
            done.clear()
            run_id = f"{name}-{count}"
            start = {**json.loads(events[0].data), "run_id": run_id}
            rows = [events[0]._replace(data=json.dumps(start)), *events[1:count]]
            middle = row._replace(run=run_id, state="running", ended=None)
            run = await runs.start_from([carry_run(middle, rows, None)], run_id)
            await play(run)
            assert not {event.path for event in events[:count] if event.settles} & set(done)
            assert run.state == "completed"
