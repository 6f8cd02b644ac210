"""Find the steps that can run in parallel, for `"parallel": true`.

Steps are grouped only if the order of their execution cannot be observed. They follow each other by `next`,
only the first of them is a target of other steps, none has an `on_error`, and none reads another's result:

- an agent has a list `input`, which is all it sees, and the list names no other step of the group;
- a called workflow gets the input, or the results it names;
- a transform reads results only by names in its text, and names no step of the group.

A step before a condition is not grouped, because the condition handles the failure of that step only.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable
from itertools import count

from nerve.notations.json_steps.lowering import WORKFLOW_PREFIX, StepGroup
from nerve.notations.json_steps.step_schema import ROUTE_KEYS, StepSource, input_step_ids
from nerve.text.source import Diagnostics, Position

GROUP_NAME = "auto-parallel"
MAX_GROUP_STEPS = 100
"""Maximum number of steps in a group."""
RESULTS_PATTERN = re.compile(r"\b(?:context|results|steps|given|roles)\b")
NAMED_RESULT_PATTERN = re.compile(
    r"(?:context|results|steps)\s*(?:\??\.\s*[A-Za-z_$]|(?:\?\.)?\[\s*(?:'[^']*'|\"[^\"]*\")\s*\])"
)


def group_parallel(
    steps: tuple[StepSource, ...], ids: Iterable[str], diagnostics: Diagnostics, position: Position | None
) -> list[StepSource | StepGroup]:
    """Return the steps with provably independent steps grouped, and add a note for each group."""
    used_names = set(ids)
    numbered_names = (GROUP_NAME if number == 1 else f"{GROUP_NAME}-{number}" for number in count(1))
    free_names = (name for name in numbered_names if name not in used_names)
    grouped: dict[str, StepGroup] = {}
    for members in independent_chains(steps):
        group = StepGroup(next(free_names), tuple(members))
        grouped.update(dict.fromkeys((step.id for step in members), group))
        names = ", ".join(f"'{step.id}'" for step in members)
        diagnostics.add_note(
            group.position,
            f"{names} run in parallel as '{group.id}': none of them reads the result of another",
        )
    if not grouped:
        diagnostics.add_note(
            position,
            "parallel is true, but no steps are provably independent: an agent without a list 'input' sees"
            " every result before it",
        )
    return [
        grouped.get(step.id, step)
        for step in steps
        if step.id not in grouped or grouped[step.id].steps[0] is step
    ]


def independent_chains(steps: tuple[StepSource, ...]) -> Iterable[list[StepSource]]:
    """Yield chains of two or more steps that can run in parallel."""
    known = {step.id: step for step in steps}
    entered = Counter(target for step in steps for key in ROUTE_KEYS if (target := step.get(key)) is not None)
    entered[steps[0].id] += 1
    used: set[str] = set()
    for first in steps:
        group: dict[str, StepSource] = {}
        step: StepSource | None = first
        while (
            step is not None
            and step.id not in used
            and len(group) < MAX_GROUP_STEPS
            and step.get("on_error") is None
            and (not group or entered[step.id] == 1)
        ):
            following = known.get(step.get("next") or "")
            if following is not None and following.type == "condition":
                break
            if step.id in group or not is_independent(step, group):
                break
            group[step.id] = step
            step = following
        if len(group) > 1:
            used.update(group)
            yield list(group.values())


def is_independent(step: StepSource, others: Collection[str]) -> bool:
    """Whether a step provably reads none of the other results."""
    if step.type == "transform":
        expression: str = step.get("transform")
        by_name = all(
            NAMED_RESULT_PATTERN.match(expression, match.start())
            for match in RESULTS_PATTERN.finditer(expression)
        )
        return by_name and "\\" not in expression and not any(id in expression for id in others)
    if step.type != "agent":
        return False
    closed = isinstance(step.get("input"), list) or step.get("agent").startswith(WORKFLOW_PREFIX)
    return closed and not any(id in others for id in input_step_ids(step))
