"""Sources: the text a workflow was read from, and where in it everything stands."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, cast

from nerve.errors import NerveError

Loc = tuple[str | int, ...]
"""The way from the root of a document to a value in it: keys and indexes."""


@dataclass(frozen=True, slots=True, order=True)
class Place:
    """A line and a column of a text, both counted from 1."""

    line: int = 1
    column: int = 1

    def after(self, text: str, offset: int) -> Place:
        """The place `offset` characters into a text that starts here."""
        before = text[:offset]
        lines = before.count("\n")
        if not lines:
            return Place(self.line, self.column + offset)
        return Place(self.line + lines, offset - before.rindex("\n"))


@dataclass(frozen=True, slots=True, order=True)
class Problem:
    """Something wrong with a definition: where it stands, what it is, and how to mend it."""

    file: str
    place: Place
    message: str
    fix: str = ""
    severity: str = "error"
    """`error` keeps the workflow from starting; `warning` and `note` do not."""

    def __str__(self) -> str:
        stop = "" if not self.fix or self.message[-1:] in ".?!" else "."
        kind = "" if self.severity == "error" else f"{self.severity}: "
        told = f"{self.message}{stop} {self.fix}".rstrip()
        return f"{self.file}:{self.place.line}:{self.place.column}: {kind}{told}"

    def to_dict(self) -> dict[str, Any]:
        return {
            "file": self.file,
            "line": self.place.line,
            "column": self.place.column,
            "severity": self.severity,
            "message": self.message,
            "fix": self.fix,
        }

    @classmethod
    def read(cls, data: Mapping[str, Any]) -> Problem:
        """What another process told."""
        place = Place(data.get("line", 1), data.get("column", 1))
        return cls(data["file"], place, data["message"], data.get("fix", ""), data.get("severity", "error"))


SEVERITIES = ("error", "warning", "note")


def in_order(problems: Iterable[Problem]) -> list[Problem]:
    """Each problem once, what is worst first, and then in the order of the text."""
    return sorted(set(problems), key=lambda problem: (SEVERITIES.index(problem.severity), problem))


class Unreadable(NerveError, ValueError):
    """A text that cannot be read as a workflow; `problems` say why."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = list(problems)
        super().__init__("\n".join(map(str, self.problems)))


class Map(dict[str, Any]):
    """An object that knows where it and each of its keys and values stand."""

    def __init__(self, items: Mapping[str, Any] | Iterable[tuple[str, Any]] = (), place: Place | None = None):
        super().__init__(items)
        self.place = place
        self.keys_at: dict[str, Place] = {}
        self.values_at: dict[str, Place] = {}

    def put(self, key: str, value: Any, place: Place | None) -> Map:
        """Set a value that stands at `place`."""
        self[key] = value
        if place is not None:
            self.values_at[key] = place
        return self


class Seq(list[Any]):
    """A list that knows where it and each of its items stand."""

    def __init__(self, items: Iterable[Any] = (), place: Place | None = None) -> None:
        super().__init__(items)
        self.place = place
        self.values_at: dict[int, Place] = {}

    def push(self, value: Any, place: Place | None) -> Seq:
        self.append(value)
        if place is not None:
            self.values_at[len(self) - 1] = place
        return self


@dataclass(slots=True)
class Document:
    """A workflow as it was read: plain data in the form of `WorkflowSpec`, and its source."""

    data: Map
    notation: str
    file: str = "<text>"
    text: str = ""
    notes: list[Problem] = field(default_factory=list)
    """What the reader wants to say about it: warnings, and what an optimisation did."""
    prompts: dict[str, str] = field(default_factory=dict)
    """The paths of the files that prompts were put in from, by the names they have in it."""
    states: str = "state"
    """What a state of a machine is called in it."""

    def place(self, loc: Loc, key: bool = False) -> Place:
        """Where the value at `loc` stands (or with `key` its key), or else the nearest thing around it."""
        found, node = self.data.place or Place(), cast("Any", self.data)
        for depth, step in enumerate(loc):
            if not isinstance(node, Map | Seq):
                break
            if key and depth == len(loc) - 1 and isinstance(node, Map) and step in node.keys_at:
                return node.keys_at[str(step)]
            places: Mapping[Any, Place] = node.values_at
            inner = cast("Any", node)[step] if step in known(node) else None
            found = getattr(inner, "place", None) or places.get(step) or found
            node = inner
        return found

    def problem(self, loc: Loc, message: str, fix: str = "", *, key: bool = False) -> Problem:
        return Problem(self.file, self.place(loc, key), message, fix)


def known(node: Map | Seq) -> Any:
    return node if isinstance(node, Map) else range(len(node))
