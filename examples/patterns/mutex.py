"""Mutex: a queue with a concurrency of 1 lets one run at a time change the account.

Run it with `python examples/patterns/mutex.py`. Kill it at any time and run it again: the run that held
the mutex continues with it, and the others wait for their turns.
"""

import asyncio
from pathlib import Path

from nerve import Queue, Session, WorkflowContext

session = Session(store="mutex.db", queues=[Queue("account", concurrency=1)])


def write_log(line: str) -> None:
    """Append to a file, which represents the outside world."""
    with Path("mutex.log").open("a") as file:
        file.write(f"{line}\n")


@session.step
def read_balance(name: str) -> int:
    lines = Path("mutex.log").read_text().splitlines() if Path("mutex.log").exists() else []
    balance = max((int(line.split()[-1]) for line in lines if "writes" in line), default=0)
    write_log(f"{name} reads {balance}")
    return balance


@session.step
def write_balance(name: str, balance: int) -> None:
    write_log(f"{name} writes {balance}")


@session.workflow(queue="account")
async def deposit(ctx: WorkflowContext, name: str) -> int:
    balance = await read_balance(name)
    await ctx.sleep(0.1)
    await write_balance(name, balance + 10)
    return balance + 10


async def main() -> None:
    async with session:
        await session.recover()
        runs = [await session.start(deposit, name, key=name) for name in ("ada", "bob", "eve")]
        print([await run.wait() for run in runs])


if __name__ == "__main__":
    asyncio.run(main())
