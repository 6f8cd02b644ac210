"""A graph of steps: nodes, nested groups, edges and live states, as data for any screen."""

from __future__ import annotations

import json
from collections import Counter, deque
from collections.abc import Iterable
from dataclasses import field
from typing import Any

from nerve.core.run_view import BUSY_NODE_STATES
from nerve.lazy_dataclass import dataclass

MAX_VISIBLE_NODES = 300
"""Nodes that a browser lays out without a noticeable delay; further groups start collapsed."""
PART_SIZE = 100
"""Steps in each part of a level that has more than `MAX_VISIBLE_NODES` steps."""
COLLAPSED_KINDS = frozenset({"loop", "while", "map", "child", "rounds", "part"})
"""Groups that start collapsed: their count is more useful than their content."""
POINT_KINDS = frozenset({"join", "start", "end"})
"""Nodes that only connect edges; a list of steps omits them."""
KIND_WORDS = {
    "prompt": "agent",
    "call": "call",
    "bash": "shell command",
    "gate": "gate",
    "cancel": "cancel",
    "wait": "wait",
    "workflow": "child workflow",
    "child": "child workflow",
    "branch": "decision",
    "switch": "decision",
    "transform": "value",
    "reduce": "value",
    "emit": "event",
    "assert": "fact",
    "retract": "fact",
    "goto": "goto",
    "while": "loop",
    "graph": "graph",
    "machine": "state machine",
    "sequence": "steps",
    "rounds": "loop",
    "part": "steps",
}
"""The words for kinds whose name is not the word itself."""
SHAPES = {
    "prompt": "agent",
    "call": "function",
    "step": "function",
    "bash": "bash",
    "gate": "gate",
    "wait": "wait",
    "workflow": "child",
    "child": "child",
    "branch": "decision",
    "switch": "decision",
    "state": "function",
    **dict.fromkeys(("transform", "reduce", "emit", "assert", "retract", "goto", "cancel"), "value"),
    **{kind: kind for kind in POINT_KINDS},
}
"""The shape of each kind of node that is not a group."""
STATE_ORDER = ("waiting", "running", "retrying", "failed", "cancelled", "pending", "completed", "skipped")
"""States by how much they say about a set of steps, most important first."""


@dataclass(slots=True)
class GraphNode:
    """A step, a group of steps, or a point that connects edges; its id is a path without indexes."""

    id: str
    label: str
    kind: str
    detail: str = ""
    parent: str = ""
    """The id of the group that contains it."""
    after: str = ""
    """The steps that must finish before it, for a list, which has no edges."""
    is_group: bool = False
    collapsed: bool = False

    @property
    def word(self) -> str:
        """The kind in plain words."""
        return KIND_WORDS.get(self.kind, self.kind)

    def to_dict(self) -> dict[str, Any]:
        data: dict[str, Any] = {"id": self.id, "label": self.label}
        data |= {"group": self.kind} if self.is_group else {"shape": SHAPES.get(self.kind, "function")}
        optional = {
            "word": self.word,
            "detail": self.detail,
            "parent": self.parent,
            "collapsed": self.collapsed,
        }
        return data | {name: value for name, value in optional.items() if value}


@dataclass(frozen=True, slots=True)
class GraphEdge:
    """An arrow between two nodes; either can be a group."""

    start: str
    end: str
    label: str = ""
    is_error: bool = False
    """Whether it is taken after a failure."""

    def to_list(self) -> list[str]:
        data = [self.start, self.end, self.label, "error" if self.is_error else ""]
        while not data[-1]:
            data.pop()
        return data


@dataclass(slots=True)
class StepStatus:
    """The state of a node of the graph in a run."""

    state: str
    text: str = ""
    """Counts and reasons: `3 of 10 done, 1 failed`."""
    time: str = ""
    """How long it took."""
    path: str = ""
    """The path of the step to open; for repeated steps that of the most important one."""
    run: str = ""
    """The run of the step, if it is a child run."""

    def to_dict(self) -> dict[str, str]:
        fields = ("state", "text", "time", "path", "run")
        return {name: value for name in fields if (value := getattr(self, name))}


@dataclass(frozen=True, slots=True)
class GraphListItem:
    """A step in the list that replaces the drawing, with the steps in it."""

    node: GraphNode
    status: StepStatus
    items: list[GraphListItem]


