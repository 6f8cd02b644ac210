"""Which steps can have run before another: those side by side with it must not be read."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from graphlib import CycleError, TopologicalSorter

from nerve.spec import models
from nerve.spec.walk import Found


class Order:
    """The order of the steps of a graph, as sets of bits: bit n stands for the step of place n."""

    def __init__(self, steps: Iterable[models.NodeBase]) -> None:
        self.needs = {step.id: step.depends_on for step in steps if step.id}
        self.places = {id: n for n, id in enumerate(self.needs)}
        try:
            self.sorted = [id for id in TopologicalSorter(self.needs).static_order() if id in self.needs]
        except CycleError:
            self.sorted = []
        self._earlier = dict.fromkeys(self.sorted, 0)
        for id in self.sorted:
            for up in self.needs[id]:
                self._earlier[id] |= self._earlier.get(up, 0) | self.bit(up)

    def bit(self, id: str | None) -> int:
        return 1 << self.places[id] if id in self.places else 0

    def earlier(self, id: str | None) -> int:
        """Every step that must be done before this one; in a circle, each may be."""
        return self._earlier.get(id or "", 0) if self.sorted else -1


class Sight:
    """What the expressions of each node may refer to."""

    def __init__(self, found: list[Found]) -> None:
        self._named: defaultdict[str, list[Found]] = defaultdict(list)
        for each in found:
            if each.spec.id:
                self._named[each.spec.id].append(each)
        self._orders: dict[int, Order] = {}
        self.ids: Mapping[str, list[Found]] = self._named

    def sees(self, one: Found, id: str) -> bool:
        """Whether a node may read a step: not if that may be running while it does."""
        return any(not self.beside(one, other) for other in self.ids[id])

    def beside(self, one: Found, other: Found) -> bool:
        """Whether they stand in different parts of a parallel, or in steps of a graph without order."""
        around: Found | None = None
        for up, up_other in zip((*one.above, one), (*other.above, other), strict=False):
            if up is not up_other:
                return around is not None and self._apart(around, up, up_other)
            around = up
        return False

    def _apart(self, around: Found, one: Found, other: Found) -> bool:
        if one.loc[len(around.loc)] == "on_error":
            return False
        if not isinstance(around.spec, models.Graph):
            return around.kind == "parallel"
        if id(around) not in self._orders:
            self._orders[id(around)] = Order(around.spec.steps)
        order = self._orders[id(around)]
        return not order.earlier(one.spec.id) & order.bit(other.spec.id)
