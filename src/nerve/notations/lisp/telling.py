"""Telling what is wrong with a text, and going on behind it."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final, NoReturn

from nerve.core.suggest import closest
from nerve.notations.sexpr import Form
from nerve.notations.sexpr.limits import PROBLEMS
from nerve.spec.source import Map, Place, Problem, Unreadable

LONGEST: Final = 64
"""Names up to here are compared with others, and shown whole."""

COMPARED: Final = 500
"""With so many other names a wrong one is compared."""


ELSEWHERE: Final = {
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


class Refused(Exception):
    """A form that has been told about; what is around it goes on without it."""


class Teller:
    """Collects the problems of one text."""

    def __init__(self, file: str) -> None:
        self.file = file
        self.problems: list[Problem] = []
        self.notes: list[Problem] = []

    def tell(self, at: Form, message: str, fix: str = "") -> None:
        self.problems.append(Problem(self.file, at.place, message, fix))
        if len(self.problems) >= PROBLEMS:
            raise Unreadable(self.problems)

    def refuse(self, at: Form, message: str, fix: str = "") -> NoReturn:
        self.tell(at, message, fix)
        raise Refused

    def note(self, at: Map, message: str, fix: str = "") -> None:
        if len(self.notes) < PROBLEMS:
            self.notes.append(Problem(self.file, at.place or Place(), message, fix, "warning"))

    def unknown(self, at: Form, what: str, name: str, known: Collection[str], none: str = "") -> None:
        """Tell about a name that is not one of the known ones; `none` is the fix if there are none."""
        self.tell(at, f"unknown {what} '{shown(name)}'", instead(name, known) if known else none)

    def done(self) -> None:
        if self.problems:
            raise Unreadable(sorted(self.problems))


def shown(name: str) -> str:
    return name if len(name) <= LONGEST else f"{name[:LONGEST]}…"


def meant(name: str, known: Collection[str]) -> str | None:
    """The known name that was likely meant: what other Lisps call so, or the closest."""
    word = ELSEWHERE.get(name)
    if word in known:
        return word
    return closest(name, list(known)[:COMPARED]) if len(name) <= LONGEST else None


def instead(name: str, known: Collection[str]) -> str:
    """The likely right name, or all there are."""
    if word := meant(name, known):
        return f"Did you mean '{word}'?"
    return f"There is: {', '.join(sorted(known)[:40])}." if known else "There is none."
