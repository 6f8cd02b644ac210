"""Workflow: a name, a description, limits and a body."""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Callable, Mapping, Sequence
from contextvars import Token
from datetime import UTC, datetime
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import Any, ClassVar, Literal

from nerve.core.input_fields import DeclaredInputs, InputField, declare_inputs
from nerve.core.json_codec import encode_json
from nerve.core.limits import Limits
from nerve.core.nodes.attempt import CURRENT_WORKFLOW, execute_safely
from nerve.core.nodes.base import Node, NodeRegistry, Role, node_policy, node_role
from nerve.core.nodes.context import ExecutionContext, apply_fallback
from nerve.core.nodes.graph import Graph
from nerve.core.nodes.inline import run_with_retries
from nerve.core.notation_table import NotationName
from nerve.core.policy import NO_POLICY
from nerve.core.queues import Queue, QueueRequest
from nerve.core.result import CHILD_REJECTED_ERROR_TYPE, Result
from nerve.core.runtime import NodeCall
from nerve.core.suggest import did_you_mean_hint
from nerve.core.validation import require_callable, require_mapping, require_name, require_node
from nerve.core.value_codec import VARIADIC_KINDS, FunctionSignature, ValueCodec
from nerve.core.workflow.context import WorkflowContext, result_value
from nerve.core.workflow.state import WorkflowInfo, WorkflowState
from nerve.errors import InvalidRecord, InvalidValue, Rejected, WorkflowFailed

__all__ = ["Workflow", "WorkflowInfo", "WorkflowState"]

Kind = Literal["python", "graph"] | NotationName


