"""Checks of parallel agents: they must not share a conversation."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping

from nerve.spec import models
from nerve.spec.checks.node_rules import LocatedProblem
from nerve.spec.checks.visibility import GraphOrder
from nerve.spec.walk import SpecNode, child_specs

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
