"""Checks of what people give: one sentence that names the thing, what was found, and what to give instead."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from nerve.core.misfits import is_whole
from nerve.core.suggest import suggest


def a_name(what: str, given: Any) -> str:
    """A name that a path, a fact and a file can carry."""
    if not isinstance(given, str):
        raise ValueError(f"the name of {what} is text, not {told(given)}")
    if not is_whole(given):
        raise ValueError(f"the name {given!r} of {what} has half of a surrogate pair; give it another")
    return given


def a_node(what: str, given: Any) -> Any:
    """Something that can be executed."""
    if isinstance(given, type) or not callable(getattr(given, "execute", None)):
        by_name = f"; take it from the session: session.find({given!r})" if isinstance(given, str) else ""
        raise ValueError(f"{what} is a node, not {told(given)}{by_name}")
    return given


def a_function(what: str, given: Any) -> Any:
    if not callable(given):
        raise ValueError(f"{what} is a function, not {told(given)}")
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


def one_of(what: str, given: Any, known: Collection[str]) -> Any:
    if given not in known:
        names = " or ".join(f"'{name}'" for name in known)
        raise ValueError(f"{what} is {names}, not {told(given)}{suggest(str(given), known)}")
    return given


def told(given: Any) -> str:
    """What was given, in a few words."""
    if given is None:
        return "None"
    text = repr(given)
    return f"{text if len(text) <= 100 else text[:100] + '…'} of type {type(given).__name__}"
