"""Collect the problems of a Lisp text, and suggest names."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final, NoReturn

from nerve.core.suggest import closest_name
from nerve.text.sexpr import Form
from nerve.text.sexpr.limits import MAX_PROBLEMS
from nerve.text.source import InvalidDefinition, LocatedMap, Position, Problem

MAX_COMPARED_CHARS: Final = 64
"""Longer names are not compared with others, and are truncated in messages."""

MAX_COMPARED_NAMES: Final = 500
"""Maximum number of names to compare for a suggestion."""


FOREIGN_NAMES: Final = {
    **dict.fromkeys(("if", "cond", "case", "unless"), "branch"),
    **dict.fromkeys(("set", "setq", "set!", "setf", "def", "let*"), "let"),
    **dict.fromkeys(("transition", "go", "next", "jump"), "goto"),
    **dict.fromkeys(("print", "println", "echo", "display"), "log"),
    **dict.fromkeys(("prompt", "ask", "send"), "send-prompt"),
    **dict.fromkeys(("progn", "begin", "do"), "action"),
    **dict.fromkeys(("while", "repeat", "dotimes", "for"), "loop"),
    **dict.fromkeys(("sh", "shell", "run"), "bash"),
    **dict.fromkeys(("approve", "approval", "confirm"), "gate"),
    **dict.fromkeys(("return", "output"), "result"),
    **dict.fromkeys(("end", "exit", "stop", "done"), "terminal"),
    **dict.fromkeys(("defun", "define", "fn"), "defn"),
    **dict.fromkeys(("eq", "equal", "equal?", "==", "eq?"), "="),
    **dict.fromkeys(("length", "len", "size"), "count"),
    **dict.fromkeys(("format", "string-append"), "str"),
    "append": "concat",
}
"""Names in other Lisps, and their equivalents here."""


class FormRejected(Exception):
    """Skips a form whose problem was recorded; compilation continues after it."""


class LispDiagnostics:
    """Collects the problems of one text."""

    def __init__(self, file: str) -> None:
        self.file = file
        self.problems: list[Problem] = []
        self.notes: list[Problem] = []

    def add(self, at: Form, message: str, fix: str = "") -> None:
        self.problems.append(Problem(self.file, at.position, message, fix))
        if len(self.problems) >= MAX_PROBLEMS:
            raise InvalidDefinition(self.problems)

    def fail(self, at: Form, message: str, fix: str = "") -> NoReturn:
        self.add(at, message, fix)
        raise FormRejected

    def add_warning(self, at: LocatedMap, message: str, fix: str = "") -> None:
        if len(self.notes) < MAX_PROBLEMS:
            self.notes.append(Problem(self.file, at.position or Position(), message, fix, "warning"))

    def add_unknown_name(
        self, at: Form, what: str, name: str, known: Collection[str], none: str = ""
    ) -> None:
        """Report an unknown name; `none` is the fix if no names are known."""
        self.add(
            at, f"Unknown {what} '{truncate_name(name)}'", suggest_form_names(name, known) if known else none
        )

    def raise_if_any(self) -> None:
        if self.problems:
            raise InvalidDefinition(sorted(self.problems))


def truncate_name(name: str) -> str:
    return name if len(name) <= MAX_COMPARED_CHARS else f"{name[:MAX_COMPARED_CHARS]}…"


def closest_form_name(name: str, known: Collection[str]) -> str | None:
    """Return the likely name: the equivalent of a name in another Lisp, or the closest known name."""
    word = FOREIGN_NAMES.get(name)
    if word in known:
        return word
    return closest_name(name, list(known)[:MAX_COMPARED_NAMES]) if len(name) <= MAX_COMPARED_CHARS else None


def suggest_form_names(name: str, known: Collection[str]) -> str:
    """Return a suggestion, or the list of known names."""
    if word := closest_form_name(name, known):
        return f"Did you mean '{word}'?"
    return f"Available: {', '.join(sorted(known)[:40])}." if known else "None is defined."
