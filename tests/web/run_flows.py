"""Workflows that show everything a run page can show."""

import asyncio
import logging
from typing import Any

from nerve import BashNode, FunctionNode, Retry, Session, WorkflowContext
from nerve.agents import AgentNode
from nerve.agents.provider import AssistantText, Reasoning, ToolCall, ToolUpdate
from nerve.testing import ScriptedProvider

USAGE = {"input_tokens": 21_000, "output_tokens": 3400, "cost": 0.62, "model": "large"}
DIFF = "--- a/flags.py\n+++ b/flags.py\n@@ -1,2 +1,2 @@\n-OLD_FLAG = True\n+NEW_FLAG = True\n DEBUG = False\n"
PLAN = """## Plan

1. Rename the flag in `flags.py`
2. Update the **documentation**

| file | lines |
|---|---|
| flags.py | 2 |
"""
ATTACK = '</script><script>alert(1)</script><img src=x onerror=alert(1)>" onmouseover="alert(1)'
"""In every field that a user, an agent or a file can fill."""


def answer_planner(call: Any) -> list[Any]:
    return [
        Reasoning("The flag is used in two files, so a rename is safe."),
        ToolCall("Read", {"path": "flags.py"}, "t1"),
        ToolUpdate("t1", "completed", "OLD_FLAG = True\nDEBUG = False"),
        ToolCall("Bash", {"command": "git grep OLD_FLAG"}, "t2"),
        ToolUpdate("t2", "completed", "flags.py:1\ndocs/flags.md:4"),
        {"text": PLAN},
        {"usage": USAGE},
    ]


