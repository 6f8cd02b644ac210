"""Workflow: a name, a description, limits and a body."""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Any, ClassVar, Literal

from nerve.core.json_codec import encode_json
from nerve.core.limits import Limits
from nerve.core.nodes.attempt import execute_safely
from nerve.core.nodes.base import Node, NodeRegistry, Role, node_policy, node_role
from nerve.core.nodes.context import ExecutionContext, apply_fallback
from nerve.core.nodes.graph import Graph
from nerve.core.nodes.inline import run_with_retries
from nerve.core.notation_table import NotationName
from nerve.core.policy import NO_POLICY
from nerve.core.result import CHILD_REJECTED_ERROR_TYPE, Result
from nerve.core.runtime import NodeCall
from nerve.core.suggest import did_you_mean_hint
from nerve.core.validation import require_callable, require_mapping, require_name, require_node
from nerve.core.workflow.context import WorkflowContext, result_value
from nerve.core.workflow.state import WorkflowInfo, WorkflowState
from nerve.errors import Rejected, WorkflowFailed

__all__ = ["Workflow", "WorkflowInfo", "WorkflowState"]

Kind = Literal["python", "graph"] | NotationName


class Workflow(Node):
    """An async function of a WorkflowContext, or a node tree, registered with a session.

    It is a node too, so workflows nest: as a step it is a run of its own, with its own journal.
    `params` declares the parameters of its runs with their defaults; without it they may have any name.
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
        **policy: Any,
    ) -> None:
        if (fn is None) == (body is None):
            raise ValueError(f"workflow '{id}' needs a function or a body, and not both")
        if fn is not None:
            require_callable(f"fn of workflow '{id}'", fn)
        if body is not None:
            require_node(f"body of workflow '{id}'", body)
            if node_role(body) == "control" and node_policy(body).idle_timeout is not None:
                raise ValueError(
                    f"'{id}' is the whole run, and that has no idle_timeout; give it a timeout,"
                    " or its steps an idle_timeout"
                )
        require_name("a workflow", id)
        self._fn, self._body = fn, body
        self._description = description or inspect.cleandoc(
            fn.__doc__ or "" if fn else getattr(body, "description", "")
        )
        self._metadata = dict(metadata or {})
        self._declared_params = (
            None if params is None else dict(require_mapping(f"params of workflow '{id}'", params))
        )
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
        """The function that is its body, or None if its body is a node."""
        return self._fn

    @property
    def body(self) -> Node | None:
        """The node that is its body, or None if its body is a function."""
        return self._body

    @property
    def kind(self) -> Kind:
        """`python` for a function, `graph` for a node, or the notation that it was read from."""
        return "python" if self._fn is not None else "graph"

    @property
    def description(self) -> str:
        """What it says about itself: the description that was given, or the docstring of its function."""
        return self._description

    @property
    def metadata(self) -> dict[str, Any]:
        """What was given as `metadata`."""
        return self._metadata

    @property
    def steps(self) -> list[str]:
        """The steps that are known before it runs."""
        return self._body.steps if isinstance(self._body, Graph) else []

    @property
    def calls(self) -> list[str]:
        """The names it calls that may be those of other workflows, if they are known before it runs."""
        return []

    def to_info(self) -> WorkflowInfo:
        """Return the id, description and time of creation of the workflow."""
        return WorkflowInfo(self.name, self._description, self._created_at)

    @property
    def logs(self) -> Path | None:
        """The folder in which its runs write their logs, if they do."""
        return None

    @property
    def artifacts(self) -> Path | None:
        """The folder in which each of its runs has one for the files that its steps write, if they do."""
        return None

    def check_params(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """The parameters of a run with declared defaults; ValueError for one that is not declared."""
        if self._declared_params is None:
            return dict(params)
        if unknown := [name for name in params if name not in self._declared_params]:
            known = ", ".join(self._declared_params) or "none"
            raise ValueError(
                f"workflow '{self.name}' has no parameter '{unknown[0]}'"
                f"{did_you_mean_hint(unknown[0], self._declared_params) or '.'} It has: {known}"
            )
        return self._declared_params | dict(params)

    def check_names(self, known: Callable[[], Any]) -> None:
        """Raise ValueError for a name that a written workflow uses and nobody has."""

    def definition(self) -> tuple[str, str, str]:
        """Hash, source and canonical form, by which a run is pinned to what it was started from."""
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
            outcome = self._fn(context)
            return await outcome if inspect.isawaitable(outcome) else outcome
        assert self._body is not None
        if node_role(self._body) == "leaf":
            result = await context.execution.call(self._body, context.input)
        else:
            result = await execute_tree(self._body, context.execution)
        return result_value(result, context.run_id)

    async def execute(
        self, context: Any = None, params: Mapping[str, Any] | None = None, *, input: Any = None
    ) -> Any:
        """As a node it gives a Result; given an input and parameters it gives the value of its body."""
        if input is not None:
            if context is not None:
                raise TypeError(f"workflow '{self.name}' is executed with one input, not with two")
            context = input
        if not isinstance(context, ExecutionContext):
            return await self._execute_in_memory(ExecutionContext(self.session, context), dict(params or {}))
        try:
            return Result.ok(await self._execute_in_memory(context, {}))
        except Rejected as error:
            return Result.failed(error.reason, CHILD_REJECTED_ERROR_TYPE)

    async def _execute_in_memory(self, context: ExecutionContext, params: dict[str, Any]) -> Any:
        """The value of the body, without a run of its own."""
        if (refusal := recursion_error(self.name, context._lineage, self.limits.depth)) is not None:
            raise WorkflowFailed("", refusal.error, refusal.error_type)
        inner = context.in_workflow(self.name, params)
        return await self.run_body(WorkflowContext(self.session, context.input, params, execution=inner))

    def __repr__(self) -> str:
        return f"Workflow(id='{self.id}')"


async def execute_tree(body: Node, context: ExecutionContext) -> Result:
    """Execute a control node that is the whole run: it has no record of its own, but its policy holds."""
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
    """Why a workflow cannot be called by those that are called around it, the outermost first."""
    if name in lineage:
        circle = " -> ".join([*lineage, name])
        return Result.failed(f"workflows call each other in a circle: {circle}", "Cycle")
    if len(lineage) > depth:
        return Result.failed(
            f"workflows are nested more than {depth} deep; raise it with Limits(depth=…)", "LimitReached"
        )
    return None


def source_text(thing: Any) -> str:
    try:
        return textwrap.dedent(inspect.getsource(thing))
    except (OSError, TypeError):
        return ""
