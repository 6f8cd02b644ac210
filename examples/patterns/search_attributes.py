"""Search attributes: tag runs at their start and while they execute, and find them by their tags.

Run it with `python examples/patterns/search_attributes.py`, then list the runs of a customer with
`nerve runs --store search_attributes.db --tag customer=42`. Kill it at any time and run it again: tags
are part of the journal.
"""

import asyncio
from pathlib import Path

from nerve import Session, WorkflowContext

session = Session(store="search_attributes.db")


def write_log(line: str) -> None:
    """Append to a file, which represents the outside world."""
    with Path("search_attributes.log").open("a") as file:
        file.write(f"{line}\n")


@session.step
def write_offer(item: str) -> str:
    write_log(f"write offer for {item}")
    return f"offer for {item}"


@session.step
def send_offer(offer: str) -> None:
    write_log(f"send {offer}")


@session.workflow
async def make_offer(ctx: WorkflowContext, item: str) -> str:
    offer = await write_offer(item)
    ctx.tag(stage="review")
    answer: str = await ctx.gate(f"Send the {offer}?", choices=["yes", "no"])
    if answer == "yes":
        await send_offer(offer)
    ctx.tag(stage="closed")
    return answer


async def main() -> None:
    async with session:
        await session.recover()
        for item, customer in [("tea", 42), ("milk", 7), ("sugar", 42)]:
            run = await session.start(make_offer, item, key=item, tags={"customer": customer})
            await run.next_gate()
        for run in session.runs(tags={"customer": 42, "stage": "review"}):
            await run.answer("yes")
            await run.wait()
        print(sorted(run.input for run in session.runs(tags={"customer": 42, "stage": "closed"})))
        print([run.input for run in session.runs(tags={"stage": "review"})])


if __name__ == "__main__":
    asyncio.run(main())
