"""Open gates are found by every name as a search through all of them would find them."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from nerve.core.gates import GateMatch, match_gate_name, select_gates, select_lowest
from nerve.core.workflow.open_gates import OpenGates
from nerve.core.workflow.state import GateInfo

ids = st.text("ab", min_size=4, max_size=7)
paths = st.sampled_from(["/a", "/b", "/a/b", "/a/answer", "/a[2]", "/child/a", "/abab"])
nodes = st.sampled_from([None, "a", "b", "abab"])
infos = st.builds(
    lambda gate_id, path, node: GateInfo(gate_id, "?", None, path=path, node_id=node), ids, paths, nodes
)
changes = st.lists(st.one_of(infos, paths), max_size=12)


def search(gates: list[GateInfo], name: str, prefix: str) -> list[str]:
    """Return the paths of the gates that a name refers to, except by the beginning of a name."""
    shown = select_gates([replace(gate, path=prefix + gate.path) for gate in gates], name)
    if shown and match_gate_name(shown[0], name) is GateMatch.NAME_PREFIX:
        return []
    return sorted(gate.path.removeprefix(prefix) for gate in shown)


@given(
    changes,
    st.one_of(ids, paths, st.sampled_from(["a", "b", "ab", "abab", "a/b", "child/a", "/child/a/b", "a[2]"])),
    st.sampled_from(["", "/child"]),
    st.booleans(),
)
def test_a_name_finds_the_same_gates_as_a_search(
    changes: list[GateInfo | str], name: str, prefix: str, is_searched_early: bool
) -> None:
    gates, expected = OpenGates(), dict[str, GateInfo]()
    for change in changes:
        if is_searched_early:
            list(gates.find_matches(name, prefix))
        if isinstance(change, str):
            assert gates.pop(change, None) is expected.pop(change, None)
        else:
            expected.pop(change.path, None)
            gates[change.path] = expected[change.path] = change
    assert list(gates.items()) == list(expected.items())
    found = select_lowest(gates.find_matches(name, prefix))
    assert sorted(gate.path for gate in found) == search(list(expected.values()), name, prefix)
    assert gates.has_id(name) == any(gate.gate_id == name for gate in expected.values())
