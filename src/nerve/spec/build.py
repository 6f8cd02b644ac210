"""From a spec to nodes: the tree of one run, in the scope of that run."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, TypeVar, cast

from nerve.core.nodes.base import ControlNode, Names, Node
from nerve.core.nodes.bash import BashNode
from nerve.core.nodes.control.branch_node import BranchNode
from nerve.core.nodes.control.gate_node import GateNode, judge_answer
from nerve.core.nodes.control.loop_node import LoopNode, LoopState
from nerve.core.nodes.control.machine_node import MachineNode, State
from nerve.core.nodes.control.map_node import MapNode
from nerve.core.nodes.control.parallel_node import ParallelNode
from nerve.core.nodes.control.reduce_node import ReduceNode
from nerve.core.nodes.control.switch_node import SwitchNode
from nerve.core.nodes.control.while_node import WhileNode, WhileState
from nerve.core.nodes.graph import Graph
from nerve.core.paths import inside
from nerve.core.policy import Policy, Retry
from nerve.core.result import Result, is_rejected
from nerve.spec import models
from nerve.spec.evidence import Expected
from nerve.spec.nodes import (
    Bounded,
    Compute,
    Entry,
    Judged,
    PerItem,
    Sequence,
    StateBody,
    Step,
    Turn,
    Turns,
    budget_of,
)
from nerve.spec.prompting import prompt_entry
from nerve.spec.routes import Routes
from nerve.spec.scope import Scope, Sight
from nerve.spec.spaces import assert_entry, retract_entry, wait_entry
from nerve.spec.talks import Talks
from nerve.spec.values import command_of, evaluate, fill, holds, text
from nerve.spec.walk import filled_variables

Made = TypeVar("Made", bound=ControlNode)

Make = Callable[["Builder", Any, str], Callable[[Sight], Entry]]

NOWHERE = cast("Names", None)
"""Nodes built from a spec are in no session's names: two files may both have a step `test`."""


