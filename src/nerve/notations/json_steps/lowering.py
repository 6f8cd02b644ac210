"""Lower steps to the spec: a machine with one state per step."""

from __future__ import annotations

import re
from collections.abc import Callable
from json import dumps
from typing import Any

from nerve.lazy_dataclass import dataclass
from nerve.notations.json_steps.step_schema import StepSource, input_step_ids
from nerve.notations.yaml_keys import GATE_POLICY_KEYS
from nerve.project.agent_settings import STEP_SETTING_KEYS
from nerve.text import clip_names
from nerve.text.source import Diagnostics, LocatedList, LocatedMap, Position

DEFAULT_MAX_ITERATIONS = 100
DEFAULT_MAX_DURATION_MS = 300_000
MAX_FAILED_STEPS = 10
DEFAULT_TIMEOUT_MS = 60_000
MAX_RETRY_DELAY_S = 30.0
"""Maximum delay between two attempts."""
DEFAULT_MAX_TRANSITIONS = 1000
"""The limit of a machine that does not set one."""
WORKFLOW_PREFIX = "workflow:"
"""Prefix of an agent name that calls a workflow."""
REJECT_CHOICE = "reject"


@dataclass(frozen=True, slots=True)
class StepGroup:
    """Independent steps that run in parallel."""

    id: str
    steps: tuple[StepSource, ...]

    @property
    def position(self) -> Position | None:
        return self.steps[0].position


class LoweringPlan:
    """The steps by id, and their states."""

    def __init__(self, units: list[StepSource | StepGroup]) -> None:
        self.steps_by_id = {step.id: step for unit in units for step in steps_in_unit(unit)}
        self.state_by_step = {step.id: unit.id for unit in units for step in steps_in_unit(unit)}

    def skips_on_error(self, step: StepSource) -> bool:
        """Whether `on_error` is the keyword `skip` and not the id of a step."""
        return bool(step.get("on_error") == "skip") and "skip" not in self.steps_by_id


def lower_workflow(
    source: LocatedMap, units: list[StepSource | StepGroup], diagnostics: Diagnostics
) -> LocatedMap:
    """Return the spec of a workflow."""
    spec = LocatedMap((), source.position)
    spec.copy_from(source, name="id", description="description")
    limits = LocatedMap((), source.position)
    max_iterations = source.get("max_iterations", DEFAULT_MAX_ITERATIONS)
    limits.set_from("iterations", max_iterations, source, "max_iterations")
    limits.set_at("errors", MAX_FAILED_STEPS, None)
    wall_time = source.get("max_duration_ms", DEFAULT_MAX_DURATION_MS) / 1000
    limits.set_from("wall_time", wall_time, source, "max_duration_ms")
    spec.set_at("limits", limits, source.position)
    spec.copy_from(source, context="initial_context")
    steps = source["steps"]
    machine = LocatedMap({"kind": "machine"}, steps.position)
    machine.set_at("states", LocatedList((), steps.position), steps.position)
    machine.copy_from(source, "workspace")
    if max_iterations >= DEFAULT_MAX_TRANSITIONS:
        machine.set_at("max_transitions", max_iterations + 1, None)
    plan = LoweringPlan(units)
    for unit in units:
        state = lower_group(unit, plan) if isinstance(unit, StepGroup) else lower_state(unit, plan)
        machine["states"].append_at(state, unit.position)
    note_defaults(source, plan.steps_by_id, diagnostics)
    return spec.set_at("body", machine, steps.position)


def steps_in_unit(unit: StepSource | StepGroup) -> tuple[StepSource, ...]:
    return unit.steps if isinstance(unit, StepGroup) else (unit,)


