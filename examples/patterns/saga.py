"""Saga: book the parts of a trip, and cancel the booked ones in reverse order if one part fails.

Run it with `python examples/patterns/saga.py`. Kill it at any time and run it again: it continues.
"""

import asyncio
from pathlib import Path

from nerve import Session, WorkflowContext
from nerve.errors import NodeFailed

session = Session(store="saga.db")


def write_log(line: str) -> None:
    """Append to a file, which represents the booking service."""
    with Path("saga.log").open("a") as file:
        file.write(f"{line}\n")


@session.step
def book(part: str) -> str:
    if part == "flight":
        raise ValueError("sold out")
    write_log(f"book {part}")
    return f"{part}-7"


@session.step
def cancel(booking: str) -> None:
    write_log(f"cancel {booking}")


@session.workflow
async def book_trip(ctx: WorkflowContext, parts: list[str]) -> str:
    try:
        async with ctx.saga() as saga:
            for part in parts:
                booking = await book(part)
                saga.compensate(cancel, booking)
    except NodeFailed as error:
        return f"nothing is booked: {error.error}"
    return "booked"


async def main() -> None:
    async with session:
        await session.recover()
        run = await session.start(book_trip, ["car", "hotel", "museum", "flight"], key="trip")
        print(await run.wait())


if __name__ == "__main__":
    asyncio.run(main())
