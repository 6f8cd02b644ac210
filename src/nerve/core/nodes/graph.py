"""Graph: named steps that start when their dependencies have ended."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import field
from graphlib import TopologicalSorter
from typing import Any

from nerve.core.cycles import find_cycle
from nerve.core.events import WorkflowEventType
from nerve.core.nodes.attempt import must_propagate
from nerve.core.nodes.base import ControlNode, Node, NodeRegistry, effective_policy, node_policy
from nerve.core.nodes.context import ExecutionContext, numbered_path
from nerve.core.nodes.function_params import bind_params
from nerve.core.nodes.workspace import share_base
from nerve.core.output_views import unwrap_view, wrap_output_function
from nerve.core.policy import NO_POLICY, Policy
from nerve.core.result import (
    Result,
    census,
    error_text,
    first_rejection,
    is_final_rejection,
    result_output,
    was_skipped,
)
from nerve.core.suggest import did_you_mean_hint
from nerve.core.trigger_rules import TRIGGER_RULES, TriggerRule
from nerve.core.validation import (
    describe_value,
    reject_awaitable,
    require_name,
    require_node,
    require_sync_callable,
)
from nerve.lazy_dataclass import dataclass

InputFn = Callable[[dict[str, Any]], Any]


@dataclass(slots=True)
class GraphStep:
    """A node, or its name, with its id and settings in the graph."""

    id: str
    session: NodeRegistry | None
    node_or_name: Node | str
    depends_on: list[str] = field(default_factory=list)
    input_fn: InputFn | None = None
    policy: Policy = NO_POLICY
    trigger_rule: TriggerRule | None = None

    @property
    def node(self) -> Node:
        if not isinstance(self.node_or_name, str):
            return self.node_or_name
        node = find_registered_node(self.session, self.node_or_name)
        if node is None:
            raise ValueError(
                f"Step '{self.id}' refers to node '{self.node_or_name}', which is not found in the session"
                f"{did_you_mean_hint(self.node_or_name, registered_names(self.session))}"
            )
        return node

    def check(self) -> None:
        """Raise ValueError for a policy that does not fit the node, which may have been registered later."""
        node = self.node
        try:
            effective_policy(node, self.policy)
        except ValueError as error:
            raise ValueError(f"step '{self.id}': {error}") from None

    def prepare_call(self, upstream: dict[str, Any], context: ExecutionContext) -> tuple[Node, Any, Policy]:
        """Return the node to call, its input and its policy, from the results of the dependencies."""
        try:
            step_input = (
                self._make_input(upstream, context)
                if self.input_fn
                else default_step_input(upstream, self.depends_on)
            )
        except BaseException as error:
            if must_propagate(error):
                raise
            failure = Result.failed(f"input_fn raised: {error_text(error)}", type(error).__name__)
            fallback = self.policy.with_defaults(node_policy(self.node)).on_error
            return UnreadyStep(self.node.id, failure), upstream["input"], Policy.of(on_error=fallback)
        return self.node, step_input, self.policy

    def _make_input(self, upstream: dict[str, Any], context: ExecutionContext) -> Any:
        assert self.input_fn is not None
        input_value = wrap_output_function(
            bind_params(self.input_fn, context), lambda graph_input: upstream | {"input": graph_input}
        )(upstream["input"])
        return unwrap_view(reject_awaitable(input_value))


class ConcurrentSteps:
    """Steps of a graph that start together, because they wait for the same steps.

    Their workspaces start from the same files.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self.steps: list[GraphStep] = []
        self._lock = asyncio.Lock()
        self._context: ExecutionContext | None = None

    async def enter(self, context: ExecutionContext) -> ExecutionContext:
        """Return the context for the steps of the group."""
        async with self._lock:
            if self._context is None:
                self._context = await share_base(context, [step.node for step in self.steps], self.path)
            return self._context


