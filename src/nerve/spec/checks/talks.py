"""Agents side by side: two cannot go on with one conversation, and should not edit one folder."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping

from nerve.spec import models
from nerve.spec.checks.order import Order, Sight
from nerve.spec.checks.rules import Wrong
from nerve.spec.source import Document
from nerve.spec.walk import Found, parts

Talks = Mapping[str, dict[str, bool]]
"""The conversations of each step, and whether it goes on with them."""
OWN = ("map", "parallel")
"""What is inside of these has conversations of its own."""


def conversations(spec: models.WorkflowSpec, found: list[Found]) -> Iterator[Wrong]:
    for each in found:
        if isinstance(each.spec, models.Graph):
            yield from graph(each.spec, each)


def graph(node: models.Graph, at: Found) -> Iterator[Wrong]:
    order = Order(node.steps)
    talks = {step.id: threads(step) for step in node.steps if step.id}
    if any(name not in talks for step in node.steps for name in step.depends_on):
        return
    places = {step.id: n for n, step in enumerate(node.steps)}
    going_on = Counter(thread for each in talks.values() for thread, went_on in each.items() if went_on)
    for thread in sorted(thread for thread, steps in going_on.items() if steps > 1):
        for one, other, begun in side_by_side(thread, talks, order):
            yield (
                (*at.loc, "steps", places[other]),
                f"'{one}' and '{other}' may run side by side and both go on with the conversation"
                f" of '{begun}'",
                "Let one begin a new one (fresh), or depend on the other.",
            )


def side_by_side(thread: str, talks: Talks, order: Order) -> Iterator[tuple[str, str, str]]:
    """Each step that goes on with a conversation while an earlier one in the text may, and who began it."""
    origins = origins_of(thread, talks, order)
    seen: defaultdict[str, int] = defaultdict(int)
    names = list(order.places)
    for name in order.sorted:
        begun = origins[name]
        if begun is None or not talks[name].get(thread):
            continue
        if beside := seen[begun] & ~order.earlier(name):
            first = names[(beside & -beside).bit_length() - 1]
            one, other = sorted((first, name), key=order.places.__getitem__)
            yield one, other, begun
        seen[begun] |= order.bit(name)


def origins_of(thread: str, talks: Talks, order: Order) -> dict[str, str | None]:
    """For each step the one whose conversation it would go on with; None if it would begin its own."""
    origins: dict[str, str | None] = {}
    for name in order.sorted:
        ups = (up if thread in talks[up] else origins[up] for up in reversed(order.needs[name]))
        origins[name] = next((up for up in ups if up is not None), None)
    return origins


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


def same_folder(found: list[Found], document: Document) -> Iterator[Wrong]:
    """Agents that can run at the same time in the same folder, each with the first that it is beside."""
    sight = Sight(found)
    agents = [each for each in found if may_edit(each.spec, document)]
    for number, one in enumerate(agents):
        for around in one.above:
            if isinstance(around.spec, models.MapSpec) and around.spec.max_parallel > 1:
                yield (
                    one.loc,
                    f"'{one.name}' runs at the same time for several items, and its agents share a folder",
                    "Set max_parallel to 1, or deny Edit and Write in permissions.",
                )
                break
        for other in agents[:number]:
            same = folder_of(one.spec) == folder_of(other.spec) and one.name != other.name
            if same and sight.beside(one, other):
                yield (
                    one.loc,
                    f"the agents of '{other.name}' and '{one.name}' can run at the same time in the same"
                    " folder, where one can undo the work of the other",
                    f"Make '{one.name}' depend on '{other.name}', or let only one edit: deny Edit and Write.",
                )
                break


def may_edit(node: models.NodeBase, document: Document) -> bool:
    """Whether a node is an agent that may change files, as far as the file says."""
    if isinstance(node, models.Call):
        return document.states == "step"
    if not isinstance(node, models.Prompt):
        return False
    denied = set(node.permissions.deny or ()) if node.permissions is not None else set()
    return not {"Edit", "Write"} <= denied and "apply_patch" not in denied and "edit" not in denied


def folder_of(node: models.NodeBase) -> str:
    return (node.cwd if isinstance(node, models.Call) else None) or "."
