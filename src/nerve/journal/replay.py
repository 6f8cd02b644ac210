"""Replay: what a journal says a body did, and in which order outcomes were delivered.

The body runs again from the start. Its requests are looked up here, and recorded outcomes are returned in the
order of their sequence numbers, each only after the body has repeated every request recorded before it.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from nerve.core.events import RUN_LEVEL_EVENTS, JournalRow
from nerve.core.json_codec import decode_json, encode_json
from nerve.errors import NerveError

ReplayKey = str | tuple[str, str, int]


OPENING_EVENTS = frozenset(
    {"node_started", "step_started", "gate_waiting", "timer_started", "signal_waiting"}
)
ABANDON_EVENTS = frozenset({"node_cancelled", "gate_cancelled", "timer_cancelled", "signal_cancelled"})
NON_BODY_EVENTS = frozenset({"node_retrying", "path_reset", "child_stopped"})
CONTROL_PREFIX = '{"control":true'
"""The start of the data of a control node; events emitted at its path are the body's."""
RUN_AGAIN_MARKER = '"again":true'
"""Marks a `node_retrying` event for which a person decided to run the step again."""
COMPARED_WAIT_FIELDS = ("prompt", "choices", "options", "form", "seconds", "label", "key", "patterns")
"""The fields of a wait that must be the same on replay; the others may change."""
ONCE_MARKER = '"once":true,'
"""Marks the start of a leaf with effect="once"; written before the hash of the input."""
STOPPED_KEY = "stopped"
"""Marks the end of a call or a wait that was caused by a stop and not by the body."""
ROOT_PATH = "/"


class ReplayMismatch(NerveError):
    """The body requests something other than the journal has."""

    def __init__(self, path: str, recorded: Any, requested: Any) -> None:
        super().__init__(f"{path}: the journal has {recorded}, the code now requests {requested}")
        self.path, self.recorded, self.requested = path, recorded, requested


class RecordInvalidated(Exception):
    """A record was invalidated while the body waited for it."""


@dataclass(slots=True)
class ReplayEntry:
    """A request of the body, its outcome, or that the body abandoned it."""

    seq: int
    kind: Literal["ask", "settle", "drop"]
    key: ReplayKey
    row: JournalRow
    is_optional: bool = False
    is_done: bool = False
    is_void: bool = False
    """Whether a step it may depend on runs again, so that it does not count."""

    @property
    def data(self) -> dict[str, Any]:
        data: dict[str, Any] = decode_json(self.row.data)
        return data

    @property
    def is_outcome(self) -> bool:
        """Whether it is delivered in its turn: an outcome, or the end of an abandoned call."""
        return self.kind == "settle" or self.row.type == "node_cancelled"


@dataclass(slots=True)
class RecordedCall:
    """The record of a path: the request, and its outcome if there is one."""

    request: ReplayEntry
    data: dict[str, Any]
    outcome: ReplayEntry | None
    retries: list[dict[str, Any]] = field(default_factory=list)

    @property
    def is_abandoned(self) -> bool:
        """Whether the body abandoned it."""
        return self.outcome is not None and self.outcome.kind == "drop"

    @property
    def is_in_doubt(self) -> bool:
        """Whether it was started since the last decision to run it, and has no recorded outcome."""
        is_outcome_known = self.outcome is not None and self.outcome.kind == "settle"
        return not is_outcome_known and not (self.retries and self.retries[-1].get("again"))


