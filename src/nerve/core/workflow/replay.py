"""Replay: what a journal says a body did, and in which order it was told the outcomes.

The body is run again from the start. Whatever it asks for is looked up here, and recorded outcomes
are handed back in the order of their sequence numbers, each only after the body has asked again for
everything that was recorded before it.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from nerve.core.event import OF_THE_RUN
from nerve.core.values import decode, encode
from nerve.errors import NerveError

Key = str | tuple[str, str, int]


class Row(Protocol):
    """An event as a store gives it back."""

    @property
    def seq(self) -> int: ...
    @property
    def at(self) -> float: ...
    @property
    def type(self) -> str: ...
    @property
    def path(self) -> str: ...
    @property
    def settles(self) -> str | None: ...
    @property
    def data(self) -> str: ...


ASKS = frozenset({"node_started", "step_started", "gate_waiting", "timer_started", "signal_waiting"})
DROPS = frozenset({"node_cancelled", "gate_cancelled", "timer_cancelled", "signal_cancelled"})
NOT_THE_BODY = frozenset({"node_retrying", "path_reset", "child_stopped"})
CONTROL = '{"control":true'
"""How the data of the start of a control node begins: what is emitted at its path, the body emits."""
AGAIN = '"again":true'
"""What the data of a `node_retrying` has in it if a person said to run the step again."""
COMPARED = ("prompt", "choices", "options", "form", "seconds", "label", "key", "patterns")
"""What of a wait must be the same on replay; the rest may change."""
ONCE = '"once":true,'
"""What the data of the start of a leaf has, before the hash of its input, if it must happen at most once."""
STOPPED = "stopped"
"""What the data of the end of a call or a wait has if the run was stopped, and the body gave nothing up."""
ROOT = "/"


class Mismatch(NerveError):
    """The body asks for something else than the journal has."""

    def __init__(self, path: str, recorded: Any, asked: Any) -> None:
        super().__init__(f"{path}: the journal has {recorded}, the code asks for {asked} now")
        self.path, self.recorded, self.asked = path, recorded, asked


class Outdated(Exception):
    """What was recorded and is about to be told does not count any more."""


@dataclass(slots=True)
class Record:
    """Something the body asked for, was told, or gave up."""

    seq: int
    kind: Literal["ask", "settle", "drop"]
    key: Key
    row: Row
    lenient: bool = False
    done: bool = False
    void: bool = False
    """Something that it may depend on is run again: it does not count any more."""

    @property
    def data(self) -> dict[str, Any]:
        data: dict[str, Any] = decode(self.row.data)
        return data

    @property
    def is_told(self) -> bool:
        """Whether the body is told of it in its turn: an outcome, or that a call it gave up has ended."""
        return self.kind == "settle" or self.row.type == "node_cancelled"


@dataclass(slots=True)
class Found:
    """What the journal has about a path: that it was asked for, and perhaps how it ended."""

    ask: Record
    data: dict[str, Any]
    settle: Record | None
    retries: list[dict[str, Any]] = field(default_factory=list)

    @property
    def given_up(self) -> bool:
        """Whether the body gave it up."""
        return self.settle is not None and self.settle.kind == "drop"

    @property
    def in_doubt(self) -> bool:
        """Whether it was begun, since somebody last said to run it, and nobody knows what became of it."""
        known = self.settle is not None and self.settle.kind == "settle"
        return not known and not (self.retries and self.retries[-1].get("again"))


class Replay:
    """The records a body must go through again; those below a settled path count as made."""

    def __init__(self, rows: Iterable[Row], lenient_upto: int = 0, ids: Sequence[str] = ()) -> None:
        """`ids` are those of a fork and of those it was made of: each calls itself by its own."""
        self._records: list[Record] = []
        self._asks: dict[Key, Record] = {}
        self._ends: dict[Key, Record] = {}
        self._retries: dict[str, list[dict[str, Any]]] = {}
        self._next = 0
        self._lenient_upto, self._loose, self._ids = lenient_upto, False, ids
        self._rows = without_reset(list(rows))
        self._answers: list[tuple[float, str]] | None = None
        self._load(self._rows, lenient_upto)

    def _load(self, rows: list[Row], lenient_upto: int) -> None:
        settled = {row.path for row in rows if row.settles and row.settles != ROOT}
        leaves = {row.path for row in rows if row.type in ASKS and not row.data.startswith(CONTROL)}
        acting = {row.path for row in rows if row.path in leaves and acts(row)}
        dropped = {row.path for row in rows if row.type in DROPS}
        counts: dict[tuple[str, str], int] = {}
        for row in rows:
            if covered(row, settled) or below(row.path, acting):
                continue
            if row.type == "node_retrying":
                self._retries.setdefault(row.path, []).append(decode(row.data) | {"at": row.at})
            record = self._record(row, leaves, dropped, counts)
            if record is not None:
                record.lenient = row.seq <= lenient_upto
                self._records.append(record)

    def _record(
        self, row: Row, leaves: set[str], dropped: set[str], counts: dict[tuple[str, str], int]
    ) -> Record | None:
        if row.type in ASKS:
            record = Record(row.seq, "ask", row.path, row)
            self._asks[row.path] = record
            return record
        if row.type in DROPS:
            record = Record(row.seq, "drop", row.path, row)
            self._ends[row.path] = record
            return record
        if row.settles:
            if row.settles == ROOT or row.path in dropped or row.path not in self._asks:
                return None  # what was never asked for, nobody can be told
            record = Record(row.seq, "settle", row.path, row)
            self._ends[row.path] = record
            return record
        if row.type in NOT_THE_BODY or row.type in OF_THE_RUN or row.path in leaves:
            return None
        place = (row.path, row.type)
        counts[place] = counts.get(place, 0) + 1
        record = Record(row.seq, "ask", (*place, counts[place]), row)
        self._asks[record.key] = record
        return record

    @property
    def finished(self) -> bool:
        self._advance()
        return self._next >= len(self._records)

    def find(self, path: str, digest: str, asked: Any) -> Found | None:
        """What is recorded for a call or a wait that the body makes now."""
        ask = self._asks.get(path)
        if ask is None:
            return None
        found = self.begun(path)
        if found.data.get("hash") != digest and not self._speak_of_themselves(recorded(found.data), asked):
            raise Mismatch(path, recorded(found.data), asked)
        ask.done = True
        return found

    def _speak_of_themselves(self, before: str, now: str) -> bool:
        """Whether two texts differ in nothing but the id that a run and its fork know themselves by."""
        for run in self._ids:
            before, now = before.replace(run, ""), now.replace(run, "")
        return bool(self._ids) and before == now

    def begun(self, path: str) -> Found:
        """What is recorded for a path, whatever it was asked with."""
        ask = self._asks[path]
        return Found(ask, ask.data, self._ends.get(path), self._retries.get(path, []))

    def is_told(self, path: str) -> bool:
        """Whether the journal says how something ended, and that the body was told."""
        end = self._ends.get(path)
        return end is not None and end.kind == "settle"

    def lenient(self, path: str) -> bool:
        """Whether what is recorded there is an offer only, and may be run again."""
        return self._asks[path].lenient

    def asked_at(self, path: str) -> float:
        """The number of the event that something was asked for; a time to wait for is nothing that is run."""
        row = self._asks[path].row
        return row.seq if row.type != "timer_started" else float("inf")

    def forget(self, path: str) -> None:
        """Drop what is recorded at and below a path: it is run again."""

        def gone(key: Key) -> bool:
            return within(key if isinstance(key, str) else key[0], path)

        self._asks = {key: record for key, record in self._asks.items() if not gone(key)}
        self._ends = {key: record for key, record in self._ends.items() if not gone(key)}
        self._records = [record for record in self._records[self._next :] if not gone(record.key)]
        self._next = 0

    def made(self, key: Key) -> Record | None:
        """The record of an emit or a clock reading that the body makes now."""
        record = self._asks.get(key)
        if record is not None:
            record.done = True
        return record

    def next(self) -> Record | None:
        """The next outcome, if the body has asked for everything recorded before it."""
        self._advance()
        if self._next >= len(self._records):
            return None
        record = self._records[self._next]
        return record if record.is_told else None

    def obstacle(self) -> Record | None:
        """What is recorded next and was not asked for again."""
        self._advance()
        return self._records[self._next] if self._next < len(self._records) else None

    def took(self, record: Record) -> float:
        """Seconds after which the body gave something up, the first time."""
        ask = self._asks.get(record.key)
        return max(0.0, record.row.at - ask.row.at) if ask is not None else 0.0

    def give_way(self, obstacle: Record) -> bool:
        """Stop insisting on what is an offer only, or on what came of an offer that nobody has taken."""
        ask = self._asks.get(obstacle.key)
        if obstacle.kind == "settle" and not obstacle.lenient and ask and ask.lenient and not ask.done:
            obstacle.lenient = True
            del self._records[self._next]
            return True
        return self.loosen()

    def untold(self, obstacle: Record) -> bool:
        """Pass over an outcome of something that the body asked for and did not wait for, if it is one."""
        ask = self._asks.get(obstacle.key)
        obstacle.done = obstacle.kind == "settle" and ask is not None and ask.done
        return obstacle.done

    def loosen(self) -> bool:
        """Stop insisting on the order of copied records; they are still there for who asks for them."""
        strict = [record for record in self._records[self._next :] if not record.lenient]
        loosened = len(strict) < len(self._records) - self._next
        self._records, self._next, self._loose = strict, 0, True
        return loosened

    def unheard(self, after: float, asked: Callable[[str], bool]) -> list[str]:
        """The places of answers behind an event that are an offer only, and that the body has yet to hear."""
        if self._answers is None:
            self._answers = answers(self._rows, asked)
        places = [place for seq, place in self._answers if seq > after and not self._heard(place)]
        return list(dict.fromkeys(places))

    def unasked(self) -> list[str]:
        """The gates that are open and that the body has not asked for again."""
        asks = [record for record in self._asks.values() if record.lenient and not record.done]
        gates = [record.row.path for record in asks if record.row.type == "gate_waiting"]
        return [path for path in gates if path not in self._ends]

    def _heard(self, place: str) -> bool:
        """Whether the body has come to what is recorded at a place, or to the end of what is around it."""
        over = next((self._ends[path] for path in (*ancestors(place), place) if path in self._ends), None)
        record = over or self._asks.get(place)
        return record is None or record.done or record.kind == "drop" or not record.lenient

    def reopen(self, places: list[str]) -> None:
        """Drop what is recorded at places, and how what is around them ended: that is gone through again."""
        around: list[str] = []
        for place in places:
            if (top := next((p for p in (*ancestors(place), place) if p in self._ends), None)) is not None:
                self._ends.pop(top).void = True
                around.append(top)
            self.forget(place)
        self._rows, self._answers = without(self._rows, places), None
        inner = Replay(self._rows, self._lenient_upto, self._ids)
        found = [record for record in inner._records if any(inside(record.key, top) for top in around)]
        for record in found:
            (self._asks if record.kind == "ask" else self._ends)[record.key] = record
        self._retries = inner._retries
        left = [record for record in self._records[self._next :] if not record.void]
        self._records = left if self._loose else sorted([*left, *found], key=lambda record: record.seq)
        self._next = 0

    def ordered(self) -> set[int]:
        """The events that are still handed over in their order."""
        return {record.seq for record in self._records[self._next :]}

    def _advance(self) -> None:
        records = self._records
        while self._next < len(records) and records[self._next].done:
            self._next += 1


def recorded(data: dict[str, Any]) -> str:
    """What of an event's data is compared with what is asked for."""
    if "input" in data:
        return encode(data["input"], canonical=True, deep=None)
    return encode(compared(data), canonical=True, deep=None)


