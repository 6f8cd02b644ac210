"""Replay: what a journal says a body did, and in which order outcomes were delivered.

The body runs again from the start. Its requests are looked up here, and recorded outcomes are returned in the
order of their sequence numbers, each only after the body has repeated every request recorded before it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal

from nerve.core.events import RUN_LEVEL_EVENTS
from nerve.core.json_codec import encode_json
from nerve.errors import NerveError
from nerve.journal.events import (
    CallSettled,
    CallStarted,
    ChildStopped,
    Event,
    FactsCopied,
    GateProgress,
    GateWaiting,
    MessageSent,
    NodeCancelled,
    NodeRetrying,
    PatchEvaluated,
    PathReset,
    QueueCancelled,
    QueueEntered,
    QueueWaiting,
    RequestAbandoned,
    RunStopping,
    SignalWaiting,
    TagsChanged,
    TimerStarted,
    WaitOpened,
)
from nerve.journal.index import RecordedEvent, child_of_call, drop_ended_with_run, drop_reset
from nerve.journal.paths import ROOT_PATH, ancestor_paths, is_in_any_step, is_reset_with
from nerve.lazy_dataclass import dataclass

ReplayKey = str | tuple[str, str, int]
EntryKind = Literal["ask", "settle", "drop", "stop"]

COMPARED_WAIT_FIELDS = (
    "prompt",
    "choices",
    "options",
    "form",
    "seconds",
    "label",
    "key",
    "patterns",
    "channel",
)
"""The fields of a wait that must be the same on replay; the others may change."""
TYPED_GATE_FIELDS = ("choices", "form")
"""The fields that the type of a gate's answer gives. The answer decides whether the type still fits."""


QUEUE_EVENTS = (QueueWaiting, QueueEntered, QueueCancelled)
"""Events of the wait for a slot, which the engine makes for a step or a run; the body does not see it."""
NOT_OF_BODY = (
    *(NodeRetrying, PathReset, ChildStopped, MessageSent, TagsChanged, PatchEvaluated),
    FactsCopied,
    GateProgress,
)
"""Events that a body does not repeat: of the engine, of others, and those found by their content."""


NO_RETRIES: Sequence[RecordedEvent] = ()


class ReplayMismatch(NerveError):
    """The body requests something other than the journal has."""

    def __init__(self, path: str, recorded: Any, requested: Any) -> None:
        super().__init__(f"{path}: the journal has {recorded}, the code now requests {requested}")
        self.path, self.recorded, self.requested = path, recorded, requested


class RecordInvalidated(Exception):
    """A record was invalidated while the body waited for it."""


class ReplayEntry:
    """A request of the body, its outcome, that the body abandoned it, or that the body was cancelled."""

    # By hand: loading a journal creates one for nearly every event.
    __slots__ = ("is_done", "is_optional", "is_void", "key", "kind", "row", "seq")

    def __init__(self, row: RecordedEvent, kind: EntryKind, key: ReplayKey, is_optional: bool) -> None:
        self.seq, self.row, self.kind, self.key, self.is_optional = row.seq, row, kind, key, is_optional
        self.is_done = False
        """Whether the body has repeated it."""
        self.is_void = False
        """Whether a step it may depend on runs again, so that it does not count."""

    @property
    def event(self) -> Event:
        return self.row.event

    @property
    def is_outcome(self) -> bool:
        """Whether it is delivered in its turn: an outcome, a stop, or the end of an abandoned call."""
        return self.kind in ("settle", "stop") or isinstance(self.event, NodeCancelled)


@dataclass(slots=True)
class RecordedCall:
    """The record of a path: the request, and its outcome if there is one."""

    request: ReplayEntry
    outcome: ReplayEntry | None
    retries: Sequence[RecordedEvent]
    """The events that it runs again."""

    @property
    def data(self) -> dict[str, Any]:
        return self.request.event.to_data()

    @property
    def is_abandoned(self) -> bool:
        """Whether the body abandoned it."""
        return self.outcome is not None and self.outcome.kind == "drop"

    @property
    def is_in_doubt(self) -> bool:
        """Whether it was started since the last decision to run it, and has no recorded outcome."""
        is_outcome_known = self.outcome is not None and self.outcome.kind == "settle"
        last_retry = self.retries[-1].event if self.retries else None
        is_run_again = isinstance(last_retry, NodeRetrying) and last_retry.again
        return not is_outcome_known and not is_run_again


