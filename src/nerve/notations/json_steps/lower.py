"""From steps to the spec: a machine with one state a step."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from json import dumps
from typing import Any

from nerve.notations.json_steps.shape import Step, Told, inputs_of
from nerve.spec.source import Map, Place, Seq

ITERATIONS = 100
DURATION = 300_000
ERRORS = 10
TIMEOUT = 60_000
CAP = 30.0
"""Seconds between two attempts at most."""
TRANSITIONS = 1000
"""What a machine allows by itself."""
CHILD = "workflow:"
"""How an agent that is a workflow starts."""
REJECT = "reject"


@dataclass(frozen=True, slots=True)
class Group:
    """Steps that run side by side because none of them needs another."""

    id: str
    steps: tuple[Step, ...]

    @property
    def place(self) -> Place | None:
        return self.steps[0].place


class Plan:
    """The steps by their ids, and the states they are in."""

    def __init__(self, units: list[Step | Group]) -> None:
        self.known = {step.id: step for unit in units for step in members(unit)}
        self.states = {step.id: unit.id for unit in units for step in members(unit)}

    def skips(self, step: Step) -> bool:
        """Whether `on_error` is the word `skip`, and not a step of that name."""
        return bool(step.get("on_error") == "skip") and "skip" not in self.known


def workflow(source: Map, units: list[Step | Group], told: Told) -> Map:
    """The spec of a workflow."""
    made = Map((), source.place)
    take(made, "name", source, "id")
    take(made, "description", source)
    limits = Map((), source.place)
    most = source.get("max_iterations", ITERATIONS)
    put(limits, "iterations", most, source, "max_iterations")
    limits.put("errors", ERRORS, None)
    put(limits, "wall_time", seconds(source.get("max_duration_ms", DURATION)), source, "max_duration_ms")
    made.put("limits", limits, source.place)
    take(made, "context", source, "initial_context")
    steps = source["steps"]
    machine = Map({"kind": "machine"}, steps.place)
    machine.put("states", Seq((), steps.place), steps.place)
    if most >= TRANSITIONS:
        machine.put("max_transitions", most + 1, None)
    plan = Plan(units)
    for unit in units:
        made_state = group_state(unit, plan) if isinstance(unit, Group) else state(unit, plan)
        machine["states"].push(made_state, unit.place)
    tell_defaults(source, plan.known, told)
    return made.put("body", machine, steps.place)


def members(unit: Step | Group) -> tuple[Step, ...]:
    return unit.steps if isinstance(unit, Group) else (unit,)


def tell_defaults(source: Map, known: dict[str, Step], told: Told) -> None:
    """Say which bounds hold although nobody wrote them."""
    if "max_iterations" not in source:
        told.note(source.place, f"max_iterations is not set: {ITERATIONS} steps at most")
    if "max_duration_ms" not in source:
        told.note(source.place, f"max_duration_ms is not set: {DURATION} (5 minutes), waiting not counted")
    told.note(source.place, f"the run fails at {ERRORS} failed steps")
    bound = [step for top in known.values() for step in top.all() if default_timeout(step)]
    if bound:
        names = ", ".join(f"'{step.id}'" for step in bound[:20]) + (", …" if len(bound) > 20 else "")
        told.note(bound[0].place, f"timeout_ms is not set for {names}: {TIMEOUT} (1 minute)")


def default_timeout(step: Step) -> bool:
    """Whether the dialect's own timeout holds: only for agents, and not for a workflow, which has a bound."""
    return (
        step.type == "agent" and "timeout_ms" not in step.source and not step.get("agent").startswith(CHILD)
    )


# -- states ------------------------------------------------------------------------------------


def state(step: Step, plan: Plan) -> Map:
    made = Map((), step.place)
    put(made, "name", step.id, step.source, "id")
    made.put("body", body(step, plan), step.place)
    made.put("next", ways(step, plan), step.place)
    on_error = step.get("on_error")
    if on_error is not None and not plan.skips(step):
        put(made, "on_error", plan.states.get(on_error, on_error), step.source, "on_error")
    elif (after := after_failure(step, plan)) != "fail":
        made.put("after_failure", after, step.place)
    return made


def group_state(group: Group, plan: Plan) -> Map:
    """Independent steps as one state, which gives what the last of them would have given."""
    last = group.steps[-1]
    branches = [body(step) for step in group.steps]
    side_by_side = located({"kind": "parallel", "branches": branches}, group.place)
    last_output = located({"kind": "transform", "expression": f"given[{quoted(last.id)}]"}, group.place)
    steps = Seq([side_by_side, last_output], group.place)
    made = Map({"name": group.id}, group.place)
    made.put("body", Map({"kind": "sequence", "id": group.id, "steps": steps}, group.place), group.place)
    return made.put("next", ways(last, plan), last.place)


def after_failure(step: Step, plan: Plan) -> str:
    """A condition that follows handles a failure; a parallel goes on, and has failed in the end."""
    if step.type in ("condition", "approval"):
        return "fail"
    following = plan.known.get(step.get("next") or "")
    if following is not None and following.type == "condition":
        return "go_on"
    return "remember" if step.type == "parallel" else "fail"