def compared(data: Mapping[str, Any]) -> dict[str, Any]:
    """What of the data of a wait must be the same on replay."""
    return {name: data[name] for name in COMPARED if name in data}


def acts(row: Row) -> bool:
    """Whether the row says that a leaf has begun, and not a child run, whose attempts are the body's."""
    return row.type in ("node_started", "step_started") and not is_child(row)


def is_child(row: Row) -> bool:
    """Whether the row says that a child run was asked for."""
    return row.type in ASKS and '"child":' in row.data.partition('"hash"')[0]


def is_once(row: Row) -> bool:
    """Whether the row says that a leaf has begun that must happen at most once."""
    return acts(row) and ONCE in row.data.partition('"hash"')[0]


def unclear(rows: Iterable[Row]) -> set[str]:
    """The leaves that were begun, since somebody last said to run them, and nobody knows what became of them.

    What a run was forked from may have begun some, too; what is reset later is not known better by that.
    """
    found: set[str] = set()
    for row in rows:
        if row.type == "workflow_started" and '"unclear"' in row.data:
            found |= set((decode(row.data).get("forked_from") or {}).get("unclear", ()))
        elif row.type == "node_retrying":
            (found.discard if AGAIN in row.data else found.add)(row.path)
        elif acts(row) and not row.data.startswith(CONTROL):
            found.add(row.path)
        elif row.settles and row.type not in DROPS:
            found.discard(row.path)
    return found