class Replay:
    """The records a body must repeat; those inside a settled path count as repeated."""

    def __init__(
        self, events: Sequence[RecordedEvent], optional_upto: int = 0, ids: Sequence[str] = ()
    ) -> None:
        """Load records; `ids` are the ids of a fork and its origins, each of which knows its own."""
        self._entries: list[ReplayEntry] = []
        self._requests: dict[ReplayKey, ReplayEntry] = {}
        self._outcomes: dict[ReplayKey, ReplayEntry] = {}
        self._retries: dict[str, list[RecordedEvent]] = {}
        self._next = 0
        self._optional_upto, self._ignores_order, self._ids = optional_upto, False, ids
        self._rows = drop_ended_with_run(drop_reset(events))
        self._answers: list[tuple[float, str]] | None = None
        self.has_stops = False
        """Whether the engine cancelled the recorded body."""
        self._load()

    def _load(self) -> None:
        paths = BodyPaths(self._rows)
        counts: dict[tuple[str, str], int] = {}
        for row in self._rows:
            # A settled step returns its result as a whole on replay, so nothing inside it is requested
            # again.
            if row.path.rfind("/") > 0 and paths.is_inside_step(row.path):
                continue
            record = self._make_entry(row, paths, counts)
            if record is not None:
                self._entries.append(record)

    def _make_entry(
        self, row: RecordedEvent, paths: BodyPaths, counts: dict[tuple[str, str], int]
    ) -> ReplayEntry | None:
        seq, _, path, settles, event = row
        is_optional = seq <= self._optional_upto
        # Calls first: they are most of a journal.
        if isinstance(event, CallStarted):
            record = self._requests[path] = ReplayEntry(row, "ask", path, is_optional)
            return record
        if isinstance(event, QUEUE_EVENTS):
            return None
        if isinstance(event, RequestAbandoned):
            record = self._outcomes[path] = ReplayEntry(row, "drop", path, is_optional)
            return record
        if settles:
            if settles == ROOT_PATH or path in paths.abandoned or path not in self._requests:
                return None  # an outcome without a request has no receiver
            record = self._outcomes[path] = ReplayEntry(row, "settle", path, is_optional)
            return record
        if isinstance(event, WaitOpened):
            record = self._requests[path] = ReplayEntry(row, "ask", path, is_optional)
            return record
        return self._make_other_entry(row, paths, counts, is_optional)

    def _make_other_entry(
        self,
        row: RecordedEvent,
        paths: BodyPaths,
        counts: dict[tuple[str, str], int],
        is_optional: bool,
    ) -> ReplayEntry | None:
        """Return the entry of an event that neither opens nor ends a call or wait."""
        event, path = row.event, row.path
        if path in paths.settled:
            return None
        if isinstance(event, NodeRetrying):
            self._retries.setdefault(path, []).append(row)
        # A fork goes another way than the run that was stopped.
        if isinstance(event, RunStopping) and not is_optional:
            self.has_stops = True
            return ReplayEntry(row, "stop", (path, event.type, 0), is_optional)
        if isinstance(event, NOT_OF_BODY) or event.type in RUN_LEVEL_EVENTS or paths.is_of_leaf(path):
            return None
        # Emits have no path of their own; the n-th of a type at a path is matched with the n-th on replay.
        emit_key = (path, event.type)
        counts[emit_key] = counts.get(emit_key, 0) + 1
        record = ReplayEntry(row, "ask", (*emit_key, counts[emit_key]), is_optional)
        self._requests[record.key] = record
        return record

    @property
    def is_finished(self) -> bool:
        return self.next_unmatched() is None

    def lookup(self, path: str, digest: str, requested: Any) -> RecordedCall | None:
        """Return the record of a call or wait that the body requests now."""
        request = self._requests.get(path)
        if request is None:
            return None
        event = request.row.event
        # The hash decides in the usual case. A fork may have its own id in the input where the source had
        # another.
        if getattr(event, "hash", None) != digest:
            recorded = recorded_request(event)
            if not self._differ_only_by_run_id(recorded, requested):
                raise ReplayMismatch(path, recorded, requested)
        request.is_done = True
        return RecordedCall(request, self._outcomes.get(path), self._retries.get(path, NO_RETRIES))

    def _differ_only_by_run_id(self, recorded: str, requested: str) -> bool:
        """Whether two texts differ only by the ids of a run and its origins."""
        for run in self._ids:
            recorded, requested = recorded.replace(run, ""), requested.replace(run, "")
        return bool(self._ids) and recorded == requested

    def recorded_call(self, path: str) -> RecordedCall:
        """Return the record of a path, whatever the request was."""
        request = self._requests[path]
        return RecordedCall(request, self._outcomes.get(path), self._retries.get(path, NO_RETRIES))

    def is_settled(self, path: str) -> bool:
        """Whether the outcome at a path was delivered to the body."""
        end = self._outcomes.get(path)
        return end is not None and end.kind == "settle"

    def is_optional(self, path: str) -> bool:
        """Whether the record is optional and may run again."""
        return self._requests[path].is_optional

    def request_seq(self, path: str) -> float:
        """Return the event of a request; infinite for a timer, which runs nothing that answers depend on."""
        request = self._requests[path]
        return request.seq if not isinstance(request.event, TimerStarted) else float("inf")

    def forget(self, path: str) -> None:
        """Drop the records at and below a path, so that it runs again."""

        def is_dropped(key: ReplayKey) -> bool:
            return is_reset_with(key if isinstance(key, str) else key[0], path)

        self._requests = {key: record for key, record in self._requests.items() if not is_dropped(key)}
        self._outcomes = {key: record for key, record in self._outcomes.items() if not is_dropped(key)}
        self._entries = [record for record in self._entries[self._next :] if not is_dropped(record.key)]
        self._next = 0

    def lookup_emit(self, key: ReplayKey) -> ReplayEntry | None:
        """Return the record of an emit or a clock reading that the body makes now."""
        record = self._requests.get(key)
        if record is not None:
            record.is_done = True
        return record

    def next_outcome(self) -> ReplayEntry | None:
        """Return the next outcome, if the body has repeated every request before it."""
        record = self.next_unmatched()
        return record if record is not None and record.is_outcome else None

    def next_unmatched(self) -> ReplayEntry | None:
        """Return the next record the body has not repeated."""
        records, at = self._entries, self._next
        while at < len(records):
            if not (record := records[at]).is_done:
                self._next = at
                return record
            at += 1
        self._next = at
        return None

    def deliver_between_requests(self, outcome: ReplayEntry) -> bool:
        """Mark an outcome as delivered if it is next, and the body must make a request after it."""
        records = self._entries
        if self.next_unmatched() is not outcome or (after := self._next + 1) == len(records):
            return False
        following = records[after]
        if following.kind != "ask" or following.is_optional or following.is_done:
            return False
        outcome.is_done, self._next = True, after
        return True

    @property
    def has_later_request(self) -> bool:
        """Whether the body made a request in the recorded run that it has not repeated.

        An outcome is not a request: it may be recorded before the body has received it.
        """
        return any(not (record.is_done or record.is_outcome) for record in self._entries[self._next :])

    def seconds_until_abandoned(self, record: ReplayEntry) -> float:
        """Return the seconds after which the body abandoned a request in the recorded run."""
        request = self._requests.get(record.key)
        return max(0.0, record.row.at - request.row.at) if request is not None else 0.0

    def skip_optional(self, obstacle: ReplayEntry) -> bool:
        """Stop requiring optional records, or the outcome of an optional request that was not repeated."""
        request = self._requests.get(obstacle.key)
        # A new outcome may settle a copied request; if the code no longer makes the request, both go.
        if (
            obstacle.kind == "settle"
            and not obstacle.is_optional
            and request
            and request.is_optional
            and not request.is_done
        ):
            obstacle.is_optional = True
            del self._entries[self._next]
            return True
        return self.drop_ordering()

    def skip_unawaited(self, obstacle: ReplayEntry) -> bool:
        """Skip the outcome of a request that the body did not wait for; return whether it was one."""
        request = self._requests.get(obstacle.key)
        obstacle.is_done = obstacle.kind == "settle" and request is not None and request.is_done
        return obstacle.is_done

    def drop_ordering(self) -> bool:
        """Stop requiring the order of optional records; they can still be looked up."""
        # Changed code may make the same requests in another order. Results stay valid, but not their
        # sequence.
        strict = [record for record in self._entries[self._next :] if not record.is_optional]
        loosened = len(strict) < len(self._entries) - self._next
        self._entries, self._next, self._ignores_order = strict, 0, True
        return loosened

    def undelivered_answers(self, after: float, child_has_gate: Callable[[str], bool]) -> list[str]:
        """Return the paths of optional answers after an event that are not delivered yet."""
        if self._answers is None:
            self._answers = answer_positions(self._rows, child_has_gate)
        paths = [path for seq, path in self._answers if seq > after and not self._has_reached(path)]
        return list(dict.fromkeys(paths))

    def unrequested_gates(self) -> list[str]:
        """Return the open gates that the body has not requested again."""
        asks = [record for record in self._requests.values() if record.is_optional and not record.is_done]
        gates = [record.row.path for record in asks if isinstance(record.event, GateWaiting)]
        return [path for path in gates if path not in self._outcomes]

    def _has_reached(self, gate_path: str) -> bool:
        """Whether the body has reached the record at a path, or the outcome of a step around it."""
        outcome = next(
            (
                self._outcomes[path]
                for path in (*ancestor_paths(gate_path), gate_path)
                if path in self._outcomes
            ),
            None,
        )
        record = outcome or self._requests.get(gate_path)
        return record is None or record.is_done or record.kind == "drop" or not record.is_optional

    def reopen(self, paths: list[str]) -> None:
        """Drop the records at paths and the outcomes of enclosing steps, which run again."""
        around: list[str] = []
        for path in paths:
            if (
                top := next((p for p in (*ancestor_paths(path), path) if p in self._outcomes), None)
            ) is not None:
                # A task may already wait for this outcome; is_void makes it raise RecordInvalidated and
                # look again.
                self._outcomes.pop(top).is_void = True
                around.append(top)
            self.forget(path)
        self._rows, self._answers = drop_rows_at(self._rows, paths), None
        # Records inside the reopened steps were skipped as settled on loading, and are needed now.
        inner = Replay(self._rows, self._optional_upto, self._ids)
        inner_entries = [
            record for record in inner._entries if any(is_key_below(record.key, top) for top in around)
        ]
        for record in inner_entries:
            (self._requests if record.kind == "ask" else self._outcomes)[record.key] = record
        self._retries = inner._retries
        remaining = [record for record in self._entries[self._next :] if not record.is_void]
        self._entries = (
            remaining
            if self._ignores_order
            else sorted([*remaining, *inner_entries], key=lambda record: record.seq)
        )
        self._next = 0

    def ordered_seqs(self) -> set[int]:
        """Return the events that are still delivered in order."""
        return {record.seq for record in self._entries[self._next :]}


