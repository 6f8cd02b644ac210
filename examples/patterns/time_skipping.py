"""Time-skipping test: a workflow with a reminder after 30 days, and a test of it that takes no time.

Run both with `python examples/patterns/time_skipping.py`. The test sends no email. Then the workflow
itself runs in a store, on a clock that skips time, too: kill it at any time and run it again.
"""

import asyncio
from datetime import timedelta
from pathlib import Path

from nerve import Session, WorkflowContext
from nerve.testing import assert_replays, test_session

session = Session(store="time_skipping.db")
DAY = timedelta(days=1).total_seconds()


@session.step
def send_email(customer: str, text: str) -> None:
    with Path("time_skipping.log").open("a") as file:
        file.write(f"to {customer}: {text}\n")


@session.workflow
async def remind(ctx: WorkflowContext, customer: str) -> str:
    await send_email(customer, "your trial has started")
    await ctx.sleep(30 * DAY)
    await send_email(customer, "your trial has ended")
    try:
        answer: str = await ctx.gate(f"Does {customer} stay?", timeout=7 * DAY)
    except TimeoutError:
        answer = "no answer"
    return f"{customer}: {answer}"


async def test_the_customer_is_reminded_after_30_days_and_has_a_week_to_answer() -> None:
    async with test_session(session, fakes={"send_email": None}) as s:
        run = await s.start(remind, "ann")
        await run.next_gate()
        assert s.clock.elapsed == timedelta(days=30)
        assert await run.wait() == "ann: no answer"
        assert s.clock.elapsed == timedelta(days=37)
        texts = [call["text"] for call in s.fakes["send_email"].calls]
        assert texts == ["your trial has started", "your trial has ended"]
        await assert_replays(run)


async def main() -> None:
    async with test_session(session, store="time_skipping.db") as s:
        await s.recover()
        run = await s.start(remind, "bob", key="bob")
        print(await run.wait())


if __name__ == "__main__":
    asyncio.run(test_the_customer_is_reminded_after_30_days_and_has_a_week_to_answer())
    asyncio.run(main())