def register(session: Session) -> None:
    failures = 0

    async def flaky(context: Any) -> Any:
        nonlocal failures
        failures += 1
        logging.getLogger("build").warning("The mirror does not respond, attempt %d", failures)
        await asyncio.sleep(0.15)
        if failures % 2:
            raise ConnectionError("The mirror does not respond")
        return [{"package": "core", "size": 120, "ok": True}, {"package": "web", "size": 80, "ok": True}]

    async def work(context: Any) -> Any:
        await asyncio.sleep(0.05)
        return context.input

    async def change(context: Any) -> Any:
        await asyncio.sleep(0.1)
        return DIFF

    FunctionNode("flaky", session, flaky)
    FunctionNode("work", session, work)
    FunctionNode("change", session, change)
    AgentNode("planner", session, ScriptedProvider(answer_planner))

    @session.workflow
    async def verify(ctx: WorkflowContext) -> Any:
        """Run the checks of a release."""
        await asyncio.gather(*(ctx.run("work", check) for check in ("unit", "lint", "types")))
        return {"checks": 3, "failed": 0}

    @session.workflow
    async def release(ctx: WorkflowContext) -> Any:
        """Plan, build, verify and publish a release."""
        plan = await ctx.run("planner", f"Plan the release: {ctx.input}")
        await ctx.run(
            "flaky", {"target": "linux", "flags": ["-O2", None]}, retry=Retry(attempts=3, delay=0.2)
        )
        await ctx.run("change", "rename")
        checks = await ctx.run_workflow("verify", ctx.input)
        answer = await ctx.gate("Publish version 3?", choices=["publish", "wait"])
        return {"plan": plan.output, "checks": checks, "answer": answer}

    @session.workflow
    async def hostile(ctx: WorkflowContext) -> Any:
        """Return a value that would be executed if it were not escaped."""
        await ctx.run("attacker", ATTACK)
        logging.getLogger(ATTACK).warning(ATTACK)
        ctx.emit(ATTACK[:40], {ATTACK: ATTACK})
        await ctx.run("work", {ATTACK: [ATTACK, {"path": ATTACK}]})
        await ctx.run("print_attack", ATTACK)
        await ctx.gate(ATTACK, choices=[ATTACK, "b"])
        raise RuntimeError(ATTACK)

    async def print_attack(context: Any) -> Any:
        print(ATTACK)  # noqa: T201 - the output of a step is captured
        return {"path": ATTACK, "html": ATTACK}

    FunctionNode("print_attack", session, print_attack)

    @session.workflow
    async def hostile_form(ctx: WorkflowContext) -> Any:
        """Ask with a form whose every text would be executed if it were not escaped."""
        field = {"title": ATTACK, "description": ATTACK}
        properties = {
            ATTACK: {**field, "enum": [ATTACK, "b"]},
            "text": {**field, "type": "string", "default": ATTACK},
            "many": {**field, "type": "array", "uniqueItems": True, "items": {"enum": [ATTACK, "b"]}},
        }
        return await ctx.gate(ATTACK, form={**field, "type": "object", "properties": properties})

    @session.workflow
    async def hostile_wait(ctx: WorkflowContext) -> Any:
        """Wait for a message of a channel whose name would be executed if it were not escaped."""
        return await ctx.receive(ATTACK)

    def answer_attacker(call: Any) -> list[Any]:
        return [
            Reasoning(ATTACK),
            ToolCall(ATTACK, {ATTACK: ATTACK}, "t1"),
            ToolUpdate("t1", "completed", ATTACK),
            {"text": f"# {ATTACK}\n\n[x](javascript:alert(1))\n\n{ATTACK}"},
            {"usage": {**USAGE, "model": ATTACK}},
        ]

    AgentNode("attacker", session, ScriptedProvider(answer_attacker))

    @session.workflow
    async def many(ctx: WorkflowContext) -> int:
        """Run as many steps as the input says."""
        count = int(ctx.input)
        for number in range(count):
            await ctx.run("echo", number)
        return count

    BashNode("printer", session, 'for i in $(seq "$NERVE_INPUT"); do echo "line $i"; sleep 0.004; done')

    @session.workflow
    async def print_lines(ctx: WorkflowContext) -> Any:
        """Let a command print as many lines as the input says, about 200 a second."""
        return (await ctx.run("printer", str(ctx.input)))["success"]

    async def chat(context: Any) -> Any:
        for number in range(8):
            context.emit("output_chunk", {"stream": "stdout", "text": f"line {number}\n"})
        return context.input

    FunctionNode("chat", session, chat)

    @session.workflow
    async def noisy(ctx: WorkflowContext) -> int:
        """Run as many steps as the input says, each with eight events of output; then ask."""
        for number in range(int(ctx.input)):
            await ctx.run("chat", number)
        await ctx.gate("Enough?", choices=["yes"])
        return int(ctx.input)

    @session.workflow
    async def many_then_gate(ctx: WorkflowContext) -> int:
        """Run as many steps as the input says, and ask."""
        for number in range(int(ctx.input)):
            await ctx.run("echo", number)
        await ctx.gate("Enough?", choices=["yes"])
        return int(ctx.input)

    @session.workflow
    async def two_turns(ctx: WorkflowContext) -> str:
        """Let an agent work twice, which may cost more than the run is allowed to."""
        await ctx.run("planner", "first")
        return str((await ctx.run("planner", "second")).output)

    AgentNode("talker", session, ScriptedProvider(answer_talker))

    @session.workflow
    async def talk(ctx: WorkflowContext) -> Any:
        """Stream as many chunks as the input says, about 200 a second."""
        result = await ctx.run("talker", str(ctx.input))
        await ctx.gate("Enough?", choices=["yes"])
        return str(result.output)[-20:]


def answer_talker(call: Any) -> list[Any]:
    count = int(call.prompt)
    chunks: list[Any] = []
    for number in range(count):
        chunks += [AssistantText(f"word {number} ", partial=True), {"delay": 0.005}]
    whole = "".join(f"word {number} " for number in range(count))
    return [*chunks, AssistantText(whole + "**end**"), {"usage": USAGE}]