def recorded_request(event: Event) -> str:
    """Return the part of a request that is compared with one of the body."""
    compared = event.input if isinstance(event, CallStarted) else compared_wait_data(event.to_data())
    return encode_json(compared, canonical=True, max_depth=None)


def compared_wait_data(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return the part of a wait's data that must be the same on replay."""
    ignored = TYPED_GATE_FIELDS if data.get("typed") else ()
    return {name: data[name] for name in COMPARED_WAIT_FIELDS if name in data and name not in ignored}


class BodyPaths:
    """The paths in a journal that decide which of its events a body repeats."""

    def __init__(self, rows: Iterable[RecordedEvent]) -> None:
        self.settled: set[str] = set()
        """The steps with an outcome."""
        self.abandoned: set[str] = set()
        self._leaf_calls: set[str] = set()
        """The calls of leaves, but not of child runs, whose attempts belong to the body."""
        self._child_calls_and_waits: set[str] = set()
        for row in rows:
            event = row.event
            if row.settles and row.settles != ROOT_PATH:
                self.settled.add(row.path)
            if isinstance(event, CallStarted):
                if not event.is_control:
                    (self._leaf_calls if event.child is None else self._child_calls_and_waits).add(row.path)
            elif isinstance(event, WaitOpened):
                self._child_calls_and_waits.add(row.path)
            elif isinstance(event, RequestAbandoned):
                self.abandoned.add(row.path)

    def is_of_leaf(self, path: str) -> bool:
        """Whether the body requests something there that is not a control node, and emits its own events."""
        return path in self._leaf_calls or path in self._child_calls_and_waits

    def is_inside_step(self, path: str) -> bool:
        """Whether a path lies inside a settled step or a leaf, so that the body does not request it."""
        at = path.rfind("/")
        while at > 0:
            above = path[:at]
            if above in self.settled or above in self._leaf_calls:
                return True
            at = path.rfind("/", 0, at)
        return False


def drop_rows_at(rows: list[RecordedEvent], paths: Iterable[str]) -> list[RecordedEvent]:
    """Return the events without those at or below paths, and without outcomes of enclosing steps."""
    removed_paths = set(paths)
    around = {above for path in removed_paths for above in ancestor_paths(path)}
    return [
        row
        for row in rows
        if not (is_in_any_step(row.path, removed_paths) or (row.settles and row.path in around))
    ]


def answer_positions(
    rows: Sequence[RecordedEvent], child_has_gate: Callable[[str], bool]
) -> list[tuple[float, str]]:
    """Return the paths of questions, and the events that answered them; open questions come last.

    A question is a gate, or a wait for the response of an agent. One in a leaf or a child run counts as that
    step; `child_has_gate` looks into child runs.
    """
    asks = {row.path: row for row in rows if is_leaf_request(row.event)}
    settled = {row.path: row for row in rows if row.settles}
    positions: list[tuple[float, str]] = []
    for path, row in asks.items():
        leaf = next((ancestor for ancestor in ancestor_paths(path) if ancestor in asks), None)
        end = settled.get(path)
        seq = end.seq if end is not None else float("inf")
        is_asked = is_question(row.event)
        if is_asked and leaf is None:
            positions.append((seq, path))
        elif is_asked and leaf in settled:
            positions.append((seq, leaf))
        elif (child := child_run_id(row.event, end)) is not None and child_has_gate(child):
            positions.append((seq, path))
    return positions


def is_question(event: Event) -> bool:
    """Whether an answer to it depends on what the run has done before."""
    return isinstance(event, GateWaiting) or (isinstance(event, SignalWaiting) and event.awaits_agent)


def is_leaf_request(event: Event) -> bool:
    """Whether an event requests anything but a control node, which only decides."""
    return isinstance(event, WaitOpened) or (isinstance(event, CallStarted) and not event.is_control)


def child_run_id(event: Event, end: RecordedEvent | None) -> str | None:
    """Return the child run that was started last or gave the result; None if it could not start."""
    child = child_of_call(event)
    if child is None or end is None:
        return child
    run_id: str | None = None
    if isinstance(end.event, CallSettled | RequestAbandoned):
        run_id = end.event.attribute("run_id")
    return run_id


def is_key_below(key: ReplayKey, ancestor: str) -> bool:
    """Whether a record lies below a path, or is an emit at it."""
    return key.startswith(f"{ancestor}/") if isinstance(key, str) else f"{key[0]}/".startswith(f"{ancestor}/")
