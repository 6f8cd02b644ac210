"""Which steps may run side by side: the analysis behind `"parallel": true`.

Steps are grouped only where nothing can tell the difference but the clock. They follow each other by `next`,
only the first of them can be come to from elsewhere, none has an `on_error`, and none looks at another:

- an agent says with a list `input` all it sees, and names no other step of the group in it;
- a workflow is given the input, or the results it names;
- a transform reads results only by names that stand in its text, and none of the group's is among them.

A step before a condition is not grouped: the condition is the handler of its failure, and of its alone.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable

from nerve.notations.json_steps.lower import CHILD, Group
from nerve.notations.json_steps.shape import ROUTES, Step, Told, inputs_of
from nerve.spec.source import Place

NAME = "auto-parallel"
MOST = 100
"""Steps that run side by side at most."""
RESULTS = re.compile(r"\b(?:context|results|steps|given|roles)\b")
BY_NAME = re.compile(
    r"(?:context|results|steps)\s*(?:\??\.\s*[A-Za-z_$]|(?:\?\.)?\[\s*(?:'[^']*'|\"[^\"]*\")\s*\])"
)


def together(
    steps: tuple[Step, ...], ids: Iterable[str], told: Told, place: Place | None
) -> list[Step | Group]:
    """The steps, with those that are provably independent in groups; a note says which they are."""
    taken = set(ids)
    grouped: dict[str, Group] = {}
    for members in chains(steps):
        group = Group(free_name(taken), tuple(members))
        taken.add(group.id)
        grouped.update(dict.fromkeys((step.id for step in members), group))
        names = ", ".join(f"'{step.id}'" for step in members)
        told.note(
            group.place, f"{names} run side by side as '{group.id}': none of them sees another's result"
        )
    if not grouped:
        told.note(
            place,
            "parallel is true, but no steps are provably independent: an agent without a list 'input' sees"
            " every result before it",
        )
    return [grouped.get(step.id, step) for step in steps if leads(step, grouped)]


def leads(step: Step, grouped: dict[str, Group]) -> bool:
    return step.id not in grouped or grouped[step.id].steps[0] is step


def free_name(taken: set[str]) -> str:
    return next(name for name in names() if name not in taken)


def names() -> Iterable[str]:
    yield NAME
    number = 2
    while True:
        yield f"{NAME}-{number}"
        number += 1


def chains(steps: tuple[Step, ...]) -> Iterable[list[Step]]:
    """Runs of two or more steps that may go side by side."""
    known = {step.id: step for step in steps}
    entered = Counter(target for step in steps for key in ROUTES if (target := step.get(key)) is not None)
    entered[steps[0].id] += 1
    used: set[str] = set()
    for first in steps:
        group = chain(first, known, entered, used)
        if len(group) > 1:
            used.update(group)
            yield list(group.values())


def chain(first: Step, known: dict[str, Step], entered: Counter[str], used: set[str]) -> dict[str, Step]:
    """The longest run from a step on."""
    group: dict[str, Step] = {}
    step: Step | None = first
    while step is not None and step.id not in used and len(group) < MOST and fits(step, group, known):
        if group and entered[step.id] > 1:
            break
        group[step.id] = step
        step = known.get(step.get("next") or "")
    return group


def fits(step: Step, group: dict[str, Step], known: dict[str, Step]) -> bool:
    following = known.get(step.get("next") or "")
    if step.id in group or step.get("on_error") is not None:
        return False
    before_condition = following is not None and following.type == "condition"
    return not before_condition and independent(step, group)


def independent(step: Step, others: Collection[str]) -> bool:
    """Whether a step provably looks at none of the others."""
    if step.type == "transform":
        return reads_none_of(step.get("transform"), others)
    if step.type != "agent":
        return False
    closed = isinstance(step.get("input"), list) or step.get("agent").startswith(CHILD)
    return closed and not any(id in others for id in inputs_of(step))


def reads_none_of(expression: str, ids: Collection[str]) -> bool:
    """Whether an expression names every result it reads, and none of these; what is in doubt is a no."""
    by_name = all(BY_NAME.match(expression, found.start()) for found in RESULTS.finditer(expression))
    return by_name and "\\" not in expression and not any(id in expression for id in ids)
