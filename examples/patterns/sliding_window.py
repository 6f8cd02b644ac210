"""Sliding window: 300 child runs, at most 10 of them open at once; the next starts when one ends.

Run it with `python examples/patterns/sliding_window.py`. Kill it at any time and run it again: the
child runs that have ended keep their results, and the open ones continue.
"""

import asyncio
from pathlib import Path

from nerve import Session, WorkflowContext

session = Session(store="sliding_window.db")
WINDOW = 10


@session.step
def resize(image: int) -> int:
    with Path("sliding_window.log").open("a") as file:
        file.write(f"resize {image}\n")
    return image * 100


@session.workflow
async def convert_image(ctx: WorkflowContext, image: int) -> int:
    return await resize(image)


@session.workflow
async def convert_all(ctx: WorkflowContext, count: int) -> int:
    window = asyncio.Semaphore(WINDOW)

    async def convert_one(image: int) -> int:
        async with window:
            size: int = await ctx.run_workflow(convert_image, image)
            return size

    return sum(await asyncio.gather(*(convert_one(image) for image in range(count))))


async def main() -> None:
    async with session:
        await session.recover()
        run = await session.start(convert_all, 300, key="album")
        print(await run.wait(), "bytes")


if __name__ == "__main__":
    asyncio.run(main())
