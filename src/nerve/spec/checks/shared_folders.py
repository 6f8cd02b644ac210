"""Checks of parallel agents: they must not edit files of one folder without saying so."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise

from nerve.project.agent_settings import AgentSettings
from nerve.spec import models
from nerve.spec.checks.names import DEFAULT_PROVIDER, KnownNames
from nerve.spec.checks.node_rules import LocatedProblem, agent_settings_of
from nerve.spec.checks.visibility import GraphOrder
from nerve.spec.walk import SpecNode, walk_spec
from nerve.text.source import Loc

FIX = (
    "Write 'workspace: worktree' to give each its own checkout, 'workspace: shared' if they edit different"
    " files, or deny Edit and Write in permissions."
)
PARALLEL_KINDS = ("graph", "parallel", "map")


def find_shared_folders(
    spec: models.WorkflowSpec, spec_nodes: list[SpecNode], known: KnownNames
) -> Iterator[LocatedProblem]:
    """Yield each agent that can run in parallel with another one and edit files of the same folder.

    A `workspace` on the agent or around it says where it works, also if it is `shared`.
    """
    has_detached = any(getattr(spec_node.spec, "detach", False) for spec_node in spec_nodes)
    agents = [
        spec_node
        for spec_node in spec_nodes
        if (has_detached or any(around.kind in PARALLEL_KINDS for around in spec_node.ancestors))
        and not shares_files((*spec_node.ancestors, spec_node))
        and may_edit_files(spec, spec_node.spec, known, {spec.name})
    ]
    for agent in agents:
        if repeats_in_parallel((*agent.ancestors, agent)):
            yield (
                agent.loc,
                f"'{agent.name}' runs for several items in parallel, and its agents share a folder",
                FIX,
            )
    index_by_loc, reported = {agent.loc: index for index, agent in enumerate(agents)}, set[Loc]()
    pairs = [
        *(pair for parent, parts in agents_by_part(agents) for pair in concurrent_pairs(parent, parts)),
        *(find_detached_pairs(spec_nodes, agents) if has_detached else ()),
    ]
    for pair in pairs:
        first, second = sorted(pair, key=lambda agent: index_by_loc[agent.loc])
        if second.loc not in reported:
            reported.add(second.loc)
            yield (
                second.loc,
                f"The agents of '{first.name}' and '{second.name}' can run in parallel in the same"
                " folder and can overwrite each other's work",
                FIX,
            )


def has_own_files(spec_node: SpecNode) -> bool:
    """Return whether a node works in a checkout of its own."""
    return workspace_kind(spec_node) not in (None, "shared")


def shares_files(chain: tuple[SpecNode, ...]) -> bool:
    """Return whether the innermost workspace of a chain is one that its agents share on purpose."""
    kinds = [kind for spec_node in chain if (kind := workspace_kind(spec_node)) is not None]
    return kinds[-1:] == ["shared"]


def workspace_kind(spec_node: SpecNode) -> str | None:
    workspace = spec_node.spec.workspace
    return workspace.kind if isinstance(workspace, models.WorkspaceSpec) else workspace


def repeats_in_parallel(chain: tuple[SpecNode, ...]) -> bool:
    """Return whether the last node of a chain runs for several items of a map in the same files."""
    return any(
        isinstance(spec_node.spec, models.MapSpec)
        and spec_node.spec.max_parallel > 1
        and not any(map(has_own_files, chain[number + 1 :]))
        and "{{" not in folder_of(chain[-1])
        for number, spec_node in enumerate(chain)
    )


def folder_of(agent: SpecNode) -> str:
    """Return the folder of an agent; a template is a folder that only the run knows."""
    return os.path.normpath(getattr(agent.spec, "cwd", None) or ".")


def agents_by_part(agents: list[SpecNode]) -> Iterator[tuple[SpecNode, dict[int, SpecNode]]]:
    """Yield, per graph or parallel and folder, the first agent of each part, by the index of the part."""
    groups: dict[tuple[int, str], tuple[SpecNode, dict[int, SpecNode]]] = {}
    for agent in agents:
        chain = (*agent.ancestors, agent)
        for number, (parent, part) in enumerate(pairwise(chain)):
            if any(map(has_own_files, chain[number + 1 :])):
                continue
            key, *index_path = part.loc[len(parent.loc) :]
            if parent.kind in ("graph", "parallel") and key != "on_error":
                _, parts_with_agents = groups.setdefault((id(parent), folder_of(agent)), (parent, {}))
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


def find_detached_pairs(
    spec_nodes: list[SpecNode], agents: list[SpecNode]
) -> Iterator[tuple[SpecNode, SpecNode]]:
    """Yield each agent that a sequence starts while a detached prompt of another conversation runs."""
    editing = {agent.loc for agent in agents if not has_own_files(agent)}
    running: dict[Loc, dict[str, SpecNode]] = defaultdict(dict)
    for spec_node in spec_nodes:
        node, by_tag = spec_node.spec, running[outermost_sequence(spec_node)]
        if isinstance(node, models.WaitSpec) and not node.test:
            for condition in node.any:
                by_tag.pop(condition.response or "", None)
        elif isinstance(node, models.PromptSpec) and spec_node.loc in editing:
            for other in by_tag.values():
                is_other_thread = node.thread == "fresh" or getattr(other.spec, "thread", "") != node.thread
                if is_other_thread and folder_of(other) == folder_of(spec_node):
                    yield other, spec_node
            if node.detach:
                by_tag[node.tag or spec_node.name] = spec_node


def outermost_sequence(spec_node: SpecNode) -> Loc:
    """Return the location of the sequence around a node that no other sequence directly contains."""
    loc = spec_node.loc
    for around in reversed(spec_node.ancestors):
        if around.kind != "sequence":
            break
        loc = around.loc
    return loc


def may_edit_files(
    spec: models.WorkflowSpec, node: models.NodeBase, known: KnownNames, visited: set[str]
) -> bool:
    """Return whether a node is an agent that may edit files, or calls a workflow with such an agent."""
    match node:
        case models.PromptSpec():
            settings = replace(AgentSettings.of(agent_settings_of(node)), model=None)
            name = node.agent or node.provider or spec.provider or DEFAULT_PROVIDER
            return known.edits_files(name, settings, node.tools)
        case models.CallSpec():
            if known.edits_files(node.target, AgentSettings.of(agent_settings_of(node)), None):
                return True
            return calls_editing_agent(node.target, known, visited)
        case models.WorkflowCallSpec():
            return calls_editing_agent(node.workflow, known, visited)
    return False


def calls_editing_agent(workflow: str, known: KnownNames, visited: set[str]) -> bool:
    """Return whether an agent of a workflow may edit the files of its caller."""
    called = None if workflow in visited else known.find_spec(workflow)
    if called is None:
        return False
    visited = {*visited, workflow}
    return any(
        may_edit_files(called, spec_node.spec, known, visited)
        for spec_node in walk_spec(called.body)
        if not any(workspace_kind(around) for around in (*spec_node.ancestors, spec_node))
    )
