"""WorkflowContext: the argument of a workflow function."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import field, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, Concatenate, Literal, NoReturn, TypeVar, Unpack, overload

from nerve.core.events import validate_sink
from nerve.core.gates import check_gate_settings
from nerve.core.json_codec import check_safe_integers, decode_json, encode_json
from nerve.core.limits import Limits
from nerve.core.nodes.base import Node, NodeRegistry, effective_policy
from nerve.core.nodes.context import ExecutionContext, call_with_fallback
from nerve.core.nodes.control.workspace_node import OnConflict, require_on_conflict
from nerve.core.nodes.durable_timeout import durable_timeout
from nerve.core.nodes.fact_nodes import AssertNode, RetractNode, fact_to_json
from nerve.core.nodes.workspace import MergePolicy, WorkspaceKind, WorkspaceSettings
from nerve.core.policy import NO_POLICY, Effect, OnError, Policy, Retry
from nerve.core.queues import Queue
from nerve.core.result import Result, is_rejected, was_skipped
from nerve.core.runtime import GateWait, NodeCall, SignalWait, TimerWait, Wait
from nerve.core.suggest import did_you_mean_hint
from nerve.core.tags import validate_tags
from nerve.core.validation import (
    describe_value,
    require_callable,
    require_mapping,
    require_name,
    require_seconds,
    require_str,
)
from nerve.core.workflow.answer_type import AnswerType, ask_typed
from nerve.core.workflow.body_handlers import BodyHandlers, UpdateHandler
from nerve.core.workflow.cleanup import Saga, cleanup_block
from nerve.core.workflow.detached_start import StartNode
from nerve.core.workflow.message_receiver import MessageReceiver
from nerve.core.workflow.workspace_block import (
    CURRENT_WORKSPACE,
    WorkspaceHandle,
    ask_about_files,
    enter_block,
    shared_block,
    workspace_block,
)
from nerve.errors import ContinuedAsNew, InvalidRecord, InvalidValue, NodeFailed, Rejected, WorkflowFailed
from nerve.lazy_dataclass import dataclass

if TYPE_CHECKING:
    from nerve.core.gate_policy import GatePolicy, PolicySettings
    from nerve.core.nodes.step import StepNode
    from nerve.core.workflow.run import WorkflowRun


V = TypeVar("V")
I = TypeVar("I")  # noqa: E741 - the input of a workflow function

RUN_OPTIONS = (*Policy.__slots__, "auto_approve", "event_sink", "run_id", "session", "workflow_id")
"""Options of `ctx.run` beside node and input; the run provides everything else."""


@dataclass
class WorkflowContext:
    """The interface of a workflow function to the engine; every effect through it is recorded.

    The methods assign paths when they are called, not when they are awaited, so `asyncio.gather` over them
    replays in the same order.
    """

    session: NodeRegistry | None
    """The session with the nodes, graphs and workflows that the methods find by name."""
    input: Any = None
    """The input of the run, as JSON has it."""
    params: dict[str, Any] = field(default_factory=dict)
    """The parameters of the run."""
    state: dict[str, Any] = field(default_factory=dict)
    """A dict for values of the function; it is not stored, and replay builds it again."""
    _run: WorkflowRun | None = field(default=None, repr=False)
    execution: ExecutionContext = field(default_factory=ExecutionContext, repr=False)
    """The context of the run for nodes, through which the methods work."""

    def __post_init__(self) -> None:
        if self.execution.session is None:
            self.execution.session = self.session

    @property
    def run_id(self) -> str:
        """The id of the run, or "" without a run."""
        return self._run.run_id if self._run else ""

    def run(
        self,
        node_id: str,
        input: Any = None,
        timeout: float | None = None,
        *,
        retry: Retry | None = None,
        idle_timeout: float | None = None,
        on_error: OnError | Node | None = None,
        effect: Effect | None = None,
        limits: Limits | Mapping[str, Any] | None = None,
        queue: str | Queue | None = None,
        **kwargs: Any,
    ) -> Coroutine[Any, Any, Result]:
        """Execute a node or a graph by its name and return its Result.

        Further keywords are fields of its ExecutionContext: `auto_approve`, `event_sink`, `run_id`,
        `session`, `workflow_id`. The sink receives the events of a leaf in addition to the run.
        `limits` is the budget of the step: `tokens`, `cost`, `turns`. `queue` is the queue that limits it.

        A failed node returns a Result with `success` false. Raises TimeoutError on a timeout, NodeFailed
        when the node raised, and Rejected when a person rejected a gate in it.
        """
        if kwargs:
            check_run_options(kwargs)
        policy = Policy.of(retry, timeout, idle_timeout, on_error, effect, limits, queue)
        return await_result(self._make_call(self._find_node(node_id), node_id, input, policy, kwargs))

    def run_step(self, node: StepNode, input: dict[str, Any]) -> Coroutine[Any, Any, Any]:
        """Execute a typed step and return its value; a failure raises NodeFailed or TimeoutError."""
        return await_step_value(self._make_call(node, node.id or "", input))

    def run_graph(self, graph_id: str, input: Any = None) -> Coroutine[Any, Any, Result]:
        """Execute a graph by its name and return its Result; ValueError for an unknown name."""
        if not isinstance(graph_id, str):
            raise name_required_error("run_graph", "graph", graph_id)
        graph = self.session.get_graph(graph_id) if self.session else None
        if graph is None:
            raise ValueError(f"Graph '{graph_id}' not found{self._suggest_name('graphs', graph_id)}")
        return await_result(self._make_call(graph, graph_id, input))

    def run_parallel(self, calls: Iterable[tuple[str, Any]]) -> Coroutine[Any, Any, list[Result]]:
        """Execute several nodes concurrently and return their Results in order; failures do not raise.

        An unknown name raises ValueError, before any of them starts.
        """
        named_calls = list(calls)
        for call in named_calls:
            if not isinstance(call, tuple | list) or len(call) != 2:
                raise ValueError(
                    f"run_parallel needs pairs (name of a node, input), got {describe_value(call)}"
                )
        nodes = [self._find_node(node_id) for node_id, _ in named_calls]
        node_calls = [
            self._make_call(node, node_id, node_input)
            for node, (node_id, node_input) in zip(nodes, named_calls, strict=True)
        ]
        return gather_results(node_calls)

    @overload
    def run_workflow(
        self,
        workflow_id: Callable[[WorkflowContext], Awaitable[V]],
        input: Any = None,
        params: dict[str, Any] | None = None,
    ) -> Coroutine[Any, Any, V]: ...

    @overload
    def run_workflow(
        self,
        workflow_id: Callable[Concatenate[WorkflowContext, I, ...], Awaitable[V]],
        input: I,
        params: dict[str, Any] | None = None,
    ) -> Coroutine[Any, Any, V]: ...

    @overload
    def run_workflow(
        self, workflow_id: str, input: Any = None, params: dict[str, Any] | None = None
    ) -> Coroutine[Any, Any, Any]: ...

    def run_workflow(
        self,
        workflow_id: str | Callable[..., Any],
        input: Any = None,
        params: dict[str, Any] | None = None,
    ) -> Coroutine[Any, Any, Any]:
        """Start a child run of a workflow, given by its name or its function, and return its value.

        Raises WorkflowFailed if it failed, and Rejected if a person rejected a gate in it; if the function
        does not catch that, its own run ends as cancelled, too.
        """
        name, workflow = self._find_workflow("run_workflow", workflow_id)
        child_params = {} if params is None else dict(require_mapping(f"params of '{name}'", params))
        call = self._make_call(workflow, name, workflow.encode_input(input))
        call.params = child_params
        return await_child_value(call)

    def start(
        self,
        workflow_id: str | Callable[..., Any],
        input: Any = None,
        params: Mapping[str, Any] | None = None,
        *,
        detached: bool = False,
        label: str | None = None,
        tags: Mapping[str, Any] | None = None,
    ) -> Coroutine[Any, Any, str]:
        """Start a run that outlives this one, and return its id; `detached` must be true.

        The workflow is given by its name or its function. The run is started once, whatever happens to this
        run, and is not stopped with it. It has the conversation of this run. Use `run_workflow` for a child
        run whose value this run waits for.
        """
        name, workflow = self._find_workflow("start", workflow_id)
        if detached is not True:
            raise ValueError(
                f"ctx.start needs detached=True, because the run outlives this one. "
                f"Use ctx.run_workflow('{name}') to wait for its value"
            )
        names = {"label": label, "conversation": self._require_run().about.get("conversation")}
        about: dict[str, Any] = {
            key: require_name(f"a {key}", value) for key, value in names.items() if value is not None
        }
        if tags:
            about["tags"] = validate_tags(tags)
        given = {
            "workflow": name,
            "input": workflow.encode_input(input),
            "params": workflow.check_params(require_mapping(f"params of '{name}'", params or {})),
            "about": about,
        }
        check_safe_integers(given)
        return await_started_id(self._make_call(StartNode("start"), name, given))

    @overload
    def gate(
        self,
        prompt: str,
        timeout: float | None = None,
        *,
        options: list[str] | None = None,
        type: type[V],
        **policy: Unpack[PolicySettings],
    ) -> Coroutine[Any, Any, V]: ...

    @overload
    def gate(
        self,
        prompt: str,
        timeout: float | None = None,
        choices: list[str] | None = None,
        *,
        options: list[str] | None = None,
        form: Mapping[str, Any] | None = None,
        type: Any = None,
        **policy: Unpack[PolicySettings],
    ) -> Coroutine[Any, Any, Any]: ...

    def gate(
        self,
        prompt: str,
        timeout: float | None = None,
        choices: list[str] | None = None,
        *,
        options: list[str] | None = None,
        form: Mapping[str, Any] | None = None,
        type: Any = None,
        **policy: Unpack[PolicySettings],
    ) -> Coroutine[Any, Any, Any]:
        """Open a gate and return the answer of a person.

        `choices` are the only accepted answers, `options` are hints, `form` is a JSON Schema for the answer.
        `type` gives the choices or the form, and the answer is returned as a value of it: a dataclass, a
        pydantic model, an enum, a Literal, `bool`, `Decimal`, `datetime` and the other types of a step.

        `approvers` are the people and roles who may answer, `quorum` is how many of them have to give the
        same answer, or "2 of [lead, security]" for one person of each role; `veto` can reject alone. The
        person who started the run, and the `author`, cannot approve without `self_approval`. With `claim`,
        the first approver who claims the gate answers it. `remind` are seconds after which the approvers are
        reminded; `escalate` adds approvers: `[{"after": 3600, "to": ["admin"]}]`.
        """
        self._require_run()
        require_str("prompt of a gate", prompt)
        check_gate_settings("a gate", timeout, options, choices, form)
        execution = self._current_execution()
        if type is None:
            gate_policy = make_policy(policy, choices is not None)
            path = self.execution.next_path("gate")
            gate = GateWait(path, prompt, choices, options, timeout, form=form, policy=gate_policy)
            return ask_about_files(execution, gate)
        if choices is not None or form is not None:
            name = "choices" if choices is not None else "form"
            raise TypeError(f"ctx.gate takes either type or {name}: the type gives the choices or the form")
        answer_type = AnswerType(type, prompt)
        gate = GateWait(
            self.execution.next_path("gate"),
            prompt,
            answer_type.choices,
            options,
            timeout,
            form=answer_type.form,
            typed=True,
            policy=make_policy(policy, answer_type.choices is not None),
        )
        return ask_typed(execution, gate, answer_type, ask_about_files)

    def emit(self, event_type: str, data: dict[str, Any] | None = None) -> None:
        """Emit an event to subscribers, under any name."""
        self.execution.emit(event_type, data)

    def sleep(self, seconds: float) -> Coroutine[Any, Any, None]:
        """Sleep, across restarts: time in which no process runs counts, too."""
        require_seconds("seconds of a sleep", seconds)
        return await_wait(self.execution, TimerWait(self.execution.next_path("sleep"), seconds))

    def wait_signal(
        self, label: str, key: str | None = None, timeout: float | None = None
    ) -> Coroutine[Any, Any, Any]:
        """Return the value of a signal, once it is asserted. Without a key, any key matches."""
        self._require_run()
        require_name("a signal", label)
        if key is not None:
            require_name("a signal's key", key)
        if timeout is not None:
            require_seconds("timeout of a signal", timeout)
        return await_wait(self.execution, SignalWait(self.execution.next_path(label), label, key, timeout))

    def receive(
        self, channel: str, type: type[V] | None = None, *, timeout: float | None = None
    ) -> MessageReceiver[V]:
        """Return the next message of a channel: `await` gives one, `async for` one after the other.

        Messages come in the order in which they were sent, each once. They wait while the run is busy.
        `type` says what to decode them as; TimeoutError after `timeout` seconds without one.
        """
        run = self._require_run()
        codec = run.workflow.channel_codec(channel, type)
        if timeout is not None:
            require_seconds("timeout of a message", timeout)
        return MessageReceiver(self.execution, channel, codec, timeout)

    def query(self, name: str, handler: Callable[[], Any]) -> None:
        """Answer `run.query(name)` with what `handler()` returns; it may only read."""
        require_callable(f"handler of query '{require_name('a query', name)}'", handler)
        self._require_handlers().add_query(name, handler)

    def update(
        self,
        name: str,
        handler: Callable[..., Any],
        *,
        validate: Callable[..., Any] | None = None,
    ) -> None:
        """Handle `run.update(name, value)` with `handler(value)`, whose result is the reply.

        The handler may change the state of the function and, if it is async, run steps. `validate(value)` is
        called first and rejects the update by raising; it may only read.
        """
        require_callable(f"handler of update '{require_name('an update', name)}'", handler)
        if validate is not None:
            require_callable(f"validator of update '{name}'", validate)
        self._require_handlers().add_update(UpdateHandler(name, handler, validate))

    def _require_handlers(self) -> BodyHandlers:
        handlers = self._require_run().run_state.handlers
        assert handlers is not None
        return handlers

    def assert_fact(self, fact: Any) -> Coroutine[Any, Any, None]:
        """Assert a fact (a string, JSON or a record) and return when it is on disk."""
        self._require_run()
        return await_assert(self._make_call(AssertNode("assert"), "assert", fact_to_json(fact)))

    def retract_fact(self, pattern: Any) -> Coroutine[Any, Any, int]:
        """Retract the facts that match a pattern and return their number."""
        self._require_run()
        return await_retract(self._make_call(RetractNode("retract"), "retract", fact_to_json(pattern)))

    def now(self) -> datetime:
        """Return the time in UTC, the same on replay."""
        return self.execution.now()

    def random(self) -> float:
        """Return a random number from 0 to 1, the same on replay."""
        return self.execution.random()

    def new_id(self) -> str:
        """Return a UUID string, the same on replay."""
        return self.execution.new_id()

    def tag(self, **tags: str | float | bool) -> None:
        """Set tags of the run, by which `nerve runs --tag` finds it; other tags stay.

        Numbers and booleans become text. A run has at most 32 tags of at most 256 characters.
        """
        self.execution.runtime.set_tags(validate_tags(tags))

    def patched(self, name: str) -> bool:
        """Return whether this run takes the new branch of a change, named by the patch.

        True if the run reaches the first use of the patch live, and False if it had passed that place
        before the patch was there. The outcome is recorded, and the same for the rest of the run.
        """
        if not require_name("a patch", name):
            raise ValueError("The name of a patch must not be empty; use a name such as 'fraud-check'")
        return self.execution.runtime.is_patched(name)

    def continue_as_new(self, input: Any = None, params: Mapping[str, Any] | None = None) -> NoReturn:
        """End this run and start the next run of its chain with this input, in one commit; never returns.

        The next run has an empty journal. It gets the unread messages, tags, label, conversation, parent and
        limits, and what the chain has used of its budget. `params` are by default those of this run. Child
        runs and other tasks of this run are stopped. RuntimeError in a step, a task, a handler or a cleanup
        block.
        """
        run = self._require_run()
        self.execution.runtime.check_may_continue()
        workflow = run.workflow
        next_params = self.params if params is None else workflow.check_params(params)
        next_input = workflow.encode_input(input)
        check_safe_integers([next_input, next_params])
        # As the journal will have it: cleanup code of the function may change its objects.
        raise ContinuedAsNew(*decode_json(encode_json([next_input, next_params])))

    def receive_gate_input(self, value: Any) -> None:
        """Answer the open gate of this run."""
        self._require_run().answer_gate(value)

    def timeout(self, seconds: float) -> AbstractAsyncContextManager[None]:
        """Raise TimeoutError inside the block after `seconds`, at the same point on replay."""
        self._require_run()
        require_seconds("seconds of a timeout", seconds)
        return durable_timeout(self.execution.wait, self.execution.next_internal_path("timeout"), seconds)

    def cleanup(self, timeout: float | None = 60) -> AbstractAsyncContextManager[None]:
        """Let the block run steps although the run is being stopped or has reached a limit.

        Use it in a `finally` or `except` block. The run is `stopping` meanwhile, and a crash does not lose
        the place. A second stop ends it at once, and `timeout` seconds raise TimeoutError in it.
        """
        self._require_run()
        return cleanup_block(self.execution, timeout)

    def saga(self, timeout: float | None = 60) -> Saga:
        """Run the compensations that the block registers, in reverse order, if it fails or is stopped.

        `async with ctx.saga() as saga:` and `saga.compensate(refund, receipt)`; `timeout` is the time for all
        compensations.
        """
        self._require_run()
        return Saga(self.execution, timeout)

    @overload
    def workspace(self, kind: Literal["shared"]) -> AbstractAsyncContextManager[None]: ...

    @overload
    def workspace(
        self,
        kind: Literal["worktree", "copy"] = "worktree",
        *,
        base: str | None = None,
        branch: str | None = None,
        files: Iterable[str] = (),
        setup: str | None = None,
        merge: MergePolicy = "files",
        on_conflict: OnConflict = "ask",
    ) -> AbstractAsyncContextManager[WorkspaceHandle]: ...

    def workspace(
        self,
        kind: WorkspaceKind = "worktree",
        *,
        base: str | None = None,
        branch: str | None = None,
        files: Iterable[str] = (),
        setup: str | None = None,
        merge: MergePolicy = "files",
        on_conflict: OnConflict = "ask",
    ) -> AbstractAsyncContextManager[WorkspaceHandle | None]:
        """Run the steps of the block in a checkout of its own, and merge their work when it has succeeded.

        `worktree` is a git worktree on a branch of its own, `copy` a copy of a folder that is not in a
        repository. With `shared`, agents of the block may edit the same files at the same time.
        `merge` is `files`, `ff`, `squash`, `rebase` or `none`. A block that raises leaves its
        work in the workspace, which `nerve workspaces` lists.
        """
        self._require_run()
        settings = WorkspaceSettings(kind, base, branch, tuple(files), setup, merge)
        if kind == "shared":
            return shared_block()
        return workspace_block(self._current_execution(), settings, require_on_conflict(on_conflict))

    def _current_execution(self) -> ExecutionContext:
        """Return the context of the run for steps, inside the workspace of the enclosing block."""
        block = CURRENT_WORKSPACE.get()
        return self.execution if block is None else enter_block(block, self.execution)

    def _make_call(
        self,
        node: Node,
        name: str,
        input: Any,
        policy: Policy = NO_POLICY,
        extra: dict[str, Any] | None = None,
    ) -> NodeCall:
        execution = self.execution if CURRENT_WORKSPACE.get() is None else self._current_execution()
        context = replace(execution, **extra) if extra else execution
        policy = effective_policy(node, policy)
        return NodeCall(self.execution.next_path(name), node, name, input, policy, False, context)

    def _find_node(self, node_id: Any) -> Node:
        if not isinstance(node_id, str):
            raise name_required_error("run", "node", node_id)
        session = self.session
        node: Node | None = (session.get_node(node_id) or session.get_graph(node_id)) if session else None
        if node is None:
            raise ValueError(f"Node '{node_id}' not found in session{self._suggest_name('nodes', node_id)}")
        return node

    def _find_workflow(self, verb: str, workflow_id: str | Callable[..., Any]) -> tuple[str, Any]:
        """Return the name of a workflow, given by its name or its function, and the workflow."""
        if inspect.isfunction(workflow_id) and self.session is not None:
            workflow_id = find_workflow_name(self.session.workflows, workflow_id)
        if not isinstance(workflow_id, str):
            raise name_required_error(verb, "workflow", workflow_id)
        workflow = self.session.get_workflow(workflow_id) if self.session else None
        if workflow is None:
            raise ValueError(
                f"Workflow '{workflow_id}' not found{self._suggest_name('workflows', workflow_id)}"
            )
        return workflow_id, workflow

    def _suggest_name(self, kind: str, name: str) -> str:
        session = self.session
        if session is None:
            return ""
        if kind == "nodes" and session.get_workflow(name) is not None:
            return f". It is a workflow: use ctx.run_workflow('{name}')"
        if kind != "nodes" and (session.get_node(name) or session.get_graph(name)) is not None:
            return f". It is a node: use ctx.run('{name}')"
        return did_you_mean_hint(str(name), getattr(session, kind))

    def _require_run(self) -> WorkflowRun:
        if self._run is None:
            raise RuntimeError("WorkflowContext not attached to a WorkflowRun")
        return self._run


def check_run_options(options: Mapping[str, Any]) -> None:
    """Raise TypeError for an option that `ctx.run` does not have, and ValueError for a wrong value."""
    if unknown := [name for name in options if name not in RUN_OPTIONS]:
        raise TypeError(
            f"Unknown option '{unknown[0]}' of ctx.run{did_you_mean_hint(unknown[0], RUN_OPTIONS)}"
        )
    if "run_id" in options:
        require_name("a run", options["run_id"])
    if options.get("event_sink") is not None:
        validate_sink(options["event_sink"])


def name_required_error(verb: str, kind: str, value: Any) -> ValueError:
    """Return the error for an argument that is not a name, with the call to use for a node or workflow."""
    name, role = getattr(value, "id", None), getattr(value, "role", "leaf")
    hint = f"; use ctx.{'run_workflow' if role == 'workflow' else 'run'}({name!r})" if name else ""
    return ValueError(f"ctx.{verb} needs the name of a {kind}, got {describe_value(value)}{hint}")


def find_workflow_name(workflows: Mapping[str, Any], function: Callable[..., Any]) -> str:
    """Return the name under which a function is registered as a workflow; ValueError if it is not."""
    for name, workflow in workflows.items():
        if workflow.fn is function:
            return name
    raise ValueError(
        f"The function {function.__qualname__} is not a workflow of this session. Use @session.workflow."
    )


def start_call(call: NodeCall) -> Awaitable[Result]:
    assert call.context is not None
    return call_with_fallback(call.context, call) if call.policy.on_error else call.context.runtime.call(call)


async def await_result(call: NodeCall) -> Result:
    """Return the result of a call of a workflow function; raise timeouts, exceptions and rejections."""
    result = await start_call(call)
    result.node = call.path
    if result.settlement != "completed" or not result.get("success"):
        raise_failure(call, result)
    return result


def raise_failure(call: NodeCall, result: Result) -> None:
    """Raise what the result of a call stands for; a failure that the node reports itself is a value."""
    if is_rejected(result):
        assert call.context is not None
        raise Rejected(call.context.run_id, result.error)
    if result.settlement == "timeout":
        raise TimeoutError(f"node '{call.node_id}' {result.error}")
    if result.settlement == "error":
        raise NodeFailed(call.path, result.error_type, result.error) from result.cause


async def await_step_value(call: NodeCall) -> Any:
    """Return the typed value of a step; None if its policy skips a failure."""
    result = await await_result(call)
    # The result of a step has attributes only if its policy has replaced a failure.
    if not result.get("success") or result.get("attributes") or result.settlement != "completed":
        if was_skipped(result):
            return None
        if not result.success:
            raise NodeFailed(call.path, result.error_type, result.error) from result.cause
    node: Any = call.node
    try:
        return node.signature.result.decode(result.get("output"))
    except InvalidValue as error:
        # The step has encoded a value of its type, so the type is another now.
        raise InvalidRecord(call.path, str(error)) from None


async def await_wait(context: ExecutionContext, wait: Wait) -> Any:
    return await context.runtime.wait(wait)


async def await_assert(call: NodeCall) -> None:
    await await_result(call)


async def await_retract(call: NodeCall) -> int:
    count: int = (await await_result(call)).output
    return count


async def await_started_id(call: NodeCall) -> str:
    run_id: str = (await await_result(call)).output
    return run_id


async def await_child_value(call: NodeCall) -> Any:
    result = await start_call(call)
    workflow: Any = call.node
    return workflow.decode_result(result_value(result, result.attributes.get("run_id", "")))


def result_value(result: Result, run_id: str) -> Any:
    """Return the output of a body or a child run; raise Rejected or WorkflowFailed if it did not succeed."""
    if is_rejected(result):
        raise Rejected(run_id, result.error)
    if not result.success:
        raise WorkflowFailed(run_id, result.error, result.error_type or "Failed")
    return result.output


async def gather_results(calls: list[NodeCall]) -> list[Result]:
    results = await asyncio.gather(*map(start_call, calls))
    for call, result in zip(calls, results, strict=True):
        result.node = call.path
    return results


def make_policy(settings: PolicySettings, has_choices: bool) -> GatePolicy | None:
    """Return the policy of a gate in a workflow function; None without settings."""
    if not settings:
        return None
    from nerve.core.gate_policy import read_gate_policy  # few gates have a policy

    return read_gate_policy("a gate", settings, has_choices=has_choices)
