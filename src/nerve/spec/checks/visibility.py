"""Visibility of steps: an expression must not read a step that can run in parallel with it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from graphlib import CycleError, TopologicalSorter

from nerve.spec import models
from nerve.spec.walk import SpecNode


class GraphOrder:
    """The order of the steps of a graph as bit sets: bit n represents step n."""

    def __init__(self, steps: Iterable[models.NodeBase]) -> None:
        self.dependencies = {step.id: step.depends_on for step in steps if step.id}
        self.index_by_id = {id: n for n, id in enumerate(self.dependencies)}
        try:
            self.sorted_ids = [
                id for id in TopologicalSorter(self.dependencies).static_order() if id in self.dependencies
            ]
        except CycleError:
            self.sorted_ids = []
        self._earlier_bits = dict.fromkeys(self.sorted_ids, 0)
        for id in self.sorted_ids:
            for up in self.dependencies[id]:
                self._earlier_bits[id] |= self._earlier_bits.get(up, 0) | self.bit(up)

    def bit(self, id: str | None) -> int:
        return 1 << self.index_by_id[id] if id in self.index_by_id else 0

    def earlier_steps(self, id: str | None) -> int:
        """Return the steps that must finish before this one; all of them if the graph has a cycle."""
        return self._earlier_bits.get(id or "", 0) if self.sorted_ids else -1


class Visibility:
    """The steps that the expressions of each node may refer to."""

    def __init__(self, spec_nodes: list[SpecNode]) -> None:
        self._nodes_by_id: defaultdict[str, list[SpecNode]] = defaultdict(list)
        for spec_node in spec_nodes:
            if spec_node.spec.id:
                self._nodes_by_id[spec_node.spec.id].append(spec_node)
        self._orders: dict[int, GraphOrder] = {}
        self.nodes_by_id: Mapping[str, list[SpecNode]] = self._nodes_by_id

    def can_read(self, reader: SpecNode, id: str) -> bool:
        """Whether a node may read a step, because the step cannot run at the same time."""
        return any(not self.is_concurrent(reader, other) for other in self.nodes_by_id[id])

    def is_concurrent(self, first: SpecNode, other: SpecNode) -> bool:
        """Whether two nodes are in different parts of a parallel, or in unordered steps of a graph."""
        parent: SpecNode | None = None
        for up, up_other in zip((*first.ancestors, first), (*other.ancestors, other), strict=False):
            if up is not up_other:
                return parent is not None and self._are_parts_concurrent(parent, up, up_other)
            parent = up
        return False

    def _are_parts_concurrent(self, parent: SpecNode, first: SpecNode, other: SpecNode) -> bool:
        if first.loc[len(parent.loc)] == "on_error":
            return False
        if not isinstance(parent.spec, models.GraphSpec):
            return parent.kind == "parallel"
        if id(parent) not in self._orders:
            self._orders[id(parent)] = GraphOrder(parent.spec.steps)
        order = self._orders[id(parent)]
        return not order.earlier_steps(first.spec.id) & order.bit(other.spec.id)
