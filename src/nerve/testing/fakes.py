"""Fakes: what a test executes instead of steps, by their names."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from nerve.core.nodes.base import ControlNode, Node, NodeRegistry
from nerve.core.nodes.context import ExecutionContext
from nerve.core.nodes.step import StepNode
from nerve.core.result import Result
from nerve.core.runtime import NodeCall
from nerve.core.step_names import step_name
from nerve.core.suggest import did_you_mean_hint
from nerve.engine.leaf_runtime import LeafRuntime
from nerve.testing.virtual_clock import FAKE_LEAF


class Fake:
    """A replacement of a step, and the inputs of its calls so far.

    `outcome` is the output, an exception to raise, a function that returns one of these, or a list with the
    outcome of each call. The function gets the arguments of a typed step, and else the input; it may be
    async.
    """

    def __init__(self, name: str, outcome: Any) -> None:
        self.name = name
        self.calls: list[Any] = []
        """The inputs, as the journal has them; of a typed step, its arguments by name."""
        self._outcomes = list(outcome) if isinstance(outcome, list) else None
        self._outcome = outcome

    def __repr__(self) -> str:
        return f"Fake({self.name!r}, calls={len(self.calls)})"

    async def call(self, node: Node, input: Any) -> Result:
        """Record the call and return its result."""
        self.calls.append(input)
        value = self._next_outcome()
        signature = node.signature if isinstance(node, StepNode) else None
        if callable(value) and not is_exception(value):
            if signature is not None:
                bound = signature.decode_arguments(input)
                value = value(*bound.args, **bound.kwargs)
            else:
                value = value(input)
            if inspect.isawaitable(value):
                value = await value
        if is_exception(value):
            raise value
        return Result.of(value) if signature is None else Result.ok(signature.result.encode(value))

    def _next_outcome(self) -> Any:
        if self._outcomes is None:
            return self._outcome
        if len(self.calls) > len(self._outcomes):
            raise LookupError(
                f"Fake '{self.name}' has {len(self._outcomes)} outcomes, and this is call {len(self.calls)}"
            )
        return self._outcomes[len(self.calls) - 1]


class FakeNode(Node):
    """Executes a fake in place of a node."""

    def __init__(self, fake: Fake, node: Node) -> None:
        super().__init__(getattr(node, "id", None))
        self._fake, self._node = fake, node

    async def execute(self, context: ExecutionContext) -> Result:
        leaf = context.runtime
        token = FAKE_LEAF.set(leaf if isinstance(leaf, LeafRuntime) else None)
        try:
            return await self._fake.call(self._node, context.input)
        finally:
            FAKE_LEAF.reset(token)


class Fakes:
    """The fakes of a session by name: of a step, or of the node or agent that it executes."""

    def __init__(self, fakes: Mapping[str, Any] | None = None) -> None:
        self.by_name = {name: Fake(name, outcome) for name, outcome in (fakes or {}).items()}
        self._known_names: set[str] = set()

    def add(self, name: str, outcome: Any) -> Fake:
        """Replace a step, also one that is replaced already."""
        fake = self.by_name[name] = Fake(name, outcome)
        return fake

    def replace(self, call: NodeCall) -> NodeCall:
        """Return the call that a test executes instead of that of a leaf; the call itself without a fake."""
        fake = self.by_name.get(step_name(call.path)) or self.by_name.get(call.node_id)
        return call if fake is None else replace(call, node=FakeNode(fake, call.node))

    def check_name(self, session: NodeRegistry, name: str) -> None:
        """Raise ValueError for a name that no node, step or agent of the session has."""
        if name in self._known_names:
            return
        if name in session.workflows or name in session.graphs:
            kind = "workflow" if name in session.workflows else "graph"
            raise ValueError(f"Cannot fake the {kind} '{name}'. Fake its steps.")
        names = set(step_names(session))
        if name not in names and session.find(name) is None:
            hint = did_you_mean_hint(name, names) or f". Known steps: {', '.join(sorted(names)) or 'none'}"
            raise ValueError(f"Cannot fake '{name}': no step of the session has this name{hint}")
        self._known_names.add(name)


def is_exception(value: Any) -> bool:
    """Return whether a value can be raised."""
    return isinstance(value, BaseException) or (isinstance(value, type) and issubclass(value, BaseException))


def step_names(session: NodeRegistry) -> Iterator[str]:
    """Yield the names of steps that are known before a run: of nodes, graphs and workflow files."""
    for node in (*session.nodes.values(), *session.graphs.values()):
        yield from names_in_tree(node)
    for workflow in session.workflows.values():
        if (body := getattr(workflow, "body", None)) is not None:
            yield from names_in_tree(body)
        if (spec := getattr(workflow, "spec", None)) is not None:
            from nerve.spec.walk import walk_spec

            yield from (spec_node.name for spec_node in walk_spec(spec.body))


def names_in_tree(node: Any) -> Iterator[str]:
    """Yield the name of a leaf, or those of the leaves and steps in a control node."""
    if isinstance(node, ControlNode):
        yield from getattr(node, "steps", ())
        for part in node.parts():
            yield from names_in_tree(part)
    elif getattr(node, "id", None) is not None:
        yield node.id
