"""User functions of control nodes: an exception is a failure that names the function."""

import asyncio
import sys
from collections.abc import Callable
from typing import Any

import pytest

from core.nodes.support import execute_node
from nerve import Graph, MockNode, Retry, Session
from nerve.core.nodes import Node
from nerve.core.nodes.control import (
    BranchNode,
    GateNode,
    LoopNode,
    ParallelNode,
    ReduceNode,
    SwitchNode,
    WhileNode,
)


async def later(_: Any) -> bool:
    return False


def leave(_: Any) -> Any:
    sys.exit(3)


def cancel(_: Any) -> Any:
    raise asyncio.CancelledError


def run_dry(_: Any) -> Any:
    return next(iter([]))


class Undecided:
    def __bool__(self) -> bool:
        raise ValueError("neither true nor false")


class Unsaid(Exception):
    def __str__(self) -> str:
        raise RuntimeError("nothing to say")


def say_nothing(_: Any) -> Any:
    raise Unsaid


Make = Callable[[Session, Callable[[Any], Any]], Node]

ASKED: dict[str, tuple[Make, str]] = {
    "while": (lambda s, fn: WhileNode("x", s, fn, MockNode()), "condition of 'x'"),
    "until": (lambda s, fn: LoopNode("x", s, MockNode(), until=fn), "until of 'x'"),
    "branch": (lambda s, fn: BranchNode("x", s, fn, MockNode()), "condition of 'x'"),
    "switch": (lambda s, fn: SwitchNode("x", s, fn, {"a": MockNode()}), "key of 'x'"),
    "reduce": (lambda s, fn: ReduceNode("x", s, lambda acc, item: fn(item)), "fn of 'x'"),
    "prompt": (lambda s, fn: GateNode("x", s, fn, auto_answer="yes"), "prompt of 'x'"),
    "validator": (lambda s, fn: GateNode("x", s, "?", validator=fn, auto_answer="yes"), "validator of 'x'"),
    "input_fn": (lambda s, fn: Graph("x", s).add_step(MockNode(), "q", input_fn=fn), "input_fn"),
}


@pytest.mark.parametrize(("make", "whose"), ASKED.values(), ids=ASKED)
@pytest.mark.parametrize("fn", [leave, cancel, run_dry, say_nothing, lambda given: later(given)])
async def test_an_error_in_a_user_function_fails_only_its_node(
    session: Session, make: Make, whose: str, fn: Callable[[Any], Any]
) -> None:
    both = ParallelNode("both", session, {"bad": make(session, fn), "good": MockNode("good", session)})
    result = await execute_node(both, 1)
    assert list(result.attributes["census"]["not_ok"].values()) == [["bad"]]
    assert whose in result.error
    session.register_workflow(both)
    run = await session.start("both", 1)
    with pytest.raises(Exception, match=whose):
        await asyncio.wait_for(run.wait(), 10)
    assert {path: node.state for path, node in run.view.nodes.items()}["/good"] == "completed"


@pytest.mark.parametrize("name", ["while", "until", "branch"])
async def test_a_return_value_without_a_truth_value_fails_the_node(session: Session, name: str) -> None:
    make, whose = ASKED[name]
    with pytest.raises(ValueError, match=f"{whose} raised on .*: neither true nor false"):
        await execute_node(make(session, lambda _: Undecided()), 1)


async def test_a_coroutine_does_not_count_as_true_for_a_retry(session: Session) -> None:
    node = MockNode("n", session, [OSError("gone"), "here"])
    graph = Graph("g", session).add_step(node, retry=Retry(2, delay=0, on=lambda result: later(result)))
    result = await execute_node(graph)
    assert len(node.calls) == 1
    assert "it returned an awaitable" in result.error


async def test_an_unhashable_key_is_named_in_the_error(session: Session) -> None:
    with pytest.raises(ValueError, match=r"key of 's' must be the name of a case, got \[1\] of type list"):
        await execute_node(SwitchNode("s", session, lambda given: [given], {"a": MockNode()}), 1)
