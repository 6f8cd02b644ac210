"""Rate limit across runs: a queue starts at most one email per second, whichever run sends it.

Run it with `python examples/patterns/rate_limit.py`. Kill it at any time and run it again: the window of
the rate is in the store.
"""

import asyncio
import time
from itertools import pairwise
from pathlib import Path

from nerve import Queue, Session, WorkflowContext

session = Session(store="rate_limit.db", queues=[Queue("emails", rate="1/s")])


def write_log(line: str) -> None:
    """Append to a file, which represents the outside world."""
    with Path("rate_limit.log").open("a") as file:
        file.write(f"{line}\n")


@session.step(queue="emails")
def send_email(person: str) -> float:
    write_log(f"email to {person}")
    return time.time()


@session.workflow
async def invite(ctx: WorkflowContext, person: str) -> float:
    return await send_email(person)


async def main() -> None:
    async with session:
        await session.recover()
        runs = [await session.start(invite, name, key=name) for name in ("ada", "bob", "eve")]
        times = [await run.wait() for run in runs]
        pauses = [later - earlier for earlier, later in pairwise(times)]
        print(f"{len(times)} emails, {'not ' if min(pauses) < 0.5 else ''}one per second")


if __name__ == "__main__":
    asyncio.run(main())
