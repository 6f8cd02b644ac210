"""Sources: the text a workflow was read from, and where in it everything stands."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, cast

from nerve.errors import NerveError

Loc = tuple[str | int, ...]
"""The way from the root of a document to a value in it: keys and indexes."""


@dataclass(frozen=True, slots=True, order=True)
class Position:
    """A line and a column of a text, both counted from 1."""

    line: int = 1
    column: int = 1

    def at_offset(self, text: str, offset: int) -> Position:
        """The place `offset` characters into a text that starts here."""
        before = text[:offset]
        lines = before.count("\n")
        if not lines:
            return Position(self.line, self.column + offset)
        return Position(self.line + lines, offset - before.rindex("\n"))


@dataclass(frozen=True, slots=True, order=True)
class Problem:
    """Something wrong with a definition: where it stands, what it is, and how to mend it."""

    file: str
    position: Position
    message: str
    fix: str = ""
    severity: str = "error"
    """`error` keeps the workflow from starting; `warning` and `note` do not."""

    def __str__(self) -> str:
        stop = "" if not self.fix or self.message[-1:] in ".?!" else "."
        kind = "" if self.severity == "error" else f"{self.severity}: "
        text = f"{self.message}{stop} {self.fix}".rstrip()
        return f"{self.file}:{self.position.line}:{self.position.column}: {kind}{text}"

    def to_dict(self) -> dict[str, Any]:
        return {
            "file": self.file,
            "line": self.position.line,
            "column": self.position.column,
            "severity": self.severity,
            "message": self.message,
            "fix": self.fix,
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Problem:
        """What another process told."""
        position = Position(data.get("line", 1), data.get("column", 1))
        return cls(
            data["file"], position, data["message"], data.get("fix", ""), data.get("severity", "error")
        )


SEVERITIES = ("error", "warning", "note")


def sort_problems(problems: Iterable[Problem]) -> list[Problem]:
    """Each problem once, what is worst first, and then in the order of the text."""
    return sorted(set(problems), key=lambda problem: (SEVERITIES.index(problem.severity), problem))


class InvalidDefinition(NerveError, ValueError):
    """A text that cannot be read as a workflow; `problems` say why."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = list(problems)
        super().__init__("\n".join(map(str, self.problems)))


class LocatedMap(dict[str, Any]):
    """An object that knows where it and each of its keys and values stand."""

    def __init__(
        self, items: Mapping[str, Any] | Iterable[tuple[str, Any]] = (), position: Position | None = None
    ):
        super().__init__(items)
        self.position = position
        self.key_positions: dict[str, Position] = {}
        self.value_positions: dict[str, Position] = {}

    def set_at(self, key: str, value: Any, position: Position | None) -> LocatedMap:
        """Set a value that stands at `place`."""
        self[key] = value
        if position is not None:
            self.value_positions[key] = position
        return self


class LocatedList(list[Any]):
    """A list that knows where it and each of its items stand."""

    def __init__(self, items: Iterable[Any] = (), position: Position | None = None) -> None:
        super().__init__(items)
        self.position = position
        self.value_positions: dict[int, Position] = {}

    def append_at(self, value: Any, position: Position | None) -> LocatedList:
        self.append(value)
        if position is not None:
            self.value_positions[len(self) - 1] = position
        return self


@dataclass(slots=True)
class Document:
    """A workflow as it was read: plain data in the form of `WorkflowSpec`, and its source."""

    data: LocatedMap
    notation: str
    file: str = "<text>"
    text: str = ""
    warnings: list[Problem] = field(default_factory=list)
    """What the reader wants to say about it: warnings, and what an optimisation did."""
    prompts: dict[str, str] = field(default_factory=dict)
    """The paths of the files that prompts were put in from, by the names they have in it."""
    state_word: str = "state"
    """What a state of a machine is called in it."""

    def position_of(self, loc: Loc, key: bool = False) -> Position:
        """Where the value at `loc` stands (or with `key` its key), or else the nearest thing around it."""
        nearest, node = self.data.position or Position(), cast("Any", self.data)
        for depth, step in enumerate(loc):
            if not isinstance(node, LocatedMap | LocatedList):
                break
            if key and depth == len(loc) - 1 and isinstance(node, LocatedMap) and step in node.key_positions:
                return node.key_positions[str(step)]
            positions: Mapping[Any, Position] = node.value_positions
            inner = cast("Any", node)[step] if step in valid_keys(node) else None
            nearest = getattr(inner, "position", None) or positions.get(step) or nearest
            node = inner
        return nearest

    def problem(self, loc: Loc, message: str, fix: str = "", *, key: bool = False) -> Problem:
        return Problem(self.file, self.position_of(loc, key), message, fix)


def valid_keys(node: LocatedMap | LocatedList) -> Any:
    return node if isinstance(node, LocatedMap) else range(len(node))
