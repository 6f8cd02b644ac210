"""Source documents of workflows, and the positions of their values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, cast

from nerve.errors import NerveError

Loc = tuple[str | int, ...]
"""Path from the root of a document to a value: keys and indexes."""


@dataclass(frozen=True, slots=True, order=True)
class Position:
    """A line and a column, both counted from 1."""

    line: int = 1
    column: int = 1

    def at_offset(self, text: str, offset: int) -> Position:
        """Return the position `offset` characters into a text that starts here."""
        before = text[:offset]
        lines = before.count("\n")
        if not lines:
            return Position(self.line, self.column + offset)
        return Position(self.line + lines, offset - before.rindex("\n"))


@dataclass(frozen=True, slots=True, order=True)
class Problem:
    """A problem in a definition: its position, a message and a fix."""

    file: str
    position: Position
    message: str
    fix: str = ""
    severity: str = "error"
    """`error` prevents the workflow from starting; `warning` and `note` do not."""

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
        """Return the problem that `to_dict` serialized in another process."""
        position = Position(data.get("line", 1), data.get("column", 1))
        return cls(
            data["file"], position, data["message"], data.get("fix", ""), data.get("severity", "error")
        )


SEVERITIES = ("error", "warning", "note")


def sort_problems(problems: Iterable[Problem]) -> list[Problem]:
    """Return the distinct problems, ordered by severity and then by position."""
    return sorted(set(problems), key=lambda problem: (SEVERITIES.index(problem.severity), problem))


class InvalidDefinition(NerveError, ValueError):
    """The text is not a valid workflow definition; `problems` lists the reasons."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = list(problems)
        super().__init__("\n".join(map(str, self.problems)))


class LocatedMap(dict[str, Any]):
    """A mapping that records its own position and those of its keys and values."""

    def __init__(
        self, items: Mapping[str, Any] | Iterable[tuple[str, Any]] = (), position: Position | None = None
    ):
        super().__init__(items)
        self.position = position
        self.key_positions: dict[str, Position] = {}
        self.value_positions: dict[str, Position] = {}

    def set_at(self, key: str, value: Any, position: Position | None) -> LocatedMap:
        """Set a value and its position."""
        self[key] = value
        if position is not None:
            self.value_positions[key] = position
        return self


class LocatedList(list[Any]):
    """A list that records its own position and those of its items."""

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
    """A parsed workflow: plain data in the shape of `WorkflowSpec`, and its source."""

    data: LocatedMap
    notation: str
    file: str = "<text>"
    text: str = ""
    warnings: list[Problem] = field(default_factory=list)
    """Warnings and notes of the reader, for example about steps it grouped."""
    prompts: dict[str, str] = field(default_factory=dict)
    """Paths of the prompt files that were inlined, by the names the document uses."""
    state_word: str = "state"
    """The word this notation uses for a state."""

    def position_of(self, loc: Loc, key: bool = False) -> Position:
        """Return the position of the value at `loc` (with `key`, of its key), or of the nearest parent."""
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
