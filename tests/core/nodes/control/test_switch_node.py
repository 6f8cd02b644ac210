"""SwitchNode."""

from typing import Any

import pytest

from core.nodes.support import event_data, execute_node, execute_with_events
from nerve import Session
from nerve.core.nodes import MockNode, Node
from nerve.core.nodes.control import SwitchNode


def by_kind(session: Session, default: Node | None = None) -> SwitchNode:
    cases = {"bug": MockNode("fix", session, ["fixed"]), "idea": MockNode("plan", session, ["planned"])}
    return SwitchNode("triage", session, key=lambda inp: inp["kind"], cases=cases, default=default)


@pytest.mark.requirement("S1-20")
@pytest.mark.parametrize(("kind", "output"), [("bug", "fixed"), ("idea", "planned")])
async def test_the_key_names_the_case(session: Session, kind: str, output: str) -> None:
    result, events = await execute_with_events(by_kind(session), {"kind": kind})
    assert result["output"] == output
    assert event_data(events, "branch_taken") == [{"node_id": "triage", "branch": kind, "key": kind}]


@pytest.mark.requirement("S1-20")
async def test_a_key_without_a_case_selects_the_default(session: Session) -> None:
    result, events = await execute_with_events(
        by_kind(session, MockNode("other", session, ["?"])), {"kind": "spam"}
    )
    assert result["output"] == "?"
    assert event_data(events, "branch_taken") == [{"node_id": "triage", "branch": "default", "key": "spam"}]


@pytest.mark.requirement("D1-10")
async def test_without_case_and_default_the_input_is_returned_and_no_branch_is_taken(
    session: Session,
) -> None:
    result, events = await execute_with_events(by_kind(session), {"kind": "spam"})
    assert (result["success"], result["output"]) == (True, {"kind": "spam"})
    assert event_data(events, "branch_taken") == [{"node_id": "triage", "branch": None, "key": "spam"}]


async def test_a_key_that_raises_names_the_switch_and_the_type(session: Session) -> None:
    with pytest.raises(KeyError, match="key of 'triage' raised on int: 'kind'"):
        await execute_node(by_kind(session), 3)


@pytest.mark.requirement("S1-20")
@pytest.mark.parametrize(("case", "key"), [("1", 1), (1, "1"), (1, 1), ("True", True)])
async def test_keys_and_cases_are_compared_as_strings(session: Session, case: Any, key: Any) -> None:
    node = SwitchNode("s", session, lambda _: key, {case: MockNode("n", session, ["found"])})
    assert (await execute_node(node)).output == "found"


def test_two_cases_of_one_name_are_rejected(session: Session) -> None:
    n = MockNode("n", session)
    with pytest.raises(ValueError, match="'s' has two cases '1'"):
        SwitchNode("s", session, lambda _: 1, {1: n, "1": n})