@dataclass(slots=True)
class RunGraph:
    """Nodes by id with the members of each group in order, edges, and states by id."""

    title: str = ""
    run_id: str = ""
    state: str = "pending"
    nodes: dict[str, GraphNode] = field(default_factory=dict)
    members: dict[str, list[str]] = field(default_factory=lambda: {"": []})
    """The ids of the nodes in each group by its id; those outside of groups are under the empty one."""
    edges: dict[GraphEdge, None] = field(default_factory=dict)
    """In the order in which they were added."""
    states: dict[str, StepStatus] = field(default_factory=dict)
    """Nodes without one have not started."""

    def add_node(self, node: GraphNode) -> GraphNode:
        """Add a node to its group; a second one with the same id is not added."""
        if node.id not in self.nodes:
            self.nodes[node.id] = node
            self.members.setdefault(node.parent, []).append(node.id)
        return self.nodes[node.id]

    def add_edge(self, start: str, end: str, label: str = "", *, is_error: bool = False) -> None:
        """Add an edge; a second equal one is not added."""
        self.edges[GraphEdge(start, end, label, is_error)] = None

    def add_join(self, parent: str, name: str) -> str:
        """Add a point where edges meet, and return its id."""
        return self.add_node(GraphNode(f"{parent}~{name}", "", "join", parent=parent)).id

    def fold_large_levels(self) -> None:
        """Divide levels with too many nodes into collapsed parts."""
        levels = deque(self.members)
        while levels:
            parent = levels.popleft()
            ids = self.members[parent]
            if len(ids) <= MAX_VISIBLE_NODES:
                continue
            size = max(PART_SIZE, -(-len(ids) // PART_SIZE))
            self.members[parent] = []
            for n in range(0, len(ids), size):
                part_ids = ids[n : n + size]
                steps = [self.nodes[id] for id in part_ids if self.nodes[id].kind not in POINT_KINDS]
                label = f"{steps[0].label} … {steps[-1].label}" if steps else "…"
                id = f"{parent}~part{n // size + 1}"
                self.add_node(GraphNode(id, label, "part", f"{len(steps)} steps", parent, is_group=True))
                self.members[id] = part_ids
                for member in part_ids:
                    self.nodes[member].parent = id
                if (statuses := [self.states[each] for each in part_ids if each in self.states]) != []:
                    state = most_important_state(status.state for status in statuses)
                    counts = Counter(status.state for status in statuses)
                    self.states[id] = StepStatus(state, format_counts(counts, len(steps)))
                levels.append(id)

    def collapse_groups(self) -> None:
        """Collapse loops, maps and child runs, and all groups that would show too many nodes."""
        visible, levels = len(self.members[""]), deque([""])
        while levels:
            for id in self.members.get(levels.popleft(), ()):
                node = self.nodes[id]
                size = len(self.members.get(id, ()))
                node.is_group = node.is_group and size > 0
                if not node.is_group:
                    continue
                node.collapsed = node.kind in COLLAPSED_KINDS or visible + size > MAX_VISIBLE_NODES
                visible += 0 if node.collapsed else size
                levels.append(id)

    def to_dict(self) -> dict[str, Any]:
        """Return the data of the drawing; only `states` and `state` change while the graph stays the same."""
        return {
            "run": self.run_id,
            "title": self.title,
            "state": self.state,
            "nodes": [node.to_dict() for node in self.nodes.values()],
            "edges": [edge.to_list() for edge in self.edges],
            "states": {id: status.to_dict() for id, status in self.states.items()},
        }

    def list_items(self, parent: str = "") -> list[GraphListItem]:
        """Return the steps as a nested list in the order of the definition."""
        return [
            GraphListItem(node, self.states.get(id, StepStatus("pending")), self.list_items(id))
            for id in self.members.get(parent, ())
            if (node := self.nodes[id]).kind not in POINT_KINDS
        ]


def encode_for_script(value: Any) -> str:
    """Encode a value as JSON that cannot end the `<script>` element around it."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def most_important_state(states: Iterable[str]) -> str:
    """Return the state that describes a set of steps."""
    found = set(states)
    return next((state for state in STATE_ORDER if state in found), "pending")


def format_counts(counts: Counter[str], total: int | None) -> str:
    """Format how many of a set of steps are done, failed and busy: `3 of 10 done, 1 failed, 2 running`."""
    parts = [f"{counts['completed']} of {total} done" if total else f"{counts['completed']} done"]
    names = ("failed", *BUSY_NODE_STATES, "skipped", "cancelled")
    return ", ".join(parts + [f"{counts[name]} {name}" for name in names if counts[name]])
