"""The open gates of one run, found by path, node or id without a search."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, MutableMapping

from nerve.core.gates import (
    MIN_GATE_ID_PREFIX_CHARS,
    GateMatch,
    gate_names,
    is_gate_id_prefix,
    match_gate_name,
)
from nerve.core.workflow.state import GateInfo


class OpenGates(MutableMapping[str, GateInfo]):
    """Open gates by path. The cost of finding one does not depend on how many are open."""

    _names: GateNames | None = None
    """Made at the first search: the only gate of a run is answered without one."""

    def __init__(self, gates: Iterable[GateInfo] = ()) -> None:
        self._by_path = {gate.path: gate for gate in gates}

    def __getitem__(self, path: str) -> GateInfo:
        return self._by_path[path]

    def __setitem__(self, path: str, gate: GateInfo) -> None:
        previous = self._by_path.pop(path, None)
        self._by_path[path] = gate
        if self._names is not None:
            if previous is not None:
                self._names.remove(previous)
            self._names.add(gate)

    def __delitem__(self, path: str) -> None:
        gate = self._by_path.pop(path)
        if self._names is not None:
            self._names.remove(gate)

    def clear(self) -> None:
        self._by_path.clear()
        self._names = None

    def __iter__(self) -> Iterator[str]:
        return iter(self._by_path)

    def __len__(self) -> int:
        return len(self._by_path)

    def __contains__(self, path: object) -> bool:
        return path in self._by_path

    def has_id(self, gate_id: str) -> bool:
        return bool(self._by_path) and any(gate.gate_id == gate_id for gate in self._with_id_prefix(gate_id))

    def find_matches(self, name: str, path_prefix: str = "") -> Iterator[tuple[GateMatch, GateInfo]]:
        """Yield the gates that have a name, or an id that begins with it; their paths have a prefix."""
        candidates = {gate.path: gate for gate in self._with_id_prefix(name)}
        by_name = self._read_names().by_name
        # The name may be a path in the enclosing run, with or without the first slash.
        for inner_name in (name, name.removeprefix(path_prefix), f"/{name}".removeprefix(path_prefix)):
            candidates |= by_name.get(inner_name, {})
        for gate in candidates.values():
            match = match_gate_name(gate, name, path_prefix + gate.path)
            if match is not None and match is not GateMatch.NAME_PREFIX:
                yield match, gate

    def _with_id_prefix(self, prefix: str) -> Iterator[GateInfo]:
        by_id_prefix = self._read_names().by_id_prefix
        for gate in by_id_prefix.get(prefix[:MIN_GATE_ID_PREFIX_CHARS], {}).values():
            if is_gate_id_prefix(prefix, gate.gate_id):
                yield gate

    def _read_names(self) -> GateNames:
        if self._names is None:
            self._names = GateNames()
            for gate in self._by_path.values():
                self._names.add(gate)
        return self._names


class GateNames:
    """Gates by their names, and by the beginnings of their ids."""

    def __init__(self) -> None:
        self.by_name: dict[str, dict[str, GateInfo]] = {}
        self.by_id_prefix: dict[str, dict[str, GateInfo]] = {}

    def add(self, gate: GateInfo) -> None:
        for index, key in self._places(gate):
            index.setdefault(key, {})[gate.path] = gate

    def remove(self, gate: GateInfo) -> None:
        for index, key in self._places(gate):
            del index[key][gate.path]
            if not index[key]:
                del index[key]

    def _places(self, gate: GateInfo) -> Iterator[tuple[dict[str, dict[str, GateInfo]], str]]:
        """Yield each index with a key of the gate in it."""
        yield self.by_id_prefix, gate.gate_id[:MIN_GATE_ID_PREFIX_CHARS]
        for name in set(gate_names(None, gate.path, gate.node_id)):
            yield self.by_name, name
