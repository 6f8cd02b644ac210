"""An engine to be killed: it recovers open runs, and starts new ones until there are enough.

    python -m agents.faults.engine '{"folder": …, "kind": …, "url": …, "tag": …}'

The file `enough` in the folder ends the starts; the engine then finishes the open runs and exits.
"""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

from nerve import Retry, Session
from nerve.agents import AgentNode, Provider

STUBS = Path(__file__).parent.parent / "stubs"
AGENTS = ("dev", "coach")
ROUNDS = 2
AT_ONCE = 2
"""Concurrently open runs."""
TAG = "NERVE_TEST_TAG"
PATIENT = Retry(attempts=1000, delay=0.05, factor=1)
WORK = "[[run echo at work; sleep 0.1; true]]"
"""The command that agents with a shell run first."""


def provider_of(kind: str, url: str) -> Provider:
    match kind:
        case "claude":
            from nerve.agents.claude import ClaudeProvider

            env = {"ANTHROPIC_BASE_URL": url, "ANTHROPIC_API_KEY": "sk-ant-dummy"}
            return ClaudeProvider(env=env, retries=0)
        case "codex":
            from nerve.agents.codex import CodexProvider

            return CodexProvider(
                "stub-model",
                approval="untrusted",
                env={"STUB_KEY": "sk-stub"},
                base_url=f"{url}/v1",
                env_key="STUB_KEY",
            )
        case "acp":
            from nerve.agents.acp import AcpProvider

            return AcpProvider([sys.executable, str(STUBS / "acp_agent.py"), f"{url}/v1"])
    from nerve.agents.command_provider import CommandProvider

    return CommandProvider([sys.executable, str(STUBS / "command_agent.py"), f"{url}/v1"])


def prompt(kind: str, run: int, agent: str, round: int) -> str:
    """Return the prompt of a step; its marker identifies the step wherever the prompt appears."""
    mark = f"{run}/{agent}/{round}"
    work = "" if kind == "command" else WORK
    return f"{work}[[say answer to {mark}, in several pieces]] <{mark}>"


def register(session: Session, given: dict[str, Any]) -> None:
    folder, kind = Path(given["folder"]), given["kind"]
    provider = provider_of(kind, given["url"])
    env = {"HOME": str(folder / "home"), TAG: given["tag"]}
    for agent in AGENTS:
        AgentNode(
            agent,
            session,
            provider,
            cwd=str(folder / "work"),
            permissions={"otherwise": "allow"},
            env=env,
            workspace="shared",
            retry=PATIENT,
        )

    @session.workflow
    async def conversation(ctx: Any) -> Any:
        said = []
        for round in range(ROUNDS):
            both = [(agent, prompt(kind, ctx.input, agent, round)) for agent in AGENTS]
            said += [result["output"] for result in await ctx.run_parallel(both)]
        return said


async def main(given: dict[str, Any]) -> None:
    folder = Path(given["folder"])
    async with Session("faults", folder / "nerve.db") as session:
        register(session, given)
        open = await session.recover()
        for run in open:
            if run.held is not None and run.held["reason"] == "quarantine":
                await run.retry()  # not the cause of the crash, so a user would retry it
        started = 0

        async def one_after_the_other() -> None:
            nonlocal started
            while (number := started) < given["least"] or not (folder / "enough").exists():
                started += 1
                run = await session.start("conversation", number, key=f"run-{number}")
                await run.wait()

        await asyncio.gather(*(run.wait() for run in open), *(one_after_the_other() for _ in range(AT_ONCE)))


if __name__ == "__main__":
    asyncio.run(main(json.loads(sys.argv[1])))
