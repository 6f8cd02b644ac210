"""What the history of a workflow has and the journals of its runs do not have yet."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from temporalio.api.enums.v1 import EventType

from nerve.core.json_codec import encode_json, short_sha256
from nerve.core.nodes.base import Node
from nerve.core.runtime import NodeCall
from nerve.engine.run_summary import RunSummary
from nerve.engine.temporal.family_workspaces import FamilyWorkspaces, next_host
from nerve.engine.temporal.messages import (
    APPEND_ACTIVITY,
    COMMAND_UPDATE,
    LEAF_ACTIVITY,
    SHARED_STATE_ACTIVITY,
    AppendInput,
    LeafInput,
    LeafResult,
    RunCommand,
    RunCommandReply,
    RunInput,
    SharedStateInput,
)
from nerve.engine.temporal.remote_leaf import restore_leaf_result
from nerve.journal.events import CallSettled, CallStarted, NodeStarted, PathReset, StepStarted, settle_call
from nerve.journal.index import JournalIndex, StoredJournal, read_events
from nerve.journal.paths import is_within_step
from nerve.store.port import Append, EventRow, RunRow

if TYPE_CHECKING:
    from temporalio.api.history.v1 import HistoryEvent
    from temporalio.converter import DataConverter

REPEATED_VERBS = frozenset(
    {"answer", "pause", "resume", "stop", "signal", "send", "update", "decide", "steer"}
)
"""Commands of users: acknowledged ones whose events are lost are executed again."""


class LeafRequest(NamedTuple):
    """A leaf that a workflow has sent to its workers."""

    leaf: LeafInput
    at: float


class LeafEnd(NamedTuple):
    """The result of a leaf that a workflow has received."""

    leaf: LeafInput
    result: LeafResult
    at: float
    seconds: float


class HistoryContent(NamedTuple):
    """What a history says about the journals of a family."""

    parts: list[Append]
    """The parts of journals that the workflow has sent to its workers, each run in its order."""
    leaves: list[LeafRequest | LeafEnd]
    """The leaves that began and ended, in this order."""
    commands: list[tuple[RunCommand, RunCommandReply]]
    """The commands that the workflow has replied to."""
    host: str | None
    """The host with the files of the family."""
    workspaces: list[list[str]]
    """The workspaces of the family that may exist: the run and the name of each."""


async def read_history(events: Iterable[HistoryEvent], converter: DataConverter) -> HistoryContent:
    """Return the content of a history, given its events."""
    parts: list[Append] = []
    leaves: list[LeafRequest | LeafEnd] = []
    commands: list[tuple[RunCommand, RunCommandReply]] = []
    requests: dict[int, LeafRequest] = {}
    accepted: dict[int, RunCommand] = {}
    host: str | None = None
    workspaces = FamilyWorkspaces()

    async def decode(payloads: Any) -> Any:
        return (await converter.decode(payloads.payloads))[0]

    for event in events:
        at = event.event_time.ToMicroseconds() / 1e6
        match event.event_type:
            case EventType.EVENT_TYPE_WORKFLOW_EXECUTION_STARTED:
                given = RunInput.from_data(
                    await decode(event.workflow_execution_started_event_attributes.input)
                )
                parts += given.journal
                host, workspaces = given.host, FamilyWorkspaces(given.workspaces)
            case EventType.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED:
                scheduled = event.activity_task_scheduled_event_attributes
                if scheduled.activity_type.name == APPEND_ACTIVITY:
                    parts += AppendInput.from_data(await decode(scheduled.input)).journal
                elif scheduled.activity_type.name == SHARED_STATE_ACTIVITY:
                    parts += SharedStateInput.from_data(await decode(scheduled.input)).journal
                elif scheduled.activity_type.name == LEAF_ACTIVITY:
                    leaf = LeafInput.from_data(await decode(scheduled.input))
                    parts += leaf.journal
                    requests[event.event_id] = LeafRequest(leaf, at)
                    leaves.append(requests[event.event_id])
            case EventType.EVENT_TYPE_ACTIVITY_TASK_COMPLETED:
                completed = event.activity_task_completed_event_attributes
                if (begun := requests.get(completed.scheduled_event_id)) is not None:
                    result = LeafResult.from_data(await decode(completed.result))
                    leaves.append(LeafEnd(begun.leaf, result, at, at - begun.at))
                    host = next_host(host, begun.leaf, result)
                    workspaces.note_result(begun.leaf, result)
            case EventType.EVENT_TYPE_WORKFLOW_EXECUTION_UPDATE_ACCEPTED:
                request = event.workflow_execution_update_accepted_event_attributes.accepted_request
                if request.input.name == COMMAND_UPDATE:
                    accepted[event.event_id] = RunCommand.from_data(await decode(request.input.args))
            case EventType.EVENT_TYPE_WORKFLOW_EXECUTION_UPDATE_COMPLETED:
                ended = event.workflow_execution_update_completed_event_attributes
                sent = accepted.get(ended.accepted_event_id)
                if sent is not None and ended.outcome.HasField("success"):
                    reply = RunCommandReply.from_data(await decode(ended.outcome.success))
                    commands.append((sent, reply))
    return HistoryContent(parts, leaves, commands, host, workspaces.names)


def find_lost_commands(content: HistoryContent, ends: Mapping[str, int]) -> list[RunCommand]:
    """Return the commands that were executed and whose events are lost.

    `ends` has the number of the last row of each run that its workflow has sent.
    """
    return [
        command
        for command, reply in content.commands
        if command.verb in REPEATED_VERBS
        and reply.error is None
        and reply.last_row > ends.get(command.run_id, 0)
    ]


def group_by_run(parts: Iterable[Append]) -> dict[str, list[Append]]:
    """Return the parts of each run in the order of its journal, each once."""
    by_run: dict[str, dict[tuple[int, int], Append]] = {}
    for part in parts:
        if part.rows:
            by_run.setdefault(part.run, {})[part.after, part.rows[-1].seq] = part
    return {run: [found[place] for place in sorted(found)] for run, found in by_run.items()}


def find_leaf_rows(
    row: RunRow, rows: Sequence[EventRow], leaves: Iterable[LeafRequest | LeafEnd]
) -> Append | None:
    """Return what the journal of a run lacks of leaves that began or ended; None if it has everything.

    `rows` is the journal with everything that the workflow has sent. A leaf that has succeeded gets its
    result. Of another one only the start is known: it runs again, or is in doubt if it has effect="once".
    """
    index = JournalIndex(rows)
    settled = {each.settles for each in rows}
    added: list[EventRow] = []

    def add(event: CallStarted | CallSettled, path: str, settles: str | None, at: float) -> None:
        added.append(EventRow(index.seq + 1, at, event.type, path, settles, event.encode()))
        index.add(added[-1:])

    for each in leaves:
        leaf = each.leaf
        key = index.resets.settle_key(leaf.path)
        if index.end is not None or key in settled or any(is_later(other, leaf) for other in rows):
            continue  # its outcome is in the journal
        if leaf.path not in index.unsettled:
            text = encode_json(leaf.input, canonical=True)
            is_once = leaf.effect == "once"
            add(
                NodeStarted(leaf.node_id, short_sha256(text), text, is_once=is_once), leaf.path, None, each.at
            )
        if isinstance(each, LeafEnd) and (result := restore_leaf_result(each.result)).success:
            is_graph_step = isinstance(index.unsettled[leaf.path].event, StepStarted)
            call = NodeCall(leaf.path, Node(), leaf.node_id, leaf.input, is_graph_step=is_graph_step)
            add(settle_call(call, result, each.seconds)[0], leaf.path, key, each.at)
            settled.add(key)
    if not added:
        return None
    summary = RunSummary(row.run, StoredJournal(rows).events)
    for recorded in read_events(added):
        summary.add(*recorded)
    usage, step_usage = summary.take_usage(row.session, row.workflow)
    new_row = row._replace(summary=summary.encode())
    return Append(row.run, rows[-1].seq, added, new_row, usage=usage, step_usage=step_usage)


def is_later(row: EventRow, leaf: LeafInput) -> bool:
    """Whether an event follows the request of a leaf, and ends, repeats or forgets it."""
    if row.seq <= leaf.started:
        return False
    return row.path == leaf.path or (row.type == PathReset.type and is_within_step(leaf.path, row.path))
