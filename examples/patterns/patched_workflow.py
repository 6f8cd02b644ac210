"""Patched workflow: add a step while runs are open; a run that has passed the place does not get it.

Run it with `python examples/patterns/patched_workflow.py`. To see the old branch, remove the two lines
of the patch, kill the program after its first charge, and run it again with the lines.
"""

import asyncio
from pathlib import Path

from nerve import Session, WorkflowContext

session = Session(store="patched_workflow.db")


def write_log(line: str) -> None:
    """Append to a file, which represents the payment service."""
    with Path("patched_workflow.log").open("a") as file:
        file.write(f"{line}\n")


@session.step
def check_fraud(order: str) -> None:
    write_log(f"check {order}")


@session.step
def charge(order: str) -> str:
    write_log(f"charge {order}")
    return f"receipt of {order}"


@session.step
def ship(order: str) -> None:
    write_log(f"ship {order}")


@session.workflow
async def fulfil(ctx: WorkflowContext, order: str) -> str:
    if ctx.patched("fraud-check"):
        await check_fraud(order)
    receipt = await charge(order)
    await ship(order)
    return receipt


async def main() -> None:
    async with session:
        await session.recover()
        for order in ["tea", "milk"]:
            run = await session.start(fulfil, order, key=order)
            print(await run.wait())


if __name__ == "__main__":
    asyncio.run(main())