class Builder:
    """Builds the nodes of one run."""

    kinds: ClassVar[Mapping[str, Make]] = {}
    """How each kind of node is built; a subclass may build some of them otherwise."""

    def __init__(self, scope: Scope, names: Names) -> None:
        self.scope, self.names = scope, names

    def inside(self, scope: Scope) -> Builder:
        return type(self)(scope, self.names)

    def step(self, spec: models.NodeBase) -> Step:
        """The node of a spec at its place, with everything every node may carry."""
        kind = kind_of(spec)
        name = spec.id or getattr(spec, "role", None) or kind
        make = self.kinds[kind](self, spec, name)
        schema = getattr(spec, "output_schema", None)
        if spec.expect or schema is not None:
            make = self._expecting(spec, name, make, schema)
        policy = self._policy(spec, kind)
        if policy.timeout is not None:
            make = self._bounding(make)
        return Step(name, self.scope, make, when=spec.when, policy=policy, seen_as=spec.id)

    def _expecting(
        self,
        spec: models.NodeBase,
        name: str,
        make: Callable[[Sight], Entry],
        schema: dict[str, Any] | None,
    ) -> Callable[[Sight], Entry]:
        def expecting(sight: Sight) -> Entry:
            made = make(sight)
            asked = getattr(made.node, "takes_request", False) or getattr(spec, "detach", False)
            to_fit = None if asked else schema  # an agent is asked for an answer that fits, and asked again
            if not spec.expect and to_fit is None:
                return made
            return Entry(Expected(name, made, spec.expect, sight, to_fit), sight["given"])

        return expecting

    def _bounding(self, make: Callable[[Sight], Entry]) -> Callable[[Sight], Entry]:
        def bound(sight: Sight) -> Entry:
            made = make(sight)
            if getattr(made.node, "inline", False):
                made.node = Bounded(made.node, self.scope)
            return made

        return bound

    def _policy(self, spec: models.NodeBase, kind: str) -> Policy:
        """The policy of a node; the time of a gate or a wait is its own affair."""
        on_error = spec.on_error if isinstance(spec.on_error, str | None) else self.step(spec.on_error)
        retry = (
            Retry(**spec.retry.model_dump(exclude={"on"}), on=tuple(spec.retry.on)) if spec.retry else None
        )
        policy = Policy.of(
            retry=retry,
            timeout=None if kind in ("gate", "wait") else spec.timeout,
            idle_timeout=spec.idle_timeout,
            on_error=on_error,
            effect=spec.effect,
        )
        if not isinstance(spec, models.Sequence) or spec.on_timeout is None:
            return policy
        late = spec.on_timeout if isinstance(spec.on_timeout, str) else self.step(spec.on_timeout)
        return replace(policy, on_timeout=late)

    # -- leaves and waits ----------------------------------------------------------------------

    def call(self, spec: models.Call, name: str) -> Callable[[Sight], Entry]:
        def make(sight: Sight) -> Entry:
            node = found(self.names, spec.target)
            if spec.output_schema is not None and getattr(node, "takes_request", False):
                node = copy.copy(node)
                node.output_schema = spec.output_schema  # type: ignore[attr-defined]
            return Entry(node, fill(spec.input, sight), policy=budget_of(spec))

        return make

    def workflow(self, spec: models.WorkflowCall, name: str) -> Callable[[Sight], Entry]:
        def make(sight: Sight) -> Entry:
            workflow = self.names.get_workflow(spec.workflow)
            if workflow is None:
                raise ValueError(f"Workflow '{spec.workflow}' not found")
            given, params = fill(spec.input, sight), fill(spec.params, sight)
            return Entry(workflow, given, params, policy=budget_of(spec))

        return make

    def prompt(self, spec: models.Prompt, name: str) -> Callable[[Sight], Entry]:
        return lambda sight: prompt_entry(spec, name, sight, self.names)

    def bash(self, spec: models.Bash, name: str) -> Callable[[Sight], Entry]:
        def make(sight: Sight) -> Entry:
            command, values = command_of(spec.command, sight, filled_variables(spec))
            env = {key: text(value, sight) for key, value in spec.env.items()}
            cwd = folder_of(self.names.project, spec.cwd or "", sight)
            return Entry(BashNode(name, None, command, cwd, env | values), fill(spec.input, sight))

        return make

    def gate(self, spec: models.Gate, name: str) -> Callable[[Sight], Entry]:
        def make(sight: Sight) -> Entry:
            prompt = text(spec.prompt, sight)
            gate = GateNode(
                name,
                NOWHERE,
                prompt,
                spec.options,
                spec.timeout,
                choices=spec.choices,
                form=spec.form,
                reject=spec.reject,
            )
            return Entry(Judged(gate, lambda result: gate_result(spec, result)), sight["given"])

        return make

    def wait(self, spec: models.Wait, name: str) -> Callable[[Sight], Entry]:
        return lambda sight: wait_entry(spec, name, sight)

    # -- what is computed ----------------------------------------------------------------------

    def transform(self, spec: models.Transform, name: str) -> Callable[[Sight], Entry]:
        return lambda sight: Entry(Compute(name, lambda _: evaluate(spec.expression, sight)))

    def emit(self, spec: models.Emit, name: str) -> Callable[[Sight], Entry]:
        def make(sight: Sight) -> Entry:
            data = fill(spec.data, sight)

            def tell(context: Any) -> Any:
                context.emit(spec.event, data)
                return sight["given"]

            return Entry(Compute(name, tell))

        return make

    def goto(self, spec: models.Goto, name: str) -> Callable[[Sight], Entry]:
        def leave(sight: Sight) -> Any:
            self.scope.goto(spec.state)
            return sight["given"]

        return lambda sight: Entry(Compute(name, lambda _: leave(sight)))

    def assertion(self, spec: models.Assert, name: str) -> Callable[[Sight], Entry]:
        return lambda sight: assert_entry(spec, name, sight, self.names)

    def retraction(self, spec: models.Retract, name: str) -> Callable[[Sight], Entry]:
        return lambda sight: retract_entry(spec, name, sight, self.names)

    def reduce(self, spec: models.Reduce, name: str) -> Callable[[Sight], Entry]:
        def make(sight: Sight) -> Entry:
            items = [{"index": n, "item": item} for n, item in enumerate(listed(spec.over, sight))]

            def fold(acc: Any, pair: dict[str, Any]) -> Any:
                return evaluate(spec.expression, sight.also(acc=acc, **pair))

            node = ReduceNode(name, NOWHERE, fold, fill(spec.initial, sight))
            return Entry(inlined(node), items)

        return make

    # -- control -------------------------------------------------------------------------------

    def sequence(self, spec: models.Sequence, name: str) -> Callable[[Sight], Entry]:
        asides = frozenset(n for n, step in enumerate(spec.steps) if is_aside(step))
        node = Sequence(name, self.scope, map(self.step, spec.steps), asides)
        return lambda sight: Entry(node, sight["given"])

    def graph(self, spec: models.Graph, name: str) -> Callable[[Sight], Entry]:
        node, talks = Graph(name, NOWHERE), Talks(self.scope)
        for part in spec.steps:
            scope = talks.of(part.id or kind_of(part), part.depends_on)
            step = self.inside(scope).step(part)
            node.add_step(talks.heir(step, scope), step.id, part.depends_on)

        def make(sight: Sight) -> Entry:
            talks.begin()
            return Entry(inlined(node), sight["given"], after=talks.end)

        return make

    def turn(self, body: models.NodeBase, name: str) -> Turn:
        scope = self.scope.turning()
        return Turn(name, scope, self.inside(scope).step(body))

    def while_(self, spec: models.While, name: str) -> Callable[[Sight], Entry]:
        body = self.turn(spec.body, name)

        def wanted(state: WhileState) -> bool:
            given = getattr(state.current_value, "output", state.current_value)
            sight = self.scope.sight(given=given, iteration=state.iteration)
            return not self.scope.way.leaving and holds(spec.condition, sight)

        def make(sight: Sight) -> Entry:
            node = WhileNode(name, NOWHERE, wanted, body, spec.max_iterations, spec.on_max)
            return Entry(Turns(inlined(node), body), sight["given"])

        return make

    def loop(self, spec: models.Loop, name: str) -> Callable[[Sight], Entry]:
        body = self.turn(spec.body, name)

        def finished(state: LoopState) -> bool:
            if self.scope.way.leaving:
                return True
            sight = self.scope.sight(given=state.result.output, iteration=state.iteration)
            return spec.until is not None and holds(spec.until, sight)

        def make(sight: Sight) -> Entry:
            times = times_of(spec.times, sight)
            bound = spec.max_iterations if times is None else None
            node = LoopNode(name, NOWHERE, body, times, finished, bound, spec.accumulate, spec.on_max)
            return Entry(Turns(inlined(node), body), sight["given"])

        return make

    def branch(self, spec: models.Branch, name: str) -> Callable[[Sight], Entry]:
        then = self.step(spec.then)
        otherwise = self.step(spec.otherwise) if spec.otherwise else None

        def make(sight: Sight) -> Entry:
            node = BranchNode(name, NOWHERE, lambda _: holds(spec.condition, sight), then, otherwise)
            return Entry(inlined(node), sight["given"])

        return make

    def switch(self, spec: models.Switch, name: str) -> Callable[[Sight], Entry]:
        cases = {key: self.step(case) for key, case in spec.cases.items()}
        default = self.step(spec.default) if spec.default else None

        def make(sight: Sight) -> Entry:
            node = SwitchNode(name, NOWHERE, lambda _: text(f"{{{{ {spec.key} }}}}", sight), cases, default)
            return Entry(inlined(node), sight["given"])

        return make

    def map(self, spec: models.MapSpec, name: str) -> Callable[[Sight], Entry]:
        body = PerItem(name, self.scope, lambda scope: self.inside(scope).step(spec.body))

        def make(sight: Sight) -> Entry:
            items = [{"index": n, "item": item} for n, item in enumerate(listed(spec.over, sight))]
            return Entry(inlined(MapNode(name, NOWHERE, body, spec.max_parallel, spec.require)), items)

        return make

    def parallel(self, spec: models.Parallel, name: str) -> Callable[[Sight], Entry]:
        talks = Talks(self.scope)
        branches = {
            name: self.inside(talks.of(name)).step(part)
            for part in spec.branches
            if (name := part.id or kind_of(part))
        }
        node = ParallelNode(name, NOWHERE, cast("dict[str, Node]", branches), spec.require)

        def make(sight: Sight) -> Entry:
            talks.begin()
            made = Judged(inlined(node), partial(settled, spec)) if spec.outputs == "list" else inlined(node)
            return Entry(made, sight["given"])

        return make

    def machine(self, spec: models.Machine, name: str) -> Callable[[Sight], Entry]:
        routes = Routes(spec, self.scope)
        states = {}
        for state in spec.states:
            body = StateBody(state.name, self.scope, self.step(state.body) if state.body else None)
            states[state.name] = State(body, routes.after(state))

        def make(sight: Sight) -> Entry:
            node = MachineNode(name, NOWHERE, states, spec.start, max(1, spec.max_transitions))
            return Entry(routes.ending(inlined(node)), sight["given"])

        return make