def note_defaults(source: LocatedMap, known: dict[str, StepSource], diagnostics: Diagnostics) -> None:
    """Add notes about the limits that apply by default."""
    if "max_iterations" not in source:
        diagnostics.add_note(
            source.position, f"max_iterations is not set: {DEFAULT_MAX_ITERATIONS} steps at most"
        )
    if "max_duration_ms" not in source:
        diagnostics.add_note(
            source.position,
            f"max_duration_ms is not set: {DEFAULT_MAX_DURATION_MS} (5 minutes), not counting waits",
        )
    diagnostics.add_note(source.position, f"The run fails at {MAX_FAILED_STEPS} failed steps")
    without_timeout = [
        step for top in known.values() for step in top.with_nested() if uses_default_timeout(step)
    ]
    if without_timeout:
        names = clip_names([f"'{step.id}'" for step in without_timeout], 20)
        diagnostics.add_note(
            without_timeout[0].position, f"timeout_ms is not set for {names}: {DEFAULT_TIMEOUT_MS} (1 minute)"
        )


def uses_default_timeout(step: StepSource) -> bool:
    """Whether the default timeout applies: to agents, but not to called workflows, which have limits."""
    return (
        step.type == "agent"
        and "timeout_ms" not in step.source
        and not step.get("agent").startswith(WORKFLOW_PREFIX)
    )


# -- states ------------------------------------------------------------------------------------


def lower_state(step: StepSource, plan: LoweringPlan) -> LocatedMap:
    state_map = LocatedMap((), step.position)
    state_map.set_from("name", step.id, step.source, "id")
    state_map.set_at("body", lower_step_body(step, plan), step.position)
    state_map.set_at("next", lower_routes(step, plan), step.position)
    on_error = step.get("on_error")
    if on_error is not None and not plan.skips_on_error(step):
        state_map.set_from("on_error", plan.state_by_step.get(on_error, on_error), step.source, "on_error")
    elif step.type not in ("condition", "approval"):
        # A condition after the step handles its failure; a parallel step continues and fails at the end.
        following = plan.steps_by_id.get(step.get("next") or "")
        if following is not None and following.type == "condition":
            state_map.set_at("after_failure", "go_on", step.position)
        elif step.type == "parallel":
            state_map.set_at("after_failure", "remember", step.position)
    return state_map


def lower_group(group: StepGroup, plan: LoweringPlan) -> LocatedMap:
    """Lower independent steps to one state, whose output is that of the last step."""
    last = group.steps[-1]
    branches = [lower_step_body(step) for step in group.steps]
    parallel = locate_value({"kind": "parallel", "branches": branches}, group.position)
    last_output = locate_value(
        {"kind": "transform", "expression": f"given[{quote_step_id(last.id)}]"}, group.position
    )
    steps = LocatedList([parallel, last_output], group.position)
    state_map = LocatedMap({"name": group.id}, group.position)
    state_map.set_at(
        "body",
        LocatedMap({"kind": "sequence", "id": group.id, "steps": steps}, group.position),
        group.position,
    )
    return state_map.set_at("next", lower_routes(last, plan), last.position)


def lower_routes(step: StepSource, plan: LoweringPlan) -> LocatedList:
    """Return the routes of a step that succeeded."""
    routes = LocatedList((), step.position)
    match step.type:
        case "condition":
            add_route(routes, step, plan, "then", "given")
            add_route(routes, step, plan, "else")
        case "approval":
            if step.get("on_reject") is not None:
                add_route(routes, step, plan, "on_reject", "!given.approved")
            add_route(routes, step, plan, "on_approve" if step.get("on_approve") is not None else "next")
        case _:
            add_route(routes, step, plan, "next")
    return routes


def add_route(
    routes: LocatedList, step: StepSource, plan: LoweringPlan, key: str, when: str | None = None
) -> None:
    target = step.get(key)
    if target is None and key not in ("then", "else"):
        return
    to = LocatedMap((), step.position_of(key))
    if when is not None:
        to.set_at("when", when, step.position_of(key))
    if target is not None:
        to.set_at("to", plan.state_by_step.get(target, target), step.position_of(key))
    routes.append_at(to, step.position_of(key))


# -- bodies ------------------------------------------------------------------------------------


