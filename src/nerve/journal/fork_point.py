"""Fork points: where a fork departs from its source, and which events it copies."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from math import inf

from nerve.core.events import RUN_LEVEL_EVENTS, JournalRow
from nerve.core.suggest import did_you_mean_hint
from nerve.journal.events import (
    CallStarted,
    ChildStopped,
    FactsCopied,
    GateProgress,
    NodeRetrying,
    PathReset,
    QueueEntered,
    QueueWaiting,
    Request,
    RequestAbandoned,
    SignalWaiting,
    WaitOpened,
)
from nerve.journal.failures import abandoned_paths, is_abandoned
from nerve.journal.index import RecordedEvent, drop_undone, is_child_call, read_events
from nerve.journal.paths import ROOT_PATH, ancestor_paths, is_below_leaf
from nerve.journal.replay import answer_positions, drop_rows_at
from nerve.lazy_dataclass import dataclass

Journal = Iterable[JournalRow | RecordedEvent]


@dataclass(frozen=True, slots=True)
class ForkPoint:
    """Where a fork departs from its source."""

    paths: Sequence[str] = ()
    """The paths that run again."""
    since_seq: float = inf
    """The event after which nothing is certain: people and the clock are asked again."""
    outdated_paths: Sequence[str] = ()
    """Gates whose answers do not count, because an answer applies only to what was shown."""
    retried_calls: Container[str] = ()
    """Failed or abandoned calls of child runs, which are retried like their parent."""

    @classmethod
    def at_paths(
        cls,
        paths: Sequence[str],
        journal: Journal,
        has_asked_person: Callable[[str], bool],
        is_input_changed: bool = False,
    ) -> ForkPoint:
        """Fork at paths: events before the first of them count; with a changed input, no answer does."""
        rows = body_events(journal)
        asks = request_seqs(rows)
        for path in paths:
            if path not in asks:
                known = sorted(asks)
                hint = did_you_mean_hint(path, known) or f". Known paths: {', '.join(known) or 'none yet'}"
                raise ValueError(f"Unknown path '{path}'{hint}")
        since = min((asks[path] for path in paths), default=inf)
        late = [
            gate_path
            for seq, gate_path in answer_positions(rows, has_asked_person)
            if seq > (0 if is_input_changed else since)
        ]
        return cls(paths, since, late)

    @classmethod
    def at_failures(
        cls,
        journal: Journal,
        failed: Mapping[str, RecordedEvent],
        has_asked_person: Callable[[str], bool],
        is_input_changed: bool = False,
    ) -> ForkPoint:
        """Fork at failures: events and questions before the first failure count."""
        rows = body_events(journal)
        asks = request_seqs(rows)
        since = min((row.seq for row in failed.values()), default=inf)
        agent_waits = {row.path for row in rows if isinstance(row.event, SignalWaiting)}
        late = [
            path
            for seq, path in answer_positions(rows, has_asked_person)
            # A gate opened before the failure showed what is still true, even if its answer came later. The
            # response of an agent may be the failure.
            if is_input_changed or (seq if path in agent_waits else asks[path]) > since
        ]
        children = child_call_paths(rows) & (failed.keys() | abandoned_paths(rows))
        return cls([path for path in failed if path not in children], since, late, children)


def body_events(journal: Journal) -> list[RecordedEvent]:
    """Return the events of a body without those that were reset."""
    return [row for row in drop_undone(read_events(journal)) if row.type not in RUN_LEVEL_EVENTS]


def request_seqs(rows: Iterable[RecordedEvent]) -> dict[str, int]:
    """Return the events of the requests of a body, by path."""
    return {row.path: row.seq for row in rows if isinstance(row.event, Request)}


def child_call_paths(rows: Iterable[RecordedEvent]) -> set[str]:
    return {row.path for row in rows if is_child_call(row.event)}


def without_outcomes(rows: list[RecordedEvent], calls: Container[str]) -> list[RecordedEvent]:
    """Return the events without the outcomes of calls and their enclosing steps; the calls stay."""
    paths = [path for path in child_call_paths(rows) if path in calls]
    around = {above for path in paths for above in (*ancestor_paths(path), path)}
    return [row for row in rows if not (row.path in around and (row.settles or is_abandoned(row)))]


def copied_events(journal: Journal, cut: ForkPoint) -> list[RecordedEvent]:
    """Return the events that a fork copies, numbered from 2.

    Not copied: events at or below the fork paths, outcomes of enclosing steps, unsettled requests, timers and
    signals opened after the certain part, and outdated answers with the outcomes of steps around their gates.
    An open gate asks again, so what people have done at it is not copied either.
    The last attempt of a child run that is open, retried or asked again becomes the first attempt in the
    fork.
    """
    remaining = body_events(journal)
    late = {row.path for row in remaining if isinstance(row.event, WaitOpened) and row.seq > cut.since_seq}
    calls = child_call_paths(remaining)
    reopened_calls = {path for path in calls if path in cut.retried_calls or path in cut.outdated_paths}
    remaining = drop_rows_at(
        remaining, [*cut.paths, *(gate_path for gate_path in cut.outdated_paths if gate_path not in calls)]
    )
    remaining = without_outcomes(remaining, reopened_calls)
    ended = {row.path for row in remaining if row.settles not in (None, ROOT_PATH) and not is_abandoned(row)}
    abandoned = {row.path for row in remaining if is_abandoned(row)}
    open_calls = child_call_paths(remaining) - ended

    def takes_over(row: RecordedEvent) -> bool:
        if row.path in late or is_below_leaf(row.path, open_calls):
            return False
        match row.event:
            # A fork needs slots of its own.
            case QueueWaiting() | QueueEntered():
                return False
            case RequestAbandoned() | NodeRetrying() | PathReset() | ChildStopped() | FactsCopied():
                return False
            # Control nodes are copied even if open: they have no effect of their own, and replay walks
            # through them.
            case GateProgress() if row.path not in ended:
                return False
            case CallStarted(is_control=False) | WaitOpened() if row.path not in ended:
                return is_child_call(row.event) and row.path not in abandoned
        return True

    copied = [row for row in remaining if takes_over(row)]
    # The settle key is the plain path: in the fork nothing has been reset yet.
    return [
        row._replace(seq=number, settles=row.path if row.settles else None)
        for number, row in enumerate(copied, 2)
    ]
