"""The closed table: every method and function there is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from nerve.expr.values import Value

Run = TypeVar("Run", bound=Callable[..., Value])
Callback = Callable[..., Value]
VARIADIC = 0x04


@dataclass(frozen=True, slots=True)
class Entry:
    """A method or function: how many arguments it takes, and which of them is an arrow function."""

    name: str
    run: Callable[..., Value]
    required: int
    most: int | None
    callback: int | None


class Table(dict[str, Entry]):
    """The methods of one kind of value, or the functions of one namespace."""

    def __init__(self, leading: int) -> None:
        super().__init__()
        self.leading = leading

    def add(self, name: str, callback: int | None = None) -> Callable[[Run], Run]:
        """Register a function under its JavaScript name; `callback` is the place of its arrow function."""

        def registered(run: Run) -> Run:
            code = run.__code__
            count = code.co_argcount - self.leading
            required = count - len(run.__defaults__ or ())
            most = None if code.co_flags & VARIADIC else count
            self[name] = Entry(name, run, required, most, callback)
            return run

        return registered


def methods() -> Table:
    """A table of functions that take the frame and the value before their arguments."""
    return Table(leading=2)


def functions() -> Table:
    """A table of functions that take the frame before their arguments."""
    return Table(leading=1)
