"""FunctionNode: a Python function, sync or async, as a leaf."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from typing import Any, ClassVar

from nerve.core.events import WorkflowEventType
from nerve.core.nodes.attempt import is_task_cancelled, must_propagate
from nerve.core.nodes.base import Node, NodeRegistry
from nerve.core.nodes.context import ExecutionContext
from nerve.core.nodes.daemon_threads import DAEMON_THREADS
from nerve.core.result import Result
from nerve.core.step_output import StepOutput
from nerve.core.trace_context import StepTracing
from nerve.core.validation import require_callable


class FunctionNode(Node):
    """Calls `fn(context)`. A dict of the shape of a result is the result; any other value is its output.

    An exception is a failed result, also `SystemExit`; only `KeyboardInterrupt` ends the process.

    An async function runs on the event loop. A sync one runs in a daemon thread: on stop or timeout the
    step ends at once, the late result of the thread is dropped, and an event says that it still runs.

    What it logs, and in the commands and the server also what it prints, is recorded as events of its step.
    """

    changes_files: ClassVar[bool] = True

    def __init__(
        self,
        id: str | None,
        session: NodeRegistry | None,
        fn: Callable[[ExecutionContext], Any],
        **policy: Any,
    ) -> None:
        self.fn = require_callable(f"fn of '{id}'", fn)
        super().__init__(id, session, **policy)
        self._is_async = inspect.iscoroutinefunction(fn)

    async def execute(self, context: ExecutionContext) -> Result:
        output = StepOutput(context)
        try:
            call = self.fn(context) if self._is_async else self._run_in_thread(context)
            tracing: StepTracing | None = getattr(context.session, "tracing", None)
            if tracing is None:
                return Result.of(await call)
            with tracing.open_step(context):
                return Result.of(await call)
        except asyncio.CancelledError as error:
            if is_task_cancelled():
                raise
            return Result.from_exception(error)
        except BaseException as error:
            if must_propagate(error):
                raise
            return Result.from_exception(error)
        finally:
            output.close()

    async def _run_in_thread(self, context: ExecutionContext) -> Any:
        context.runtime  # noqa: B018 - created here, on the event loop that it belongs to

        def late() -> None:
            context.emit(WorkflowEventType.LOG, {"message": "the thread has ended", "thread": "ended"})

        try:
            outcome = await DAEMON_THREADS.run(self.fn, context, late)
        except asyncio.CancelledError:
            context.emit(WorkflowEventType.LOG, {"message": "the thread still runs", "thread": "running"})
            raise
        return await outcome if inspect.isawaitable(outcome) else outcome
