"""Builder for dry runs: leaves are stubs, waits return at once and loops run once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field
from typing import Any, TypeVar, cast

from nerve.cli.gate_answers import PresetAnswers
from nerve.core.nodes.base import Node
from nerve.core.nodes.context import ExecutionContext
from nerve.core.nodes.control.machine_node import State
from nerve.core.result import Result, is_rejected
from nerve.expr.errors import SourceError
from nerve.lazy_dataclass import dataclass
from nerve.session import Session
from nerve.spec import models
from nerve.spec.builder import NodeBuilder
from nerve.spec.checks.names import DEFAULT_PROVIDER
from nerve.spec.dataspace_nodes import asserted_fact, retracted_pattern
from nerve.spec.defined_workflow import DefinedWorkflow
from nerve.spec.inline_nodes import ComputeNode, PreparedCall, ScopedStep
from nerve.spec.prompt_nodes import answer_recorder, render_prompt
from nerve.spec.scope import Scope, ScopeView
from nerve.spec.template_values import fill_templates

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
            self.add_note(f"'{name}' depends on an output that a dry run does not have: {reason}")
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
        self.dry_run.add_note(f"'{self.id}' depends on an output that a dry run does not have: {reason}")
        return Result.ok(stub_output(str(self.id)))


class DryRunBuilder(NodeBuilder):
    """Builds a workflow for a dry run."""

    @property
    def dry_run(self) -> DryRun:
        return cast("DryRunSession", self.names).dry_run

    def step(self, spec: models.NodeBase, is_run: bool = False) -> ScopedStep:
        name = spec.id or spec.kind
        return DryRunStep(self.dry_run, name, self.scope, self.preparer(spec, name), spec)

    # -- values --------------------------------------------------------------------------------

    def merge(self, spec: models.MergeSpec, name: str) -> EntryFactory:
        return lambda sight: PreparedCall(StubNode(name), None)

    def evaluate(self, name: str, compute: Callable[[], Value], default: Value) -> Value:
        return self.dry_run.compute_or_default(name, compute, default)

    def find_target(self, target: str, is_workflow: bool = False) -> Node:
        workflow = self.names.get_workflow(target.removeprefix("workflow:"))
        if isinstance(workflow, DefinedWorkflow):
            return workflow
        return StubNode(target.removeprefix("workflow:"))

    def should_repeat(self, description: str) -> bool:
        return self.dry_run.should_repeat(description)

    def choose_gate_answer(self, spec: models.GateSpec, name: str) -> str | None:
        first = next(iter(spec.choices or spec.options or ["approve"]))
        return self.dry_run.answers.pop([name]) or first

    def evaluate_items(self, over: str, name: str, view: ScopeView) -> list[dict[str, Any]]:
        stub_items = [{"index": 0, "item": stub_output(f"item of {name}")}]
        return self.evaluate(name, lambda: NodeBuilder.evaluate_items(self, over, name, view), stub_items)

    def select_case(self, spec: models.SwitchSpec, name: str, view: ScopeView) -> str:
        key = self.evaluate(name, lambda: NodeBuilder.select_case(self, spec, name, view), "")
        if key not in spec.cases and spec.default is None:
            first = next(iter(spec.cases), "")
            self.dry_run.add_note(f"'{name}' has no case '{key}': using its first case, '{first}'.")
            return first
        return key

    # -- leaves and waits ----------------------------------------------------------------------

    def prompt(self, spec: models.PromptSpec, name: str) -> EntryFactory:
        def make(sight: ScopeView) -> PreparedCall:
            agent = spec.agent or spec.provider or self.scope.provider or DEFAULT_PROVIDER
            rendered = self.evaluate(name, lambda: render_prompt(spec, sight), spec.text or "")
            return PreparedCall(StubNode(agent), rendered, map_result=answer_recorder(spec, self.scope))

        return make

    def bash(self, spec: models.BashSpec, name: str) -> EntryFactory:
        return lambda sight: PreparedCall(
            StubNode(name), self.evaluate(name, lambda: fill_templates(spec.input, sight), None)
        )

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
        return lambda sight: PreparedCall(
            PassThroughNode(name), self.evaluate(name, lambda: asserted_fact(spec, sight), None)
        )

    def retraction(self, spec: models.RetractSpec, name: str) -> EntryFactory:
        return lambda sight: PreparedCall(
            PassThroughNode(name), self.evaluate(name, lambda: retracted_pattern(spec, sight), None)
        )

    # -- control -------------------------------------------------------------------------------

    def machine(self, spec: models.MachineSpec, name: str) -> EntryFactory:
        build = NodeBuilder.machine(self, spec, name)

        def make(sight: ScopeView) -> PreparedCall:
            entry = build(sight)
            machine = cast("Any", entry.node).node
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
