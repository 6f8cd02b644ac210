"""Runs workflows until it is killed: `python working_program.py PROJECT RUNS`."""

import asyncio
import sys
from pathlib import Path
from typing import Any

from nerve import Session


async def main(project: Path, runs: int) -> None:
    async with Session(store=project / "nerve.db", project=project) as session:

        @session.workflow
        async def hello(ctx: Any) -> str:
            return "hello"

        await session.recover()
        for number in range(runs):
            run = await session.start("hello", label=f"n{number}", key=f"n{number}")
            await run.wait()
            print(run.run_id, flush=True)  # noqa: T201
            await asyncio.sleep(0.02)
        await asyncio.sleep(3600)


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), int(sys.argv[2])))