def below(path: str, leaves: Container[str]) -> bool:
    """Whether a path lies below a leaf: what a leaf asks for itself is no affair of the body."""
    while path := path.rpartition("/")[0]:
        if path in leaves:
            return True
    return False


def covered(row: Row, settled: set[str]) -> bool:
    """Whether the row lies inside something that is settled as a whole."""
    path = row.path
    if row.settles is None and row.type not in ASKS and row.type not in DROPS and path in settled:
        return True
    at = path.rfind("/")
    while at > 0:
        if path[:at] in settled:
            return True
        at = path.rfind("/", 0, at)
    return False


def without_reset(rows: list[Row]) -> list[Row]:
    """The rows without what lies at or below a path that was reset later, and how what is around it ended.

    What a stop ended is open for a fork: the body did not give it up.
    """
    rows = [row for row in rows if not (row.type in DROPS and STOPPED in decode(row.data))]
    resets = [row for row in rows if row.type == "path_reset"]
    for reset in resets:
        rows = [row for row in rows if row.seq >= reset.seq or not undone(row, reset.path)]
    return rows


def without(rows: list[Row], places: Iterable[str]) -> list[Row]:
    """The rows without what lies at or below places, and without how what is around them ended."""
    gone = set(places)
    around = {above for place in gone for above in ancestors(place)}
    return [row for row in rows if not (is_part(row.path, gone) or (row.settles and row.path in around))]


