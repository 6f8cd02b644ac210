"""Graph: named steps that start when the steps they depend on are done."""

from __future__ import annotations

import asyncio
import difflib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from nerve.core.nodes.base import ControlNode, Names, Node
from nerve.core.nodes.context import ExecutionContext
from nerve.core.policy import NO_POLICY, Policy
from nerve.core.result import Result, census

InputFn = Callable[[dict[str, Any]], Any]


@dataclass(slots=True)
class Step:
    """A node, or the name of one, under the name it has in the graph."""

    id: str
    session: Names | None
    given: Node | str
    depends_on: list[str] = field(default_factory=list)
    input_fn: InputFn | None = None
    policy: Policy = NO_POLICY

    @property
    def node(self) -> Node:
        if not isinstance(self.given, str):
            return self.given
        node = find(self.session, self.given)
        if node is None:
            raise ValueError(
                f"step '{self.id}' refers to node '{self.given}', which is not found in the session"
            )
        return node


class Graph(ControlNode):
    """Acyclic: what is ready starts at once, side by side; a cycle is written as a loop or a machine."""

    def __init__(self, id: str, session: Names, description: str = "", **policy: Any) -> None:
        super().__init__(id, session, **policy)
        self.description = description
        self._steps: dict[str, Step] = {}

    def _register(self, id: str, session: Names) -> None:
        session.validate_unique_id(id, "graph")
        session.graphs[id] = self

    @property
    def steps(self) -> list[str]:
        return list(self._steps)

    def add_step(
        self,
        node: Node,
        step_id: str | None = None,
        depends_on: Iterable[str] = (),
        input_fn: InputFn | None = None,
        **policy: Any,
    ) -> Graph:
        """Add a node as a step. `input_fn` gets {"input": the graph's input, dependency: its Result}."""
        return self._add(node, step_id or node.id, depends_on, input_fn, policy)

    def add_step_ref(
        self,
        node_id: str,
        step_id: str | None = None,
        depends_on: Iterable[str] = (),
        input_fn: InputFn | None = None,
        **policy: Any,
    ) -> Graph:
        """Add a step by the name of a node, a graph or a workflow of the session, found when it is needed."""
        return self._add(node_id, step_id or node_id, depends_on, input_fn, policy)

    def chain(self, *nodes: Node) -> Graph:
        """Add nodes one after the other, behind the steps that nothing follows yet."""
        for node in nodes:
            self.add_step(node, depends_on=self._last())
        return self

    def _add(
        self,
        given: Node | str,
        step_id: str | None,
        depends_on: Iterable[str],
        input_fn: InputFn | None,
        policy: Mapping[str, Any],
    ) -> Graph:
        if not step_id:
            raise ValueError(f"a step of graph '{self.id}' needs a step_id, because its node has no id")
        if step_id in self._steps:
            raise ValueError(f"graph '{self.id}' already has a step '{step_id}'")
        if isinstance(depends_on, str):
            raise ValueError(f"depends_on of step '{step_id}' must be a list of step ids, not a string")
        self._steps[step_id] = Step(
            step_id, self.session, given, list(depends_on), input_fn, Policy.of(**dict(policy))
        )
        return self

    def _last(self) -> list[str]:
        needed = {name for step in self._steps.values() for name in step.depends_on}
        return [name for name in self._steps if name not in needed]

    def validate(self) -> None:
        """Raise ValueError for a reference to nothing or a cycle, before anything runs."""
        for step in self._steps.values():
            for name in step.depends_on:
                if name not in self._steps:
                    raise ValueError(
                        f"step '{step.id}' of graph '{self.id}' depends on '{name}', which is not a step"
                        f"{suggest(name, self._steps)}"
                    )
            if isinstance(step.node, Graph):
                step.node.validate()
        if cycle := find_cycle({step.id: step.depends_on for step in self._steps.values()}):
            raise ValueError(
                f"graph '{self.id}' has a cycle: {' -> '.join(cycle)}. Write it as a loop or a machine."
            )

    async def execute(self, context: ExecutionContext) -> Result:
        self.validate()
        paths = {name: context.take(name) for name in self._steps}
        tasks: dict[str, asyncio.Task[Result]] = {}

        async def run(step: Step) -> Result:
            up: dict[str, Any] = {"input": context.input}
            for name in step.depends_on:
                up[name] = await tasks[name]
            if broken := [name for name in step.depends_on if not up[name].success]:
                return skipped(broken[0])
            try:
                given = step.input_fn(up) if step.input_fn else default_input(up, step.depends_on)
            except Exception as error:
                return Result.failed(f"input_fn raised: {error}", type(error).__name__)
            return await context.call(
                step.node, given, id=step.id, path=paths[step.id], policy=step.policy, step=True
            )

        for step in self._in_order():
            tasks[step.id] = asyncio.create_task(run(step))
        return self._result(
            dict(zip(tasks, await together(list(tasks.values())), strict=True)), context.input
        )

    def _in_order(self) -> list[Step]:
        """The steps, each behind those it depends on."""
        ordered: dict[str, Step] = {}
        while len(ordered) < len(self._steps):
            for step in self._steps.values():
                if step.id not in ordered and all(name in ordered for name in step.depends_on):
                    ordered[step.id] = step
        return list(ordered.values())

    def _result(self, results: dict[str, Result], input: Any) -> Result:
        last = self._last()
        if not last:
            return Result.ok(input, {"steps": {}})
        output = results[last[0]].output if len(last) == 1 else {name: results[name].output for name in last}
        attributes = dict(results[last[0]].attributes) if len(last) == 1 else {}
        attributes["steps"] = {name: summary(result) for name, result in results.items()}
        broken = [
            name
            for name, result in results.items()
            if not result.success and "skipped" not in result.attributes
        ]
        if not broken:
            return Result.ok(output, attributes)
        attributes["census"] = census(results)
        first = results[broken[0]]
        return Result.failed(
            f"step '{broken[0]}' failed: {first.error}", first.error_type, output, attributes
        )


