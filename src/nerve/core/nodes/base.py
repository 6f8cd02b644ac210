"""Node: the interface of everything that can be executed."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol

from nerve.core.limits import Limits
from nerve.core.policy import NO_POLICY, Effect, OnError, Policy, Retry
from nerve.core.queues import Queue
from nerve.core.result import Result
from nerve.core.suggest import did_you_mean_hint

if TYPE_CHECKING:
    from nerve.codec import Codec
    from nerve.core.nodes.context import ExecutionContext

Role = Literal["leaf", "control", "workflow"]
SETTINGS = ("retry", "timeout", "idle_timeout", "on_error", "effect", "limits", "queue")
"""The settings that every node takes by name."""


def unknown_setting_message(id: str, name: str) -> str:
    hint = did_you_mean_hint(name, SETTINGS) or f". Known: {', '.join(SETTINGS)}"
    return f"'{id}' has no setting '{name}'{hint}"


class NodeRegistry(Protocol):
    """The interface of a session that nodes use: the names of one project."""

    name: str
    nodes: dict[str, Any]
    graphs: dict[str, Any]
    workflows: dict[str, Any]
    queues: dict[str, Queue]
    project: Path
    """The directory for commands and relative paths."""

    @property
    def codec(self) -> Codec | None:
        """The codec of stored payloads; with one, payloads must not be written to other files."""

    def validate_unique_id(self, entity_id: str, entity_type: str) -> None: ...

    def get_node(self, node_id: str) -> Any: ...

    def get_graph(self, graph_id: str) -> Any: ...

    def get_workflow(self, workflow_id: str) -> Any: ...

    def find_startable(self, name: str) -> Any: ...

    def find(self, name: str) -> Any: ...

    def workflow_from_definition(self, definition: Any) -> Any: ...

    def provider(self, name: str) -> Any: ...

    def check_names(self, workflow: Any) -> None: ...


class Node:
    """Base class of everything that can be executed. A subclass with side effects is a leaf.

    With an id and a session, the node is registered as `session.nodes[id]`.
    """

    role: ClassVar[Role] = "leaf"
    takes_result: ClassVar[bool] = False
    """Whether its input is the Result of the previous step, and not only the output."""
    _id: str | None = None
    _session: NodeRegistry | None = None
    policy: Policy = NO_POLICY

    def __init__(
        self,
        id: str | None = None,
        session: NodeRegistry | None = None,
        *,
        retry: Retry | None = None,
        timeout: float | None = None,
        idle_timeout: float | None = None,
        on_error: OnError | Node | None = None,
        effect: Effect | None = None,
        limits: Limits | Mapping[str, Any] | None = None,
        queue: str | Queue | None = None,
        **unknown: Any,
    ) -> None:
        if unknown:
            raise TypeError(unknown_setting_message(id or type(self).__name__, next(iter(unknown))))
        self._id, self._session = id, session
        try:
            self.policy = Policy.of(retry, timeout, idle_timeout, on_error, effect, limits, queue)
        except ValueError as error:
            raise ValueError(f"'{id or type(self).__name__}': {error}") from None
        check_policy_fits(self, self.policy)
        if id is not None and session is not None:
            self._register(id, session)

    @property
    def id(self) -> str | None:
        """The id under which it is registered, or None."""
        return self._id

    @property
    def session(self) -> NodeRegistry | None:
        """The session that it is registered with, or None."""
        return self._session

    def _register(self, id: str, session: NodeRegistry) -> None:
        session.validate_unique_id(id, "node")
        session.nodes[id] = self

    async def execute(self, context: ExecutionContext) -> Result:
        """Execute the node and return its Result. Subclasses override it."""
        raise NotImplementedError(f"{type(self).__name__} must define execute(context)")

    def __repr__(self) -> str:
        return f"{type(self).__name__}(id={self.id!r})"


class ControlNode(Node):
    """Base class of nodes that decide what is executed next and have no side effects of their own.

    It executes its children with `context.call`; a run does not record children that are executed directly.
    """

    role: ClassVar[Role] = "control"
    takes_result: ClassVar[bool] = True
    inline: bool = False
    """Whether it is part of the enclosing body: it is not recorded itself, and decides again on replay."""

    def parts(self) -> Iterable[Node]:
        """Return the nodes that it can execute."""
        return ()

    def check(self) -> None:
        """Raise ValueError for a problem of this node itself, before anything runs."""

    def validate(self) -> None:
        """Raise ValueError for a problem of this node or any part, before anything runs."""
        validate_tree(self, (), set())


def validate_tree(node: Any, above: tuple[Any, ...], visited: set[int]) -> None:
    if any(node is other for other in above):
        cycle = " -> ".join(str(other.id) for other in (*above, node))
        raise ValueError(f"'{node.id}' contains itself: {cycle}. Use a loop or a state machine.")
    if id(node) in visited:
        return
    visited.add(id(node))
    if isinstance(node, ControlNode):
        node.check()
        for part in node.parts():
            validate_tree(part, (*above, node), visited)
    if isinstance(fallback := node_policy(node).on_error, Node):
        validate_tree(fallback, (*above, node), visited)


AGENT_CHANGES = ("output_schema", "step_settings")
"""The attributes that the call of an agent can change: the schema of its answer, and settings of the step."""


def with_changes(node: Node, changes: Mapping[str, Any]) -> Node:
    """Return a copy of an agent with some of `AGENT_CHANGES`; the agent itself without changes."""
    if not changes:
        return node
    other = copy.copy(node)
    for name, value in changes.items():
        setattr(other, name, value)
    return other


def node_policy(node: Node) -> Policy:
    """Return the policy of a node; objects that only have `execute` have none."""
    policy: Policy = getattr(node, "policy", NO_POLICY)
    return policy


def effective_policy(node: Node, call_policy: Policy) -> Policy:
    """Return the policy of a call, completed by the policy of the node."""
    default_policy = getattr(node, "policy", NO_POLICY)
    return (
        NO_POLICY
        if call_policy is default_policy is NO_POLICY
        else check_policy_fits(node, call_policy.with_defaults(default_policy))
    )


def check_policy_fits(node: Node, policy: Policy) -> Policy:
    """Return the policy; ValueError if it sets limits, a queue or effect="once" for a control node."""
    is_plain = policy.limits is None and policy.effect != "once" and policy.queue is None
    if is_plain or node_role(node) != "control":
        return policy
    name = getattr(node, "id", None) or type(node).__name__
    if policy.limits is not None:
        raise ValueError(
            f"'{name}' is a control node and cannot have limits; set them on the agents and workflows in it"
        )
    setting = "effect='once'" if policy.effect == "once" else f"queue='{policy.queue}'"
    raise ValueError(f"'{name}' is a control node and cannot have {setting}; set it on the steps in it")


def node_role(node: Node) -> Role:
    role: Role = getattr(node, "role", "leaf")
    return role


def __getattr__(name: str) -> Any:
    """Return what a name of upstream Nerve is here, or raise an error that says what to use."""
    from nerve.upstream_names import find_upstream_name

    return find_upstream_name(__name__, name)
