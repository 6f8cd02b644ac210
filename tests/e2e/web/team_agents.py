"""The agents of the whole story: what they do is in a file, and a step waits while the test holds it."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path

from nerve import Session
from nerve.testing import RecordedQuery, ScriptedProvider

SIGNS = Path(os.environ.get("TEAM_SIGNS", "."))
"""The folder, outside of the project, through which the test and the agents see each other."""

STEPS = ("Plan", "Change", "Announce")


async def work(call: RecordedQuery) -> str:
    """Do what a prompt asks for; note when the step began, and when it ended."""
    # After a kill, the text before the task says that the agent was interrupted.
    step = next(name for name in STEPS if f"{name} " in call.prompt)
    note(step, "began", call)
    while (SIGNS / f"hold-{step}").exists():  # noqa: ASYNC110 - a file tells nobody
        await asyncio.sleep(0.01)
    if step == "Change":
        (Path(call.cwd or "") / "hello.txt").write_text("hello, world\n")
    note(step, "ended", call)
    return f"{step} is done"


def note(step: str, what: str, call: RecordedQuery) -> None:
    with (SIGNS / "steps.jsonl").open("a") as file:
        file.write(json.dumps({"step": step, "what": what, "folder": call.cwd}) + "\n")


def register(session: Session) -> None:
    session.providers["scripted"] = ScriptedProvider(work)
