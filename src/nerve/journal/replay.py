"""Replay: what a journal says a body did, and in which order it was told the outcomes.

The body is run again from the start. Whatever it asks for is looked up here, and recorded outcomes
are handed back in the order of their sequence numbers, each only after the body has asked again for
everything that was recorded before it.
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
"""How the data of the start of a control node begins: what is emitted at its path, the body emits."""
RUN_AGAIN_MARKER = '"again":true'
"""What the data of a `node_retrying` has in it if a person said to run the step again."""
COMPARED_WAIT_FIELDS = ("prompt", "choices", "options", "form", "seconds", "label", "key", "patterns")
"""What of a wait must be the same on replay; the rest may change."""
ONCE_MARKER = '"once":true,'
"""What the data of the start of a leaf has, before the hash of its input, if it must happen at most once."""
STOPPED_KEY = "stopped"
"""What the data of the end of a call or a wait has if the run was stopped, and the body gave nothing up."""
ROOT_PATH = "/"


class ReplayMismatch(NerveError):
    """The body asks for something else than the journal has."""

    def __init__(self, path: str, recorded: Any, requested: Any) -> None:
        super().__init__(f"{path}: the journal has {recorded}, the code asks for {requested} now")
        self.path, self.recorded, self.requested = path, recorded, requested


class RecordInvalidated(Exception):
    """What was recorded and is about to be told does not count any more."""


@dataclass(slots=True)
class ReplayEntry:
    """Something the body asked for, was told, or gave up."""

    seq: int
    kind: Literal["ask", "settle", "drop"]
    key: ReplayKey
    row: JournalRow
    is_optional: bool = False
    is_done: bool = False
    is_void: bool = False
    """Something that it may depend on is run again: it does not count any more."""

    @property
    def data(self) -> dict[str, Any]:
        data: dict[str, Any] = decode_json(self.row.data)
        return data

    @property
    def is_outcome(self) -> bool:
        """Whether the body is told of it in its turn: an outcome, or that a call it gave up has ended."""
        return self.kind == "settle" or self.row.type == "node_cancelled"


@dataclass(slots=True)
class RecordedCall:
    """What the journal has about a path: that it was asked for, and perhaps how it ended."""

    request: ReplayEntry
    data: dict[str, Any]
    outcome: ReplayEntry | None
    retries: list[dict[str, Any]] = field(default_factory=list)

    @property
    def is_abandoned(self) -> bool:
        """Whether the body gave it up."""
        return self.outcome is not None and self.outcome.kind == "drop"

    @property
    def is_in_doubt(self) -> bool:
        """Whether it was begun, since somebody last said to run it, and nobody knows what became of it."""
        known = self.outcome is not None and self.outcome.kind == "settle"
        return not known and not (self.retries and self.retries[-1].get("again"))


class Replay:
    """The records a body must go through again; those below a settled path count as made."""

    def __init__(self, rows: Iterable[JournalRow], optional_upto: int = 0, ids: Sequence[str] = ()) -> None:
        """`ids` are those of a fork and of those it was made of: each calls itself by its own."""
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
        dropped = {row.path for row in rows if row.type in ABANDON_EVENTS}
        counts: dict[tuple[str, str], int] = {}
        for row in rows:
            if is_inside_settled(row, settled) or is_below_leaf(row.path, leaf_paths):
                continue
            if row.type == "node_retrying":
                self._retries.setdefault(row.path, []).append(decode_json(row.data) | {"at": row.at})
            record = self._make_entry(row, leaves, dropped, counts)
            if record is not None:
                record.is_optional = row.seq <= optional_upto
                self._entries.append(record)

    def _make_entry(
        self, row: JournalRow, leaves: set[str], dropped: set[str], counts: dict[tuple[str, str], int]
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
            if row.settles == ROOT_PATH or row.path in dropped or row.path not in self._requests:
                return None  # what was never asked for, nobody can be told
            record = ReplayEntry(row.seq, "settle", row.path, row)
            self._outcomes[row.path] = record
            return record
        if row.type in NON_BODY_EVENTS or row.type in RUN_LEVEL_EVENTS or row.path in leaves:
            return None
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
        """What is recorded for a call or a wait that the body makes now."""
        request = self._requests.get(path)
        if request is None:
            return None
        call = self.recorded_call(path)
        if call.data.get("hash") != digest and not self._differ_only_by_run_id(
            recorded_request(call.data), requested
        ):
            raise ReplayMismatch(path, recorded_request(call.data), requested)
        request.is_done = True
        return call

    def _differ_only_by_run_id(self, before: str, now: str) -> bool:
        """Whether two texts differ in nothing but the id that a run and its fork know themselves by."""
        for run in self._ids:
            before, now = before.replace(run, ""), now.replace(run, "")
        return bool(self._ids) and before == now

    def recorded_call(self, path: str) -> RecordedCall:
        """What is recorded for a path, whatever it was asked with."""
        request = self._requests[path]
        return RecordedCall(request, request.data, self._outcomes.get(path), self._retries.get(path, []))

    def is_settled(self, path: str) -> bool:
        """Whether the journal says how something ended, and that the body was told."""
        end = self._outcomes.get(path)
        return end is not None and end.kind == "settle"

    def is_optional(self, path: str) -> bool:
        """Whether what is recorded there is an offer only, and may be run again."""
        return self._requests[path].is_optional

    def request_seq(self, path: str) -> float:
        """The number of the event that something was asked for; a time to wait for is nothing that is run."""
        row = self._requests[path].row
        return row.seq if row.type != "timer_started" else float("inf")

    def forget(self, path: str) -> None:
        """Drop what is recorded at and below a path: it is run again."""

        def gone(key: ReplayKey) -> bool:
            return is_within_step(key if isinstance(key, str) else key[0], path)

        self._requests = {key: record for key, record in self._requests.items() if not gone(key)}
        self._outcomes = {key: record for key, record in self._outcomes.items() if not gone(key)}
        self._entries = [record for record in self._entries[self._next :] if not gone(record.key)]
        self._next = 0

    def lookup_emit(self, key: ReplayKey) -> ReplayEntry | None:
        """The record of an emit or a clock reading that the body makes now."""
        record = self._requests.get(key)
        if record is not None:
            record.is_done = True
        return record

    def next_outcome(self) -> ReplayEntry | None:
        """The next outcome, if the body has asked for everything recorded before it."""
        self._advance()
        if self._next >= len(self._entries):
            return None
        record = self._entries[self._next]
        return record if record.is_outcome else None

    def next_unmatched(self) -> ReplayEntry | None:
        """What is recorded next and was not asked for again."""
        self._advance()
        return self._entries[self._next] if self._next < len(self._entries) else None

    def seconds_until_abandoned(self, record: ReplayEntry) -> float:
        """Seconds after which the body gave something up, the first time."""
        request = self._requests.get(record.key)
        return max(0.0, record.row.at - request.row.at) if request is not None else 0.0

    def skip_optional(self, obstacle: ReplayEntry) -> bool:
        """Stop insisting on what is an offer only, or on what came of an offer that nobody has taken."""
        request = self._requests.get(obstacle.key)
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
        """Pass over an outcome of something that the body asked for and did not wait for, if it is one."""
        request = self._requests.get(obstacle.key)
        obstacle.is_done = obstacle.kind == "settle" and request is not None and request.is_done
        return obstacle.is_done

    def drop_ordering(self) -> bool:
        """Stop insisting on the order of copied records; they are still there for who asks for them."""
        strict = [record for record in self._entries[self._next :] if not record.is_optional]
        loosened = len(strict) < len(self._entries) - self._next
        self._entries, self._next, self._ignores_order = strict, 0, True
        return loosened

    def undelivered_answers(self, after: float, child_has_gate: Callable[[str], bool]) -> list[str]:
        """The places of answers behind an event that are an offer only, and that the body has yet to hear."""
        if self._answers is None:
            self._answers = answer_positions(self._rows, child_has_gate)
        paths = [path for seq, path in self._answers if seq > after and not self._has_reached(path)]
        return list(dict.fromkeys(paths))

    def unrequested_gates(self) -> list[str]:
        """The gates that are open and that the body has not asked for again."""
        asks = [record for record in self._requests.values() if record.is_optional and not record.is_done]
        gates = [record.row.path for record in asks if record.row.type == "gate_waiting"]
        return [path for path in gates if path not in self._outcomes]

    def _has_reached(self, gate_path: str) -> bool:
        """Whether the body has come to what is recorded at a place, or to the end of what is around it."""
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
        """Drop what is recorded at places, and how what is around them ended: that is gone through again."""
        around: list[str] = []
        for path in paths:
            if (
                top := next((p for p in (*ancestor_paths(path), path) if p in self._outcomes), None)
            ) is not None:
                self._outcomes.pop(top).is_void = True
                around.append(top)
            self.forget(path)
        self._rows, self._answers = drop_rows_at(self._rows, paths), None
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
        """The events that are still handed over in their order."""
        return {record.seq for record in self._entries[self._next :]}

    def _advance(self) -> None:
        records = self._entries
        while self._next < len(records) and records[self._next].is_done:
            self._next += 1


def recorded_request(data: dict[str, Any]) -> str:
    """What of an event's data is compared with what is asked for."""
    if "input" in data:
        return encode_json(data["input"], canonical=True, max_depth=None)
    return encode_json(compared_wait_data(data), canonical=True, max_depth=None)