class UnreadyStep(ControlNode):
    """Replaces a node whose input_fn raised, so that the failure is recorded like any other."""

    def __init__(self, id: str | None, failure: Result) -> None:
        super().__init__(id)
        self.failure = failure

    async def execute(self, context: ExecutionContext) -> Result:
        return self.failure


class Graph(ControlNode):
    """An acyclic graph of steps; steps whose dependencies have ended run concurrently."""

    def __init__(self, id: str, session: NodeRegistry, description: str = "", **policy: Any) -> None:
        super().__init__(id, session, **policy)
        self.description = description
        self._steps: dict[str, GraphStep] = {}

    def _register(self, id: str, session: NodeRegistry) -> None:
        session.validate_unique_id(id, "graph")
        session.graphs[id] = self

    @property
    def steps(self) -> list[str]:
        """The ids of its steps, in the order of their addition."""
        return list(self._steps)

    def add_step(
        self,
        node: Node,
        step_id: str | None = None,
        depends_on: Iterable[str] = (),
        input_fn: InputFn | None = None,
        *,
        trigger_rule: TriggerRule | None = None,
        **policy: Any,
    ) -> Graph:
        """Add a node as a step. `input_fn` receives {"input": input of the graph, dependency: its Result}.

        Without a trigger rule, a step runs if none of its dependencies failed.
        """
        name = step_id if step_id is not None else getattr(node, "id", None)
        what = f"step '{name}' of graph '{self.id}'"
        if isinstance(node, str):
            raise ValueError(f"{what} must be a node, got the name '{node}'; use add_step_ref('{node}')")
        return self._add(require_node(what, node), name, depends_on, input_fn, policy, trigger_rule)

    def add_step_ref(
        self,
        node_id: str,
        step_id: str | None = None,
        depends_on: Iterable[str] = (),
        input_fn: InputFn | None = None,
        *,
        trigger_rule: TriggerRule | None = None,
        **policy: Any,
    ) -> Graph:
        """Add a step by the name of a node, graph or workflow, which may be registered later."""
        require_name(f"a node in graph '{self.id}'", node_id)
        return self._add(node_id, step_id or node_id, depends_on, input_fn, policy, trigger_rule)

    def chain(self, *nodes: Node) -> Graph:
        """Add nodes in sequence, after the steps that no other step depends on."""
        for node in nodes:
            self.add_step(node, depends_on=self._final_steps())
        return self

    def _add(
        self,
        node_or_name: Node | str,
        step_id: str | None,
        depends_on: Iterable[str],
        input_fn: InputFn | None,
        policy: Mapping[str, Any],
        trigger_rule: TriggerRule | None = None,
    ) -> Graph:
        if step_id is None or step_id == "":
            raise ValueError(f"A step of graph '{self.id}' needs a step_id, because its node has no id")
        require_name(f"a step of graph '{self.id}'", step_id)
        if step_id in self._steps:
            raise ValueError(f"Graph '{self.id}' already has a step '{step_id}'")
        dependencies = require_step_ids(f"depends_on of step '{step_id}'", depends_on)
        if input_fn is not None:
            require_sync_callable(f"input_fn of step '{step_id}'", input_fn)
            if "input" in dependencies:
                raise ValueError(
                    f"input_fn of step '{step_id}' cannot distinguish the step 'input' from the input of the"
                    " graph; give that step another step_id"
                )
        if trigger_rule not in (None, *TRIGGER_RULES):
            raise ValueError(
                f"trigger_rule of step '{step_id}' must be one of {', '.join(TRIGGER_RULES)},"
                f" got {trigger_rule!r}"
            )
        step_policy = policy_from_settings(f"step '{step_id}' of graph '{self.id}'", policy)
        if not isinstance(node_or_name, str):
            effective_policy(node_or_name, step_policy)
        self._steps[step_id] = GraphStep(
            step_id, self.session, node_or_name, dependencies, input_fn, step_policy, trigger_rule
        )
        return self

    def _final_steps(self) -> list[str]:
        needed = {name for step in self._steps.values() for name in step.depends_on}
        return [name for name in self._steps if name not in needed]

    def parts(self) -> Iterable[Node]:
        for step in self._steps.values():
            yield step.node
            if isinstance(step.policy.on_error, Node):
                yield step.policy.on_error

    def check(self) -> None:
        for step in self._steps.values():
            if isinstance(step.node_or_name, str):
                step.check()
            for name in step.depends_on:
                if name not in self._steps:
                    raise ValueError(
                        f"Step '{step.id}' of graph '{self.id}' depends on '{name}', which is not a step"
                        f"{did_you_mean_hint(name, self._steps)}"
                    )
        if cycle := find_cycle(self._dependencies()):
            raise ValueError(
                f"Graph '{self.id}' has a cycle: {' -> '.join(cycle)}. Use a loop or a state machine."
            )

    async def execute(self, context: ExecutionContext) -> Result:
        self.validate()
        # Assign all paths up front: they must not depend on which step ends first, or replay would differ.
        paths = {name: context.next_path(name) for name in self._steps}
        tasks: dict[str, asyncio.Task[Result]] = {}
        groups = self._group_steps(context.path)

        async def run(step: GraphStep) -> Result:
            upstream: dict[str, Any] = {"input": context.input}
            for name in step.depends_on:
                upstream[name] = await tasks[name]
            because = self._rejected_step(tasks) or unmet_dependency(step, upstream)
            if because is not None:
                context.emit(
                    WorkflowEventType.SKIPPED,
                    {"step_id": step.id, "path": paths[step.id], "because": because},
                )
                result = skip_result(because, upstream.get(because))
                self.on_skip(step.id, result)
                return result
            node, step_input, policy = step.prepare_call(upstream, context)
            group = groups.get(step.id)
            inner = context if group is None else await group.enter(context)
            return await inner.call(
                node, step_input, id=step.id, path=paths[step.id], policy=policy, step=True
            )

        for name in TopologicalSorter(self._dependencies()).static_order():
            tasks[name] = asyncio.create_task(run(self._steps[name]))
        await gather_all(tasks.values())
        return self._build_result({name: tasks[name].result() for name in self._steps}, context.input)

    def _group_steps(self, path: str) -> dict[str, ConcurrentSteps]:
        """Return the groups of steps that start together, if some of their steps have workspaces."""
        if not any(getattr(step.node, "workspace_kind", None) for step in self._steps.values()):
            return {}
        groups: dict[Any, ConcurrentSteps] = {}
        for step in self._steps.values():
            key = (frozenset(step.depends_on), step.trigger_rule)
            groups.setdefault(key, ConcurrentSteps(numbered_path(f"{path}/~base", len(groups) + 1)))
            groups[key].steps.append(step)
        several = [group for group in groups.values() if len(group.steps) > 1]
        return {step.id: group for group in several for step in group.steps}

    def on_skip(self, step_id: str, result: Result) -> None:
        """Called for a step that does not run because of another step."""

    def _rejected_step(self, tasks: Mapping[str, asyncio.Task[Result]]) -> str | None:
        """Return the step whose rejection cancels the run, so that no other step starts."""
        ended = (name for name, task in tasks.items() if task.done() and not task.cancelled())
        return next((name for name in ended if is_final_rejection(tasks[name].result())), None)

    def _dependencies(self) -> dict[str, list[str]]:
        return {step.id: step.depends_on for step in self._steps.values()}

    def _build_result(self, results: dict[str, Result], input: Any) -> Result:
        final_ids = self._final_steps()
        if not final_ids:
            return Result.ok(result_output(input), {"steps": {}})
        only_result = results[final_ids[0]] if len(final_ids) == 1 else None
        output = (
            {name: results[name].output for name in final_ids} if only_result is None else only_result.output
        )
        attributes = (
            {} if only_result is None or only_result.settlement == "skipped" else dict(only_result.attributes)
        )
        attributes["steps"] = {name: summarize_step_result(result) for name, result in results.items()}
        failed = [name for name, result in results.items() if not result.success and not was_skipped(result)]
        if not failed:
            return Result.ok(output, attributes)
        attributes["census"] = census(results)
        first_failure = first_rejection(results.values()) or results[failed[0]]
        name = next(name for name in failed if results[name] is first_failure)
        return Result.failed(
            f"step '{name}' failed: {first_failure.error}", first_failure.error_type, output, attributes
        )


