"""Writes the journals of this version: `python -m journals.keep VERSION`, in the folder `tests`."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

from journals.workflows import NAMES, register
from nerve import Session
from nerve.store.memory import MemoryStore

HERE = Path(__file__).parent


async def play(run: Any) -> Any:
    """Answer every gate with its first choice, or yes, until the run has ended."""
    ending = asyncio.ensure_future(run.wait())
    while not ending.done():
        for gate in run.pending_gates:
            if gate.prompt != "Never answered":
                await run.answer((gate.choices or ["yes"])[0], gate.gate_id)
        await asyncio.sleep(0.001)
    return ending.result()


async def keep(version: str) -> None:
    for name in NAMES:
        store = MemoryStore()
        session = Session(store=store)
        register(session, [])
        run = await session.start(name, 0)
        result = await play(run)
        journals = {row.run: [list(event) for event in store.events(row.run)] for row in store.runs()}
        rows = [list(row) for row in store.runs()]
        kept = {"run": run.run_id, "result": result, "rows": rows, "journals": journals}
        (HERE / version / f"{name}.json").write_text(json.dumps(kept, indent=1) + "\n")


if __name__ == "__main__":
    asyncio.run(keep(sys.argv[1]))
