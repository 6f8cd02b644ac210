"""Passing the parameters of a run to user functions of graphs and control nodes."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from nerve.core.nodes.context import ExecutionContext


def bind_params(fn: Callable[..., Any], context: ExecutionContext, arguments: int = 1) -> Callable[..., Any]:
    """Return a user function, bound to the parameters of the run if it has a further argument `params`."""
    return partial(fn, params=context.params) if accepts_params(fn, arguments) else fn


def accepts_params(fn: Callable[..., Any], arguments: int) -> bool:
    code = getattr(fn, "__code__", None)
    if code is not None:
        skipped = arguments + inspect.ismethod(fn)
        return "params" in code.co_varnames[skipped : code.co_argcount + code.co_kwonlyargcount]
    try:
        return "params" in list(inspect.signature(fn).parameters)[arguments:]
    except (TypeError, ValueError):
        return False  # such as a built-in class