def undone(row: Row, place: str) -> bool:
    """Whether a row says something that is not so any more when a place is run again."""
    return within(row.path, place) or bool(row.settles and row.path and place.startswith(f"{row.path}/"))


def answers(rows: Iterable[Row], asked: Callable[[str], bool]) -> list[tuple[float, str]]:
    """Where people were asked, and the numbers of the events with the answers; what is open comes last.

    A gate in a leaf or a child run is one with it; `asked` tells whether there was one in a child run.
    """
    rows = list(rows)
    asks = {row.path: row for row in rows if row.type in ASKS and not row.data.startswith(CONTROL)}
    settled = {row.path: row for row in rows if row.settles}
    found: list[tuple[float, str]] = []
    for path, row in asks.items():
        leaf = next((place for place in ancestors(path) if place in asks), None)
        end = settled.get(path)
        seq = end.seq if end is not None else float("inf")
        if row.type == "gate_waiting" and leaf is None:
            found.append((seq, path))
        elif row.type == "gate_waiting" and leaf in settled:
            found.append((seq, leaf))
        elif is_child(row) and (child := child_of(row, end)) is not None and asked(child):
            found.append((seq, path))
    return found


def child_of(row: Row, end: Row | None) -> str | None:
    """The child run that was asked for last, or that gave the result; there is none if it could not start."""
    if end is None:
        return str(decode(row.data)["child"])
    found: str | None = (decode(end.data).get("result") or {}).get("attributes", {}).get("run_id")
    return found


def ancestors(path: str) -> list[str]:
    """The paths that a path lies below, the outermost first."""
    cuts = [at for at, letter in enumerate(path) if letter == "/" and at > 0]
    return [path[:at] for at in cuts]


def inside(key: Key, place: str) -> bool:
    """Whether something is recorded below a place, or is an emit at it."""
    return key.startswith(f"{place}/") if isinstance(key, str) else f"{key[0]}/".startswith(f"{place}/")


def is_part(path: str, places: Container[str]) -> bool:
    """Whether a path is within one of many places."""
    cuts = (at for at, letter in enumerate(path) if letter in "/~")
    return path in places or any(path[:at] in places for at in cuts)


def within(path: str, place: str) -> bool:
    """Whether a path is a place, lies below it, or beside it as its checks and retries do."""
    return path.startswith(place) and (len(path) == len(place) or path[len(place)] in "/~")
