"""Escalation: ask one person, and the next one if the first does not answer in time.

Run it with `python examples/patterns/escalation.py`. Kill it at any time and run it again: the open
question and its deadline are on disk. The team lead and the manager of this example do not answer.
"""

import asyncio
from pathlib import Path

from nerve import Session, WorkflowContext

session = Session(store="escalation.db")
PEOPLE = {"team lead": 0.2, "manager": 0.4, "director": 86_400.0}
"""Whom to ask, with the seconds that each has to answer."""


@session.step
def notify(person: str, request: str) -> None:
    with Path("escalation.log").open("a") as file:
        file.write(f"notify {person} about {request}\n")


@session.workflow
async def approve_request(ctx: WorkflowContext, request: str) -> str:
    for person, seconds in PEOPLE.items():
        await notify(person, request)
        try:
            answer = await ctx.gate(f"{person}: {request}?", choices=["yes", "no"], timeout=seconds)
        except TimeoutError:
            continue
        return f"{person} says {answer}"
    return "no answer"


async def main() -> None:
    async with session:
        await session.recover()
        run = await session.start(approve_request, "new laptop", key="laptop")
        while gate := await run.next_gate():
            if gate.prompt.startswith("director"):
                await run.answer("yes", gate.gate_id, by="Dora")
            else:
                await run.wait_for_change()
        print(await run.wait())


if __name__ == "__main__":
    asyncio.run(main())
