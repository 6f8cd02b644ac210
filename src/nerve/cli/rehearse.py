"""Rehearsing: a builder whose leaves do nothing, whose waits are over at once and whose loops end."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, ClassVar, TypeVar, cast

from nerve.cli.answers import Answers
from nerve.core.nodes.base import Node
from nerve.core.nodes.context import ExecutionContext
from nerve.core.nodes.control.branch_node import BranchNode
from nerve.core.nodes.control.gate_node import GateNode
from nerve.core.nodes.control.loop_node import LoopNode, LoopState
from nerve.core.nodes.control.machine_node import State
from nerve.core.nodes.control.map_node import MapNode
from nerve.core.nodes.control.switch_node import SwitchNode
from nerve.core.nodes.control.while_node import WhileNode, WhileState
from nerve.core.result import Result, is_rejected
from nerve.core.session import Session
from nerve.expr.errors import Pointing
from nerve.spec import models
from nerve.spec.build import NOWHERE, Builder, gate_result, inlined, kind_of, listed, times_of
from nerve.spec.checks.names import DEFAULT
from nerve.spec.nodes import Compute, Entry, PerItem, Step, Turns
from nerve.spec.prompting import prompt_text, remembering
from nerve.spec.routes import Ending
from nerve.spec.scope import Scope, Sight
from nerve.spec.spaces import assert_entry, retract_entry
from nerve.spec.values import fill, holds, text
from nerve.spec.workflow import DefinedWorkflow

Value = TypeVar("Value")
Made = Callable[[Sight], Entry]


def stub(name: str) -> str:
    """What stands for an output that nobody made."""
    return f"(dry run: {name})"


@dataclass(slots=True)
class Rehearsal:
    """What is answered, and what is to be said about the walk."""

    answers: Answers
    notes: list[str] = field(default_factory=list)

    def note(self, text: str) -> None:
        if text not in self.notes:
            self.notes.append(text)

    def attempt(self, name: str, make: Callable[[], Value], otherwise: Value) -> Value:
        """What can be computed, or a stand-in where a stub is not what the workflow expects."""
        try:
            return make()
        except (Pointing, ValueError) as error:
            why = error.message if isinstance(error, Pointing) else str(error)
            self.note(f"'{name}' depends on what an agent really says: {why}")
            return otherwise

    def again(self, what: str) -> bool:
        """Whether to go round once more: as long as there are answers that could change something."""
        if not self.answers.left:
            self.note(f"{what} is walked once: with stub answers nothing would change.")
        return bool(self.answers.left)


class RehearsalSession(Session):
    """A session in memory for one rehearsal."""

    def __init__(self, rehearsal: Rehearsal, project: Any) -> None:
        super().__init__("rehearsal", project=project)
        self.rehearsal = rehearsal


class Stub(Node):
    """A leaf that does nothing and says so."""

    async def execute(self, context: ExecutionContext) -> Result:
        return Result.ok(stub(self.id or "step"))


class Echo(Node):
    """A leaf that gives what it was given."""

    async def execute(self, context: ExecutionContext) -> Result:
        return Result.ok(context.input)


class StubStep(Step):
    """A step whose failures are noted; only a rejection is meant."""

    def __init__(
        self, rehearsal: Rehearsal, name: str, scope: Scope, make: Made, spec: models.NodeBase
    ) -> None:
        super().__init__(name, scope, make, when=spec.when, seen_as=spec.id)
        self.rehearsal = rehearsal

    def _wanted(self, sight: Sight) -> bool:
        return self.rehearsal.attempt(str(self.id), lambda: super(StubStep, self)._wanted(sight), True)

    async def _perform(self, context: ExecutionContext, sight: Sight) -> Result:
        result = await super()._perform(context, sight)
        if result.success or is_rejected(result):
            return result
        why = result.error.split("\n")[0]
        self.rehearsal.note(f"'{self.id}' depends on what an agent really says: {why}")
        return Result.ok(stub(str(self.id)))


class StubBuilder(Builder):
    """Builds a workflow for its rehearsal."""

    kinds: ClassVar = dict(Builder.kinds)

    @property
    def rehearsal(self) -> Rehearsal:
        return cast("RehearsalSession", self.names).rehearsal

    def step(self, spec: models.NodeBase) -> Step:
        kind = kind_of(spec)
        name = spec.id or kind
        return StubStep(self.rehearsal, name, self.scope, self.kinds[kind](self, spec, name), spec)

    # -- leaves and waits ----------------------------------------------------------------------

    def call(self, spec: models.Call, name: str) -> Made:
        target = spec.target.removeprefix("workflow:")
        return lambda sight: self._leaf(target, self._filled(spec.input, name, sight))

    def workflow(self, spec: models.WorkflowCall, name: str) -> Made:
        def make(sight: Sight) -> Entry:
            entry = self._leaf(spec.workflow, self._filled(spec.input, name, sight))
            entry.params = self._filled(spec.params, name, sight) or {}
            return entry

        return make

    def _leaf(self, target: str, given: Any) -> Entry:
        """A workflow that was written down is walked into; anything else is a stub."""
        workflow = self.names.get_workflow(target)
        return Entry(workflow if isinstance(workflow, DefinedWorkflow) else Stub(target), given)

    def prompt(self, spec: models.Prompt, name: str) -> Made:
        def make(sight: Sight) -> Entry:
            agent = spec.agent or spec.provider or self.scope.provider or DEFAULT
            asked = self.rehearsal.attempt(name, lambda: prompt_text(spec, sight), spec.text or "")
            return Entry(Stub(agent), asked, after=remembering(spec, self.scope))

        return make

    def bash(self, spec: models.Bash, name: str) -> Made:
        return lambda sight: Entry(Stub(name), self._filled(spec.input, name, sight))

    def gate(self, spec: models.Gate, name: str) -> Made:
        def make(sight: Sight) -> Entry:
            first = next(iter(spec.choices or spec.options or ["approve"]))
            answer = self.rehearsal.answers.take([name]) or first
            prompt = self.rehearsal.attempt(name, lambda: text(spec.prompt, sight), spec.prompt)
            gate = GateNode(
                name,
                NOWHERE,
                prompt,
                spec.options,
                choices=spec.choices,
                auto_answer=answer,
                reject=spec.reject,
            )
            return Entry(inlined(gate), sight["given"], after=lambda result: gate_result(spec, result))

        return make

    def wait(self, spec: models.Wait, name: str) -> Made:
        which = next((condition.name or "1" for condition in spec.any), None)
        value = True if spec.test else stub(name)

        def make(sight: Sight) -> Entry:
            given = sight["given"] if spec.seconds is not None else value
            return Entry(Compute(name, lambda _: given), after=lambda _: Result.ok(given, {"which": which}))

        return make

    def assertion(self, spec: models.Assert, name: str) -> Made:
        def fact(sight: Sight) -> Any:
            return assert_entry(spec, name, sight, self.names).input

        return lambda sight: Entry(Echo(name), self.rehearsal.attempt(name, lambda: fact(sight), None))

    def retraction(self, spec: models.Retract, name: str) -> Made:
        def fact(sight: Sight) -> Any:
            return retract_entry(spec, name, sight, self.names).input

        return lambda sight: Entry(Echo(name), self.rehearsal.attempt(name, lambda: fact(sight), None))

    # -- control -------------------------------------------------------------------------------

    def while_(self, spec: models.While, name: str) -> Made:
        body = self.turn(spec.body, name)

        def wanted(state: WhileState) -> bool:
            given = getattr(state.current_value, "output", state.current_value)
            sight = self.scope.sight(given=given, iteration=state.iteration)
            if self.scope.way.leaving or not self._holds(spec.condition, name, sight):
                return False
            return state.iteration == 0 or self.rehearsal.again(f"the loop '{name}'")

        def make(sight: Sight) -> Entry:
            node = WhileNode(name, NOWHERE, wanted, body, spec.max_iterations, "return")
            return Entry(Turns(inlined(node), body), sight["given"])

        return make

    def loop(self, spec: models.Loop, name: str) -> Made:
        body = self.turn(spec.body, name)

        def finished(state: LoopState) -> bool:
            sight = self.scope.sight(given=state.result.output, iteration=state.iteration)
            if self.scope.way.leaving or (spec.until and self._holds(spec.until, name, sight)):
                return True
            return not self.rehearsal.again(f"the loop '{name}'")

        def make(sight: Sight) -> Entry:
            times: int | None = self.rehearsal.attempt(
                name, lambda: times_of(spec.times, sight), cast("int | None", 1)
            )
            bound = spec.max_iterations if times is None else None
            until = None if times is not None and times < 2 else finished
            node = LoopNode(name, NOWHERE, body, times, until, bound, spec.accumulate, "return")
            return Entry(Turns(inlined(node), body), sight["given"])

        return make

    def branch(self, spec: models.Branch, name: str) -> Made:
        then = self.step(spec.then)
        otherwise = self.step(spec.otherwise) if spec.otherwise else None

        def make(sight: Sight) -> Entry:
            decided = self._holds(spec.condition, name, sight)
            return Entry(
                inlined(BranchNode(name, NOWHERE, lambda _: decided, then, otherwise)), sight["given"]
            )

        return make

    def switch(self, spec: models.Switch, name: str) -> Made:
        cases = {key: self.step(case) for key, case in spec.cases.items()}
        default = self.step(spec.default) if spec.default else None

        def make(sight: Sight) -> Entry:
            key = self.rehearsal.attempt(name, lambda: text(f"{{{{ {spec.key} }}}}", sight), "")
            if key not in cases and default is None:
                first = next(iter(cases), "")
                self.rehearsal.note(f"'{name}' has no case '{key}': its first, '{first}', is walked.")
                key = first
            return Entry(inlined(SwitchNode(name, NOWHERE, lambda _: key, cases, default)), sight["given"])

        return make

    def map(self, spec: models.MapSpec, name: str) -> Made:
        body = PerItem(name, self.scope, lambda scope: self.inside(scope).step(spec.body))

        def make(sight: Sight) -> Entry:
            over = self.rehearsal.attempt(name, lambda: listed(spec.over, sight), [stub(f"item of {name}")])
            items = [{"index": n, "item": item} for n, item in enumerate(over)]
            return Entry(inlined(MapNode(name, NOWHERE, body, spec.max_parallel)), items)

        return make

    def machine(self, spec: models.Machine, name: str) -> Made:
        build = Builder.machine(self, spec, name)

        def make(sight: Sight) -> Entry:
            entry = build(sight)
            machine = cast("Ending", entry.node).machine
            entered = {machine.start}
            machine.states = {
                each.name: State(
                    machine.states[each.name].body,
                    self._once(each, cast("Any", machine.states[each.name].next), entered),
                )
                for each in spec.states
            }
            return entry

        return make

    def _once(
        self, state: models.State, following: Callable[[Result], str | None], entered: set[str]
    ) -> Callable[[Result], str | None]:
        """The way on, but into no state a second time."""
        first = next((way.to for way in state.next), None)

        def following_once(result: Result) -> str | None:
            to = self.rehearsal.attempt(state.name, lambda: following(result), first)
            if to in entered and not self.rehearsal.again(f"the way from '{state.name}' back to '{to}'"):
                return None
            if to is not None:
                entered.add(to)
            return to

        return following_once

    def _filled(self, value: Any, name: str, sight: Sight) -> Any:
        return self.rehearsal.attempt(name, lambda: fill(value, sight), None)

    def _holds(self, condition: str, name: str, sight: Sight) -> bool:
        return self.rehearsal.attempt(name, lambda: holds(condition, sight), True)


OWN: Iterable[tuple[str, Any]] = (
    ("call", StubBuilder.call),
    ("workflow", StubBuilder.workflow),
    ("prompt", StubBuilder.prompt),
    ("bash", StubBuilder.bash),
    ("gate", StubBuilder.gate),
    ("wait", StubBuilder.wait),
    ("assert", StubBuilder.assertion),
    ("retract", StubBuilder.retraction),
    ("while", StubBuilder.while_),
    ("loop", StubBuilder.loop),
    ("branch", StubBuilder.branch),
    ("switch", StubBuilder.switch),
    ("map", StubBuilder.map),
    ("machine", StubBuilder.machine),
)
StubBuilder.kinds = {**Builder.kinds, **dict(OWN)}
