"""Work of a body that still runs when its run is stopped: cleanup blocks and sagas."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from contextvars import ContextVar
from types import TracebackType
from typing import Any, ParamSpec

from nerve.core.nodes.context import ExecutionContext
from nerve.core.nodes.durable_timeout import durable_timeout
from nerve.core.result import error_text
from nerve.core.validation import describe_value, require_seconds
from nerve.errors import CompensationFailed, ContinuedAsNew, Suspended

P = ParamSpec("P")
IN_CLEANUP: ContextVar[bool] = ContextVar("nerve_in_cleanup", default=False)
"""Whether the code that runs now is in a cleanup block; tasks that it starts are, too."""


@asynccontextmanager
async def cleanup_block(execution: ExecutionContext, timeout: float | None) -> AsyncIterator[None]:
    """Let the block run steps although the run is being stopped; TimeoutError after `timeout` seconds."""
    if timeout is not None:
        require_seconds("timeout of a cleanup", timeout)
    path, runtime = execution.next_internal_path("cleanup"), execution.runtime
    token = IN_CLEANUP.set(True)
    runtime.begin_cleanup()
    try:
        if timeout is None:
            yield
        else:
            async with durable_timeout(execution.wait, path, timeout):
                yield
    finally:
        IN_CLEANUP.reset(token)
        is_stopped = runtime.end_cleanup()
    if is_stopped:
        # The stop came during the block and had to wait for its end.
        raise asyncio.CancelledError


class Saga:
    """Collects compensations and runs them in reverse order if its block fails or the run is stopped."""

    def __init__(self, execution: ExecutionContext, timeout: float | None) -> None:
        self._execution, self._timeout = execution, timeout
        self._compensations: list[tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]] = []

    def compensate(self, function: Callable[P, Any], *args: P.args, **kwargs: P.kwargs) -> None:
        """Call `function(*args, **kwargs)` if the block does not succeed; a typed step, or any function."""
        if not callable(function):
            raise TypeError(f"A compensation must be a function, got {describe_value(function)}")
        self._compensations.append((function, args, kwargs))

    async def __aenter__(self) -> Saga:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # An unloaded body continues from its journal: nothing has failed.
        # A chain that continues has not failed, either.
        if isinstance(error, Suspended | ContinuedAsNew | GeneratorExit):
            return
        if error is None or not self._compensations:
            return
        failures: list[Exception] = []
        async with cleanup_block(self._execution, self._timeout):
            for function, args, kwargs in reversed(self._compensations):
                try:
                    outcome = function(*args, **kwargs)
                    if inspect.isawaitable(outcome):
                        await outcome
                except Exception as failure:  # the others still have to be compensated
                    failure.add_note(f"in the compensation {getattr(function, '__name__', function)}")
                    failures.append(failure)
        if failures:
            names = "; ".join(error_text(failure) for failure in failures)
            raise CompensationFailed(error_text(error), names) from failures[0]
