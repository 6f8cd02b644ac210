"""Five paths through the code, each executed while the calls of Nerve's functions are recorded."""

from __future__ import annotations

import asyncio
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from docs import killed_run
from nerve import ExecutionContext, FunctionNode, Session, Workflow, WorkflowContext
from nerve.agents import AgentNode, AssistantText, ThreadStarted, TurnFinished
from nerve.client import Client
from nerve.commander import WorkflowController
from nerve.commander.history import InputHistory
from nerve.commander.tui.app import CommanderApp
from nerve.testing import ScriptedProvider
from server.conftest import serving

YAML = """
name: page
description: Write a page.
nodes:
  - {id: write, prompt: "Write about {{ input }}.", agent: writer}
"""


class CallRecorder:
    """Records the functions of Nerve that are called, as `module:Class.function`."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    @contextmanager
    def record(self) -> Iterator[None]:
        # Of this thread and those that start meanwhile; the writer thread may exist already.
        threading.setprofile(self._on_call)
        sys.setprofile(self._on_call)
        try:
            yield
        finally:
            sys.setprofile(None)
            threading.setprofile(None)

    def _on_call(self, frame: Any, event: str, _: object) -> None:
        module = frame.f_globals.get("__name__", "")
        if event == "call" and module.startswith("nerve."):
            self.calls.append(f"{module}:{frame.f_code.co_qualname}")


async def wait_until(is_true: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not is_true():  # noqa: ASYNC110 - the conditions set no event
            await asyncio.sleep(0.01)


async def record_call(folder: Path) -> list[str]:
    """`await ctx.run(…)`, from the function to the synced row and back."""
    recorder, session = CallRecorder(), Session("paths", folder / "nerve.db")
    FunctionNode("writer", session, echo)

    async def body(ctx: WorkflowContext) -> Any:
        with recorder.record():
            first = await ctx.run("writer", "x")
            await ctx.run("writer", "y")
        return first

    Workflow("body", session, body)
    async with session:
        run = await session.start("body")
        await run.wait()
    return recorder.calls


async def echo(context: ExecutionContext) -> Any:
    return context.input


async def record_answer(folder: Path) -> list[str]:
    """An answer that arrives over HTTP."""
    recorder = CallRecorder()
    async with serving(folder) as served, served.client() as client:
        run = await served.api.session.start("ask")
        await wait_until(lambda: bool(run.pending_gates))
        request = {"run": run.run_id, "gate": run.pending_gates[0].gate_id, "answer": "yes"}
        with recorder.record():
            reply = await client.post("/api/answers", json=request)
            await run.wait()
    assert reply.status_code == 200, reply.text
    return recorder.calls


async def record_file(folder: Path) -> list[str]:
    """A YAML file, from its text to its first step."""
    recorder = CallRecorder()
    (folder / "page.yaml").write_text(YAML)
    session = Session("paths", folder / "nerve.db", project=folder)
    AgentNode("writer", session, ScriptedProvider(lambda call: "a page"))
    async with session:
        with recorder.record():
            session.load(folder / "page.yaml")
            run = await session.start("page", "tea")
            await run.wait()
    return recorder.calls


async def record_token(folder: Path) -> list[str]:
    """A token of an agent, from its provider to the full screen of a Commander connected over HTTP."""
    recorder, is_watched, is_shown = CallRecorder(), asyncio.Event(), asyncio.Event()

    class StreamingProvider(ScriptedProvider):
        async def query(self, prompt: str, cwd: Any, resume: Any, options: Any) -> Any:  # type: ignore[override]
            yield ThreadStarted("t")
            await is_watched.wait()
            yield AssistantText("a token", partial=True)
            await is_shown.wait()
            yield TurnFinished("t")

    async with serving(folder) as served:
        session = served.api.session
        AgentNode("writer", session, StreamingProvider([]))

        @session.workflow
        async def write(ctx: WorkflowContext) -> Any:
            return await ctx.run("writer", "x")

        controller = WorkflowController(Client(served.url, token=served.tokens["admin"]))
        app = CommanderApp(controller, InputHistory())
        async with app.run_test(size=(100, 30)):
            await wait_until(lambda: controller.state.is_connected)
            await controller.submit("%write")
            await wait_until(lambda: "writer" in screen_text(app))
            with recorder.record():
                is_watched.set()
                await wait_until(lambda: "a token" in screen_text(app))
            is_shown.set()
        await controller.client.close()
    return recorder.calls


def screen_text(app: CommanderApp) -> str:
    return "\n".join(strip.text for strip in app.screen._compositor.render_strips())


async def record_recovery(folder: Path) -> list[str]:
    """Recovery of a run whose process was killed in its second step."""
    recorder, file = CallRecorder(), folder / "nerve.db"
    killed = await asyncio.create_subprocess_exec(sys.executable, killed_run.__file__, str(file))
    assert await killed.wait() == -signal.SIGKILL
    async with killed_run.make_session(file) as session:
        with recorder.record():
            [run] = await session.recover()
            await run.wait()
    return recorder.calls
