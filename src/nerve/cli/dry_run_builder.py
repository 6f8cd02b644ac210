"""Builder for dry runs: leaves are stubs, waits return at once and loops run once."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, ClassVar, TypeVar, cast

from nerve.cli.gate_answers import PresetAnswers
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
from nerve.expr.errors import SourceError
from nerve.session import Session
from nerve.spec import models
from nerve.spec.builder import (
    NO_SESSION_NAMES,
    NodeBuilder,
    evaluate_list,
    evaluate_times,
    gate_result,
    kind_of_spec,
    mark_inline,
)
from nerve.spec.checks.names import DEFAULT_PROVIDER
from nerve.spec.dataspace_nodes import prepare_assert, prepare_retract
from nerve.spec.defined_workflow import DefinedWorkflow
from nerve.spec.inline_nodes import ComputeNode, Iterations, MapItemBody, PreparedCall, ScopedStep
from nerve.spec.prompt_nodes import answer_recorder, render_prompt
from nerve.spec.scope import Scope, ScopeView
from nerve.spec.template_values import fill_templates, is_condition_true, render_text
from nerve.spec.transitions import MachineWithOutcome

Value = TypeVar("Value")
EntryFactory = Callable[[ScopeView], PreparedCall]


def stub_output(name: str) -> str:
    """Return the placeholder for the output of a step that was not executed."""
    return f"(dry run: {name})"


@dataclass(slots=True)
class DryRun:
    """The preset answers of a dry run, and notes about the simulation."""

    answers: PresetAnswers
    notes: list[str] = field(default_factory=list)

    def add_note(self, text: str) -> None:
        if text not in self.notes:
            self.notes.append(text)

    def compute_or_default(self, name: str, make: Callable[[], Value], otherwise: Value) -> Value:
        """Return the computed value, or a default and a note if a stub value makes it fail."""
        try:
            return make()
        except (SourceError, ValueError) as error:
            reason = error.message if isinstance(error, SourceError) else str(error)
            self.add_note(f"'{name}' depends on a real agent answer: {reason}")
            return otherwise

    def should_repeat(self, what: str) -> bool:
        """Whether to repeat a loop: only while preset answers remain that could change its outcome."""
        if not self.answers.remaining:
            self.add_note(f"{what} runs once: stub answers would not change its outcome.")
        return bool(self.answers.remaining)


class DryRunSession(Session):
    """An in-memory session for one dry run."""

    def __init__(self, dry_run: DryRun, project: Any) -> None:
        super().__init__("rehearsal", project=project)
        self.dry_run = dry_run


class StubNode(Node):
    """A leaf that does nothing and returns a placeholder."""

    async def execute(self, context: ExecutionContext) -> Result:
        return Result.ok(stub_output(self.id or "step"))


class PassThroughNode(Node):
    """A leaf that returns its input."""

    async def execute(self, context: ExecutionContext) -> Result:
        return Result.ok(context.input)


class DryRunStep(ScopedStep):
    """A step that turns failures into notes. Only a rejection fails, because stubs cause the others."""

    def __init__(
        self, dry_run: DryRun, name: str, scope: Scope, make: EntryFactory, spec: models.NodeBase
    ) -> None:
        super().__init__(name, scope, make, when=spec.when, result_id=spec.id)
        self.dry_run = dry_run

    def _should_run(self, sight: ScopeView) -> bool:
        return self.dry_run.compute_or_default(
            str(self.id), lambda: super(DryRunStep, self)._should_run(sight), True
        )

    async def _perform(self, context: ExecutionContext, sight: ScopeView) -> Result:
        result = await super()._perform(context, sight)
        if result.success or is_rejected(result):
            return result
        reason = result.error.split("\n")[0]
        self.dry_run.add_note(f"'{self.id}' depends on a real agent answer: {reason}")
        return Result.ok(stub_output(str(self.id)))


class DryRunBuilder(NodeBuilder):
    """Builds a workflow for a dry run."""

    kinds: ClassVar = dict(NodeBuilder.kinds)

    @property
    def dry_run(self) -> DryRun:
        return cast("DryRunSession", self.names).dry_run

    def step(self, spec: models.NodeBase) -> ScopedStep:
        kind = kind_of_spec(spec)
        name = spec.id or kind
        return DryRunStep(self.dry_run, name, self.scope, self.kinds[kind](self, spec, name), spec)

    # -- leaves and waits ----------------------------------------------------------------------

    def call(self, spec: models.CallSpec, name: str) -> EntryFactory:
        target = spec.target.removeprefix("workflow:")
        return lambda sight: self._leaf_entry(target, self._fill_or_none(spec.input, name, sight))

    def workflow(self, spec: models.WorkflowCallSpec, name: str) -> EntryFactory:
        def make(sight: ScopeView) -> PreparedCall:
            entry = self._leaf_entry(spec.workflow, self._fill_or_none(spec.input, name, sight))
            entry.params = self._fill_or_none(spec.params, name, sight) or {}
            return entry

        return make

    def _leaf_entry(self, target: str, input_value: Any) -> PreparedCall:
        """Return a declarative workflow as it is, and a stub for everything else."""
        workflow = self.names.get_workflow(target)
        return PreparedCall(
            workflow if isinstance(workflow, DefinedWorkflow) else StubNode(target), input_value
        )

    def prompt(self, spec: models.PromptSpec, name: str) -> EntryFactory:
        def make(sight: ScopeView) -> PreparedCall:
            agent = spec.agent or spec.provider or self.scope.provider or DEFAULT_PROVIDER
            rendered = self.dry_run.compute_or_default(
                name, lambda: render_prompt(spec, sight), spec.text or ""
            )
            return PreparedCall(StubNode(agent), rendered, map_result=answer_recorder(spec, self.scope))

        return make

    def bash(self, spec: models.BashSpec, name: str) -> EntryFactory:
        return lambda sight: PreparedCall(StubNode(name), self._fill_or_none(spec.input, name, sight))

    def gate(self, spec: models.GateSpec, name: str) -> EntryFactory:
        def make(sight: ScopeView) -> PreparedCall:
            first = next(iter(spec.choices or spec.options or ["approve"]))
            answer = self.dry_run.answers.pop([name]) or first
            prompt = self.dry_run.compute_or_default(
                name, lambda: render_text(spec.prompt, sight), spec.prompt
            )
            gate = GateNode(
                name,
                NO_SESSION_NAMES,
                prompt,
                spec.options,
                choices=spec.choices,
                auto_answer=answer,
                reject=spec.reject,
            )
            return PreparedCall(
                mark_inline(gate), sight["given"], map_result=lambda result: gate_result(spec, result)
            )

        return make

    def wait(self, spec: models.WaitSpec, name: str) -> EntryFactory:
        which = next((condition.name or "1" for condition in spec.any), None)
        value = True if spec.test else stub_output(name)

        def make(sight: ScopeView) -> PreparedCall:
            output = sight["given"] if spec.seconds is not None else value
            return PreparedCall(
                ComputeNode(name, lambda _: output), map_result=lambda _: Result.ok(output, {"which": which})
            )

        return make

    def assertion(self, spec: models.AssertSpec, name: str) -> EntryFactory:
        def fact(sight: ScopeView) -> Any:
            return prepare_assert(spec, name, sight, self.names).input

        return lambda sight: PreparedCall(
            PassThroughNode(name), self.dry_run.compute_or_default(name, lambda: fact(sight), None)
        )

    def retraction(self, spec: models.RetractSpec, name: str) -> EntryFactory:
        def fact(sight: ScopeView) -> Any:
            return prepare_retract(spec, name, sight, self.names).input

        return lambda sight: PreparedCall(
            PassThroughNode(name), self.dry_run.compute_or_default(name, lambda: fact(sight), None)
        )

    # -- control -------------------------------------------------------------------------------

    def while_(self, spec: models.WhileSpec, name: str) -> EntryFactory:
        body = self.iteration(spec.body, name)

        def should_continue(state: WhileState) -> bool:
            current = getattr(state.current_value, "output", state.current_value)
            sight = self.scope.view(given=current, iteration=state.iteration)
            if self.scope.pending_goto.is_leaving or not self._holds_or_true(spec.condition, name, sight):
                return False
            return state.iteration == 0 or self.dry_run.should_repeat(f"the loop '{name}'")

        def make(sight: ScopeView) -> PreparedCall:
            node = WhileNode(name, NO_SESSION_NAMES, should_continue, body, spec.max_iterations, "return")
            return PreparedCall(Iterations(mark_inline(node), body), sight["given"])

        return make

    def loop(self, spec: models.LoopSpec, name: str) -> EntryFactory:
        body = self.iteration(spec.body, name)

        def finished(state: LoopState) -> bool:
            sight = self.scope.view(given=state.result.output, iteration=state.iteration)
            if self.scope.pending_goto.is_leaving or (
                spec.until and self._holds_or_true(spec.until, name, sight)
            ):
                return True
            return not self.dry_run.should_repeat(f"the loop '{name}'")

        def make(sight: ScopeView) -> PreparedCall:
            times: int | None = self.dry_run.compute_or_default(
                name, lambda: evaluate_times(spec.times, sight), cast("int | None", 1)
            )
            bound = spec.max_iterations if times is None else None
            until = None if times is not None and times < 2 else finished
            node = LoopNode(name, NO_SESSION_NAMES, body, times, until, bound, spec.accumulate, "return")
            return PreparedCall(Iterations(mark_inline(node), body), sight["given"])

        return make

    def branch(self, spec: models.BranchSpec, name: str) -> EntryFactory:
        then = self.step(spec.then)
        otherwise = self.step(spec.otherwise) if spec.otherwise else None

        def make(sight: ScopeView) -> PreparedCall:
            decided = self._holds_or_true(spec.condition, name, sight)
            return PreparedCall(
                mark_inline(BranchNode(name, NO_SESSION_NAMES, lambda _: decided, then, otherwise)),
                sight["given"],
            )

        return make

    def switch(self, spec: models.SwitchSpec, name: str) -> EntryFactory:
        cases = {key: self.step(case) for key, case in spec.cases.items()}
        default = self.step(spec.default) if spec.default else None

        def make(sight: ScopeView) -> PreparedCall:
            key = self.dry_run.compute_or_default(
                name, lambda: render_text(f"{{{{ {spec.key} }}}}", sight), ""
            )
            if key not in cases and default is None:
                first = next(iter(cases), "")
                self.dry_run.add_note(f"'{name}' has no case '{key}': using its first case, '{first}'.")
                key = first
            return PreparedCall(
                mark_inline(SwitchNode(name, NO_SESSION_NAMES, lambda _: key, cases, default)), sight["given"]
            )

        return make

    def map(self, spec: models.MapSpec, name: str) -> EntryFactory:
        body = MapItemBody(name, self.scope, lambda scope: self.with_scope(scope).step(spec.body))

        def make(sight: ScopeView) -> PreparedCall:
            over = self.dry_run.compute_or_default(
                name, lambda: evaluate_list(spec.over, sight), [stub_output(f"item of {name}")]
            )
            items = [{"index": n, "item": item} for n, item in enumerate(over)]
            return PreparedCall(mark_inline(MapNode(name, NO_SESSION_NAMES, body, spec.max_parallel)), items)

        return make

    def machine(self, spec: models.MachineSpec, name: str) -> EntryFactory:
        build = NodeBuilder.machine(self, spec, name)

        def make(sight: ScopeView) -> PreparedCall:
            entry = build(sight)
            machine = cast("MachineWithOutcome", entry.node).machine
            entered = {machine.start}
            machine.states = {
                state.name: State(
                    machine.states[state.name].body,
                    self._enter_states_once(state, cast("Any", machine.states[state.name].next), entered),
                )
                for state in spec.states
            }
            return entry

        return make

    def _enter_states_once(
        self, state: models.StateSpec, following: Callable[[Result], str | None], entered: set[str]
    ) -> Callable[[Result], str | None]:
        """Wrap the transition function of a state so that it enters each state once."""
        first = next((transition.to for transition in state.next), None)

        def following_once(result: Result) -> str | None:
            next_state = self.dry_run.compute_or_default(state.name, lambda: following(result), first)
            if next_state in entered and not self.dry_run.should_repeat(
                f"the transition from '{state.name}' back to '{next_state}'"
            ):
                return None
            if next_state is not None:
                entered.add(next_state)
            return next_state

        return following_once

    def _fill_or_none(self, value: Any, name: str, sight: ScopeView) -> Any:
        return self.dry_run.compute_or_default(name, lambda: fill_templates(value, sight), None)

    def _holds_or_true(self, condition: str, name: str, sight: ScopeView) -> bool:
        return self.dry_run.compute_or_default(name, lambda: is_condition_true(condition, sight), True)


DRY_RUN_KINDS: Iterable[tuple[str, Any]] = (
    ("call", DryRunBuilder.call),
    ("workflow", DryRunBuilder.workflow),
    ("prompt", DryRunBuilder.prompt),
    ("bash", DryRunBuilder.bash),
    ("gate", DryRunBuilder.gate),
    ("wait", DryRunBuilder.wait),
    ("assert", DryRunBuilder.assertion),
    ("retract", DryRunBuilder.retraction),
    ("while", DryRunBuilder.while_),
    ("loop", DryRunBuilder.loop),
    ("branch", DryRunBuilder.branch),
    ("switch", DryRunBuilder.switch),
    ("map", DryRunBuilder.map),
    ("machine", DryRunBuilder.machine),
)
DryRunBuilder.kinds = {**NodeBuilder.kinds, **dict(DRY_RUN_KINDS)}
