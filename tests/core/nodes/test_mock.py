"""MockNode."""

import pytest

from core.nodes.support import execute_node
from nerve import Session
from nerve.core.nodes import MockNode


@pytest.mark.requirement("S1-30")
async def test_it_returns_the_responses_in_order_and_repeats_the_last() -> None:
    node = MockNode(responses=["a", "b"])
    assert [(await execute_node(node))["output"] for _ in range(4)] == ["a", "b", "b", "b"]


@pytest.mark.requirement("S1-30")
async def test_without_responses_it_returns_and_records_its_input() -> None:
    node = MockNode()
    assert (await execute_node(node, "x"))["output"] == "x"
    assert node.calls == ["x"]


@pytest.mark.requirement("S1-30")
async def test_a_callable_response_is_called_with_the_input() -> None:
    assert (await execute_node(MockNode(responses=[str.upper]), "x"))["output"] == "X"


@pytest.mark.parametrize("response", [KeyError("x"), lambda given: given["x"]])
async def test_an_exception_is_a_failed_result(response: object) -> None:
    result = await execute_node(MockNode(responses=[response]), {})
    assert (result["success"], result["error_type"]) == (False, "KeyError")


async def test_a_result_shaped_response_is_the_result() -> None:
    result = await execute_node(MockNode(responses=[{"success": False, "error": "no"}]))
    assert (result["success"], result["error"]) == (False, "no")


@pytest.mark.requirement("S1-45")
def test_a_node_without_an_id_can_be_registered_by_assignment(session: Session) -> None:
    node = MockNode(responses=["Found: X"])
    session.nodes["searcher"] = node
    assert session.get_node("searcher") is node
