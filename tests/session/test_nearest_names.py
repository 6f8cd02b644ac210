"""An unknown name is one clear error with the nearest name, wherever a user can misspell it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from nerve import Queue, Session, WorkflowContext
from nerve.api import Api, ApiError


def open_session() -> Session:
    session = Session(queues=[Queue("emails", concurrency=1)])

    @session.step
    async def charge(amount: int) -> int:
        return amount

    @session.workflow(channels={"orders": str})
    async def shop(ctx: WorkflowContext) -> Any:
        ctx.query("progress", lambda: 1)
        ctx.update("add_item", lambda value: value)
        ctx.tag(customer="42")
        return await ctx.receive("orders")

    bodies: dict[str, Callable[[WorkflowContext], Awaitable[Any]]] = {
        "step": lambda ctx: ctx.run("charg", {"amount": 1}),
        "parallel": lambda ctx: ctx.run_parallel([("charg", {"amount": 1})]),
        "argument": lambda ctx: charge(amout=3),  # type: ignore[call-arg]
        "receive": lambda ctx: ctx.receive("order"),
        "step_queue": lambda ctx: ctx.run("charge", {"amount": 1}, queue="email"),
        "child": lambda ctx: ctx.run_workflow("shp"),
    }
    for name, body in bodies.items():
        session.workflow(make_workflow(body), id=name, channels={"orders": str})
    return session


def make_workflow(body: Callable[[WorkflowContext], Awaitable[Any]]) -> Any:
    async def run_body(ctx: WorkflowContext) -> Any:
        return await body(ctx)

    return run_body


BODY_MESSAGES = {
    "step": "Node 'charg' not found in session. Did you mean 'charge'?",
    "parallel": "Node 'charg' not found in session. Did you mean 'charge'?",
    "argument": "got an unexpected keyword argument 'amout'. Did you mean 'amount'?",
    "receive": "Unknown channel 'order' of workflow 'receive'. Did you mean 'orders'?",
    "step_queue": "Queue 'email' not found. Did you mean 'emails'?",
    "child": "Workflow 'shp' not found. Did you mean 'shop'?",
}


@pytest.mark.parametrize("workflow", BODY_MESSAGES)
async def test_a_wrong_name_in_a_body_fails_with_the_nearest_one_and_records_no_step(workflow: str) -> None:
    run = await open_session().start(workflow)
    with pytest.raises((ValueError, TypeError)) as error:
        await run.wait()
    assert BODY_MESSAGES[workflow] in str(error.value)
    assert [event.event_type for event in run.events] == ["workflow_started", "workflow_failed"]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda session, run: run.send("order", "tea"),
            "Unknown channel 'order' of workflow 'shop'. Did you",
        ),
        (
            lambda session, run: run.query("progres"),
            "Unknown query 'progres' of the run. Did you mean 'progress'",
        ),
        (
            lambda session, run: run.update("add_itme", 1),
            "Unknown update 'add_itme' of the run. Did you mean 'add",
        ),
        (
            lambda session, run: session.pause_queue("email"),
            "Queue 'email' not found. Did you mean 'emails'?",
        ),
        (lambda session, run: session.start("shop", queue="email"), "Queue 'email' not found. Did you mean"),
        (lambda session, run: session.start("shp"), "Workflow 'shp' not found. Did you mean 'shop'?"),
    ],
)
async def test_a_wrong_name_in_a_command_is_refused_with_the_nearest_one(call: Any, message: str) -> None:
    session = open_session()
    run = await session.start("shop")
    while run.waiting_for is None:
        await run.wait_for_change()
    count = len(run.events)
    with pytest.raises(ValueError) as error:
        await call(session, run)
    assert message in str(error.value)
    assert len(run.events) == count


async def test_a_wrong_tag_in_a_filter_is_refused_with_the_nearest_one() -> None:
    session = open_session()
    run = await session.start("shop")
    while run.waiting_for is None:
        await run.wait_for_change()
    with pytest.raises(ValueError, match=r"Unknown tag 'custmer'\. Did you mean 'customer'\?"):
        session.runs(tags={"custmer": "42"})
    with pytest.raises(ApiError) as refused:
        await Api(session).runs(tag=["custmer=42"])
    assert (refused.value.message, refused.value.fix) == ("Unknown tag 'custmer'", "Did you mean 'customer'?")