class Replay:
    """The records a body must repeat; those inside a settled path count as repeated."""

    def __init__(self, rows: Iterable[JournalRow], optional_upto: int = 0, ids: Sequence[str] = ()) -> None:
        """Load records; `ids` are the ids of a fork and its origins, each of which knows its own."""
        self._entries: list[ReplayEntry] = []
        self._requests: dict[ReplayKey, ReplayEntry] = {}
        self._outcomes: dict[ReplayKey, ReplayEntry] = {}
        self._retries: dict[str, list[dict[str, Any]]] = {}
        self._next = 0
        self._optional_upto, self._ignores_order, self._ids = optional_upto, False, ids
        self._rows = drop_reset_rows(list(rows))
        self._answers: list[tuple[float, str]] | None = None
        self._load(self._rows, optional_upto)

    def _load(self, rows: list[JournalRow], optional_upto: int) -> None:
        settled = {row.path for row in rows if row.settles and row.settles != ROOT_PATH}
        leaves = {
            row.path for row in rows if row.type in OPENING_EVENTS and not row.data.startswith(CONTROL_PREFIX)
        }
        leaf_paths = {row.path for row in rows if row.path in leaves and is_leaf_start(row)}
        abandoned = {row.path for row in rows if row.type in ABANDON_EVENTS}
        counts: dict[tuple[str, str], int] = {}
        for row in rows:
            # A settled step returns its result as a whole on replay, so nothing inside it is requested
            # again.
            if is_inside_settled(row, settled) or is_below_leaf(row.path, leaf_paths):
                continue
            if row.type == "node_retrying":
                self._retries.setdefault(row.path, []).append(decode_json(row.data) | {"at": row.at})
            record = self._make_entry(row, leaves, abandoned, counts)
            if record is not None:
                record.is_optional = row.seq <= optional_upto
                self._entries.append(record)

    def _make_entry(
        self, row: JournalRow, leaves: set[str], abandoned: set[str], counts: dict[tuple[str, str], int]
    ) -> ReplayEntry | None:
        if row.type in OPENING_EVENTS:
            record = ReplayEntry(row.seq, "ask", row.path, row)
            self._requests[row.path] = record
            return record
        if row.type in ABANDON_EVENTS:
            record = ReplayEntry(row.seq, "drop", row.path, row)
            self._outcomes[row.path] = record
            return record
        if row.settles:
            if row.settles == ROOT_PATH or row.path in abandoned or row.path not in self._requests:
                return None  # an outcome without a request has no receiver
            record = ReplayEntry(row.seq, "settle", row.path, row)
            self._outcomes[row.path] = record
            return record
        if row.type in NON_BODY_EVENTS or row.type in RUN_LEVEL_EVENTS or row.path in leaves:
            return None
        # Emits have no path of their own; the n-th of a type at a path is matched with the n-th on replay.
        emit_key = (row.path, row.type)
        counts[emit_key] = counts.get(emit_key, 0) + 1
        record = ReplayEntry(row.seq, "ask", (*emit_key, counts[emit_key]), row)
        self._requests[record.key] = record
        return record

    @property
    def is_finished(self) -> bool:
        self._advance()
        return self._next >= len(self._entries)

    def lookup(self, path: str, digest: str, requested: Any) -> RecordedCall | None:
        """Return the record of a call or wait that the body requests now."""
        request = self._requests.get(path)
        if request is None:
            return None
        call = self.recorded_call(path)
        # The hash decides in the usual case. A fork may have its own id in the input where the source had
        # another.
        if call.data.get("hash") != digest and not self._differ_only_by_run_id(
            recorded_request(call.data), requested
        ):
            raise ReplayMismatch(path, recorded_request(call.data), requested)
        request.is_done = True
        return call

    def _differ_only_by_run_id(self, recorded: str, requested: str) -> bool:
        """Whether two texts differ only by the ids of a run and its origins."""
        for run in self._ids:
            recorded, requested = recorded.replace(run, ""), requested.replace(run, "")
        return bool(self._ids) and recorded == requested

    def recorded_call(self, path: str) -> RecordedCall:
        """Return the record of a path, whatever the request was."""
        request = self._requests[path]
        return RecordedCall(request, request.data, self._outcomes.get(path), self._retries.get(path, []))

    def is_settled(self, path: str) -> bool:
        """Whether the outcome at a path was delivered to the body."""
        end = self._outcomes.get(path)
        return end is not None and end.kind == "settle"

    def is_optional(self, path: str) -> bool:
        """Whether the record is optional and may run again."""
        return self._requests[path].is_optional

    def request_seq(self, path: str) -> float:
        """Return the event of a request; infinite for a timer, which runs nothing that answers depend on."""
        row = self._requests[path].row
        return row.seq if row.type != "timer_started" else float("inf")

    def forget(self, path: str) -> None:
        """Drop the records at and below a path, so that it runs again."""

        def is_dropped(key: ReplayKey) -> bool:
            return is_within_step(key if isinstance(key, str) else key[0], path)

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
        self._advance()
        if self._next >= len(self._entries):
            return None
        record = self._entries[self._next]
        return record if record.is_outcome else None

    def next_unmatched(self) -> ReplayEntry | None:
        """Return the next record the body has not repeated."""
        self._advance()
        return self._entries[self._next] if self._next < len(self._entries) else None

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
        gates = [record.row.path for record in asks if record.row.type == "gate_waiting"]
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

    def _advance(self) -> None:
        records = self._entries
        while self._next < len(records) and records[self._next].is_done:
            self._next += 1


def recorded_request(data: dict[str, Any]) -> str:
    """Return the part of an event's data that is compared with a request."""
    if "input" in data:
        return encode_json(data["input"], canonical=True, max_depth=None)
    return encode_json(compared_wait_data(data), canonical=True, max_depth=None)