def compared_wait_data(data: Mapping[str, Any]) -> dict[str, Any]:
    """What of the data of a wait must be the same on replay."""
    return {name: data[name] for name in COMPARED_WAIT_FIELDS if name in data}


def is_leaf_start(row: JournalRow) -> bool:
    """Whether the row says that a leaf has begun, and not a child run, whose attempts are the body's."""
    return row.type in ("node_started", "step_started") and not is_child_start(row)


def is_child_start(row: JournalRow) -> bool:
    """Whether the row says that a child run was asked for."""
    return row.type in OPENING_EVENTS and '"child":' in row.data.partition('"hash"')[0]


def is_once_start(row: JournalRow) -> bool:
    """Whether the row says that a leaf has begun that must happen at most once."""
    return is_leaf_start(row) and ONCE_MARKER in row.data.partition('"hash"')[0]


def unknown_outcomes(rows: Iterable[JournalRow]) -> set[str]:
    """The leaves that were begun, since somebody last said to run them, and nobody knows what became of them.

    What a run was forked from may have begun some, too; what is reset later is not known better by that.
    """
    paths: set[str] = set()
    for row in rows:
        if row.type == "workflow_started" and '"unclear"' in row.data:
            paths |= set((decode_json(row.data).get("forked_from") or {}).get("unclear", ()))
        elif row.type == "node_retrying":
            (paths.discard if RUN_AGAIN_MARKER in row.data else paths.add)(row.path)
        elif is_leaf_start(row) and not row.data.startswith(CONTROL_PREFIX):
            paths.add(row.path)
        elif row.settles and row.type not in ABANDON_EVENTS:
            paths.discard(row.path)
    return paths