async def together(tasks: list[asyncio.Task[Result]]) -> list[Result]:
    """The results of all; if the caller is cancelled or one raises, none is left running."""
    try:
        return list(await asyncio.gather(*tasks))
    except BaseException:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        raise


def default_input(up: dict[str, Any], depends_on: list[str]) -> Any:
    if not depends_on:
        return up["input"]
    return up[depends_on[0]] if len(depends_on) == 1 else {name: up[name] for name in depends_on}


def skipped(because: str) -> Result:
    return Result.failed(
        f"skipped, because step '{because}' failed",
        "Skipped",
        attributes={"skipped": f"step '{because}' failed"},
    )


def summary(result: Result) -> dict[str, Any]:
    return {name: value for name, value in result.items() if name != "attributes"}


def find(session: Names | None, name: str) -> Node | None:
    """The node, graph or workflow of that name."""
    if session is None:
        return None
    found: Node | None = session.get_node(name) or session.get_graph(name) or session.get_workflow(name)
    return found


def suggest(name: str, names: Iterable[str]) -> str:
    close = difflib.get_close_matches(name, list(names), n=1)
    return f". Did you mean '{close[0]}'?" if close else ""


def find_cycle(depends_on: Mapping[str, list[str]]) -> list[str]:
    """The names along a cycle, the first one again at the end, or nothing."""
    done: set[str] = set()
    for start in depends_on:
        trail: list[str] = []
        stack = [(start, iter(depends_on[start]))] if start not in done else []
        while stack:
            name, rest = stack[-1]
            if len(trail) < len(stack):
                trail.append(name)
            following = next(rest, None)
            if following is None:
                done.add(trail.pop())
                stack.pop()
            elif following in trail:
                return [*trail[trail.index(following) :], following]
            elif following not in done:
                stack.append((following, iter(depends_on[following])))
    return []
