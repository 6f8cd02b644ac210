"""Conversations: two prompts side by side cannot go on with the same one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import combinations

from nerve.spec import models
from nerve.spec.checks.rules import Wrong
from nerve.spec.walk import Found, parts

OWN = ("map", "parallel")
"""What is inside of these has conversations of its own."""


def conversations(spec: models.WorkflowSpec, found: list[Found]) -> Iterator[Wrong]:
    for each in found:
        if isinstance(each.spec, models.Graph):
            yield from graph(each.spec, each)


def graph(node: models.Graph, at: Found) -> Iterator[Wrong]:
    steps = {step.id: step for step in node.steps if step.id}
    if any(name not in steps for step in node.steps for name in step.depends_on):
        return
    before = {name: upstream(name, steps) for name in steps}
    talks = {name: threads(step) for name, step in steps.items()}
    for one, other in combinations(steps, 2):
        if one in before[other] or other in before[one]:
            continue
        for thread in sorted(gone_on(talks[one]) & gone_on(talks[other])):
            begun = origin(one, thread, steps, talks)
            if begun is not None and begun == origin(other, thread, steps, talks):
                n = next(n for n, step in enumerate(node.steps) if step.id == other)
                yield (
                    (*at.loc, "steps", n),
                    f"'{one}' and '{other}' may run side by side and both go on with the conversation"
                    f" of '{begun}'",
                    "Let one begin a new one (fresh), or depend on the other.",
                )


def upstream(name: str, steps: Mapping[str, models.NodeBase]) -> set[str]:
    """Everything that is done before a step begins."""
    seen: set[str] = set()
    open_ = list(steps[name].depends_on)
    while open_:
        if (up := open_.pop()) not in seen:
            seen.add(up)
            open_ += steps[up].depends_on
    return seen


def threads(node: models.NodeBase) -> dict[str, bool]:
    """The conversations of a node and its parts, and whether each is gone on with, not begun, there."""
    if isinstance(node, models.Prompt):
        fresh = node.thread == "fresh"
        return {"shared" if fresh else node.thread: not fresh}
    if node.kind in OWN:  # type: ignore[attr-defined]
        return {}
    talks: dict[str, bool] = {}
    for _, part in parts(node):
        talks = threads(part) | talks
    return talks


def gone_on(talks: dict[str, bool]) -> set[str]:
    return {thread for thread, went_on in talks.items() if went_on}


def origin(
    name: str, thread: str, steps: Mapping[str, models.NodeBase], talks: dict[str, dict[str, bool]]
) -> str | None:
    """The step whose conversation this one goes on with; None when it begins its own."""
    seen: set[str] = set()
    open_ = list(steps[name].depends_on)
    while open_:
        up = open_.pop()
        if thread in talks[up]:
            return up
        if up not in seen:
            seen.add(up)
            open_ += steps[up].depends_on
    return None
