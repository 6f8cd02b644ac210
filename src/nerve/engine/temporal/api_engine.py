"""The engine outside of workflows: starts runs as workflows of Temporal, and sends them commands.

API servers use it, and the steps on leaf workers that start runs or change facts.

It reads runs in the projection, which follows the workflows by some milliseconds. After a command it waits
until the projection shows the effect, so that its sender reads it at every server.
"""

from __future__ import annotations

import asyncio
import builtins
import contextlib
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.workflowservice.v1 import DeleteWorkflowExecutionRequest
from temporalio.client import (
    Client,
    WorkflowFailureError,
    WorkflowHandle,
    WorkflowUpdateFailedError,
    WorkflowUpdateRPCTimeoutOrCancelledError,
    WorkflowUpdateStage,
)
from temporalio.common import WorkflowIDConflictPolicy, WorkflowIDReusePolicy
from temporalio.exceptions import WorkflowAlreadyStartedError
from temporalio.service import RPCError, RPCStatusCode

from nerve import errors
from nerve.core.clock import Clock
from nerve.core.json_codec import encode_json, short_sha256
from nerve.core.nodes.base import NodeRegistry
from nerve.core.workflow.run import WorkflowRun
from nerve.core.workflow.state import FINAL_STATE_VALUES, NO_CALLER, GateAnswer, GateInfo, WorkflowState
from nerve.engine.engine_host import EngineHost
from nerve.engine.fork import ForkPlan, RunCopy, copy_artifacts_of, copy_planned
from nerve.engine.local_engine import LocalEngine, check_same_workflow, restore_run
from nerve.engine.run_chain import find_current_row
from nerve.engine.run_commands import encode_ended_update
from nerve.engine.temporal.carried_runs import carry_copy, carry_run, check_length, find_host
from nerve.engine.temporal.client import no_answer_error, report_no_answer
from nerve.engine.temporal.cluster_facts import ClusterFacts
from nerve.engine.temporal.cluster_queues import ListedQueues
from nerve.engine.temporal.command_delivery import CommandDelivery
from nerve.engine.temporal.fact_delivery import FactDelivery
from nerve.engine.temporal.messages import (
    COMMAND_UPDATE,
    WORKFLOW_TYPE,
    RunCommand,
    RunCommandReply,
    RunInput,
    body_queue,
    run_id_of_key,
)
from nerve.engine.temporal.projected_runs import find_workflow_id
from nerve.errors import EngineUnavailable, GateNotOpen, NerveError, StoreBusy
from nerve.journal.events import RunResumed
from nerve.journal.index import JournalIndex
from nerve.store.port import Append, EventRow, ReplyRow, RunRow, Store
from nerve.store.postgres_projection import PostgresProjection

if TYPE_CHECKING:
    from nerve.dataspace import Change
    from nerve.engine.durable_dataspace import ChangeReplyFactory
    from nerve.engine.temporal.stuck_runs import StuckRuns
    from nerve.store.postgres_facts import FactWatch

POLL_S, MAX_POLL_S = 0.02, 0.5
"""The first and the longest pause before the projection is read again."""
WATCH_INTERVAL_S = 0.1
ACCEPT_TIMEOUT_S = 15.0
"""Seconds in which a body worker must begin a command."""
MAX_WAITING_COMMANDS = 200
"""How many commands of a server wait for a body worker at the same time.

Temporal counts them together with the workers that ask for work, and refuses more than 1,200 in all: commands
that wait for workers must not keep the workers out.
"""
PROJECTION_TIMEOUT_S = 10.0
"""Seconds in which the projection must show the effect of a command."""
PARKED_STATES = (WorkflowState.PAUSED.value, WorkflowState.HELD.value)


class RunEnded(RuntimeError):
    """The workflow of a run has ended."""


class ApiHost(EngineHost):
    """A process that executes no runs."""

    queue_class = ListedQueues


