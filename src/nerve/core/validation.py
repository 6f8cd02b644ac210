"""Checks of arguments. A message names the argument, the value found, and the type expected."""

from __future__ import annotations

import inspect
import math
import os
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from nerve.core.json_diagnostics import is_valid_unicode
from nerve.core.suggest import did_you_mean_hint

AWAIT_BEFORE_HINT = "await what it needs in an earlier node"


def require_name(what: str, value: Any) -> str:
    """Return a name that can be written to paths, facts and files; ValueError for any other value."""
    if not isinstance(value, str):
        raise ValueError(f"The name of {what} must be a string, got {describe_value(value)}")
    if not is_valid_unicode(value):
        raise ValueError(f"The name {value!r} of {what} contains an unpaired surrogate; use another name")
    return value


def require_str(what: str, value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{what} must be a string, got {describe_value(value)}")
    return value


def require_str_list(what: str, value: Any) -> list[str]:
    """Return a list of strings; ValueError for any other value, including a single string."""
    if isinstance(value, str) or not isinstance(value, Sequence):
        raise ValueError(f"{what} must be a list of strings, got {describe_value(value)}")
    if wrong := [item for item in value if not isinstance(item, str)]:
        raise ValueError(f"{what} must be a list of strings, but contains {describe_value(wrong[0])}")
    return list(value)


def require_path(what: str, value: Any) -> str | os.PathLike[str]:
    if not isinstance(value, str | os.PathLike):
        raise ValueError(f"{what} must be the path of a directory, got {describe_value(value)}")
    return value


def is_node(value: Any) -> bool:
    return not isinstance(value, type) and callable(getattr(value, "execute", None))


def require_node(what: str, value: Any) -> Any:
    """Return an object that can be executed; ValueError for any other value."""
    if not is_node(value):
        by_name = f"; get it from the session: session.find({value!r})" if isinstance(value, str) else ""
        raise ValueError(f"{what} must be a node, got {describe_value(value)}{by_name}")
    return value


def require_callable(what: str, value: Any) -> Any:
    if not callable(value):
        raise ValueError(f"{what} must be a function, got {describe_value(value)}")
    return value


def require_sync_callable(what: str, value: Any) -> Any:
    """Return a function that is called synchronously, while the engine decides what runs next."""
    require_callable(what, value)
    if inspect.iscoroutinefunction(value) or inspect.iscoroutinefunction(getattr(value, "__call__", None)):  # noqa: B004
        raise ValueError(f"{what} must be a sync function, not an async one; {AWAIT_BEFORE_HINT}")
    return value


def reject_awaitable(value: Any) -> Any:
    """Return the value of a function; TypeError for a coroutine, which is not awaited here."""
    if inspect.iscoroutine(value):
        value.close()
        raise TypeError(f"it returned an awaitable; {AWAIT_BEFORE_HINT}")
    return value


def require_mapping(what: str, value: Any) -> Mapping[Any, Any]:
    if not isinstance(value, Mapping):
        raise ValueError(f"{what} must be a dict, got {describe_value(value)}")
    return value


def require_int(what: str, value: Any, minimum: int = 0) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError(f"{what} must be an integer, got {describe_value(value)}")
    if value < minimum:
        raise ValueError(f"{what} must be at least {minimum}, got {value}")
    return value


def require_non_negative(what: str, value: Any, of: str = "") -> float:
    """Return a non-negative number; `of` names its unit in the message."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not value >= 0:
        raise ValueError(f"{what} must be a non-negative number{of}, got {value!r}")
    return value


def require_seconds(what: str, value: Any) -> float:
    """Return a finite, non-negative number of seconds."""
    if require_non_negative(what, value, " of seconds") == math.inf:
        raise ValueError(f"{what} must be a finite number of seconds, got {value!r}")
    seconds: float = value
    return seconds


def require_one_of(what: str, value: Any, known: Collection[str]) -> Any:
    if value not in known:
        names = " or ".join(f"'{name}'" for name in known)
        raise ValueError(
            f"{what} must be {names}, got {describe_value(value)}{did_you_mean_hint(str(value), known)}"
        )
    return value


def describe_value(value: Any) -> str:
    """Return a value and its type for an error message, shortened."""
    if value is None:
        return "None"
    try:
        text = repr(value)
    except Exception:
        text = "a value"
    return f"{text if len(text) <= 100 else text[:100] + '…'} of type {type(value).__name__}"
