"""Checks of what people give: one sentence that names the thing, what was found, and what to give instead."""

from __future__ import annotations

import inspect
import math
import os
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from nerve.core.misfits import is_whole
from nerve.core.suggest import suggest

AWAIT_BEFORE = "await what it needs in a node before it"


def a_name(what: str, given: Any) -> str:
    """A name that a path, a fact and a file can carry."""
    if not isinstance(given, str):
        raise ValueError(f"the name of {what} is text, not {told(given)}")
    if not is_whole(given):
        raise ValueError(f"the name {given!r} of {what} has half of a surrogate pair; give it another")
    return given


def a_text(what: str, given: Any) -> str:
    if not isinstance(given, str):
        raise ValueError(f"{what} is text, not {told(given)}")
    return given


def texts(what: str, given: Any) -> list[str]:
    """A list of texts; a text alone is none."""
    if isinstance(given, str) or not isinstance(given, Sequence):
        raise ValueError(f"{what} is a list of texts, not {told(given)}")
    if wrong := [each for each in given if not isinstance(each, str)]:
        raise ValueError(f"{what} is a list of texts, not one with {told(wrong[0])} in it")
    return list(given)


def a_folder(what: str, given: Any) -> str | os.PathLike[str]:
    if not isinstance(given, str | os.PathLike):
        raise ValueError(f"{what} is the path of a folder, not {told(given)}")
    return given


def is_node(given: Any) -> bool:
    return not isinstance(given, type) and callable(getattr(given, "execute", None))


def a_node(what: str, given: Any) -> Any:
    """Something that can be executed."""
    if not is_node(given):
        by_name = f"; take it from the session: session.find({given!r})" if isinstance(given, str) else ""
        raise ValueError(f"{what} is a node, not {told(given)}{by_name}")
    return given


def a_function(what: str, given: Any) -> Any:
    if not callable(given):
        raise ValueError(f"{what} is a function, not {told(given)}")
    return given


def a_decision(what: str, given: Any) -> Any:
    """A function that is asked in the middle of deciding, where nobody can wait for it."""
    a_function(what, given)
    if inspect.iscoroutinefunction(given) or inspect.iscoroutinefunction(getattr(given, "__call__", None)):  # noqa: B004
        raise ValueError(f"{what} is a plain function, not an async one; {AWAIT_BEFORE}")
    return given


def at_once(given: Any) -> Any:
    """What a function gave, if it is not something to wait for."""
    if inspect.iscoroutine(given):
        given.close()
        raise TypeError(f"it gave something to await; {AWAIT_BEFORE}")
    return given


def a_mapping(what: str, given: Any) -> Mapping[Any, Any]:
    if not isinstance(given, Mapping):
        raise ValueError(f"{what} is a dict, not {told(given)}")
    return given


def a_count(what: str, given: Any, least: int = 0) -> int:
    if isinstance(given, bool) or not isinstance(given, int):
        raise ValueError(f"{what} is a whole number, not {told(given)}")
    if given < least:
        raise ValueError(f"{what} must be at least {least}, got {given}")
    return given


def a_number(what: str, given: Any, of: str = "") -> float:
    """A number that is not negative: a factor, or a number `of` something."""
    if isinstance(given, bool) or not isinstance(given, int | float) or not given >= 0:
        raise ValueError(f"{what} is a number{of} and must not be negative, got {given!r}")
    return given


def a_time(what: str, given: Any) -> float:
    """Seconds that are over some day."""
    if a_number(what, given, " of seconds") == math.inf:
        raise ValueError(f"{what} is a number of seconds and must be finite, got {given!r}")
    seconds: float = given
    return seconds


def one_of(what: str, given: Any, known: Collection[str]) -> Any:
    if given not in known:
        names = " or ".join(f"'{name}'" for name in known)
        raise ValueError(f"{what} is {names}, not {told(given)}{suggest(str(given), known)}")
    return given


def told(given: Any) -> str:
    """What was given, in a few words."""
    if given is None:
        return "None"
    try:
        text = repr(given)
    except Exception:
        text = "something"
    return f"{text if len(text) <= 100 else text[:100] + '…'} of type {type(given).__name__}"
