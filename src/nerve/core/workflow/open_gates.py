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

    def __init__(self, gates: Iterable[GateInfo] = ()) -> None:
        self._by_path: dict[str, GateInfo] = {}
        self._by_name: dict[str, dict[str, GateInfo]] = {}
        self._by_id_prefix: dict[str, dict[str, GateInfo]] = {}
        for gate in gates:
            self[gate.path] = gate

    def __getitem__(self, path: str) -> GateInfo:
        return self._by_path[path]

    def __setitem__(self, path: str, gate: GateInfo) -> None:
        if path in self._by_path:
            del self[path]
        self._by_path[path] = gate
        for index, key in self._indexes(gate):
            index.setdefault(key, {})[path] = gate

    def __delitem__(self, path: str) -> None:
        for index, key in self._indexes(self._by_path.pop(path)):
            del index[key][path]
            if not index[key]:
                del index[key]

    def clear(self) -> None:
        for index in (self._by_path, self._by_name, self._by_id_prefix):
            index.clear()

    def __iter__(self) -> Iterator[str]:
        return iter(self._by_path)

    def __len__(self) -> int:
        return len(self._by_path)

    def __contains__(self, path: object) -> bool:
        return path in self._by_path

    def _indexes(self, gate: GateInfo) -> Iterator[tuple[dict[str, dict[str, GateInfo]], str]]:
        """Yield the indexes other than the one by path, each with a key of the gate in it."""
        yield self._by_id_prefix, gate.gate_id[:MIN_GATE_ID_PREFIX_CHARS]
        for name in set(gate_names(None, gate.path, gate.node_id)):
            yield self._by_name, name

    def has_id(self, gate_id: str) -> bool:
        return any(gate.gate_id == gate_id for gate in self._with_id_prefix(gate_id))

    def find_matches(self, name: str, path_prefix: str = "") -> Iterator[tuple[GateMatch, GateInfo]]:
        """Yield the gates that have a name, or an id that begins with it; their paths have a prefix."""
        candidates = {gate.path: gate for gate in self._with_id_prefix(name)}
        # The name may be a path in the enclosing run, with or without the first slash.
        for inner_name in (name, name.removeprefix(path_prefix), f"/{name}".removeprefix(path_prefix)):
            candidates |= self._by_name.get(inner_name, {})
        for gate in candidates.values():
            match = match_gate_name(gate, name, path_prefix + gate.path)
            if match is not None and match is not GateMatch.NAME_PREFIX:
                yield match, gate

    def _with_id_prefix(self, prefix: str) -> Iterator[GateInfo]:
        for gate in self._by_id_prefix.get(prefix[:MIN_GATE_ID_PREFIX_CHARS], {}).values():
            if is_gate_id_prefix(prefix, gate.gate_id):
                yield gate
