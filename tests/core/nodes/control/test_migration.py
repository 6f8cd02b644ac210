"""Each Python pattern of the migration guide, and the control node that replaces it."""

import asyncio
from typing import Any

import pytest

from core.nodes.support import execute_node, function_node
from nerve import Session
from nerve.core.nodes import Node
from nerve.core.nodes.control import BranchNode, LoopNode, MapNode, SwitchNode, WhileNode

pytestmark = pytest.mark.requirement("S1-26")


async def double(n: int) -> int:
    return n * 2


@pytest.fixture
def body(session: Session) -> Node:
    return function_node(session, "double", lambda n: n * 2)


async def output(node: Node, input: Any) -> Any:
    return (await execute_node(node, input))["output"]


async def test_while_is_a_while_node(session: Session, body: Node) -> None:
    n = 3
    while n < 100:
        n = await double(n)
    assert await output(WhileNode("w", session, lambda s: s.current_value < 100, body), 3) == n


async def test_for_in_range_is_a_loop_node(session: Session, body: Node) -> None:
    n = 3
    for _ in range(4):
        n = await double(n)
    assert await output(LoopNode("l", session, body, times=4), 3) == n


@pytest.mark.parametrize("n", [1, 20])
async def test_if_and_else_are_a_branch_node(session: Session, body: Node, n: int) -> None:
    expected = await double(n) if n < 10 else 0
    zero = function_node(session, "zero", lambda _: 0)
    assert await output(BranchNode("b", session, lambda n: n < 10, body, zero), n) == expected


@pytest.mark.parametrize("n", [1, 2, 3])
async def test_match_is_a_switch_node(session: Session, body: Node, n: int) -> None:
    match n:
        case 1:
            expected = await double(n)
        case 2:
            expected = 0
        case _:
            expected = n
    cases = {"1": body, "2": function_node(session, "zero", lambda _: 0)}
    assert await output(SwitchNode("s", session, str, cases), n) == expected


async def test_gather_is_a_map_node(session: Session, body: Node) -> None:
    expected = await asyncio.gather(*(double(n) for n in range(5)))
    assert await output(MapNode("m", session, body), list(range(5))) == expected
