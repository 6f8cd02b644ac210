"""The plain mode on a session of this process: `python plain_app.py`, in a project directory."""

import asyncio
import sys
from pathlib import Path

from nerve.api import Api
from nerve.client import Client
from nerve.commander import WorkflowController
from nerve.commander.plain.app import run_plain_mode
from nerve.session import Session
from nerve.testing import ScriptedProvider

TOOL = {"tool": "Edit", "input": {"file_path": "a.py", "old_string": "one", "new_string": "two"}}


async def reviewing(asked):
    return [
        {"tool": "Read", "input": {"path": "a.py"}},
        TOOL,
        "# Review\n\nLooks *good*:\n\n- small\n- clear",
    ]


def register(session: Session) -> None:
    session.providers["reviewer"] = ScriptedProvider(reviewing)

    @session.workflow
    async def hello(ctx):
        """Greets."""
        return f"Hello **{ctx.input}**"

    @session.workflow
    async def paint(ctx):
        """Asks for a colour."""
        colour = await ctx.gate("Which colour?", choices=["red", "blue"])
        return f"It is {colour}."

    @session.workflow
    async def note(ctx):
        """Asks for a text."""
        return f"Noted: {await ctx.gate('What is to be noted?')}"

    @session.workflow
    async def forever(ctx):
        """Never ends by itself."""
        await asyncio.Event().wait()

    @session.workflow
    async def broken(ctx):
        """Fails."""
        raise ValueError("no luck")


async def main() -> None:
    async with Session(store=".nerve/store.db", project=Path.cwd()) as session:
        register(session)
        api = Api(session)
        await api.perform("reload", {})
        controller = WorkflowController(Client(api))
        controller.state.project = "."
        try:
            after = await run_plain_mode(controller)
        finally:
            await controller.close()
        print("\n".join([*controller.exit_message(), f"then: {after}"]))  # noqa: T201


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
