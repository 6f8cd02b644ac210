"""Encryption: no input, result, prompt or answer of a run is readable in the store.

Run it with `python examples/patterns/encryption.py`, then look for the patient with
`grep -ac Lovelace encryption.db`. Kill it at any time and run it again: with the key file, everything
is still there. It needs the extra `crypto`.
"""

import asyncio
from pathlib import Path

from nerve import Session, WorkflowContext
from nerve.crypto import AesGcmCodec, add_key

KEYS = Path("encryption.keys")
if not KEYS.exists():
    add_key(KEYS, "2026-01")  # a file that only its owner can read; keep it apart from the store
session = Session(store="encryption.db", codec=AesGcmCodec.from_file(KEYS))


def write_log(line: str) -> None:
    """Append to a file, which represents the outside world."""
    with Path("encryption.log").open("a") as file:
        file.write(f"{line}\n")


@session.step
def examine(patient: str) -> str:
    write_log(f"examine {patient}")
    return f"{patient} has a cold"


@session.step
def prescribe(finding: str, remedy: str) -> str:
    write_log(f"prescribe {remedy}")
    return f"{finding} and drinks {remedy}"


@session.workflow
async def consult(ctx: WorkflowContext, patient: str) -> str:
    finding = await examine(patient)
    remedy: str = await ctx.gate(f"{finding}. What is the remedy?")
    return await prescribe(finding, remedy)


async def main() -> None:
    async with session:
        await session.recover()
        run = await session.start(consult, "Ada Lovelace", key="monday")
        if await run.next_gate():
            await run.answer("green tea")
        print(await run.wait())


if __name__ == "__main__":
    asyncio.run(main())
    stored = Path("encryption.db").read_bytes()
    words = ["Ada Lovelace", "has a cold", "the remedy", "green tea", "consult"]
    print([word for word in words if word.encode() in stored])