class Workflow(Node):
    """An async function of a WorkflowContext, or a node tree, registered with a session.

    It is also a node, so workflows nest: as a step, it is a child run with its own journal.
    `params` declares the parameters of its runs with their defaults; without it, any name is accepted.
    `channels` declares the channels of its messages with their types; without it, any name is accepted.
    """

    role: ClassVar[Role] = "workflow"

    def __init__(
        self,
        id: str,
        session: NodeRegistry,
        fn: Callable[[WorkflowContext], Any] | None = None,
        description: str = "",
        metadata: Mapping[str, Any] | None = None,
        *,
        body: Node | None = None,
        limits: Limits | Mapping[str, Any] | None = None,
        params: Mapping[str, Any] | None = None,
        channels: Mapping[str, Any] | None = None,
        **policy: Any,
    ) -> None:
        if (fn is None) == (body is None):
            raise ValueError(f"Workflow '{id}' needs either a function or a body")
        if fn is not None:
            require_callable(f"fn of workflow '{id}'", fn)
        if body is not None:
            require_node(f"body of workflow '{id}'", body)
            if node_role(body) == "control" and node_policy(body).idle_timeout is not None:
                raise ValueError(
                    f"'{id}' is the whole run, which cannot have an idle_timeout; set a timeout,"
                    " or set idle_timeout on its steps"
                )
        require_name("a workflow", id)
        self._fn, self._body = fn, body
        self.signature = workflow_signature(fn, id) if fn is not None else None
        """The parameters after the context, and the result, of a typed function; else None."""
        self._description = description or inspect.cleandoc(
            fn.__doc__ or "" if fn else getattr(body, "description", "")
        )
        self._metadata = dict(metadata or {})
        self._declared_params = (
            None if params is None else dict(require_mapping(f"params of workflow '{id}'", params))
        )
        self._channels = None if channels is None else declare_channels(id, channels)
        self._created_at = datetime.now(UTC)
        self._definition: tuple[str, str, str] | None = None
        self.limits = Limits.of(limits)
        super().__init__(id, session, **policy)
        self.name: str = id

    def _register(self, id: str, session: NodeRegistry) -> None:
        if self._body is None or session.graphs.get(id) is not self._body or id in session.workflows:
            session.validate_unique_id(id, "workflow")
        session.workflows[id] = self

    @property
    def fn(self) -> Callable[[WorkflowContext], Any] | None:
        """The function of the workflow, or None if its body is a node."""
        return self._fn

    @property
    def body(self) -> Node | None:
        """The node that is its body, or None if it is a function."""
        return self._body

    @property
    def kind(self) -> Kind:
        """`python` for a function, `graph` for a node, or the notation of its file."""
        return "python" if self._fn is not None else "graph"

    @property
    def description(self) -> str:
        """The description, by default the docstring of its function."""
        return self._description

    @property
    def created_at(self) -> datetime:
        """When the workflow was registered in this process."""
        return self._created_at

    @property
    def metadata(self) -> dict[str, Any]:
        """The `metadata` of the workflow."""
        return self._metadata

    @property
    def steps(self) -> list[str]:
        """The steps that are known before it runs."""
        return self._body.steps if isinstance(self._body, Graph) else []

    @property
    def calls(self) -> list[str]:
        """The names that it calls, possibly of other workflows, as far as they are known before it runs."""
        return []

    def to_info(self) -> WorkflowInfo:
        """Return the id, description and creation time of the workflow."""
        return WorkflowInfo(self.name, self._description, self._created_at)

    @property
    def logs(self) -> Path | None:
        """The directory for the logs of its runs, or None."""
        return None

    @property
    def artifacts(self) -> Path | None:
        """The directory with a subdirectory per run for the files of its steps, or None."""
        return None

    @property
    def has_workspace(self) -> bool:
        """Whether each of its runs works in a workspace of its own."""
        return False

    def encode_input(self, input: Any) -> Any:
        """Return the input of a run as JSON data; InvalidValue if the function declares another type."""
        if self.signature is None:
            return input
        name, parameter = next(iter(self.signature.parameters.items()))
        if input is None and parameter.default is not parameter.empty:
            return None
        return self.signature.codecs[name].normalize(input)

    def parse_start(self, input: Any, params: Mapping[str, Any]) -> tuple[Any, dict[str, Any]]:
        """Return the input and the parameters of a run, in which users may have typed JSON as text."""
        if self.signature is None:
            return input, dict(params)
        name, codecs = next(iter(self.signature.parameters)), self.signature.codecs
        input, params = self.declared_inputs.join_input(codecs[name].parse_text(input), params)
        parsed = {name: codecs[name].parse_text(value) for name, value in params.items() if name in codecs}
        return codecs[name].parse_text(input), {**params, **parsed}

    @cached_property
    def declared_inputs(self) -> DeclaredInputs:
        """The inputs that the annotations of its function, or its `params`, declare, with their schemas."""
        owner = f"workflow '{self.name}'"
        if self.signature is not None:
            return declare_inputs(self.signature, owner)
        params = self._declared_params or {}
        return DeclaredInputs(owner, [InputField(name, "any", default=params[name]) for name in params])

    @property
    def inputs(self) -> list[InputField]:
        """The declared inputs, which are the options of `nerve run`."""
        return self.declared_inputs.fields

    def decode_result(self, data: Any) -> Any:
        """Return the result of a run as the type that its function declares."""
        return data if self.signature is None else self.signature.result.decode(data)

    def encode_message(self, channel: str, value: Any) -> Any:
        """Return a message as JSON data; ValueError for an undeclared channel or a value of another type."""
        is_declared = self._channels is not None
        # Without a declared type, the value says how to encode it.
        return self.channel_codec(channel, None if is_declared else type(value)).normalize(value)

    def channel_codec(self, channel: str, annotation: Any = None) -> ValueCodec:
        """Return the codec for the messages of a channel, of a type or else of the declared one."""
        check_channel_name(channel)
        if self._channels is not None and channel not in self._channels:
            hint, known = did_you_mean_hint(channel, self._channels), ", ".join(self._channels) or "none"
            raise ValueError(
                f"Unknown channel '{channel}' of workflow '{self.name}'{hint or '.'} Known channels: {known}"
            )
        if annotation is None:
            annotation = (self._channels or {}).get(channel, Any)
        return ValueCodec(annotation, f"The message{{field}} of channel '{channel}'")

    def request_queue(
        self, queue: Queue, input: Any, params: Mapping[str, Any], tags: Mapping[str, str]
    ) -> QueueRequest:
        """Return what a run with this input asks of a queue; tags come before fields of the input."""
        return queue.make_request(f"workflow '{self.name}'", [tags, *self.queue_values(input), params])

    def queue_values(self, input: Any) -> list[Any]:
        """Return where a queue finds the key and the priority of a run: in the fields of its input."""
        if self.signature is None or isinstance(input, Mapping):
            return [input]
        return [{next(iter(self.signature.parameters)): input}]

    def check_params(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """Return the parameters of a run with defaults; ValueError for an undeclared one."""
        if self.signature is not None and self._declared_params is None:
            return self.signature.normalize_params(params)
        if self._declared_params is None:
            return dict(params)
        if unknown := [name for name in params if name not in self._declared_params]:
            known = ", ".join(self._declared_params) or "none"
            raise ValueError(
                f"Unknown parameter '{unknown[0]}' of workflow '{self.name}'"
                f"{did_you_mean_hint(unknown[0], self._declared_params) or '.'} Known parameters: {known}"
            )
        return self._declared_params | dict(params)

    def check_names(self, known: Callable[[], Any]) -> None:
        """Raise ValueError for an unknown name that a workflow file uses."""

    def check_shared_folders(self, known: Callable[[], Any]) -> None:
        """Raise ValueError for parallel agents of a workflow file that would edit the same files unawares."""

    def definition(self) -> tuple[str, str, str]:
        """Return hash, source and canonical form; a run is pinned to the definition it was started from."""
        # Cached, because reading and hashing the source is slow and the code of a process does not change.
        if self._definition is None:
            source = source_text(self._fn or type(self._body))
            body_object = self._fn or type(self._body)
            canonical = encode_json(
                {
                    "kind": self.kind,
                    "module": getattr(body_object, "__module__", ""),
                    "name": getattr(body_object, "__qualname__", repr(body_object)),
                    "steps": self.steps,
                    "source": sha256(source.encode()).hexdigest(),
                },
                canonical=True,
            )
            self._definition = sha256(canonical.encode()).hexdigest(), source, canonical
        return self._definition

    async def run_body(self, context: WorkflowContext) -> Any:
        """Run the body and return its value; a failed node tree is a failed run."""
        if self._fn is not None:
            token: Token[Any] | None = CURRENT_WORKFLOW.set(context)
            try:
                return await self._call_function(self._fn, context)
            except GeneratorExit:
                token = None  # the garbage collector closes a dropped body in another context
                raise
            finally:
                if token is not None:
                    CURRENT_WORKFLOW.reset(token)
        assert self._body is not None
        if node_role(self._body) == "leaf":
            result = await context.execution.call(self._body, context.input)
        else:
            result = await execute_tree(self._body, context.execution)
        return result_value(result, context.run_id)

    async def _call_function(self, fn: Callable[..., Any], context: WorkflowContext) -> Any:
        if self.signature is None:
            outcome = fn(context)
            return await outcome if inspect.isawaitable(outcome) else outcome
        try:
            arguments = self.signature.decode_start(context.input, context.params)
        except InvalidValue as error:
            if not context.run_id:
                raise
            # It was of the declared type when the run was started.
            raise InvalidRecord("/", str(error)) from None
        outcome = fn(context, *arguments.args, **arguments.kwargs)
        return self.signature.result.encode(await outcome if inspect.isawaitable(outcome) else outcome)

    async def execute(
        self, context: Any = None, params: Mapping[str, Any] | None = None, *, input: Any = None
    ) -> Any:
        """Execute without a run: return a Result for an ExecutionContext, the plain value for an input."""
        if input is not None:
            if context is not None:
                raise TypeError(f"Workflow '{self.name}' got two inputs; pass only one")
            context = input
        if not isinstance(context, ExecutionContext):
            execution = ExecutionContext(self.session, self.encode_input(context))
            return self.decode_result(await self._execute_in_memory(execution, dict(params or {})))
        try:
            return Result.ok(await self._execute_in_memory(context, {}))
        except Rejected as error:
            return Result.failed(error.reason, CHILD_REJECTED_ERROR_TYPE)

    async def _execute_in_memory(self, context: ExecutionContext, params: dict[str, Any]) -> Any:
        """Return the value of the body, executed without its own run."""
        if (refusal := recursion_error(self.name, context._lineage, self.limits.depth)) is not None:
            raise WorkflowFailed("", refusal.error, refusal.error_type)
        inner = context.in_workflow(self.name, params)
        return await self.run_body(WorkflowContext(self.session, context.input, params, execution=inner))

    def __repr__(self) -> str:
        return f"Workflow(id='{self.id}')"


def declare_channels(id: str, channels: Mapping[str, Any]) -> dict[str, Any]:
    """Return the declared channels of a workflow with their types."""
    declared = dict(require_mapping(f"channels of workflow '{id}'", channels))
    for channel in declared:
        check_channel_name(channel)
    return declared


def check_channel_name(channel: Any) -> None:
    if not require_name("a channel", channel) or channel.startswith("~"):
        raise ValueError(f"The name of a channel must not be empty or start with '~', got '{channel}'")


def workflow_signature(fn: Callable[..., Any], id: str) -> FunctionSignature | None:
    """Return the signature of a function with parameters after the context; None for any other callable.

    TypeError for a function without parameters: it could not do anything durable.
    """
    if not inspect.isroutine(fn):
        return None
    if not inspect.signature(fn).parameters:
        raise TypeError(
            f"The function of workflow '{id}' must take the context as its first parameter:"
            f" async def {fn.__name__}(ctx)"
        )
    signature = FunctionSignature(fn, f"workflow '{id}'", skipped=1)
    is_typed = any(parameter.kind not in VARIADIC_KINDS for parameter in signature.parameters.values())
    return signature if is_typed else None


async def execute_tree(body: Node, context: ExecutionContext) -> Result:
    """Execute a control node that is the whole run: it is not recorded itself, but its policy applies."""
    policy = node_policy(body)
    if policy is NO_POLICY:
        result: Result = await body.execute(context)
        return result
    call = NodeCall(context.path, body, body.id or "", context.input, policy, False, context)
    return await apply_fallback(
        context,
        await run_with_retries(
            context, policy, lambda _: execute_safely(body, context), context.next_sibling_path
        ),
        call,
    )


def recursion_error(name: str, lineage: Sequence[str], depth: int) -> Result | None:
    """Return the failure if a workflow must not be called inside `lineage` (outermost first), or None."""
    if name in lineage:
        cycle = " -> ".join([*lineage, name])
        return Result.failed(f"Workflows call each other in a cycle: {cycle}", "Cycle")
    if len(lineage) > depth:
        return Result.failed(
            f"Workflow nesting exceeds depth={depth}; raise it with Limits(depth=…)",
            "LimitReached",
        )
    return None


def source_text(thing: Any) -> str:
    try:
        return textwrap.dedent(inspect.getsource(thing))
    except (OSError, TypeError):
        return ""
