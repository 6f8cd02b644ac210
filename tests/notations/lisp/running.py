"""What the tests of running Lisp workflows share."""

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from nerve.core.workflow import WorkflowRun
from nerve.session import Session
from nerve.testing import ScriptedProvider

EXAMPLES = Path(__file__).parents[3] / "examples/workflows/lisp"
ROLES = '(roles (planner :agent-kind "claude-code") (worker :agent-kind "claude-code"))'


async def until(condition: Callable[[], Any], seconds: float = 60.0) -> None:
    """Let the loop go on until the condition holds."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited too long"
        await asyncio.sleep(0.001)


async def value_of(run: WorkflowRun) -> Any:
    async with asyncio.timeout(60):
        return await run.wait()


def session(provider: ScriptedProvider | None = None, **options: Any) -> Session:
    return Session("s", providers={"claude": provider or ScriptedProvider([])}, **options)


async def start(session: Session, *forms: str, **given: Any) -> WorkflowRun:
    """A run of a workflow of these forms."""
    session.load(f"(workflow w {ROLES} {' '.join(forms)})", "lisp")
    return await session.start("w", **given)


def prompts(provider: ScriptedProvider) -> list[str]:
    return [call.prompt for call in provider.calls]


def logged(run: WorkflowRun) -> list[str]:
    return [event.data["message"] for event in run.events if event.event_type == "log"]
