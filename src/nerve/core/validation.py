"""Checks of what people give: one sentence that names the thing, what was found, and what to give instead."""

from __future__ import annotations

import inspect
import math
import os
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from nerve.core.json_diagnostics import is_valid_unicode
from nerve.core.suggest import did_you_mean_hint

AWAIT_BEFORE_HINT = "await what it needs in a node before it"


def require_name(what: str, value: Any) -> str:
    """A name that a path, a fact and a file can carry."""
    if not isinstance(value, str):
        raise ValueError(f"the name of {what} is text, not {describe_value(value)}")
    if not is_valid_unicode(value):
        raise ValueError(f"the name {value!r} of {what} has half of a surrogate pair; give it another")
    return value


def require_str(what: str, value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{what} is text, not {describe_value(value)}")
    return value


def require_str_list(what: str, value: Any) -> list[str]:
    """A list of texts; a text alone is none."""
    if isinstance(value, str) or not isinstance(value, Sequence):
        raise ValueError(f"{what} is a list of texts, not {describe_value(value)}")
    if wrong := [item for item in value if not isinstance(item, str)]:
        raise ValueError(f"{what} is a list of texts, not one with {describe_value(wrong[0])} in it")
    return list(value)


def require_path(what: str, value: Any) -> str | os.PathLike[str]:
    if not isinstance(value, str | os.PathLike):
        raise ValueError(f"{what} is the path of a folder, not {describe_value(value)}")
    return value


def is_node(value: Any) -> bool:
    return not isinstance(value, type) and callable(getattr(value, "execute", None))


def require_node(what: str, value: Any) -> Any:
    """Something that can be executed."""
    if not is_node(value):
        by_name = f"; take it from the session: session.find({value!r})" if isinstance(value, str) else ""
        raise ValueError(f"{what} is a node, not {describe_value(value)}{by_name}")
    return value


def require_callable(what: str, value: Any) -> Any:
    if not callable(value):
        raise ValueError(f"{what} is a function, not {describe_value(value)}")
    return value


def require_sync_callable(what: str, value: Any) -> Any:
    """A function that is asked in the middle of deciding, where nobody can wait for it."""
    require_callable(what, value)
    if inspect.iscoroutinefunction(value) or inspect.iscoroutinefunction(getattr(value, "__call__", None)):  # noqa: B004
        raise ValueError(f"{what} is a plain function, not an async one; {AWAIT_BEFORE_HINT}")
    return value


def reject_awaitable(value: Any) -> Any:
    """What a function gave, if it is not something to wait for."""
    if inspect.iscoroutine(value):
        value.close()
        raise TypeError(f"it gave something to await; {AWAIT_BEFORE_HINT}")
    return value


def require_mapping(what: str, value: Any) -> Mapping[Any, Any]:
    if not isinstance(value, Mapping):
        raise ValueError(f"{what} is a dict, not {describe_value(value)}")
    return value


def require_int(what: str, value: Any, minimum: int = 0) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError(f"{what} is a whole number, not {describe_value(value)}")
    if value < minimum:
        raise ValueError(f"{what} must be at least {minimum}, got {value}")
    return value


def require_non_negative(what: str, value: Any, of: str = "") -> float:
    """A number that is not negative: a factor, or a number `of` something."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not value >= 0:
        raise ValueError(f"{what} is a number{of} and must not be negative, got {value!r}")
    return value


def require_seconds(what: str, value: Any) -> float:
    """Seconds that are over some day."""
    if require_non_negative(what, value, " of seconds") == math.inf:
        raise ValueError(f"{what} is a number of seconds and must be finite, got {value!r}")
    seconds: float = value
    return seconds


def require_one_of(what: str, value: Any, known: Collection[str]) -> Any:
    if value not in known:
        names = " or ".join(f"'{name}'" for name in known)
        raise ValueError(
            f"{what} is {names}, not {describe_value(value)}{did_you_mean_hint(str(value), known)}"
        )
    return value


def describe_value(value: Any) -> str:
    """What was given, in a few words."""
    if value is None:
        return "None"
    try:
        text = repr(value)
    except Exception:
        text = "something"
    return f"{text if len(text) <= 100 else text[:100] + '…'} of type {type(value).__name__}"