Builder.kinds = {
    "call": Builder.call,
    "prompt": Builder.prompt,
    "bash": Builder.bash,
    "gate": Builder.gate,
    "wait": Builder.wait,
    "graph": Builder.graph,
    "sequence": Builder.sequence,
    "while": Builder.while_,
    "loop": Builder.loop,
    "branch": Builder.branch,
    "switch": Builder.switch,
    "map": Builder.map,
    "reduce": Builder.reduce,
    "parallel": Builder.parallel,
    "machine": Builder.machine,
    "goto": Builder.goto,
    "transform": Builder.transform,
    "emit": Builder.emit,
    "assert": Builder.assertion,
    "retract": Builder.retraction,
    "workflow": Builder.workflow,
}


def is_aside(spec: models.NodeBase) -> bool:
    """Whether a step is a test that a reader put before the branch that needs it."""
    return isinstance(spec, models.Wait) and spec.test and (spec.id or "").startswith("_")


def kind_of(spec: models.NodeBase) -> str:
    kind: str = spec.kind  # type: ignore[attr-defined]
    return kind


def inlined(node: Made) -> Made:
    node.inline = True
    return node


def found(names: Names, target: str) -> Node:
    """The node, graph, workflow or agent of that name."""
    node: Node | None = names.find(target)
    if node is None:
        raise ValueError(f"Agent not found: {target}")
    return node