def require_step_ids(what: str, value: Any) -> list[str]:
    """Return the ids of steps without duplicates; ValueError for any other value."""
    if isinstance(value, str) or not isinstance(value, Iterable):
        raise ValueError(f"{what} must be a list of step ids, got {describe_value(value)}")
    return list(dict.fromkeys(require_name(f"a step in {what}", name) for name in value))


def policy_from_settings(of: str, options: Mapping[str, Any]) -> Policy:
    """Return a policy from settings; `of` names its owner in error messages."""
    for name in options:
        if name not in Policy.__slots__:
            raise ValueError(f"Unknown setting '{name}' of {of}{did_you_mean_hint(name, Policy.__slots__)}")
    try:
        return Policy.of(**options)
    except ValueError as error:
        raise ValueError(f"{of}: {error}") from None


async def gather_all(awaitables: Iterable[Awaitable[Result]]) -> list[Result]:
    """Return all results; cancel the rest if the caller is cancelled or one raises."""
    tasks = [asyncio.ensure_future(awaitable) for awaitable in awaitables]
    try:
        return list(await asyncio.gather(*tasks))
    except BaseException:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        raise


def default_step_input(upstream: dict[str, Any], depends_on: list[str]) -> Any:
    if not depends_on:
        return upstream["input"]
    return upstream[depends_on[0]] if len(depends_on) == 1 else {name: upstream[name] for name in depends_on}


