"""Telling what is wrong with a text, and going on behind it."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final, NoReturn

from nerve.core.suggest import closest_name
from nerve.text.sexpr import Form
from nerve.text.sexpr.limits import MAX_PROBLEMS
from nerve.text.source import InvalidDefinition, LocatedMap, Position, Problem

MAX_COMPARED_CHARS: Final = 64
"""Names up to here are compared with others, and shown whole."""

MAX_COMPARED_NAMES: Final = 500
"""With so many other names a wrong one is compared."""


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
"""Words of other Lisps, and what they are here."""


class FormRejected(Exception):
    """A form that has been told about; what is around it goes on without it."""


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
        """Tell about a name that is not one of the known ones; `none` is the fix if there are none."""
        self.add(
            at, f"unknown {what} '{truncate_name(name)}'", suggest_form_names(name, known) if known else none
        )

    def raise_if_any(self) -> None:
        if self.problems:
            raise InvalidDefinition(sorted(self.problems))


def truncate_name(name: str) -> str:
    return name if len(name) <= MAX_COMPARED_CHARS else f"{name[:MAX_COMPARED_CHARS]}…"


def closest_form_name(name: str, known: Collection[str]) -> str | None:
    """The known name that was likely meant: what other Lisps call so, or the closest."""
    word = FOREIGN_NAMES.get(name)
    if word in known:
        return word
    return closest_name(name, list(known)[:MAX_COMPARED_NAMES]) if len(name) <= MAX_COMPARED_CHARS else None


def suggest_form_names(name: str, known: Collection[str]) -> str:
    """The likely right name, or all there are."""
    if word := closest_form_name(name, known):
        return f"Did you mean '{word}'?"
    return f"There is: {', '.join(sorted(known)[:40])}." if known else "There is none."