def lower_step_body(step: StepSource, plan: LoweringPlan | None = None) -> LocatedMap:
    """Return the node of a step, with the policies that every step may have."""
    node = STEP_LOWERINGS[step.type](step)
    node.set_from("id", step.id, step.source, "id")
    node.copy_from(step.source, "description", "workspace")
    retries = step.get("max_retries", 1)
    if retries > 1:
        delay = step.get("retry_delay_ms", 0) / 1000
        retry = {"attempts": retries, "delay": delay, "factor": 2.0, "cap": MAX_RETRY_DELAY_S}
        node.set_from(
            "retry", locate_value(retry, step.position_of("max_retries")), step.source, "max_retries"
        )
    if "timeout_ms" in step.source:
        node.set_from("timeout", step.get("timeout_ms") / 1000, step.source, "timeout_ms")
    elif uses_default_timeout(step):
        node.set_at("timeout", DEFAULT_TIMEOUT_MS / 1000, None)
    if plan is not None and plan.skips_on_error(step):
        node.copy_from(step.source, "on_error")
    return node


def lower_agent(step: StepSource) -> LocatedMap:
    name, input_names = step.get("agent"), step.get("input")
    results_by_name = {id: f"{{{{ results[{quote_step_id(id)}] }}}}" for id in input_step_ids(step)}
    template: Any
    if name.startswith(WORKFLOW_PREFIX):
        node = LocatedMap({"kind": "workflow"}, step.position)
        node.set_from("workflow", name.removeprefix(WORKFLOW_PREFIX), step.source, "agent")
        node.copy_from(step.source, "limits", "params")
        # The requested results, else the input of this workflow.
        single = results_by_name[input_names] if isinstance(input_names, str) else None
        template = single or results_by_name or "{{ input }}"
    else:
        node = LocatedMap({"kind": "call"}, step.position)
        node.copy_from(step.source, "limits", "output_schema", "cwd", *STEP_SETTING_KEYS, target="agent")
        context = dict(results_by_name) if isinstance(input_names, list) else "{{ results }}"
        template = {"input": "{{ input }}", "context": context, **results_by_name}
    position = step.position_of("input")
    return node.set_at("input", locate_value(template, position), position)


def lower_approval(step: StepSource) -> LocatedMap:
    node = LocatedMap({"kind": "gate"}, step.position)
    node.copy_from(step.source, *GATE_POLICY_KEYS, prompt="message")
    node.set_at("choices", locate_value(["approve", REJECT_CHOICE], step.position), step.position)
    node.set_at("output", "approved", step.position)
    if step.get("on_reject") is None:
        node.set_at("reject", locate_value([REJECT_CHOICE], step.position), step.position)
    return node


def lower_parallel(step: StepSource) -> LocatedMap:
    """Lower a parallel step; a failed branch does not stop the others, and the output reports all."""
    branches = LocatedList((), step.position_of("steps"))
    for nested in step.nested:
        branches.append_at(lower_step_body(nested), nested.position)
    node = LocatedMap({"kind": "parallel", "outputs": "list"}, step.position)
    node.set_at("branches", branches, step.position_of("steps"))
    return node.copy_from(step.source, require="min_success")


def lower_expression(step: StepSource) -> LocatedMap:
    """Lower a condition or a transform: the key of its expression is its type."""
    return LocatedMap({"kind": "transform"}, step.position).copy_from(step.source, expression=step.type)


def lower_merge(step: StepSource) -> LocatedMap:
    return LocatedMap({"kind": "merge"}, step.position).copy_from(step.source, "of", "method", "on_conflict")


STEP_LOWERINGS: dict[str, Callable[[StepSource], LocatedMap]] = {
    "agent": lower_agent,
    "approval": lower_approval,
    "parallel": lower_parallel,
    "condition": lower_expression,
    "transform": lower_expression,
    "merge": lower_merge,
}


# -- values and positions ---------------------------------------------------------------------


def locate_value(value: Any, position: Position | None) -> Any:
    """Return plain data as located maps and lists that share one position."""
    if isinstance(value, LocatedMap | LocatedList):
        return value
    if isinstance(value, dict):
        return LocatedMap({key: locate_value(item, position) for key, item in value.items()}, position)
    if isinstance(value, list):
        return LocatedList([locate_value(item, position) for item in value], position)
    return value


def quote_step_id(id: str) -> str:
    return f"'{id}'" if re.fullmatch(r"[\w.-]*", id) else dumps(id)
