"""Tables of built-in methods and functions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

from nerve.expr.values import Value
from nerve.lazy_dataclass import dataclass

Run = TypeVar("Run", bound=Callable[..., Value])
Callback = Callable[..., Value]
VARIADIC_CODE_FLAG = 0x04


@dataclass(frozen=True, slots=True)
class LibraryFunction:
    """A built-in method or function: its number of arguments and the position of its callback."""

    name: str
    run: Callable[..., Value]
    required_arguments: int
    max_arguments: int | None
    callback_position: int | None


class FunctionTable(dict[str, LibraryFunction]):
    """The methods of one kind of value, or the functions of one namespace."""

    def __init__(self, leading_parameters: int) -> None:
        super().__init__()
        self.leading_parameters = leading_parameters

    def add(self, name: str, callback: int | None = None) -> Callable[[Run], Run]:
        """Register a function under its JavaScript name; `callback` is the position of its arrow function."""

        def register(run: Run) -> Run:
            code = run.__code__
            count = code.co_argcount - self.leading_parameters
            required_arguments = count - len(run.__defaults__ or ())
            max_arguments = None if code.co_flags & VARIADIC_CODE_FLAG else count
            self[name] = LibraryFunction(name, run, required_arguments, max_arguments, callback)
            return run

        return register

    def add_all(self, functions: Mapping[str, Callable[..., Value]], callback: int | None = None) -> None:
        """Register functions of one expression, by their JavaScript names."""
        for name, run in functions.items():
            self.add(name, callback)(run)


def new_method_table() -> FunctionTable:
    """Return a table of functions that take the frame and the value before their arguments."""
    return FunctionTable(leading_parameters=2)


def new_function_table() -> FunctionTable:
    """Return a table of functions that take the frame before their arguments."""
    return FunctionTable(leading_parameters=1)
