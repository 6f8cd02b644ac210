"""Callbacks that do not keep the object they belong to alive."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar
from weakref import ref

CallbackT = TypeVar("CallbackT", bound=Callable[..., Any])


def weak_callback(method: CallbackT) -> CallbackT:
    """Return a function that calls a method of an object, and returns None once the object is gone.

    An executor owns its parts, and they call it back. Strong references in both directions would leave every
    finished run to the garbage collector, which then costs a fifth of the time of short runs.
    """
    bound: Any = method
    return partial(call_if_alive, ref(bound.__self__), bound.__func__)  # type: ignore[return-value]


def call_if_alive(get_owner: ref[Any], function: Callable[..., Any], *args: Any) -> Any:
    owner = get_owner()
    return None if owner is None else function(owner, *args)
