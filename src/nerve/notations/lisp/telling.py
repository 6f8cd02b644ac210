"""Telling what is wrong with a text, and going on behind it."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final, NoReturn

from nerve.core.suggest import suggest
from nerve.notations.sexpr import Form
from nerve.notations.sexpr.limits import PROBLEMS
from nerve.spec.source import Map, Place, Problem, Unreadable

LONGEST: Final = 64
"""Names up to here are compared with others, and shown whole."""

COMPARED: Final = 500
"""With so many other names a wrong one is compared."""


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

    def unknown(self, at: Form, what: str, name: str, known: Collection[str]) -> None:
        """Tell about a name that is not one of the known ones."""
        self.tell(at, f"unknown {what} '{shown(name)}'", instead(name, known))

    def done(self) -> None:
        if self.problems:
            raise Unreadable(sorted(self.problems))


def shown(name: str) -> str:
    return name if len(name) <= LONGEST else f"{name[:LONGEST]}…"


def instead(name: str, known: Collection[str]) -> str:
    """The likely right name, or all there are."""
    close = suggest(name, list(known)[:COMPARED]) if len(name) <= LONGEST else ""
    if close:
        return close.removeprefix(". ")
    return f"There is: {', '.join(sorted(known)[:40])}." if known else "There is none."
