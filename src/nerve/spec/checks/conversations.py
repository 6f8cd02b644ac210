"""Checks of parallel agents: they must not share a conversation and should not share a folder."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from itertools import pairwise

from nerve.spec import models
from nerve.spec.checks.node_rules import LocatedProblem
from nerve.spec.checks.visibility import GraphOrder
from nerve.spec.walk import SpecNode, child_specs
from nerve.text.source import Document, Loc

ThreadsByStep = Mapping[str, dict[str, bool]]
"""The conversations of each step, and whether the step continues them."""
KINDS_WITH_OWN_CONVERSATIONS = ("map", "parallel")
"""Kinds whose children have separate conversations."""


def check_conversations(spec: models.WorkflowSpec, spec_nodes: list[SpecNode]) -> Iterator[LocatedProblem]:
    """Yield pairs of steps of a graph that can continue one conversation in parallel."""
    for at in spec_nodes:
        if not isinstance(node := at.spec, models.GraphSpec):
            continue
        threads_by_step = {step.id: threads_of_spec(step) for step in node.steps if step.id}
        if any(name not in threads_by_step for step in node.steps for name in step.depends_on):
            continue
        order, index_by_id = GraphOrder(node.steps), {step.id: n for n, step in enumerate(node.steps)}
        thread_use_counts = Counter(
            thread
            for step_threads in threads_by_step.values()
            for thread, is_continued in step_threads.items()
            if is_continued
        )
        for thread in sorted(thread for thread, steps in thread_use_counts.items() if steps > 1):
            for first, other, origin in find_concurrent_steps(thread, threads_by_step, order):
                yield (
                    (*at.loc, "steps", index_by_id[other]),
                    f"'{first}' and '{other}' can run in parallel and both continue the conversation"
                    f" of '{origin}'",
                    "Start a new conversation (fresh) in one of them, or make one depend on the other.",
                )


def find_concurrent_steps(
    thread: str, threads_by_step: ThreadsByStep, order: GraphOrder
) -> Iterator[tuple[str, str, str]]:
    """Yield pairs of steps that can continue a conversation in parallel, and the step that started it."""
    origins = conversation_origins(thread, threads_by_step, order)
    earlier_users: defaultdict[str, int] = defaultdict(int)
    names = list(order.index_by_id)
    for name in order.sorted_ids:
        origin = origins[name]
        if origin is None or not threads_by_step[name].get(thread):
            continue
        if concurrent := earlier_users[origin] & ~order.earlier_steps(name):
            first = names[(concurrent & -concurrent).bit_length() - 1]
            earlier, other = sorted((first, name), key=order.index_by_id.__getitem__)
            yield earlier, other, origin
        earlier_users[origin] |= order.bit(name)


def conversation_origins(
    thread: str, threads_by_step: ThreadsByStep, order: GraphOrder
) -> dict[str, str | None]:
    """Map each step to the step whose conversation it would continue; None if it starts a new one."""
    origins: dict[str, str | None] = {}
    for name in order.sorted_ids:
        candidates = (
            up if thread in threads_by_step[up] else origins[up] for up in reversed(order.dependencies[name])
        )
        origins[name] = next((up for up in candidates if up is not None), None)
    return origins


def threads_of_spec(node: models.NodeBase) -> dict[str, bool]:
    """Map the conversations of a node and its children to whether the node continues (not starts) them."""
    if isinstance(node, models.PromptSpec):
        fresh = node.thread == "fresh"
        return {"shared" if fresh else node.thread: not fresh}
    if node.kind in KINDS_WITH_OWN_CONVERSATIONS:
        return {}
    part_threads: dict[str, bool] = {}
    for _, part in child_specs(node):
        part_threads = threads_of_spec(part) | part_threads
    return part_threads


def find_shared_folders(spec_nodes: list[SpecNode], document: Document) -> Iterator[LocatedProblem]:
    """Yield a warning for each agent that can run in parallel with another one in the same folder."""
    agents = [spec_node for spec_node in spec_nodes if may_edit_files(spec_node.spec, document)]
    for agent in agents:
        if any(
            isinstance(spec_node.spec, models.MapSpec) and spec_node.spec.max_parallel > 1
            for spec_node in agent.ancestors
        ):
            yield (
                agent.loc,
                f"'{agent.name}' runs for several items in parallel, and its agents share a folder",
                "Set max_parallel to 1, or deny Edit and Write in permissions.",
            )
    index_by_loc, warned = {spec_node.loc: index for index, spec_node in enumerate(agents)}, set[Loc]()
    for parent, parts_with_agents in agents_by_part(agents):
        for pair in concurrent_pairs(parent, parts_with_agents):
            first, second = sorted(pair, key=lambda agent: index_by_loc[agent.loc])
            if second.loc not in warned:
                warned.add(second.loc)
                yield (
                    second.loc,
                    f"The agents of '{first.name}' and '{second.name}' can run in parallel in the same"
                    " folder and can overwrite each other's work",
                    f"Make '{second.name}' depend on '{first.name}', or deny Edit and Write to one of them.",
                )


def agents_by_part(agents: list[SpecNode]) -> Iterator[tuple[SpecNode, dict[int, SpecNode]]]:
    """Yield, per graph or parallel and folder, the first agent of each part, by the index of the part."""
    groups: dict[tuple[int, str], tuple[SpecNode, dict[int, SpecNode]]] = {}
    for agent in agents:
        for parent, part in pairwise((*agent.ancestors, agent)):
            key, *index_path = part.loc[len(parent.loc) :]
            if parent.kind in ("graph", "parallel") and key != "on_error":
                directory = getattr(agent.spec, "cwd", None) or "."
                _, parts_with_agents = groups.setdefault((id(parent), directory), (parent, {}))
                parts_with_agents.setdefault(int(index_path[0]), agent)
    yield from groups.values()


def concurrent_pairs(parent: SpecNode, agents: dict[int, SpecNode]) -> Iterator[tuple[SpecNode, SpecNode]]:
    """Yield each agent that can run in parallel with an earlier one, after the first of those."""
    if not isinstance(parent.spec, models.GraphSpec):
        first, *others = agents.values()
        yield from ((first, other) for other in others)
        return
    order = GraphOrder(parent.spec.steps)
    index_by_id = {step.id: index for index, step in enumerate(parent.spec.steps)}
    names, earlier_agents = list(order.index_by_id), 0
    for name in order.sorted_ids:
        if (agent := agents.get(index_by_id[name])) is None:
            continue
        if concurrent := earlier_agents & ~order.earlier_steps(name):
            first_name = names[(concurrent & -concurrent).bit_length() - 1]
            yield agents[index_by_id[first_name]], agent
        earlier_agents |= order.bit(name)


def may_edit_files(node: models.NodeBase, document: Document) -> bool:
    """Whether a node is an agent that may change files, judging by the document."""
    if isinstance(node, models.CallSpec):
        return document.state_word == "step"
    if not isinstance(node, models.PromptSpec):
        return False
    denied = set(node.permissions.deny or ()) if node.permissions is not None else set()
    return not {"Edit", "Write"} <= denied and "apply_patch" not in denied and "edit" not in denied
