"""Checks of control flow: unknown targets, unreachable states, cycles and endless loops."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping

from nerve.core.cycles import find_cycle
from nerve.spec import models
from nerve.spec.checks.node_rules import (
    LocatedProblem,
    describe_unknown_name,
    format_names,
    suggest_known_name,
)
from nerve.spec.walk import SpecNode
from nerve.text.source import Loc

TransitionTarget = tuple[Loc, str | None]
UNREACHED_STEP_FIX = "Name it in 'next' of another step, also where \"parallel\" is true, or remove it."
GotosByState = Mapping[Loc, list[TransitionTarget]]
"""The gotos of each state, by the location of the state."""


def check_graphs(spec: models.WorkflowSpec, spec_nodes: list[SpecNode]) -> Iterator[LocatedProblem]:
    for spec_node in spec_nodes:
        if not isinstance(spec_node.spec, models.GraphSpec):
            continue
        known = {step.id: None for step in spec_node.spec.steps if step.id}
        for n, step in enumerate(spec_node.spec.steps):
            for m, name in enumerate(step.depends_on):
                if name not in known:
                    yield (
                        (*spec_node.loc, "steps", n, "depends_on", m),
                        *describe_missing_dependency(step.id, name, known),
                    )
        if cycle := find_cycle({str(step.id): step.depends_on for step in spec_node.spec.steps}):
            at = next(n for n, step in enumerate(spec_node.spec.steps) if step.id in cycle)
            cycle_text = " -> ".join(cycle)
            fix = "Remove one of these dependencies, or write a loop."
            yield (
                (*spec_node.loc, "steps", at, "depends_on"),
                f"Dependency cycle: {cycle_text}",
                fix,
            )


def describe_missing_dependency(step: str | None, name: str, known: Collection[str]) -> tuple[str, str]:
    """Return the message and fix for an unknown name in `depends_on`."""
    message = f"'{step}' depends on unknown step '{name}'"
    parts = [part for part in re.split(r"[\s,]+", name) if part]
    if all(part in known for part in parts):
        return message, f"Write [{', '.join(parts)}]."
    return describe_unknown_name(message, name, [other for other in known if other != step])


def check_machines(spec_nodes: list[SpecNode], word: str = "state") -> Iterator[LocatedProblem]:
    """Yield the problems of machines; `word` is what the notation calls a state."""
    gotos = gotos_by_state(spec_nodes)
    for spec_node in spec_nodes:
        if isinstance(spec_node.spec, models.MachineSpec):
            yield from check_machine(spec_node.spec, spec_node.loc, gotos, word)


def check_machine(
    node: models.MachineSpec, loc: Loc, gotos: GotosByState, word: str
) -> Iterator[LocatedProblem]:
    known: dict[str, int] = {}
    if not node.states:
        yield loc, "A machine needs at least one state", "Add a state."
        return
    for n, state in enumerate(node.states):
        if known.setdefault(state.name, n) != n:
            yield (*loc, "states", n, "name"), f"Duplicate {word} '{state.name}'", "Rename one of them."
    targets = [(where, to) for where, to in machine_transitions(node, loc, gotos) if to is not None]
    if node.start is not None:
        targets.append(((*loc, "start"), node.start))
    for where, to in targets:
        if to not in known:
            fix = f"{word.capitalize()}s: {format_names(list(known))}."
            yield where, f"Unknown {word} '{to}'{suggest_known_name(to, known)}", fix
    if all(to in known for _, to in targets):
        for name in sorted(set(known) - reachable_states(node, loc, gotos)):
            fix = UNREACHED_STEP_FIX if word == "step" else "Add a transition to it, or remove it."
            yield (*loc, "states", known[name]), f"{word.capitalize()} '{name}' is unreachable", fix


def find_endless_machines(spec_nodes: list[SpecNode], word: str = "state") -> Iterator[LocatedProblem]:
    """Yield machines that can only end by failing."""
    gotos = gotos_by_state(spec_nodes)
    for spec_node in spec_nodes:
        node, loc = spec_node.spec, spec_node.loc
        if not isinstance(node, models.MachineSpec) or not node.states:
            continue
        known = {state.name for state in node.states}
        targets = [node.start, *(to for _, to in machine_transitions(node, loc, gotos))]
        if any(to is not None and to not in known for to in targets):
            continue
        reachable = reachable_states(node, loc, gotos)
        if not any(
            can_end_in_state(state, (*loc, "states", n), gotos)
            for n, state in enumerate(node.states)
            if state.name in reachable
        ):
            start = node.start or node.states[0].name
            at = next(n for n, state in enumerate(node.states) if state.name == start)
            message = f"No path leads from {word} '{start}' to an end: the run continues until it fails"
            yield (*loc, "states", at), message, f"Let at least one {word} end the run."


def can_end_in_state(state: models.StateSpec, loc: Loc, gotos: GotosByState) -> bool:
    """Whether a machine can end in a state: no transition leaves it, or all of them are conditional."""
    steps = state.body.steps if isinstance(state.body, models.SequenceSpec) else [state.body]
    falls_through = not any(isinstance(step, models.GotoSpec) and step.when is None for step in steps)
    open_ended = falls_through and (
        state.terminal or all(transition.when is not None for transition in state.next)
    )
    return open_ended or any(to is None for _, to in state_transitions(state, loc, gotos))


def gotos_by_state(spec_nodes: list[SpecNode]) -> GotosByState:
    gotos: defaultdict[Loc, list[TransitionTarget]] = defaultdict(list)
    for spec_node in spec_nodes:
        machine = next((up for up in reversed(spec_node.ancestors) if up.kind == "machine"), None)
        if isinstance(spec_node.spec, models.GotoSpec) and machine is not None:
            state = spec_node.loc[: len(machine.loc) + 2]
            gotos[state].append(((*spec_node.loc, "state"), spec_node.spec.state))
    return gotos


def machine_transitions(
    node: models.MachineSpec, loc: Loc, gotos: GotosByState
) -> Iterator[TransitionTarget]:
    """Yield every transition of a machine with its location."""
    for n, state in enumerate(node.states):
        yield from state_transitions(state, (*loc, "states", n), gotos)


def state_transitions(state: models.StateSpec, loc: Loc, gotos: GotosByState) -> Iterator[TransitionTarget]:
    for m, transition in enumerate(state.next):
        yield (*loc, "next", m, "to"), transition.to
    if state.on_error is not None:
        yield (*loc, "on_error"), state.on_error
    yield from gotos.get(loc, ())


def reachable_states(node: models.MachineSpec, loc: Loc, gotos: GotosByState) -> set[str]:
    """Return the states that are reachable from the start."""
    index_by_name = {state.name: n for n, state in enumerate(node.states)}
    reachable: set[str] = set()
    pending = [node.start or node.states[0].name]
    while pending:
        name = pending.pop()
        if name in reachable:
            continue
        reachable.add(name)
        n = index_by_name[name]
        pending += [
            to for _, to in state_transitions(node.states[n], (*loc, "states", n), gotos) if to is not None
        ]
    return reachable


def check_gotos(spec: models.WorkflowSpec, spec_nodes: list[SpecNode]) -> Iterator[LocatedProblem]:
    for spec_node in spec_nodes:
        if not isinstance(spec_node.spec, models.GotoSpec):
            continue
        between: list[str] = []
        for up in reversed(spec_node.ancestors):
            if up.kind == "machine":
                break
            between.append(up.kind)
        else:
            yield spec_node.loc, "goto is outside a machine", "Use it inside the body of a state."
            continue
        if concurrent_kind := next((kind for kind in between if kind in ("map", "parallel", "graph")), None):
            yield (
                spec_node.loc,
                f"goto cannot leave a {concurrent_kind}: its other parts still run",
                "Choose the next state by its result.",
            )


def check_loops(spec: models.WorkflowSpec, spec_nodes: list[SpecNode]) -> Iterator[LocatedProblem]:
    for spec_node in spec_nodes:
        if (
            isinstance(spec_node.spec, models.LoopSpec)
            and spec_node.spec.times is None
            and spec_node.spec.until is None
        ):
            yield (
                spec_node.loc,
                "A loop needs 'times' or 'until'; without them it never ends",
                "Add one of them.",
            )