def folder_of(project: Path, written: str, sight: Sight) -> Path:
    """Where a command runs: any folder the author names; a value filled in must stay in the project."""
    return inside(project, text(written, sight)) if "{{" in written else project / written


def listed(over: str, sight: Sight) -> list[Any]:
    value = evaluate(over, sight)
    if not isinstance(value, list):
        raise ValueError(f"'{over}' is not a list but {type(value).__name__}")
    return value


def times_of(times: int | str | None, sight: Sight) -> int | None:
    if not isinstance(times, str):
        return times
    value = evaluate(times, sight)
    if isinstance(value, bool) or not isinstance(value, int | float) or value != int(value) or value < 0:
        raise ValueError(f"times '{times}' must be a whole number that is not negative, not {value!r}")
    return int(value)


def settled(spec: models.Parallel, result: Result) -> Result:
    """How each branch of a parallel ended, as a list; a failure names the branches and what they said."""
    parts: dict[str, Result] = result.attributes["results"]
    told = [
        {
            "stepId": id,
            "status": "fulfilled" if part.success else "rejected",
            "result": part.output,
            "error": part.get("error"),
        }
        for id, part in parts.items()
    ]
    if result.success:
        return Result.ok(told, result.attributes)
    failed = {id: part.error for id, part in parts.items() if not part.success}
    who = "; ".join(f"{id}: {error}" for id, error in failed.items())
    too_few = len(parts) - len(failed) < (spec.require or 0)
    needed = f", {spec.require} must succeed" if too_few else ""
    error = f"{len(failed)} of {len(parts)} failed{needed} ({who})"
    return Result.failed(error, result.error_type, told, result.attributes)


def gate_result(spec: models.Gate, result: Result) -> Result:
    """The answer as the gate gives it; when the time is up, that is the default answer if there is one."""
    if not result.success and result.error_type == "TimeoutError" and spec.default is not None:
        result = judge_answer(spec.default, spec.reject, {"timed_out": True})
    if not result.success and not is_rejected(result):
        return result
    approved = approves(spec, result.output)
    output = {"approved": approved} if spec.output == "approved" else result.output
    return Result({**result, "output": output, "attributes": {**result.attributes, "approved": approved}})


def approves(spec: models.Gate, answer: Any) -> bool:
    """Whether an answer says yes; where nothing else is said, `reject` and `no` do not."""
    return answer not in (spec.reject or ("reject", "no"))
