"""Agents side by side: two cannot go on with one conversation, and should not edit one folder."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from itertools import pairwise

from nerve.spec import models
from nerve.spec.checks.order import Order
from nerve.spec.checks.rules import Wrong
from nerve.spec.source import Document, Loc
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
    """Warn of agents that can run at the same time in the same folder, once for each step that has one."""
    agents = [each for each in found if may_edit(each.spec, document)]
    for agent in agents:
        if any(isinstance(each.spec, models.MapSpec) and each.spec.max_parallel > 1 for each in agent.above):
            yield (
                agent.loc,
                f"'{agent.name}' runs at the same time for several items, and its agents share a folder",
                "Set max_parallel to 1, or deny Edit and Write in permissions.",
            )
    places, warned = {each.loc: place for place, each in enumerate(agents)}, set[Loc]()
    for around, parts_with_agents in agents_by_part(agents):
        for pair in concurrent_pairs(around, parts_with_agents):
            first, second = sorted(pair, key=lambda agent: places[agent.loc])
            if second.loc not in warned:
                warned.add(second.loc)
                yield (
                    second.loc,
                    f"the agents of '{first.name}' and '{second.name}' can run at the same time in the same"
                    " folder, where one can undo the work of the other",
                    f"Make '{second.name}' depend on '{first.name}',"
                    " or let only one edit: deny Edit and Write.",
                )


def agents_by_part(agents: list[Found]) -> Iterator[tuple[Found, dict[int, Found]]]:
    """For each graph and parallel, and each folder, the first agent of each of its parts by its place."""
    held: dict[tuple[int, str], tuple[Found, dict[int, Found]]] = {}
    for agent in agents:
        for around, part in pairwise((*agent.above, agent)):
            key, *place = part.loc[len(around.loc) :]
            if around.kind in ("graph", "parallel") and key != "on_error":
                _, parts_with_agents = held.setdefault((id(around), folder_of(agent.spec)), (around, {}))
                parts_with_agents.setdefault(int(place[0]), agent)
    yield from held.values()


def concurrent_pairs(around: Found, agents: dict[int, Found]) -> Iterator[tuple[Found, Found]]:
    """Each agent that can run beside another one, with the first of those."""
    if not isinstance(around.spec, models.Graph):
        first, *others = agents.values()
        yield from ((first, other) for other in others)
        return
    order = Order(around.spec.steps)
    places = {step.id: place for place, step in enumerate(around.spec.steps)}
    names, seen = list(order.places), 0
    for name in order.sorted:
        if (agent := agents.get(places[name])) is None:
            continue
        if beside := seen & ~order.earlier(name):
            first_name = names[(beside & -beside).bit_length() - 1]
            yield agents[places[first_name]], agent
        seen |= order.bit(name)


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
