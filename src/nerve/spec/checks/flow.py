"""Where control can go: targets that do not exist, states nobody reaches, circles, loops without end."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping

from nerve.core.nodes.graph import find_cycle
from nerve.spec import models
from nerve.spec.checks.rules import Wrong, listed, near, unknown
from nerve.spec.source import Loc
from nerve.spec.walk import Found

Way = tuple[Loc, str | None]
BY_NEXT = "Name it in 'next' of another step, also where \"parallel\" is true, or drop it."
Gotos = Mapping[Loc, list[Way]]
"""The gotos of each state, by the place of the state."""


def graphs(spec: models.WorkflowSpec, found: list[Found]) -> Iterator[Wrong]:
    for each in found:
        if not isinstance(each.spec, models.Graph):
            continue
        known = {step.id: None for step in each.spec.steps if step.id}
        for n, step in enumerate(each.spec.steps):
            for m, name in enumerate(step.depends_on):
                if name not in known:
                    yield (*each.loc, "steps", n, "depends_on", m), *no_dependency(step.id, name, known)
        if cycle := find_cycle({str(step.id): step.depends_on for step in each.spec.steps}):
            at = next(n for n, step in enumerate(each.spec.steps) if step.id in cycle)
            way = " -> ".join(cycle)
            fix = "Let one of them depend on less, or write a loop."
            yield (*each.loc, "steps", at, "depends_on"), f"the steps wait for each other: {way}", fix


def no_dependency(step: str | None, name: str, known: Collection[str]) -> tuple[str, str]:
    """What is said of a name in `depends_on` that nothing has."""
    message = f"'{step}' depends on '{name}', and nothing here has that id"
    several = [part for part in re.split(r"[\s,]+", name) if part]
    if all(part in known for part in several):
        return message, f"Write [{', '.join(several)}]."
    return unknown(message, name, [other for other in known if other != step])


def machines(found: list[Found], word: str = "state") -> Iterator[Wrong]:
    """What is wrong with machines; `word` is what a state is called."""
    gotos = gotos_of(found)
    for each in found:
        if isinstance(each.spec, models.Machine):
            yield from machine(each.spec, each.loc, gotos, word)


def machine(node: models.Machine, loc: Loc, gotos: Gotos, word: str) -> Iterator[Wrong]:
    known: dict[str, int] = {}
    if not node.states:
        yield loc, "a machine needs a state", "Add one."
        return
    for n, state in enumerate(node.states):
        if known.setdefault(state.name, n) != n:
            yield (*loc, "states", n, "name"), f"there are two {word}s '{state.name}'", "Rename one of them."
    targets = [(where, to) for where, to in routes(node, loc, gotos) if to is not None]
    if node.start is not None:
        targets.append(((*loc, "start"), node.start))
    for where, to in targets:
        if to not in known:
            fix = f"{word.capitalize()}s: {listed(list(known))}."
            yield where, f"there is no {word} '{to}'{near(to, known)}", fix
    if all(to in known for _, to in targets):
        for name in sorted(set(known) - reached(node, loc, gotos)):
            fix = BY_NEXT if word == "step" else "Add a way to it, or drop it."
            yield (*loc, "states", known[name]), f"nothing leads to the {word} '{name}'", fix


def endless(found: list[Found], word: str = "state") -> Iterator[Wrong]:
    """Machines that come to an end only when they fail."""
    gotos = gotos_of(found)
    for each in found:
        if isinstance(each.spec, models.Machine) and never_ends(each.spec, each.loc, gotos):
            start = each.spec.start or each.spec.states[0].name
            at = next(n for n, state in enumerate(each.spec.states) if state.name == start)
            message = f"no way leads from the {word} '{start}' to an end: it goes on until it fails"
            yield (*each.loc, "states", at), message, f"Let a {word} end it."


def never_ends(node: models.Machine, loc: Loc, gotos: Gotos) -> bool:
    known = {state.name for state in node.states}
    targets = [node.start, *(to for _, to in routes(node, loc, gotos))]
    if not known or any(to is not None and to not in known for to in targets):
        return False
    seen = reached(node, loc, gotos)
    return not any(
        can_end(state, (*loc, "states", n), gotos)
        for n, state in enumerate(node.states)
        if state.name in seen
    )


def can_end(state: models.State, loc: Loc, gotos: Gotos) -> bool:
    """Whether a machine may come to its end in a state: where nothing follows, or nothing need follow."""
    steps = state.body.steps if isinstance(state.body, models.Sequence) else [state.body]
    falls = not any(isinstance(step, models.Goto) and step.when is None for step in steps)
    open_ended = falls and (state.terminal or all(way.when is not None for way in state.next))
    return open_ended or any(to is None for _, to in ways(state, loc, gotos))


def gotos_of(found: list[Found]) -> Gotos:
    gotos: defaultdict[Loc, list[Way]] = defaultdict(list)
    for each in found:
        around = next((up for up in reversed(each.above) if up.kind == "machine"), None)
        if isinstance(each.spec, models.Goto) and around is not None:
            state = each.loc[: len(around.loc) + 2]
            gotos[state].append(((*each.loc, "state"), each.spec.state))
    return gotos


def routes(node: models.Machine, loc: Loc, gotos: Gotos) -> Iterator[Way]:
    """Every way on that is written down in a machine, with where it stands."""
    for n, state in enumerate(node.states):
        yield from ways(state, (*loc, "states", n), gotos)


def ways(state: models.State, loc: Loc, gotos: Gotos) -> Iterator[Way]:
    for m, way in enumerate(state.next):
        yield (*loc, "next", m, "to"), way.to
    if state.on_error is not None:
        yield (*loc, "on_error"), state.on_error
    yield from gotos.get(loc, ())


def reached(node: models.Machine, loc: Loc, gotos: Gotos) -> set[str]:
    """The states that some way leads to from the start."""
    places = {state.name: n for n, state in enumerate(node.states)}
    seen: set[str] = set()
    open_ = [node.start or node.states[0].name]
    while open_:
        name = open_.pop()
        if name in seen:
            continue
        seen.add(name)
        n = places[name]
        open_ += [to for _, to in ways(node.states[n], (*loc, "states", n), gotos) if to is not None]
    return seen


def gotos(spec: models.WorkflowSpec, found: list[Found]) -> Iterator[Wrong]:
    for each in found:
        if not isinstance(each.spec, models.Goto):
            continue
        between: list[str] = []
        for up in reversed(each.above):
            if up.kind == "machine":
                break
            between.append(up.kind)
        else:
            yield each.loc, "goto stands in no machine", "Use it inside the body of a state."
            continue
        if side := next((kind for kind in between if kind in ("map", "parallel", "graph")), None):
            yield each.loc, f"goto cannot leave a {side}: its other parts still run", "Route by its result."


def loops(spec: models.WorkflowSpec, found: list[Found]) -> Iterator[Wrong]:
    for each in found:
        if isinstance(each.spec, models.Loop) and each.spec.times is None and each.spec.until is None:
            yield each.loc, "a loop needs 'times' or 'until', otherwise it has no end", "Add one of them."
