"""Outputs as the functions of control nodes see them: plain values that answer as their Result, too."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from nerve.core.result import Result, result_output


class _ResultKeys:
    """The keys and attributes of the Result that an output belongs to."""

    _result: Result
    _source: Any

    def get(self, key: str, default: Any = None) -> Any:
        """What the Result has under a key: `success`, `output`, `attributes`, `error`, `error_type`."""
        return self._result.get(key, default)

    @property
    def success(self) -> bool:
        """Whether the step succeeded."""
        return self._result.success

    @property
    def output(self) -> Any:
        """The plain value."""
        return self._result.output

    @property
    def error(self) -> str:
        """Why the step failed, or an empty text."""
        return self._result.error

    @property
    def error_type(self) -> str:
        """The kind of the failure, or an empty text."""
        return self._result.error_type

    @property
    def attributes(self) -> dict[str, Any]:
        """What the step says beside its output."""
        return self._result.attributes


class TextOutput(_ResultKeys, str):
    def __getitem__(self, key: Any) -> Any:
        return self._result[key] if isinstance(key, str) else super().__getitem__(key)


class ListOutput(_ResultKeys, list[Any]):
    def __getitem__(self, key: Any) -> Any:
        return self._result[key] if isinstance(key, str) else super().__getitem__(key)


class DictOutput(_ResultKeys, dict[str, Any]):
    """Its own keys come first: an output with a key `success` or `output` means its own."""

    def get(self, key: str, default: Any = None) -> Any:
        return self[key] if key in self else self._result.get(key, default)

    def __missing__(self, key: str) -> Any:
        return self._result[key]


class _NumberOutput(_ResultKeys):
    __iter__ = None  # it has keys, and is nothing to go through

    def __getitem__(self, key: str) -> Any:
        return self._result[key]


class IntOutput(_NumberOutput, int):
    pass


class FloatOutput(_NumberOutput, float):
    pass


_VIEWS: dict[type, Callable[[Any], Any]] = {
    str: TextOutput,
    list: ListOutput,
    dict: DictOutput,
    int: IntOutput,
    float: FloatOutput,
}


def view_output(value: Any) -> Any:
    """A value or a Result as a function of a control node sees it: the output, which answers as its Result.

    None, true and false are only themselves: nothing can be added to them.
    """
    output = result_output(value)
    make = _VIEWS.get(type(output))
    if make is None:
        return output
    view = make(output)
    view._result, view._source = as_result(value), value
    return view


def unwrap_view(value: Any) -> Any:
    """What a view was made of; anything else is itself."""
    return value._source if isinstance(value, _ResultKeys) else value


def as_result(value: Any) -> Result:
    """A Result; a plain value is the output of one."""
    return value if isinstance(value, Result) else Result.ok(value)


def wrap_output_function(
    fn: Callable[[Any], Any], make_argument: Callable[[Any], Any] | None = None
) -> Callable[[Any], Any]:
    """A user's function of an output, as a function of the value or Result that a control node was given.

    `put` makes the argument of what is seen. None, true and false cannot answer as a Result does, so a
    function that asks one of them as if it were a Result is given the Result.
    """

    def ask(argument: Any) -> Any:
        return fn(argument if make_argument is None else make_argument(argument))

    def asked(value: Any) -> Any:
        argument = view_output(value)
        try:
            return ask(argument)
        except (AttributeError, TypeError) as error:
            if argument is not None and not isinstance(argument, bool):
                raise
            try:
                return ask(as_result(value))
            except (AttributeError, TypeError, KeyError):
                raise error from None

    return asked
