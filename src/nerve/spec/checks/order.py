"""Which steps can have run before another: those side by side with it must not be read."""

from __future__ import annotations

from nerve.spec import models
from nerve.spec.walk import Found


def before(each: Found, found: list[Found]) -> set[str]:
    """The ids that a node may read: all but those that may be running while it does."""
    return {other.spec.id for other in found if other.spec.id and not beside(each, other)}


def beside(one: Found, other: Found) -> bool:
    """Whether the two stand in different parts of the same parallel, or in steps of a graph without order."""
    for depth, (up, up_other) in enumerate(zip(line(one), line(other), strict=False)):
        if up.loc == up_other.loc:
            continue
        around = line(one)[depth - 1]
        if around.kind == "parallel":
            return True
        if isinstance(around.spec, models.Graph):
            return up_other.spec.id not in ancestors(around.spec, up.spec.id)
        return False
    return False


def line(found: Found) -> tuple[Found, ...]:
    return (*found.above, found)


def ancestors(graph: models.Graph, step: str | None) -> set[str | None]:
    """Every step that must be done before this one."""
    needs = {each.id: each.depends_on for each in graph.steps}
    seen: set[str | None] = set()
    open_ = list(needs.get(step, []))
    while open_:
        name = open_.pop()
        if name not in seen:
            seen.add(name)
            open_ += needs.get(name, [])
    return seen
