"""Steps with effect="once" without a run: an interrupted one is not retried."""

import asyncio
from typing import Any

import pytest

from core.nodes.support import event_data, execute_node, execute_with_events, run_node
from nerve import ExecutionContext, FunctionNode, Session
from nerve.core.nodes import Graph, MockNode, Retry
from nerve.core.nodes.control import LoopNode, ParallelNode
from nerve.core.nodes.inline import run_inline
from nerve.core.policy import Policy
from nerve.core.runtime import NodeCall

AGAIN = Retry(attempts=3, delay=0)
UNKNOWN = "has effect='once' and was interrupted; its outcome is unknown, so it is not retried"


class Bank:
    """A payment that never ends, and the number of its starts."""

    def __init__(self, session: Session, **policy: Any) -> None:
        self.begun = 0
        self.node = FunctionNode("pay", session, self.pay, effect="once", **policy)

    async def pay(self, context: ExecutionContext) -> None:
        self.begun += 1
        await asyncio.Event().wait()


@pytest.mark.parametrize(
    ("bound", "why"), [("timeout", "timed out after 0.01 s"), ("idle_timeout", "silent for 0.01 s")]
)
async def test_a_step_with_effect_once_is_not_retried_after_a_timeout(
    session: Session, bound: str, why: str
) -> None:
    bank = Bank(session, retry=AGAIN, **{bound: 0.01})
    result, events = await execute_with_events(Graph("g", session).add_step(bank.node, "step"))
    [failed] = event_data(events, "step_failed")
    assert (bank.begun, result.success, failed["error_type"]) == (1, False, "TimeoutError")
    assert (failed["error"], failed["timeout"]) == (f"{why}; /step {UNKNOWN}", 0.01)
    assert event_data(events, "node_retrying") == []


async def test_the_enclosing_node_of_an_interrupted_once_step_is_not_retried(session: Session) -> None:
    bank = Bank(session, timeout=0.01)
    loop = LoopNode("loop", session, bank.node, times=2, retry=AGAIN)
    result = await execute_node(Graph("g", session, retry=AGAIN).add_step(loop, "loop"))
    assert (bank.begun, result.success) == (1, False)
    assert result.error is not None
    assert result.error.count(UNKNOWN) == 1


@pytest.mark.parametrize("in_a_run", [True, False])
async def test_the_node_whose_timeout_interrupts_a_once_step_is_not_retried(
    session: Session, in_a_run: bool
) -> None:
    bank = Bank(session)
    pair = ParallelNode("pair", session, {"a": bank.node, "b": MockNode()}, timeout=0.05, retry=AGAIN)
    graph = Graph("g", session).add_step(pair, "pair")
    events = (await run_node(session, graph)).events if in_a_run else (await execute_with_events(graph))[1]
    [failed] = event_data(events, "step_failed")
    assert bank.begun == 1
    assert (failed["error"], failed["timeout"]) == (f"timed out after 0.05 s; /pair/a {UNKNOWN}", 0.05)


async def test_an_inline_node_with_an_interrupted_once_step_is_not_retried(session: Session) -> None:
    bank = Bank(session)
    loop = LoopNode("loop", session, bank.node, times=1)
    policy = Policy(timeout=0.05, retry=AGAIN)
    result = await run_inline(
        NodeCall("/loop", loop, "loop", None, policy, context=ExecutionContext(session))
    )
    assert (bank.begun, result.error) == (1, f"timed out after 0.05 s; /loop/loop {UNKNOWN}")


async def test_a_once_step_that_fails_without_a_timeout_is_retried(session: Session) -> None:
    pay = MockNode("pay", session, [OSError("gone"), "fine"], effect="once", retry=AGAIN, timeout=5)
    result = await execute_node(Graph("g", session).add_step(pay))
    assert (result["output"], len(pay.calls)) == ("fine", 2)


async def test_a_step_without_effect_once_is_retried_after_a_timeout(session: Session) -> None:
    begun: list[Any] = []

    async def slow_at_first(context: ExecutionContext) -> str:
        begun.append(context.input)
        if len(begun) == 1:
            await asyncio.Event().wait()
        return "fine"

    node = FunctionNode("slow", session, slow_at_first, retry=AGAIN, timeout=0.05)
    assert (await execute_node(Graph("g", session).add_step(node)))["output"] == "fine"
    assert len(begun) == 2
