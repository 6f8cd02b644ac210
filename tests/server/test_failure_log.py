"""The log of the server: failures of attempts, steps and runs with their tracebacks."""

import logging
from typing import Any

import pytest

from nerve import Result, Retry, Session
from nerve.core.nodes import FunctionNode
from nerve.core.workflow import WorkflowContext
from nerve.server.failure_log import log_failures


async def test_failures_are_logged_with_their_tracebacks(caplog: pytest.LogCaptureFixture) -> None:
    def charge(context: Any) -> None:
        raise LookupError("no\ncard")

    async with Session() as session:
        session.engine.watchers.append(log_failures)
        FunctionNode("charge", session, charge, retry=Retry(2, delay=0))
        FunctionNode("fine", session, lambda context: Result.ok("good"))

        @session.workflow
        async def pay(ctx: WorkflowContext) -> Any:
            await ctx.run("fine")
            return (await ctx.run("charge"))["output"]

        run = await session.start("pay")
        await run.wait_until_ended()
    retried, step, end = caplog.records
    begin = f"run {run.run_id} of 'pay': "
    assert retried.getMessage().startswith(f"{begin}step /charge is retried: LookupError: no\n  card (")
    assert step.getMessage().startswith(f"{begin}step /charge failed: LookupError: no\n  card (")
    assert 'raise LookupError("no\\ncard")' in step.getMessage()
    assert end.getMessage().startswith(f"{begin}failed: LookupError: no\n  card (")
    assert end.getMessage().endswith("NodeFailed: /charge: LookupError: no\n  card")
    assert [record.levelno for record in caplog.records] == [logging.WARNING, logging.WARNING, logging.ERROR]
