"""The order of the nodes of Archon: layers, earlier nodes and conversations."""

from __future__ import annotations

from collections.abc import Sequence

from nerve.text.source import LocatedMap


class LayeredNodes:
    """The nodes of a graph in layers: a node is in the layer after the last of its dependencies."""

    def __init__(self, items: Sequence[LocatedMap]) -> None:
        self.dependencies = {item["id"]: dependency_ids(item) for item in items}
        needed = {name for names in self.dependencies.values() for name in names}
        self.sinks = [id for id in self.dependencies if id not in needed]
        self.layer_by_id: dict[str, int] = {}
        self._earlier: dict[str, frozenset[str]] = {}
        for id in self.dependencies:
            self.layer(id, ())
        self.layers: dict[int, list[str]] = {}
        for id, layer in self.layer_by_id.items():
            self.layers.setdefault(layer, []).append(id)
        self._threads = self._find_threads(items)

    def layer(self, id: str, path: tuple[str, ...]) -> int:
        """Return the layer of a node; the checker reports a cycle."""
        if id not in self.layer_by_id:
            names = [name for name in self.dependencies[id] if name in self.dependencies and name not in path]
            self.layer_by_id[id] = 1 + max((self.layer(name, (*path, id)) for name in names), default=-1)
        return self.layer_by_id[id]

    def earlier(self, id: str) -> frozenset[str]:
        """Return the nodes that have ended when a node starts."""
        if id not in self._earlier:
            self._earlier[id] = frozenset()
            names = [name for name in self.dependencies.get(id, ()) if name in self.dependencies]
            self._earlier[id] = frozenset(names).union(*(self.earlier(name) for name in names))
        return self._earlier[id]

    def later(self, id: str) -> frozenset[str]:
        """Return the nodes that have not ended when a node starts: those of its layer and of later ones."""
        layer = self.layer_by_id.get(id, 0)
        return frozenset(name for name, other in self.layer_by_id.items() if other >= layer)

    def thread(self, item: LocatedMap) -> str:
        """Return the conversation of a node."""
        return self._threads.get(item["id"], "fresh")

    def _find_threads(self, items: Sequence[LocatedMap]) -> dict[str, str]:
        """Return the conversation of each agent node.

        A node alone in its layer continues the conversation of the agent before it; nodes beside others do
        not, and end it, as approvals do.
        """
        threads: dict[str, str] = {}
        item_by_id = {item["id"]: item for item in items}
        current, current_provider = "", object()
        for layer in sorted(self.layers):
            ids = self.layers[layer]
            if len(ids) > 1:
                current = ""
                for id in ids:
                    threads[id] = f"{id}-loop" if "loop" in item_by_id[id] else "fresh"
                continue
            item = item_by_id[ids[0]]
            if "loop" in item:
                loop = item["loop"]
                is_fresh = isinstance(loop, dict) and loop.get("fresh_context")
                threads[ids[0]] = current = "shared" if is_fresh else f"{ids[0]}-loop"
            elif "prompt" in item or "command" in item:
                provider = item.get("provider")
                is_fresh = not current or item.get("context") == "fresh" or provider != current_provider
                if is_fresh:
                    current = "shared"
                threads[ids[0]] = "fresh" if is_fresh else current
            else:
                if "approval" in item:  # Archon ends its process there, and with it the conversation
                    current = ""
                continue
            current_provider = item.get("provider")
        return threads


def dependency_ids(item: LocatedMap) -> list[str]:
    names = item.get("depends_on")
    if isinstance(names, str):
        names = item["depends_on"] = [names]
    return [name for name in names if isinstance(name, str)] if isinstance(names, list) else []