def compared_wait_data(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return the part of a wait's data that must be the same on replay."""
    return {name: data[name] for name in COMPARED_WAIT_FIELDS if name in data}


def is_leaf_start(row: JournalRow) -> bool:
    """Whether the row starts a leaf, not a child run, whose attempts belong to the body."""
    return row.type in ("node_started", "step_started") and not is_child_start(row)


def is_child_start(row: JournalRow) -> bool:
    """Whether the row starts a child run."""
    # Only before "hash": the input after it may contain the same text.
    return row.type in OPENING_EVENTS and '"child":' in row.data.partition('"hash"')[0]


def is_once_start(row: JournalRow) -> bool:
    """Whether the row starts a leaf with effect="once"."""
    return is_leaf_start(row) and ONCE_MARKER in row.data.partition('"hash"')[0]


def unknown_outcomes(rows: Iterable[JournalRow]) -> set[str]:
    """Return the leaves that were started since their last retry and have no recorded outcome.

    Includes those of the run this one was forked from; a later reset does not make an outcome known.
    """
    paths: set[str] = set()
    for row in rows:
        if row.type == "workflow_started" and '"unclear"' in row.data:
            paths |= set((decode_json(row.data).get("forked_from") or {}).get("unclear", ()))
        elif row.type == "node_retrying":
            (paths.discard if RUN_AGAIN_MARKER in row.data else paths.add)(row.path)
        elif is_leaf_start(row) and not row.data.startswith(CONTROL_PREFIX):
            paths.add(row.path)
        # An abandoned leaf was cancelled, which says nothing about how far it got.
        elif row.settles and row.type not in ABANDON_EVENTS:
            paths.discard(row.path)
    return paths


def is_below_leaf(path: str, leaves: Container[str]) -> bool:
    """Whether a path lies below a leaf; the body does not see what a leaf requests itself."""
    while path := path.rpartition("/")[0]:
        if path in leaves:
            return True
    return False


def is_inside_settled(row: JournalRow, settled: set[str]) -> bool:
    """Whether the row lies inside a settled step."""
    path = row.path
    if (
        row.settles is None
        and row.type not in OPENING_EVENTS
        and row.type not in ABANDON_EVENTS
        and path in settled
    ):
        return True
    at = path.rfind("/")
    while at > 0:
        if path[:at] in settled:
            return True
        at = path.rfind("/", 0, at)
    return False


def drop_reset_rows(rows: list[JournalRow]) -> list[JournalRow]:
    """Return the rows without those at or below a path reset later, and outcomes of enclosing steps.

    What a stop ended stays open for a fork, because the body did not abandon it.
    """
    rows = [row for row in rows if not (row.type in ABANDON_EVENTS and STOPPED_KEY in decode_json(row.data))]
    resets = [row for row in rows if row.type == "path_reset"]
    for reset in resets:
        rows = [row for row in rows if row.seq >= reset.seq or not is_undone_by_reset(row, reset.path)]
    return rows


def drop_rows_at(rows: list[JournalRow], paths: Iterable[str]) -> list[JournalRow]:
    """Return the rows without those at or below paths, and without outcomes of enclosing steps."""
    removed_paths = set(paths)
    around = {above for path in removed_paths for above in ancestor_paths(path)}
    return [
        row
        for row in rows
        if not (is_in_any_step(row.path, removed_paths) or (row.settles and row.path in around))
    ]


def is_undone_by_reset(row: JournalRow, path: str) -> bool:
    """Whether a row no longer applies when a path runs again."""
    return is_within_step(row.path, path) or bool(
        row.settles and row.path and path.startswith(f"{row.path}/")
    )


def answer_positions(
    rows: Iterable[JournalRow], child_has_gate: Callable[[str], bool]
) -> list[tuple[float, str]]:
    """Return the paths of gates, and the events that answered them; open gates come last.

    A gate in a leaf or a child run counts as that step; `child_has_gate` looks into child runs.
    """
    rows = list(rows)
    asks = {
        row.path: row
        for row in rows
        if row.type in OPENING_EVENTS and not row.data.startswith(CONTROL_PREFIX)
    }
    settled = {row.path: row for row in rows if row.settles}
    positions: list[tuple[float, str]] = []
    for path, row in asks.items():
        leaf = next((ancestor for ancestor in ancestor_paths(path) if ancestor in asks), None)
        end = settled.get(path)
        seq = end.seq if end is not None else float("inf")
        if row.type == "gate_waiting" and leaf is None:
            positions.append((seq, path))
        elif row.type == "gate_waiting" and leaf in settled:
            positions.append((seq, leaf))
        elif is_child_start(row) and (child := child_run_id(row, end)) is not None and child_has_gate(child):
            positions.append((seq, path))
    return positions


def child_run_id(row: JournalRow, end: JournalRow | None) -> str | None:
    """Return the child run that was started last or gave the result; None if it could not start."""
    if end is None:
        return str(decode_json(row.data)["child"])
    run_id: str | None = (decode_json(end.data).get("result") or {}).get("attributes", {}).get("run_id")
    return run_id


def ancestor_paths(path: str) -> list[str]:
    """Return the paths above a path, outermost first."""
    cuts = [at for at, letter in enumerate(path) if letter == "/" and at > 0]
    return [path[:at] for at in cuts]


def is_key_below(key: ReplayKey, ancestor: str) -> bool:
    """Whether a record lies below a path, or is an emit at it."""
    return key.startswith(f"{ancestor}/") if isinstance(key, str) else f"{key[0]}/".startswith(f"{ancestor}/")


def is_in_any_step(path: str, paths: Container[str]) -> bool:
    """Whether a path is at or inside one of many steps."""
    # Looked up by its prefixes: comparing with every step would be quadratic for large resets.
    cuts = (at for at, letter in enumerate(path) if letter in "/~")
    return path in paths or any(path[:at] in paths for at in cuts)


def is_within_step(path: str, ancestor: str) -> bool:
    """Whether a path is a step, lies below it, or is one of its checks and retries."""
    return path.startswith(ancestor) and (len(path) == len(ancestor) or path[len(ancestor)] in "/~")
