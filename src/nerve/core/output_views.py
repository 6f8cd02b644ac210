"""Views of outputs for the functions of control nodes: plain values with the interface of their Result."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from nerve.core.result import Result, result_output


class _ResultKeys:
    """The interface of the Result that an output belongs to."""

    _result: Result
    _source: Any

    def get(self, key: str, default: Any = None) -> Any:
        """Return a value of the Result: `success`, `output`, `attributes`, `error`, `error_type`."""
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
        """Why the step failed, or ""."""
        return self._result.error

    @property
    def error_type(self) -> str:
        """The kind of the failure, or ""."""
        return self._result.error_type

    @property
    def attributes(self) -> dict[str, Any]:
        """Further data of the step, such as `iterations` or `exit_code`."""
        return self._result.attributes


class TextOutput(_ResultKeys, str):
    def __getitem__(self, key: Any) -> Any:
        return self._result[key] if isinstance(key, str) else super().__getitem__(key)


class ListOutput(_ResultKeys, list[Any]):
    def __getitem__(self, key: Any) -> Any:
        return self._result[key] if isinstance(key, str) else super().__getitem__(key)


class DictOutput(_ResultKeys, dict[str, Any]):
    """A dict whose own keys take precedence over those of the Result, such as `success` or `output`."""

    def get(self, key: str, default: Any = None) -> Any:
        return self[key] if key in self else self._result.get(key, default)

    def __missing__(self, key: str) -> Any:
        return self._result[key]


class _NumberOutput(_ResultKeys):
    __iter__ = None  # __getitem__ alone would make Python treat it as iterable

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
    """Return the output of a value or Result as a view with the interface of the Result.

    None, True and False are returned as they are, because their types cannot be subclassed.
    """
    output = result_output(value)
    make = _VIEWS.get(type(output))
    if make is None:
        return output
    view = make(output)
    view._result, view._source = as_result(value), value
    return view


def unwrap_view(value: Any) -> Any:
    """Return the source of a view; return any other value unchanged."""
    return value._source if isinstance(value, _ResultKeys) else value


def as_result(value: Any) -> Result:
    """Return a Result unchanged, and any other value as the output of a successful Result."""
    return value if isinstance(value, Result) else Result.ok(value)


def wrap_output_function(
    fn: Callable[[Any], Any], make_argument: Callable[[Any], Any] | None = None
) -> Callable[[Any], Any]:
    """Return a function of a value or Result that calls a user function with the view of its output.

    `make_argument` builds the argument from the view. None, True and False have no view, so a user function
    that accesses one of them like a Result is called again with the Result.
    """

    def call(argument: Any) -> Any:
        return fn(argument if make_argument is None else make_argument(argument))

    def call_with_view(value: Any) -> Any:
        argument = view_output(value)
        try:
            return call(argument)
        except (AttributeError, TypeError) as error:
            if argument is not None and not isinstance(argument, bool):
                raise
            try:
                return call(as_result(value))
            except (AttributeError, TypeError, KeyError):
                raise error from None

    return call_with_view
