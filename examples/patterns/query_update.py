"""Query and update: read the state of a run, and change it with validated requests that get a reply.

Kill it at any time and run it again: an update with the same key is handled once.
"""

import asyncio
from pathlib import Path

from nerve import Session, WorkflowContext
from nerve.errors import UpdateRejected

session = Session(store="query_update.db")


@session.step
def reserve(item: str) -> str:
    with Path("query_update.log").open("a") as file:
        file.write(f"reserve {item}\n")
    return f"{item}-7"


@session.workflow
async def fill_cart(ctx: WorkflowContext, limit: int) -> list[str]:
    reservations: list[str] = []
    checked_out = asyncio.Event()

    def check_limit(item: str) -> None:
        if len(reservations) >= limit:
            raise ValueError(f"the cart has {limit} items already")

    async def add_item(item: str) -> int:
        reservations.append(await reserve(item))
        return len(reservations)

    ctx.query("reservations", lambda: reservations)
    ctx.update("add_item", add_item, validate=check_limit)
    ctx.update("check_out", lambda _: checked_out.set())
    await checked_out.wait()
    return reservations


async def main() -> None:
    async with session:
        await session.recover()
        run = await session.start(fill_cart, 3, key="cart")
        if run.is_complete:  # an earlier process has checked out
            print(await run.wait())
            return
        for item in ["tea", "milk", "sugar", "salt"]:
            try:
                print(await run.update("add_item", item, key=f"add {item}"))
            except UpdateRejected as error:
                print(error)
        print(await run.query("reservations"))
        await run.update("check_out", key="check out")
        print(await run.wait())


if __name__ == "__main__":
    asyncio.run(main())
