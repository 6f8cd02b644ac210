"""Mailbox: a run receives messages in the order in which they were sent, each exactly once.

Run it with `python examples/patterns/mailbox.py`. Kill it at any time and run it again: the messages
wait on disk, and the key of a message keeps it from being sent twice.
"""

import asyncio
from dataclasses import dataclass
from pathlib import Path

from nerve import Session, WorkflowContext

session = Session(store="mailbox.db")


@dataclass
class Order:
    item: str
    count: int = 1


@session.step
def pack(order: Order) -> int:
    with Path("mailbox.log").open("a") as file:
        file.write(f"pack {order.count} {order.item}\n")
    return order.count


@session.workflow(channels={"orders": Order, "close": str})
async def pack_orders(ctx: WorkflowContext) -> str:
    orders = pieces = 0
    async for order in ctx.receive("orders", Order):
        pieces += await pack(order)
        orders += 1
        if orders == 4:
            break
    reason = await ctx.receive("close", str)
    return f"{pieces} pieces in {orders} orders, closed for {reason}"


async def main() -> None:
    async with session:
        await session.recover()
        run = await session.start(pack_orders, key="monday")
        orders = [Order("tea", 2), Order("milk"), Order("sugar", 3), Order("tea")]
        for number, order in enumerate(orders):
            await run.send("orders", order, key=f"order-{number}")
        await run.send("close", "lunch", key="close")
        print(await run.wait())


if __name__ == "__main__":
    asyncio.run(main())