def ways(step: Step, plan: Plan) -> Seq:
    """Where a step that succeeded goes on."""
    made = Seq((), step.place)
    match step.type:
        case "condition":
            way(made, step, plan, "then", "given")
            way(made, step, plan, "else")
        case "approval":
            if step.get("on_reject") is not None:
                way(made, step, plan, "on_reject", "!given.approved")
            way(made, step, plan, "on_approve" if step.get("on_approve") is not None else "next")
        case _:
            way(made, step, plan, "next")
    return made


def way(made: Seq, step: Step, plan: Plan, key: str, when: str | None = None) -> None:
    target = step.get(key)
    if target is None and key not in ("then", "else"):
        return
    to = Map((), step.at(key))
    if when is not None:
        to.put("when", when, step.at(key))
    if target is not None:
        to.put("to", plan.states.get(target, target), step.at(key))
    made.push(to, step.at(key))


# -- bodies ------------------------------------------------------------------------------------


def body(step: Step, plan: Plan | None = None) -> Map:
    """The node of a step, with what every step may carry."""
    made = BODIES[step.type](step)
    put(made, "id", step.id, step.source, "id")
    take(made, "description", step.source)
    retries = step.get("max_retries", 1)
    if retries > 1:
        delay = seconds(step.get("retry_delay_ms", 0))
        retry = {"attempts": retries, "delay": delay, "factor": 2.0, "cap": CAP}
        put(made, "retry", located(retry, step.at("max_retries")), step.source, "max_retries")
    if "timeout_ms" in step.source:
        put(made, "timeout", seconds(step.get("timeout_ms")), step.source, "timeout_ms")
    elif default_timeout(step):
        made.put("timeout", seconds(TIMEOUT), None)
    if plan is not None and plan.skips(step):
        take(made, "on_error", step.source)
    return made


def agent(step: Step) -> Map:
    name: str = step.get("agent")
    if name.startswith(CHILD):
        made = Map({"kind": "workflow"}, step.place)
        put(made, "workflow", name.removeprefix(CHILD), step.source, "agent")
        take(made, "limits", step.source)
        take(made, "params", step.source)
        return made.put("input", located(child_input(step), step.at("input")), step.at("input"))
    made = Map({"kind": "call"}, step.place)
    take(made, "target", step.source, "agent")
    take(made, "limits", step.source)
    take(made, "output_schema", step.source)
    return made.put("input", located(agent_input(step), step.at("input")), step.at("input"))


def agent_input(step: Step) -> Any:
    """The workflow's input, the results so far, and by their names the results the step asks for.

    A list of inputs is all a step sees.
    """
    named = {name: f"{{{{ results[{quoted(name)}] }}}}" for name in inputs_of(step)}
    context = dict(named) if isinstance(step.get("input"), list) else "{{ results }}"
    return {"input": "{{ input }}", "context": context, **named}


def child_input(step: Step) -> Any:
    """A workflow is given what this one was given, or the results it asks for."""
    named = {name: f"{{{{ results[{quoted(name)}] }}}}" for name in inputs_of(step)}
    if isinstance(step.get("input"), str):
        return named[step.get("input")]
    return named or "{{ input }}"


def approval(step: Step) -> Map:
    made = Map({"kind": "gate"}, step.place)
    take(made, "prompt", step.source, "message")
    made.put("choices", located(["approve", REJECT], step.place), step.place)
    made.put("output", "approved", step.place)
    if step.get("on_reject") is None:
        made.put("reject", located([REJECT], step.place), step.place)
    return made


def parallel(step: Step) -> Map:
    """The branches, none of which stops another; it gives a report of them."""
    branches = Seq((), step.at("steps"))
    for nested in step.nested:
        branches.push(body(nested), nested.place)
    made = Map({"kind": "parallel", "outputs": "list"}, step.place)
    made.put("branches", branches, step.at("steps"))
    return take(made, "require", step.source, "min_success")


def condition(step: Step) -> Map:
    return take(Map({"kind": "transform"}, step.place), "expression", step.source, "condition")


def transform(step: Step) -> Map:
    return take(Map({"kind": "transform"}, step.place), "expression", step.source, "transform")


BODIES: dict[str, Callable[[Step], Map]] = {
    "agent": agent,
    "approval": approval,
    "parallel": parallel,
    "condition": condition,
    "transform": transform,
}


# -- values and their places -------------------------------------------------------------------


def take(made: Map, key: str, source: Map, from_key: str | None = None) -> Map:
    """Put a value of the source, if it is there, with its place."""
    from_key = from_key or key
    return put(made, key, source[from_key], source, from_key) if from_key in source else made


def put(made: Map, key: str, value: Any, source: Map, from_key: str) -> Map:
    """Put a value that was made from one of the source."""
    if from_key in source.keys_at:
        made.keys_at[key] = source.keys_at[from_key]
    return made.put(key, value, source.values_at.get(from_key))


def located(value: Any, place: Place | None) -> Any:
    """Plain data as maps and lists that all stand at one place."""
    if isinstance(value, Map | Seq):
        return value
    if isinstance(value, dict):
        return Map({key: located(item, place) for key, item in value.items()}, place)
    if isinstance(value, list):
        return Seq([located(item, place) for item in value], place)
    return value


def seconds(milliseconds: float) -> float:
    return milliseconds / 1000


def quoted(id: str) -> str:
    return f"'{id}'" if re.fullmatch(r"[\w.-]*", id) else dumps(id)
