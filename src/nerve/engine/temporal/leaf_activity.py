"""The activity `nerve.leaf`: one attempt at a leaf, executed by a worker."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from temporalio import activity
from temporalio.exceptions import ApplicationError

from nerve.core.nodes.active_workspace import ActiveWorkspace
from nerve.core.nodes.attempt import run_attempt
from nerve.core.nodes.base import Node, NodeRegistry
from nerve.core.nodes.context import ExecutionContext
from nerve.core.policy import Policy
from nerve.core.result import REJECTED_ERROR_TYPES, Result
from nerve.core.trace_context import tracing_of
from nerve.core.tracebacks import FailureTrace
from nerve.engine.leaf_references import UnknownLeaf, restore_leaf
from nerve.engine.temporal.cluster_budget import ClusterBudget
from nerve.engine.temporal.leaf_rows import JournalReader, LeafRows, Projection, attempt_of, write_journal
from nerve.engine.temporal.leaf_services import WorkerLeafRuntime
from nerve.engine.temporal.messages import (
    CLOSE_ACTIVITY,
    HOST_ATTRIBUTE,
    LEAF_ACTIVITY,
    LEAF_ELSEWHERE,
    CloseInput,
    LeafInput,
    LeafResult,
    MessageVersionError,
)
from nerve.errors import Conflict, NotJson
from nerve.journal.events import encode_result

if TYPE_CHECKING:
    from temporalio.client import Client

log = logging.getLogger(__name__)

HEARTBEATS_PER_TIMEOUT = 3
ELSEWHERE_S = 1.0
"""Seconds after which another worker gets a leaf that this one cannot execute."""
LEAF_INTERRUPTED = "LeafInterrupted"
"""The type of the failure of a leaf that this worker began and ended early, for a reason of its own."""


NO_WORKTREE = (
    "This worker has --place fresh, but the run has no worktree."
    " Set place to fresh in .nerve/config.json of the servers, or start the worker without it."
)


class LeafExecutor:
    """Executes the leaves of one session on this worker."""

    def __init__(
        self,
        session: NodeRegistry,
        client: Client,
        projection: Projection,
        reader: JournalReader,
        host: str | None = None,
        *,
        is_fresh: bool = False,
    ) -> None:
        """`host` is the name of this machine if later leaves of a family must run here, too.

        With `is_fresh`, leaves work in workspaces only, and not in the project folder.
        """
        self._session, self._client = session, client
        self._projection, self._reader, self._host = projection, reader, host
        self._budget = ClusterBudget(projection, lambda: getattr(session, "budget", None))
        self._is_fresh = is_fresh
        self.on_failed: Callable[[LeafInput, LeafResult], None] | None = None
        """Called with each leaf that has failed."""
        self._running: dict[asyncio.Task[Any], str] = {}
        """The tasks of running leaves; a reason why this worker has interrupted each, or ""."""

    @property
    def running_count(self) -> int:
        """The number of leaves that are running."""
        return len(self._running)

    def interrupt_all(self, reason: str) -> None:
        """End all leaves, with their process trees, for a reason of this worker."""
        for task in list(self._running):
            self._interrupt(task, reason)

    def _interrupt(self, task: asyncio.Task[Any], reason: str) -> None:
        if task in self._running and not self._running[task]:
            self._running[task] = reason
            task.cancel()

    @activity.defn(name=CLOSE_ACTIVITY)
    async def close_workspaces(self, data: dict[str, Any]) -> None:
        """Remove the workspaces of runs that have ended, except those with unmerged work."""
        from nerve.workspaces.checkout import close_finished  # imported here: few runs have workspaces

        runs = CloseInput.from_data(data).runs
        heartbeats = asyncio.ensure_future(send_heartbeats())
        try:
            await asyncio.to_thread(close_finished, self._session.project, runs)
        finally:
            heartbeats.cancel()

    @activity.defn(name=LEAF_ACTIVITY)
    async def execute(self, data: dict[str, Any]) -> dict[str, Any]:
        """Execute one attempt: takes `LeafInput`, returns `LeafResult`."""
        heartbeats = asyncio.ensure_future(send_heartbeats())
        task = asyncio.current_task()
        assert task is not None
        self._running[task] = ""
        leaf: LeafInput | None = None
        try:
            leaf = read_leaf(data)
            result = await self._execute(leaf, lambda: self._interrupt(task, "a later attempt"))
            if self.on_failed is not None and has_failed(result.result):
                self.on_failed(leaf, result)
            return result.to_data()
        except asyncio.CancelledError:
            reason = self._running[task] or ("the worker stops" if activity.is_worker_shutdown() else "")
            if not reason:
                raise
            task.uncancel()
            if leaf is not None and leaf.effect == "once":
                # What it has done is not known, which is for a person to find out.
                return LeafResult(
                    Result.failed(f"interrupted: {reason}", "TimeoutError"), "timeout"
                ).to_data()
            raise ApplicationError(f"Interrupted: {reason}", type=LEAF_INTERRUPTED) from None
        finally:
            del self._running[task]
            heartbeats.cancel()

    async def _execute(self, leaf: LeafInput, on_refused: Callable[[], None]) -> LeafResult:
        info = activity.info()
        await write_journal(self._projection, leaf.journal)
        if self._is_fresh and not leaf.uses_workspaces:
            return self._to_message(leaf, Result.failed(NO_WORKTREE, "NotSupported"))
        node = self._find_node(leaf)
        rows = LeafRows(self._projection, leaf.run_id, attempt_of(leaf, info.attempt), on_refused)
        try:
            await rows.begin()
        except Conflict as error:
            raise ApplicationError(str(error), type=LEAF_INTERRUPTED, non_retryable=True) from None
        assert info.workflow_id is not None
        workflow = self._client.get_workflow_handle(info.workflow_id)
        is_restarted = leaf.is_restarted or info.attempt > 1
        runtime = WorkerLeafRuntime(leaf, rows, self._reader, workflow, is_restarted, self._budget)
        try:
            if getattr(node, "asks", False):
                await runtime.prepare()
            context = make_context(self._session, leaf, runtime)
            if (tracing := tracing_of(context)) is not None:
                await tracing.prepare_step(leaf.run_id, leaf.path)
            result = await run_attempt(
                node,
                context,
                Policy(timeout=leaf.timeout, idle_timeout=leaf.idle_timeout),
                runtime.set_timer,
            )
        finally:
            await finish(runtime.close())
        return self._to_message(leaf, result)

    def _find_node(self, leaf: LeafInput) -> Node:
        try:
            return restore_leaf(leaf.reference, self._session)
        except UnknownLeaf as error:
            raise leaf_elsewhere(str(error)) from None

    def _to_message(self, leaf: LeafInput, result: Result) -> LeafResult:
        if self._host is not None and leaf.uses_workspaces:
            # A fork of the run needs the commits that this host has.
            result["attributes"] = {**result.attributes, HOST_ATTRIBUTE: self._host}
        try:
            _, stored = encode_result(result)
        except NotJson as error:
            _, stored = encode_result(Result.from_exception(error))
        trace = FailureTrace() if stored.success else FailureTrace.of_result(stored)
        return LeafResult(dict(stored), stored.settlement, stored.timeout_seconds, *trace, host=self._host)


def has_failed(result: Mapping[str, Any]) -> bool:
    """Whether a result is a failure; a rejection, which a person has decided, is not."""
    return not result["success"] and result.get("error_type") not in REJECTED_ERROR_TYPES


def read_leaf(data: dict[str, Any]) -> LeafInput:
    try:
        return LeafInput.from_data(data)
    except MessageVersionError as error:
        raise leaf_elsewhere(str(error)) from None


def leaf_elsewhere(problem: str) -> ApplicationError:
    """Return the failure of a leaf that this worker cannot execute, so that another one gets it soon."""
    log.warning("%s", problem)
    return ApplicationError(problem, type=LEAF_ELSEWHERE, next_retry_delay=timedelta(seconds=ELSEWHERE_S))


def make_context(session: NodeRegistry, leaf: LeafInput, runtime: WorkerLeafRuntime) -> ExecutionContext:
    return ExecutionContext(
        session,
        leaf.input,
        workflow_id=leaf.workflow,
        run_id=leaf.run_id,
        path=leaf.path,
        overrides=dict(leaf.overrides),
        params=dict(leaf.params),
        folder=leaf.folder,
        workspace=None if leaf.workspace is None else ActiveWorkspace.from_data(leaf.workspace),
        _runtime=runtime,
    )


async def send_heartbeats() -> None:
    """Tell Temporal that the leaf runs; the replies say when it is cancelled."""
    timeout = activity.info().heartbeat_timeout
    pause = timeout.total_seconds() / HEARTBEATS_PER_TIMEOUT if timeout else 1.0
    while True:
        activity.heartbeat()
        await asyncio.sleep(pause)


async def finish(closing: Any) -> None:
    """Wait for an end that a further cancellation does not interrupt."""
    task = asyncio.ensure_future(closing)
    while not task.done():
        with suppress(asyncio.CancelledError):
            await asyncio.shield(task)
    task.result()