class TemporalEngine(LocalEngine):
    """Executes nothing itself."""

    def __init__(
        self,
        store: Store,
        names: NodeRegistry,
        session_name: str,
        clock: Clock,
        client: Client,
        projection: PostgresProjection,
        place: str | None = None,
        stuck_runs: StuckRuns | None = None,
    ) -> None:
        """`place` is the place of the runs that are started, if it is recorded with them.

        `stuck_runs` are looked up again and again, and notice that Temporal does not answer.
        """
        super().__init__(store, names, session_name, clock, ApiHost())
        self._client, self._projection, self._place = client, projection, place
        self._stuck_runs = stuck_runs
        self._delivery = FactDelivery(CommandDelivery(client), ClusterFacts(projection, session_name))
        self._waiting_commands = asyncio.Semaphore(MAX_WAITING_COMMANDS)
        self.operations = replace(
            self.operations,
            start=self.start,
            stop=self._stop,
            pause=self._pause,
            resume=self._resume_run,
            answer=self._answer,
            signal=self._signal,
            send=self._send,
            query=self._query,
            update=self._update,
            steer=self._steer,
            resolve_doubt=self._resolve_doubt,
        )

    @property
    def problem(self) -> str | None:
        return None if self._stuck_runs is None else self._stuck_runs.problem

    # -- starting ------------------------------------------------------------------------------------

    async def start(self, run: WorkflowRun, key: str | None = None, **lineage: Any) -> None:
        """Start a workflow for a run; return when Temporal has its start, and the projection shows it."""
        part = self._first_part(run, key, lineage)
        await self._start_workflow(RunInput(self._session_name, run.run_id, [part]))
        await self._project([part])
        run.run_state.mark_started(run.run_state.input, run.run_state.params, part.rows[0].at)

    async def _start_workflow(self, given: RunInput) -> None:
        with report_no_answer(f"the start of run '{given.run_id}'"):
            await self._client.start_workflow(
                WORKFLOW_TYPE,
                given.to_data(),
                id=given.run_id,
                task_queue=body_queue(self._session_name),
                id_conflict_policy=WorkflowIDConflictPolicy.FAIL,
                id_reuse_policy=WorkflowIDReusePolicy.REJECT_DUPLICATE,
            )

    async def _project(self, journal: Sequence[Append]) -> None:
        """Show what the history of a workflow has; the workflow sends it again."""
        for part in journal:
            await asyncio.to_thread(self._projection.append, part.run, [part])

    def _first_part(self, run: WorkflowRun, key: str | None, lineage: dict[str, Any]) -> Append:
        start, at = self.make_start(run, key, {**lineage, "place": self._place}), self.clock.time()
        row = self.run_row(run, WorkflowState.RUNNING, None, start, at)
        events = [EventRow(1, at, start.type, "", None, start.encode())]
        return carry_run(row, events, self.definition_of(run.workflow))

    async def start_detached(self, run: WorkflowRun, started_by: dict[str, str]) -> None:
        """Start a run that a step of another run starts, unless an earlier attempt did."""
        with contextlib.suppress(WorkflowAlreadyStartedError):
            await self.start(run, started_by=started_by)

    async def start_once(self, run: WorkflowRun, key: str) -> WorkflowRun:
        """Start a run under an idempotency key, or return the run that already has the key."""
        id, limits = run_id_of_key(self._session_name, key), run.run_state.limits
        keyed = WorkflowRun(run.workflow, run.input, run.params, run_id=id, limits=limits, about=run.about)

        async def begin() -> WorkflowRun:
            await self.start(keyed, key)
            return keyed

        return check_same_workflow(key, await self._start_with_key(key, begin), run)

    async def _start_with_key(
        self, key: str, start_run: Callable[[], Coroutine[Any, Any, WorkflowRun]]
    ) -> WorkflowRun:
        """Return the run of a key; its id derives from the key, so that all servers together start one.

        That of a run that the local engine has begun does not.
        """
        id = run_id_of_key(self._session_name, key)
        if (row := self.store.run(id) or self.store.run_by_key(self._session_name, key)) is None:
            try:
                return await start_run()
            except WorkflowAlreadyStartedError:
                row = await self._await_row(id, lambda row: True)
        return self.run_handle(row)

    async def _start_planned(
        self, plan: ForkPlan, key: str | None, reply: ReplyRow | None, **options: Any
    ) -> WorkflowRun:
        """Start a workflow with the journals that a fork copies."""
        run_id = None if key is None else run_id_of_key(self._session_name, key)
        copies = copy_planned(self._fork_services, plan, key, run_id=run_id, **options)
        parts = [self._carry(each) for each in copies]
        check_length(plan.row.run, parts)
        await copy_artifacts_of(copies)
        parts[-1] = parts[-1]._replace(replies=[] if reply is None else [reply])
        run = copies[-1].run
        # A workflow reads a parent before its child runs; readers see a fork when its child runs are there.
        host = find_host(self.store, plan.row)
        await self._start_workflow(RunInput(self._session_name, run.run_id, parts[::-1], host=host))
        await self._project(parts)
        return run

    def _carry(self, run_copy: RunCopy) -> Append:
        run, at = run_copy.run, self.clock.time()
        run.run_state.mark_started(run.input, run.params, self.clock.time())
        row = self.run_row(run, WorkflowState.RUNNING, None, run_copy.start, at)
        return carry_copy(run_copy, row, at, self.definition_of(run.workflow))

    # -- commands ------------------------------------------------------------------------------------

    async def _command(
        self,
        run: WorkflowRun,
        verb: str,
        arguments: Mapping[str, Any],
        reply: ReplyRow | None = None,
        key: str | None = None,
    ) -> Any:
        """Return the value with which the workflow of a run replies to a command."""
        command = RunCommand(verb, run.run_id, arguments, None if reply is None else list(reply))
        handle = self._client.get_workflow_handle(find_workflow_id(self.store, run.run_id))
        # With the value: the workflow refuses the key of a command with another value.
        id = None if key is None else short_sha256(encode_json([verb, run.run_id, command.arguments]))
        try:
            with report_no_answer(f"the command for run '{run.run_id}'"):
                data = await self._execute_update(handle, command, id)
        except TimeoutError:
            raise StoreBusy(
                f"No body worker has begun the command for run '{run.run_id}' for {ACCEPT_TIMEOUT_S:g} "
                "seconds, and one may do so later. Start one: nerve worker --bodies"
            ) from None
        except (RPCError, WorkflowUpdateFailedError) as error:
            raise to_command_error(run, error) from error
        answered = RunCommandReply.from_data(data)
        if answered.error is not None:
            raise to_exception(answered)
        return answered.value

    async def _execute_update(
        self, handle: WorkflowHandle[Any, Any], command: RunCommand, id: str | None
    ) -> dict[str, Any]:
        """Return the reply of a workflow; TimeoutError if no worker has begun the command in time."""
        try:
            async with asyncio.timeout(ACCEPT_TIMEOUT_S), self._waiting_commands:
                update = await handle.start_update(
                    COMMAND_UPDATE, command.to_data(), wait_for_stage=WorkflowUpdateStage.ACCEPTED, id=id
                )
        except WorkflowUpdateRPCTimeoutOrCancelledError as error:
            raise TimeoutError from error
        try:
            reply: dict[str, Any] = await update.result()
        except WorkflowUpdateRPCTimeoutOrCancelledError as error:
            if isinstance(error.__cause__, asyncio.CancelledError):
                raise error.__cause__ from None
            problem = "it took the command, and no reply came"
            raise no_answer_error(f"the command for run '{command.run_id}'", problem) from error
        return reply

    async def _command_open(
        self,
        run: WorkflowRun,
        verb: str,
        arguments: Mapping[str, Any],
        command_ended: Callable[[], Coroutine[Any, Any, Any]],
        reply: ReplyRow | None = None,
        key: str | None = None,
    ) -> Any:
        """Send a command; if the run has ended, `command_ended` finds the reply, or says what is wrong."""
        try:
            return await self._command(run, verb, arguments, reply, key)
        except RunEnded:
            await self._show(self.current_run(run), lambda row: row.state in FINAL_STATE_VALUES)
            return await command_ended()

    async def _stop(
        self, run: WorkflowRun, reason: str = "", about: Mapping[str, Any] = NO_CALLER
    ) -> list[str]:
        run = self.current_run(run)
        if run.is_complete:
            return []
        stopped: list[str] = await self._command(run, "stop", {"reason": reason, "about": dict(about)})
        await self._show(run, lambda row: row.state in FINAL_STATE_VALUES)
        return stopped

    async def _pause(self, run: WorkflowRun, about: Mapping[str, Any] = NO_CALLER) -> None:
        run = self.current_run(run)
        fields = {"about": dict(about)}
        await self._command_open(run, "pause", fields, lambda: self.commands.pause(run))
        await self._show(run, lambda row: row.state in (*PARKED_STATES, *FINAL_STATE_VALUES))

    async def _resume_run(
        self,
        run: WorkflowRun,
        limits: Mapping[str, Any],
        with_changes: bool = False,
        reply: ReplyRow | None = None,
        about: Mapping[str, Any] = NO_CALLER,
    ) -> None:
        run = self.current_run(run)
        last = self._last_number(run)
        fields = {"limits": dict(limits), "with_changes": with_changes, "about": dict(about)}
        await self._command_open(
            run, "resume", fields, lambda: self.commands.resume(run, limits, with_changes, reply), reply
        )
        await self._show(run, lambda row: self._has_resumed(run, last))

    async def _resolve_doubt(
        self,
        run: WorkflowRun,
        path: str,
        decision: str,
        value: Any,
        reply: ReplyRow | None = None,
        about: Mapping[str, Any] = NO_CALLER,
    ) -> None:
        run = self.current_run(run)
        last = self._last_number(run)
        fields = {"path": path, "decision": decision, "value": value, "about": dict(about)}
        await self._command_open(
            run, "decide", fields, lambda: self.commands.resolve_doubt(run, path, decision, value), reply
        )
        await self._show(run, lambda row: self._last_number(run) > last)

    async def _answer(self, run: WorkflowRun, gate: GateInfo, answer: GateAnswer) -> None:
        fields = {"gate": gate.path, "value": answer.value, "by": answer.by, "key": answer.key}
        if answer.voter is not None:
            fields |= {"voter": asdict(answer.voter), "action": answer.action}
        last = self._last_number(run)
        try:
            await self._command(run, "answer", {**fields, "about": dict(answer.about)}, answer.reply)
        except (RunEnded, GateNotOpen) as error:
            # The error names the winner, which the projection has to show first.
            await self._show_answer(run, gate)
            raise GateNotOpen(str(error)) from error
        if gate.policy is not None:  # the gate may stay open
            await self._show(run, lambda row: self._last_number(run) > last)
            return
        await self._show_answer(run, gate)

    async def _show_answer(self, run: WorkflowRun, gate: GateInfo) -> None:
        if self._is_open(run.run_id, gate.path):
            await self._await_row(run.run_id, lambda row: not self._is_open(run.run_id, gate.path))

    def _is_open(self, run_id: str, path: str) -> bool:
        return any(wait.path == path for wait in self.store.waits_of_run(run_id))

    async def _send(
        self, run: WorkflowRun, channel: str, value: Any, key: str | None, by: str, reply: Any = None
    ) -> None:
        fields = {"channel": channel, "value": value, "key": key, "by": by}
        await self._command_open(
            run, "send", fields, lambda: self.commands.send(run, channel, value, key, by), reply, key
        )

    async def _query(self, run: WorkflowRun, name: str) -> Any:
        return await self._command_open(run, "query", {"name": name}, lambda: self.commands.query(run, name))

    async def _update(self, run: WorkflowRun, name: str, value: Any, key: str | None, by: str) -> Any:
        data = encode_ended_update(run, name, value)
        fields = {"name": name, "value": data, "key": key, "by": by}
        return await self._command_open(
            run, "update", fields, lambda: self.commands.update(run, name, data, key, by), None, key
        )

    async def _steer(
        self, run: WorkflowRun, text: str, path: str | None, by: str, make_reply: Any = None
    ) -> str:
        steered: str = await self._command(run, "steer", {"text": text, "path": path, "by": by})
        if make_reply is not None:
            part = Append("", 0, (), replies=[make_reply(steered)])
            await asyncio.to_thread(self.store.append, [part])
        return steered

    async def _signal(self, run: WorkflowRun, label: str, value: Any, key: str | None) -> int:
        run = self.current_run(run)
        encode_json(value)
        count: int = await self._command(run, "signal", {"label": label, "value": value, "key": key})
        return count

    async def resume_runs_held_for_day(self) -> None:
        """Leave it to the workers, which hold the runs at their next turns."""

    # -- facts ---------------------------------------------------------------------------------------

    async def load_dataspace(self) -> None:
        """Load the facts again, which other processes change too."""
        self.forget_dataspace()
        await asyncio.to_thread(lambda: self.dataspace)

    async def change_facts(
        self,
        asserted: Sequence[Any] = (),
        retracted: Sequence[Any] = (),
        by: str = "",
        make_reply: ChangeReplyFactory | None = None,
    ) -> list[Change]:
        """Retract and assert facts; return when the runs that they continue have taken them."""
        facts = self._delivery.facts
        changes, settled = await asyncio.to_thread(facts.change, asserted, retracted, by, make_reply)
        self.forget_dataspace()
        await self._show_settled(await self._delivery.deliver(settled))
        return changes

    async def _show_settled(self, watches: Sequence[FactWatch]) -> None:
        """Wait until readers see that runs have taken facts; without a body worker, they see it later."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(PROJECTION_TIMEOUT_S):
                for watch in watches:
                    while await asyncio.to_thread(self._is_open, watch.run, watch.path):  # noqa: ASYNC110 - polled
                        await asyncio.sleep(POLL_S)

    # -- deletion ------------------------------------------------------------------------------------

    def is_busy(self, run_id: str) -> bool:
        # A workflow needs the values of the first run of its chain as long as it executes a later one.
        row = self.store.run(run_id)
        return row is None or find_current_row(self.store, row).ended is None

    async def wait_finished(self, run_id: str) -> bool:
        """Return whether the workflow of a run has ended, which follows the end of the run."""
        handle = self._client.get_workflow_handle(find_workflow_id(self.store, run_id))
        try:
            async with asyncio.timeout(PROJECTION_TIMEOUT_S):
                await handle.result()
        except TimeoutError:
            return False
        except (RPCError, WorkflowFailureError) as error:
            return isinstance(error, WorkflowFailureError) or error.status is RPCStatusCode.NOT_FOUND
        return True

    async def delete_executions(self, rows: Sequence[RunRow]) -> None:
        """Delete the histories of workflows."""
        for row in rows:
            if row.parent is None:
                await self._delete_histories(row.run)

    async def _delete_histories(self, workflow_id: str) -> None:
        with report_no_answer(f"the deletion of run '{workflow_id}'"):
            # The list does not have a workflow yet that has just been started.
            ids = {each.run_id async for each in self._client.list_workflows(f'WorkflowId = "{workflow_id}"')}
        for run_id in sorted(ids) or [""]:
            execution = WorkflowExecution(workflow_id=workflow_id, run_id=run_id)
            request = DeleteWorkflowExecutionRequest(
                namespace=self._client.namespace, workflow_execution=execution
            )
            try:
                await self._client.workflow_service.delete_workflow_execution(request)
            except RPCError as error:
                if error.status is not RPCStatusCode.NOT_FOUND:
                    problem = f"Temporal has not deleted the history of '{workflow_id}': {error}"
                    raise NerveError(problem) from error

    # -- the projection ------------------------------------------------------------------------------

    async def next_change(self, run: WorkflowRun) -> WorkflowRun:
        """Return the current run of a chain a moment later, as the projection then shows it."""
        await asyncio.sleep(WATCH_INTERVAL_S)
        row = self.store.run(run.run_id)
        return run if row is None else self.run_handle(row).current

    def children_of(self, run: WorkflowRun) -> Mapping[str, WorkflowRun]:
        # No run is in memory here, also none that waits both itself and for child runs.
        if run.run_state.status is WorkflowState.WAITING and not run.run_state.children:
            return self._find_open_children(run.run_id, JournalIndex(self.store.events(run.run_id)))
        return super().children_of(run)

    def _last_number(self, run: WorkflowRun) -> int:
        last = self.store.last_event(run.run_id)
        return 0 if last is None else last.seq

    def _has_resumed(self, run: WorkflowRun, last: int) -> bool:
        """Whether a run has continued after an event."""
        return any(row.type == RunResumed.type for row in self.store.events(run.run_id, last))

    async def _show(self, run: WorkflowRun, is_shown: Callable[[RunRow], bool]) -> None:
        """Wait for the effect of a command, and set the fields of a handle from it."""
        row = await self._await_row(run.run_id, is_shown)
        restore_run(run, row, self.store.events(run.run_id))

    async def _await_row(self, run_id: str, is_shown: Callable[[RunRow], bool]) -> RunRow:
        pause = POLL_S
        try:
            async with asyncio.timeout(PROJECTION_TIMEOUT_S):
                while True:
                    if (row := self.store.run(run_id)) is not None and is_shown(row):
                        return row
                    await asyncio.sleep(pause)
                    pause = min(2 * pause, MAX_POLL_S)
        except TimeoutError:
            raise StoreBusy(
                f"The command for run '{run_id}' was taken, but no body worker has shown its effect for "
                f"{PROJECTION_TIMEOUT_S:g} seconds. Start one: nerve worker --bodies"
            ) from None


def to_command_error(run: WorkflowRun, error: Exception) -> Exception:
    if isinstance(error, RPCError) and error.status is RPCStatusCode.NOT_FOUND:
        return RunEnded(f"Run '{run.run_id}' has ended")
    if isinstance(error, RPCError) and error.status is RPCStatusCode.FAILED_PRECONDITION:
        problem = (
            f"The last task of run '{run.run_id}' has failed, and workers try it again before any command"
        )
        return EngineUnavailable(problem, "Look for its error with nerve doctor, then repeat")
    return NerveError(f"Temporal has not executed the command for run '{run.run_id}': {error}")


def to_exception(reply: RunCommandReply) -> Exception:
    """Return the exception with which a workflow refused a command."""
    kind = getattr(errors, reply.error_type, None) or getattr(builtins, reply.error_type, None)
    if isinstance(kind, type) and issubclass(kind, (NerveError, ValueError, TypeError)):
        # The constructor of the class makes the message from the fields, and both are here.
        error: Exception = kind.__new__(kind, reply.error)
        vars(error).update(reply.error_fields)
        return error
    return RuntimeError(reply.error)