def unmet_dependency(step: GraphStep, upstream: Mapping[str, Any]) -> str | None:
    """Return the dependency because of which a step does not run, or None if it runs.

    Without a trigger rule, a skipped dependency counts as a success; with one, it is neither a success nor a
    failure.
    """
    names = step.depends_on
    failed = [name for name in names if not upstream[name].success]
    if step.trigger_rule is None:
        return failed[0] if failed else None
    skipped = [name for name in names if was_skipped(upstream[name])]
    succeeded = [name for name in names if name not in failed and name not in skipped]
    failed = [name for name in failed if name not in skipped]
    if not names or step.trigger_rule == "all_done":
        return None
    if step.trigger_rule == "all_success":
        return next((name for name in names if name not in succeeded), None)
    if step.trigger_rule == "none_failed_min_one_success" and failed:
        return failed[0]
    return None if succeeded else names[0]


def skip_result(because: str, dependency: Result | None = None) -> Result:
    """Return the result of a step that did not run because of another step."""
    ended = "was skipped" if dependency is not None and was_skipped(dependency) else "failed"
    if dependency is None or is_final_rejection(dependency):
        ended = "was rejected"
    reason = f"step '{because}' {ended}"
    result = Result.failed(f"skipped because {reason}", "Skipped", attributes={"skipped": reason})
    result.settlement = "skipped"
    return result


def summarize_step_result(result: Result) -> dict[str, Any]:
    fields = {name: value for name, value in result.items() if name != "attributes"}
    if was_skipped(result):
        fields["skipped"] = result.attributes["skipped"]
    return fields


def find_registered_node(session: NodeRegistry | None, name: str) -> Node | None:
    """Return the node, graph or workflow of a name, or None."""
    if session is None:
        return None
    node: Node | None = session.get_node(name) or session.get_graph(name) or session.get_workflow(name)
    return node


def registered_names(session: NodeRegistry | None) -> list[str]:
    return [*session.nodes, *session.graphs, *session.workflows] if session else []
