"""What the servers of the fault tests execute; steps write when they begin to a file that all share."""

import asyncio
import os
import time
from pathlib import Path
from typing import Any

from nerve import BashNode, FunctionNode, Session, WorkflowContext
from nerve.agents import AgentNode
from nerve.testing import RecordedQuery, ScriptedProvider

ROUNDS = 3
"""Gates of a run that stays open for long."""


def executed_file() -> Path:
    """Return the file to which all programs of a world write the steps that they begin."""
    return Path(os.environ["NERVE_TEST_EXECUTED"])


def note_execution(run: str, path: str) -> None:
    with executed_file().open("a") as file:
        file.write(f"{run} {path} {os.environ.get('NERVE_TEST_PROGRAM', 'test')} {time.time()}\n")


async def work(context: Any) -> Any:
    note_execution(context.run_id, context.path)
    context.emit("working", {"program": os.environ.get("NERVE_TEST_PROGRAM")})
    await asyncio.sleep(0.05)
    return context.input


def answer_query(query: RecordedQuery) -> list[Any]:
    note_execution(query.prompt, "/writer")
    return [{"text": "written"}, {"usage": {"output_tokens": 10}}]


def register(session: Session) -> None:
    for name in "first", "left", "right", "last":
        FunctionNode(name, session, work)
    FunctionNode("charge", session, work, effect="once")
    BashNode("command", session, "sleep 0.1; echo done")
    endless = 'sleep 600 & setsid sleep 600 & echo "$NERVE_RUN_ID" >> "$BEGUN"; wait'
    BashNode("endless", session, endless, env={"BEGUN": f"{executed_file()}-endless"})
    session.providers["scripted"] = ScriptedProvider(answer_query)
    AgentNode("writer", session, "scripted", thread="fresh")

    @session.workflow
    async def part(ctx: WorkflowContext) -> Any:
        return (await ctx.run("last", 3)).output

    @session.workflow
    async def order(ctx: WorkflowContext) -> list[Any]:
        async def run_step(name: str, value: int) -> Any:
            return (await ctx.run(name, value)).output

        results = [await run_step("first", 0)]
        results += await asyncio.gather(run_step("left", 1), run_step("right", 2))
        answer = await ctx.gate("Continue?")
        await ctx.sleep(0.3)
        results.append(await ctx.run_workflow("part"))
        results.append((await ctx.run("command")).output.strip())
        return [*results, answer]

    @session.workflow
    async def payment(ctx: WorkflowContext) -> list[Any]:
        amount = (await ctx.run("first", 5)).output
        return [amount, (await ctx.run("charge", amount)).output, (await ctx.run("last", 1)).output]

    @session.workflow
    async def letter(ctx: WorkflowContext) -> list[Any]:
        return [(await ctx.run("writer", ctx.run_id)).output, (await ctx.run("last", 1)).output]

    @session.workflow
    async def endless_order(ctx: WorkflowContext) -> None:
        await asyncio.gather(ctx.run("first", 0), ctx.run("endless"))

    @session.workflow
    async def basket(ctx: WorkflowContext) -> list[Any]:
        total = 0

        async def add(number: int) -> int:
            nonlocal total
            total += (await ctx.run("first", number)).output
            return total

        ctx.query("total", lambda: total)
        ctx.update("add", add)
        return [await ctx.receive("end"), total]

    @session.workflow
    async def question(ctx: WorkflowContext) -> Any:
        await ctx.run("first", 0)
        return await ctx.gate(ctx.input)

    @session.workflow
    async def family(ctx: WorkflowContext) -> list[Any]:
        return await asyncio.gather(*(ctx.run_workflow("question", f"Child {name}?") for name in "ab"))

    @session.workflow
    async def rounds(ctx: WorkflowContext) -> list[Any]:
        answers = []
        for number in range(ROUNDS):
            await ctx.run("first", number)
            answers.append(await ctx.gate("Continue?"))
        return answers


def result_of(answer: object) -> list[object]:
    """Return the result of an order, however often something was killed."""
    return [0, 1, 2, 3, "done", answer]
