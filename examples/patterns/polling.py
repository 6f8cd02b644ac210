"""Polling: start an export, and ask for its progress in growing intervals until it is ready.

Run it with `python examples/patterns/polling.py`. Kill it at any time and run it again: the durable
timer keeps counting while no process runs.
"""

import asyncio
from pathlib import Path

from nerve import Retry, Session, WorkflowContext

session = Session(store="polling.db")
LOG = Path("polling.log")
"""Represents the export service: every request to it is a line, and every poll finds 25% more."""


def write_log(line: str) -> None:
    with LOG.open("a") as file:
        file.write(f"{line}\n")


@session.step
def start_export(table: str) -> str:
    write_log(f"start export of {table}")
    return f"export-{table}"


@session.step(retry=Retry(attempts=5, retry_on=OSError))
def read_progress(export: str) -> int:
    percent = 25 * len(LOG.read_text().splitlines())
    write_log(f"{export}: {percent}%")
    return percent


@session.workflow
async def wait_for_export(ctx: WorkflowContext, table: str) -> str:
    export = await start_export(table)
    polls, pause = 1, 0.05
    while await read_progress(export) < 100:
        await ctx.sleep(pause)
        polls, pause = polls + 1, min(pause * 2, 60)
    return f"{export} is ready after {polls} polls"


async def main() -> None:
    async with session:
        await session.recover()
        run = await session.start(wait_for_export, "orders", key="export")
        print(await run.wait())


if __name__ == "__main__":
    asyncio.run(main())
