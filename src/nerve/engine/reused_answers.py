"""The answers of people that a fork reuses."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from nerve.engine.fork import ForkPlan, ForkServices
from nerve.engine.run_chain import iterate_chain
from nerve.journal.events import CallStarted, GateAnswered, GateWaiting
from nerve.journal.fork_point import body_events, copied_events
from nerve.journal.index import RecordedEvent
from nerve.journal.paths import is_below_leaf
from nerve.journal.replay import child_run_id
from nerve.lazy_dataclass import dataclass
from nerve.store.port import Store


@dataclass(frozen=True, slots=True)
class ReusedAnswer:
    """An answer that a fork does not ask for again."""

    path: str
    """That of the gate, or of the call of the child run that has opened it."""
    has_policy: bool
    """Whether people had to decide the gate."""


def find_reused_answers(services: ForkServices, plan: ForkPlan) -> list[ReusedAnswer]:
    """Return the answers to gates that the fork of a plan reuses, also those in child runs.

    A question of an agent is a part of its step, and no person gives an automatic answer: neither counts.
    """
    rows = copied_events(plan.journal.events, plan.fork_point)
    outdated = plan.fork_point.outdated_paths
    return [each for each in iterate_answers(services.store, rows) if each.path not in outdated]


def iterate_answers(store: Store, rows: Sequence[RecordedEvent]) -> Iterator[ReusedAnswer]:
    """Yield the answers to the gates of a body and of its child runs."""
    settled = {row.path: row for row in rows if row.settles}
    leaves = {row.path for row in rows if isinstance(row.event, CallStarted) and is_leaf_call(row.event)}
    for row in rows:
        end = settled.get(row.path)
        if isinstance(row.event, GateWaiting) and end is not None:
            answered = end.event
            is_of_person = isinstance(answered, GateAnswered) and answered.by != "auto"
            if is_of_person and not is_below_leaf(row.path, leaves):
                yield ReusedAnswer(row.path, row.event.policy is not None)
        elif (child := child_run_id(row.event, end)) is not None:
            for answer in iterate_child_answers(store, child):
                yield ReusedAnswer(row.path, answer.has_policy)


def iterate_child_answers(store: Store, run_id: str) -> Iterator[ReusedAnswer]:
    """Yield the answers to the gates of a child run and of the later runs of its chain."""
    first = store.run(run_id)
    for row in iterate_chain(store, first) if first is not None else ():
        yield from iterate_answers(store, body_events(store.events(row.run)))


def is_leaf_call(event: CallStarted) -> bool:
    return not event.is_control and event.child is None
