"""Cancellation with cleanup: a run that is stopped still saves its work and returns what it rented.

Run it with `python examples/patterns/cancellation.py`. Kill it at any time and run it again, also in
the middle of the cleanup: it continues with the next cleanup step.
"""

import asyncio
from pathlib import Path

from nerve import Session, WorkflowContext

session = Session(store="cancellation.db")


def write_log(line: str) -> None:
    """Append to a file, which represents the service that rents machines."""
    with Path("cancellation.log").open("a") as file:
        file.write(f"{line}\n")


@session.step
def rent_machine(size: str) -> str:
    write_log(f"rent {size}")
    return f"{size}-7"


@session.step
def save_disk(machine: str) -> None:
    write_log(f"save disk of {machine}")


@session.step
def return_machine(machine: str) -> None:
    write_log(f"return {machine}")


@session.workflow
async def train(ctx: WorkflowContext, size: str) -> str:
    machine = await rent_machine(size)
    try:
        answer: str = await ctx.gate(f"Is the training on {machine} good enough?")
        return answer
    finally:
        async with ctx.cleanup(timeout=60):
            await save_disk(machine)
            await return_machine(machine)


async def main() -> None:
    async with session:
        await session.recover()
        run = await session.start(train, "large", key="training")
        if await run.next_gate():
            await run.stop("the project has ended")
        await run.wait_until_ended()
        print(f"{run.state.value}: {run.error}")


if __name__ == "__main__":
    asyncio.run(main())
