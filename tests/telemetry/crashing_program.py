"""A session that works until it is killed: `python crashing_program.py STORE STEPS [resume]`."""

import asyncio
import os
import signal
import sys
from typing import Any

from nerve import Session


async def main(store: str, steps: int, resume: bool) -> None:
    async with Session(store=store, telemetry=True) as session:

        @session.step
        async def work(number: int) -> int:
            if number == steps and not resume:
                os.kill(os.getpid(), signal.SIGKILL)
            return number

        @session.workflow
        async def job(ctx: Any) -> int:
            for number in range(steps + 3):
                await work(number)
            return steps

        if resume:
            [run] = await session.recover()
        else:
            run = await session.start("job")
            print(run.run_id, flush=True)  # noqa: T201
        await run.wait()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2]), len(sys.argv) > 3))
