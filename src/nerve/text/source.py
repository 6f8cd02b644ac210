"""Source documents of workflows, and the positions of their values."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from functools import cached_property
from pathlib import Path
from typing import Any, NoReturn, Protocol, cast

from nerve.errors import NerveError
from nerve.lazy_dataclass import dataclass

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


class HasPosition(Protocol):
    """A form, map or list that knows where it starts."""

    @property
    def position(self) -> Position | None: ...


class Diagnostics:
    """Collects the problems and notes of one file; raises all problems at once if there are too many."""

    def __init__(self, file: str, max_problems: int = 50) -> None:
        self.file, self.max_problems = file, max_problems
        self.problems: list[Problem] = []
        self.notes: list[Problem] = []

    def add(self, at: Position | HasPosition | None, message: str, fix: str = "") -> None:
        """Record a problem; the caller continues after it."""
        self.problems.append(Problem(self.file, position_of(at), message, fix))
        if len(self.problems) >= self.max_problems:
            raise InvalidDefinition(self.problems)

    def fail(self, at: Position | HasPosition | None, message: str, fix: str = "") -> NoReturn:
        """Record a problem after which nothing more can be read."""
        self.problems.append(Problem(self.file, position_of(at), message, fix))
        raise InvalidDefinition(self.problems) from None

    def add_note(
        self, at: Position | HasPosition | None, message: str, fix: str = "", severity: str = "note"
    ) -> None:
        self.notes.append(Problem(self.file, position_of(at), message, fix, severity))

    def raise_if_any(self) -> None:
        if self.problems:
            raise InvalidDefinition(sorted(self.problems))


def position_of(at: Position | HasPosition | None) -> Position:
    return (at if isinstance(at, Position) or at is None else at.position) or Position()


class TextDiagnostics(Diagnostics):
    """The diagnostics of a reader that knows offsets in a text."""

    def __init__(self, text: str, file: str, max_problems: int) -> None:
        super().__init__(file, max_problems)
        self.text = text

    @cached_property
    def line_starts(self) -> list[int]:
        """The offsets at which the lines start; a text that is too long is rejected without them."""
        return [0, *(match.end() for match in re.finditer("\n", self.text))]

    def position_at(self, offset: int) -> Position:
        """Return the line and column of an offset."""
        line = bisect_right(self.line_starts, offset)
        return Position(line, offset - self.line_starts[line - 1] + 1)


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

    def position_of_value(self, key: str) -> Position | None:
        """Return the position of the value of a key, or of the map without that key."""
        return getattr(self.get(key), "position", None) or self.value_positions.get(key) or self.position

    def set_from(self, key: str, value: Any, source: LocatedMap, origin: str) -> LocatedMap:
        """Set a value at the position of the key of another map from which it derives."""
        if origin in source.key_positions:
            self.key_positions[key] = source.key_positions[origin]
        return self.set_at(key, value, source.value_positions.get(origin) or source.position_of_value(origin))

    def copy_from(self, source: LocatedMap, *keys: str, **origins: str) -> LocatedMap:
        """Copy the values that are set in another map, with their positions.

        `origins` are the keys of the other map whose values have another key here.
        """
        for key, origin in {**dict(zip(keys, keys, strict=True)), **origins}.items():
            if source.get(origin) is not None:
                self.set_from(key, source[origin], source, origin)
        return self


class LocatedList(list[Any]):
    """A list that records its own position and those of its items."""

    def __init__(self, items: Iterable[Any] = (), position: Position | None = None) -> None:
        super().__init__(items)
        self.position = position
        self.value_positions: dict[int, Position] = {}

    @classmethod
    def of(
        cls, items: Iterable[tuple[Any, Position | None]], position: Position | None = None
    ) -> LocatedList:
        """Return a list of items, each given with its position."""
        result = cls((), position)
        for value, at in items:
            result.append_at(value, at)
        return result

    def append_at(self, value: Any, position: Position | None) -> LocatedList:
        self.append(value)
        if position is not None:
            self.value_positions[len(self) - 1] = position
        return self


class Dialect(Protocol):
    """The meaning of another tool, in which a document is read."""

    @property
    def name(self) -> str: ...

    @property
    def prompt_folders(self) -> Sequence[str]:
        """Further folders with prompts that the project configures; known after `prepare`."""

    def prepare(self, document: Document, project: Path) -> list[Problem]:
        """Read what the document needs from the project, and return the problems."""

    def translate_prompt(self, node: LocatedMap, text: str, file: str) -> tuple[str, list[Problem]]:
        """Return the text of a prompt file as a template for a node, and the problems in it."""

    def complete(self, document: Document) -> None:
        """Finish the document after its prompts are attached."""


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
    prompt_sources: dict[str, str] = field(default_factory=dict)
    """The texts of these files as they are, by the same names."""
    state_word: str = "state"
    """The word this notation uses for a state."""
    dialect: Dialect | None = None
    """The tool whose meaning the source has, if it is not Nerve."""

    def position_of(self, loc: Loc, key: bool = False) -> Position:
        """Return the position of the value at `loc` (with `key`, of its key), or of the nearest parent."""
        nearest, node = self.data.position or Position(), cast("Any", self.data)
        for depth, step in enumerate(loc):
            if not isinstance(node, LocatedMap | LocatedList):
                break
            if key and depth == len(loc) - 1 and isinstance(node, LocatedMap) and step in node.key_positions:
                return node.key_positions[str(step)]
            positions: Mapping[Any, Position] = node.value_positions
            keys: Any = node if isinstance(node, LocatedMap) else range(len(node))
            inner = cast("Any", node)[step] if step in keys else None
            nearest = getattr(inner, "position", None) or positions.get(step) or nearest
            node = inner
        return nearest

    def problem(self, loc: Loc, message: str, fix: str = "", *, key: bool = False) -> Problem:
        return Problem(self.file, self.position_of(loc, key), message, fix)