def is_below_leaf(path: str, leaves: Container[str]) -> bool:
    """Whether a path lies below a leaf: what a leaf asks for itself is no affair of the body."""
    while path := path.rpartition("/")[0]:
        if path in leaves:
            return True
    return False


def is_inside_settled(row: JournalRow, settled: set[str]) -> bool:
    """Whether the row lies inside something that is settled as a whole."""
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
    """The rows without what lies at or below a path that was reset later, and how what is around it ended.

    What a stop ended is open for a fork: the body did not give it up.
    """
    rows = [row for row in rows if not (row.type in ABANDON_EVENTS and STOPPED_KEY in decode_json(row.data))]
    resets = [row for row in rows if row.type == "path_reset"]
    for reset in resets:
        rows = [row for row in rows if row.seq >= reset.seq or not is_undone_by_reset(row, reset.path)]
    return rows


def drop_rows_at(rows: list[JournalRow], paths: Iterable[str]) -> list[JournalRow]:
    """The rows without what lies at or below places, and without how what is around them ended."""
    removed_paths = set(paths)
    around = {above for path in removed_paths for above in ancestor_paths(path)}
    return [
        row
        for row in rows
        if not (is_in_any_step(row.path, removed_paths) or (row.settles and row.path in around))
    ]


def is_undone_by_reset(row: JournalRow, path: str) -> bool:
    """Whether a row says something that is not so any more when a place is run again."""
    return is_within_step(row.path, path) or bool(
        row.settles and row.path and path.startswith(f"{row.path}/")
    )


def answer_positions(
    rows: Iterable[JournalRow], child_has_gate: Callable[[str], bool]
) -> list[tuple[float, str]]:
    """Where people were asked, and the numbers of the events with the answers; what is open comes last.

    A gate in a leaf or a child run is one with it; `asked` tells whether there was one in a child run.
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
    """The child run that was asked for last, or that gave the result; there is none if it could not start."""
    if end is None:
        return str(decode_json(row.data)["child"])
    run_id: str | None = (decode_json(end.data).get("result") or {}).get("attributes", {}).get("run_id")
    return run_id


def ancestor_paths(path: str) -> list[str]:
    """The paths that a path lies below, the outermost first."""
    cuts = [at for at, letter in enumerate(path) if letter == "/" and at > 0]
    return [path[:at] for at in cuts]


def is_key_below(key: ReplayKey, ancestor: str) -> bool:
    """Whether something is recorded below a place, or is an emit at it."""
    return key.startswith(f"{ancestor}/") if isinstance(key, str) else f"{key[0]}/".startswith(f"{ancestor}/")


def is_in_any_step(path: str, paths: Container[str]) -> bool:
    """Whether a path is within one of many places."""
    cuts = (at for at, letter in enumerate(path) if letter in "/~")
    return path in paths or any(path[:at] in paths for at in cuts)


def is_within_step(path: str, ancestor: str) -> bool:
    """Whether a path is a place, lies below it, or beside it as its checks and retries do."""
    return path.startswith(ancestor) and (len(path) == len(ancestor) or path[len(ancestor)] in "/~")
