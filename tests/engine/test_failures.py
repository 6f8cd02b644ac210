"""What a journal records of failures: type, message and traceback of attempts, steps and the run."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from nerve import Result, Retry, Session
from nerve.core.nodes import ExecutionContext, FunctionNode
from nerve.core.workflow import WorkflowContext, WorkflowEvent, WorkflowRun
from nerve.errors import NodeFailed


@pytest.fixture
async def session() -> AsyncIterator[Session]:
    async with Session() as opened:
        yield opened


def charge(context: ExecutionContext) -> None:
    raise LookupError(f"no card {context.input}")


async def hang(context: ExecutionContext) -> None:
    await asyncio.Event().wait()


def give_up(context: ExecutionContext) -> Result:
    return Result.failed("no stock", "OutOfStock")


async def run_to_end(session: Session, name: str) -> WorkflowRun[Any]:
    run = await session.start(name)
    await run.wait_until_ended()
    return run


def failures(run: WorkflowRun[Any]) -> list[WorkflowEvent]:
    return [event for event in run.events if event.data.get("error")]


async def test_a_step_that_raises_records_where(session: Session) -> None:
    FunctionNode("charge", session, charge)

    @session.workflow
    async def pay(ctx: WorkflowContext) -> Any:
        return (await ctx.run("charge", 42)).error

    (failed,) = failures(await run_to_end(session, "pay"))
    assert (failed.path, failed.data["error"], failed.data["error_type"]) == (
        "/charge",
        "no card 42",
        "LookupError",
    )
    assert failed.data["location"].endswith("test_failures.py:25 in charge")
    assert failed.data["traceback"].endswith("LookupError: no card 42")
    assert "src/nerve" not in failed.data["traceback"]


@pytest.mark.local("looks at executors")
async def test_a_typed_step_and_the_run_it_fails_record_where(session: Session) -> None:
    @session.step
    async def pay_bill(amount: int) -> int:
        return amount // 0

    @session.workflow
    async def pay(ctx: WorkflowContext) -> Any:
        return await pay_bill(3)

    run = await run_to_end(session, "pay")
    step, end = failures(run)
    assert step.data["location"].endswith("in pay_bill")
    assert "ZeroDivisionError" in step.data["traceback"]
    assert end.event_type == "workflow_failed"
    assert end.data["location"].endswith("in pay")
    assert end.data["traceback"].splitlines()[-1].startswith("NodeFailed: /pay_bill: ZeroDivisionError")
    with pytest.raises(NodeFailed) as caught:
        await run.wait()
    assert isinstance(caught.value.__cause__, ZeroDivisionError)


async def test_every_failed_attempt_records_where(session: Session) -> None:
    FunctionNode("charge", session, charge, retry=Retry(3, delay=0))

    @session.workflow
    async def pay(ctx: WorkflowContext) -> Any:
        return (await ctx.run("charge", 1)).error

    attempts = failures(await run_to_end(session, "pay"))
    assert [event.event_type for event in attempts] == ["node_retrying", "node_retrying", "node_completed"]
    assert {event.data["location"].rpartition(" ")[2] for event in attempts} == {"charge"}


async def test_a_timeout_records_where_the_function_was(session: Session) -> None:
    FunctionNode("hang", session, hang, timeout=0.01)

    @session.workflow
    async def wait(ctx: WorkflowContext) -> Any:
        with pytest.raises(TimeoutError):
            await ctx.run("hang")

    (failed,) = failures(await run_to_end(session, "wait"))
    assert failed.event_type == "node_timeout"
    assert failed.data["location"].endswith("in hang")


async def test_a_failure_that_a_node_returns_has_no_traceback(session: Session) -> None:
    FunctionNode("give_up", session, give_up)

    @session.workflow
    async def buy(ctx: WorkflowContext) -> Any:
        return (await ctx.run("give_up")).error

    (failed,) = failures(await run_to_end(session, "buy"))
    assert failed.data["error_type"] == "OutOfStock"
    assert "traceback" not in failed.data
    assert "location" not in failed.data


async def test_the_view_of_a_run_has_the_tracebacks_of_steps_and_run(session: Session) -> None:
    FunctionNode("charge", session, charge)

    @session.workflow
    async def pay(ctx: WorkflowContext) -> Any:
        return (await ctx.run("charge", 1))["output"]

    view = (await run_to_end(session, "pay")).view
    assert view.nodes["/charge"].error_type == "LookupError"
    assert str(view.nodes["/charge"].location).endswith("in charge")
    assert str(view.location).endswith("in pay")
    assert "NodeFailed" in str(view.traceback)


async def test_the_body_gets_the_same_result_again_without_the_traceback(tmp_path: Path) -> None:
    results: list[Result] = []

    def create_session() -> Session:
        session = Session(store=tmp_path / "nerve.db")
        FunctionNode("charge", session, charge)

        @session.workflow
        async def pay(ctx: WorkflowContext) -> Any:
            results.append(await ctx.run("charge", 1))
            return await ctx.gate("Go on?")

        return session

    async with create_session() as session:
        run = await session.start("pay")
        while run.pending_gate is None:
            await run.wait_for_change()
    async with create_session() as session:
        (run,) = await session.recover()
        await run.answer("yes")
        await run.wait()
    assert results[0] == results[1]
    assert results[1].keys() == {"success", "output", "error", "error_type", "attributes"}
