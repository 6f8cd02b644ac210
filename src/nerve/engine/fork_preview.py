"""Preview of a fork: which steps of a run it would reuse, and which would run again."""

from __future__ import annotations

from collections.abc import Iterator
from math import inf
from typing import Literal

from nerve.core.step_names import is_internal_path
from nerve.engine.fork import (
    ForkPlan,
    ForkServices,
    SourceJournal,
    child_fork_point,
    find_copied_child,
    unknown_outcome_fields,
)
from nerve.engine.run_summary import KIND_BY_EVENT
from nerve.journal.events import CallStarted, QueueWaiting, Request
from nerve.journal.fork_point import ForkPoint, body_events, copied_events
from nerve.journal.index import is_guard
from nerve.journal.paths import is_below_leaf
from nerve.lazy_dataclass import dataclass
from nerve.store.port import RunRow

StepFate = Literal["reused", "reused_if_same", "continues", "again", "held"]
"""What a fork does with a step.

`reused`: its recorded outcome counts. `reused_if_same`: it counts if the fork requests the step with the
same input, which depends on the steps that run again, the new input or the new definition. `continues`: the
step is open, and what is inside it has its own entries. `again`: it runs again if the fork gets there.
`held`: it must run once only and its outcome is unknown, so the fork is held there for a decision.
"""


@dataclass(frozen=True, slots=True)
class StepPreview:
    """A step, child run or wait of the source, and what the fork does with it."""

    path: str
    """The path in the fork; that of a step in a child run starts with the path of the call."""
    run_id: str
    """The run that has executed it."""
    kind: str
    """`leaf`, `control`, `child`, `gate`, `timer`, `signal` or `message`."""
    node: str
    fate: StepFate


@dataclass(frozen=True, slots=True)
class ForkPreview:
    """What a fork would do; nothing has been started or written."""

    run_id: str
    at: str | None
    definition: str
    """The hash of the definition that the fork uses."""
    is_definition_changed: bool
    is_input_changed: bool
    steps: list[StepPreview]
    """In the order in which the source has requested them."""


def preview_plan(services: ForkServices, plan: ForkPlan) -> ForkPreview:
    """Return what the fork of a plan does with each step of its source."""
    source = plan.journal.index.start
    definition = plan.workflow.definition()[0]
    is_definition_changed = definition != source.definition
    steps = preview_steps(services, plan.row, plan.journal, plan.fork_point, plan.is_changed)
    return ForkPreview(
        plan.row.run,
        plan.at,
        definition,
        is_definition_changed,
        plan.input != source.input,
        list(steps),
    )


def preview_steps(
    services: ForkServices,
    row: RunRow,
    journal: SourceJournal,
    fork_point: ForkPoint,
    is_changed: bool,
    prefix: str = "",
) -> Iterator[StepPreview]:
    """Yield the steps of a run, each child run that continues in the fork below its call."""
    rows = body_events(journal.events)
    copied = copied_events(journal.events, fork_point)
    settled = {each.path for each in copied if each.settles}
    requested = {each.path for each in copied if isinstance(each.event, Request)}
    in_doubt = set(unknown_outcome_fields(journal.index, fork_point).get("unclear", ()))
    leaves = {each.path for each in rows if isinstance(each.event, CallStarted) and not each.event.is_control}
    # With another input or definition the body may request anything differently from its start.
    certain_until = -inf if is_changed else fork_point.since_seq
    seen: set[str] = set()
    for each in rows:
        event, path = each.event, each.path
        if not isinstance(event, Request) or isinstance(event, QueueWaiting) or path in seen:
            continue
        if is_guard(event) or is_internal_path(path) or is_below_leaf(path, leaves):
            continue
        seen.add(path)
        is_call = isinstance(event, CallStarted)
        fate: StepFate = "again"
        if path in settled:
            fate = "reused" if each.seq < certain_until else "reused_if_same"
        elif is_call and path in requested:
            fate = "continues"
        elif isinstance(event, CallStarted) and event.is_once and path in in_doubt:
            fate = "held"
        node = getattr(event, "node_id", None) or ""
        yield StepPreview(prefix + path, row.run, kind_of_request(event), node, fate)
        if isinstance(event, CallStarted) and event.child is not None and fate == "continues":
            child_row = find_copied_child(services, row, journal.index, path)
            child = SourceJournal.read(services, child_row.run) if child_row is not None else None
            if child_row is not None and child is not None and child.events:
                point = child_fork_point(services, child, path, fork_point)
                is_child_changed = each.seq >= certain_until
                yield from preview_steps(services, child_row, child, point, is_child_changed, prefix + path)


def kind_of_request(event: Request) -> str:
    if isinstance(event, CallStarted):
        return "control" if event.is_control else "leaf" if event.child is None else "child"
    return KIND_BY_EVENT[event.type]
