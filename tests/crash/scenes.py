"""Workflows to be killed in the middle, and a log of what their leaves really did."""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path
from typing import Any

from nerve import FunctionNode, Graph, Retry, Session, WorkflowContext, WorkflowRun
from nerve.core.gate_policy import Voter
from nerve.core.nodes.control import GateNode, MapNode
from nerve.errors import RunHeld

SCENES = ("line", "fan", "graph", "family", "retries", "facts", "votes")
VOTERS = ("ann", "ben", "cat")


FACTS = {
    "name": "facts",
    "body": {
        "kind": "sequence",
        "id": "all",
        "steps": [
            {
                "kind": "parallel",
                "id": "both",
                "branches": [
                    {"kind": "wait", "id": "hear", "any": [{"signal": "go", "key": "{{ run.id }}"}]},
                    {
                        "kind": "sequence",
                        "id": "tell",
                        "steps": [
                            {
                                "kind": "assert",
                                "id": "say",
                                "signal": "go",
                                "key": "{{ run.id }}",
                                "value": 5,
                            },
                            {"kind": "call", "id": "after", "target": "work", "input": 2},
                        ],
                    },
                ],
            },
            {"kind": "gate", "id": "ask", "prompt": "Heard?"},
            {"kind": "transform", "id": "sum", "expression": "[results.hear, results.after]"},
        ],
    },
}
"""A fact is on disk before the wait it settles: a crash in between loses neither."""


class Log:
    """Lines that survive the death of the process: a write is in the kernel when it returns."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / "log"

    def add(self, *words: str) -> None:
        with self._file.open("a") as file:
            file.write(" ".join([str(os.getpid()), *words]) + "\n")

    def read(self) -> list[list[str]]:
        return (
            [line.split(" ") for line in self._file.read_text().splitlines()] if self._file.exists() else []
        )


def register(session: Session, log: Log) -> None:
    """The scenes, one workflow each."""

    async def work(context: Any) -> Any:
        log.add("ran", context.run_id, context.path, context.idempotency_key)
        for _ in range(int(context.input or 0) % 5):
            await asyncio.sleep(0)
        return context.input

    async def flaky(context: Any) -> Any:
        tries = [line for line in log.read() if line[1:4] == ["tried", context.run_id, context.path]]
        log.add("tried", context.run_id, context.path)
        if len(tries) < 2:
            raise RuntimeError("not yet")
        return len(tries) >= 2

    node = FunctionNode("work", session, work)
    session.load(json.dumps(FACTS), "json")
    FunctionNode("flaky", session, flaky, retry=Retry(attempts=30, delay=0))
    graph = Graph("steps", session)
    graph.add_step(node, "a").add_step(
        MapNode("each", session, node, max_parallel=2), "b", input_fn=lambda up: [1, 2, 3]
    )
    graph.add_step(GateNode("ask", session, "Good?"), "c", depends_on=["a", "b"])

    @session.workflow
    async def line(ctx: WorkflowContext) -> Any:
        one = await ctx.run("work", 1)
        answer = await ctx.gate("First?", choices=["yes", "no"])
        two = await ctx.run("work", 2, effect="once")
        await ctx.sleep(0)
        return [one["output"], answer, two["output"], await ctx.gate("Second?")]

    @session.workflow
    async def fan(ctx: WorkflowContext) -> Any:
        first = await asyncio.gather(*(ctx.run("work", n) for n in range(3)), ctx.gate("During?"))
        order = [
            (await done)["output"] for done in asyncio.as_completed([ctx.run("work", n) for n in (4, 3, 0)])
        ]
        ctx.emit("order", {"order": order})
        return [str(first[-1]), sorted(order)]

    @session.workflow(id="graph")
    async def graph_scene(ctx: WorkflowContext) -> Any:
        return (await ctx.run_graph("steps", 2))["output"]

    @session.workflow
    async def child(ctx: WorkflowContext) -> Any:
        return [(await ctx.run("work", ctx.input))["output"], await ctx.gate("Child?")]

    @session.workflow
    async def family(ctx: WorkflowContext) -> Any:
        return [await ctx.run_workflow("child", 1), (await ctx.run("work", 3))["output"]]

    @session.workflow
    async def retries(ctx: WorkflowContext) -> Any:
        return [(await ctx.run("flaky", 0))["success"], await ctx.gate("Done?")]

    @session.workflow
    async def votes(ctx: WorkflowContext) -> Any:
        answer = await ctx.gate("Agreed?", choices=["yes", "no"], quorum=len(VOTERS))
        return [answer, (await ctx.run("work", 1))["output"]]


async def play(run: WorkflowRun, log: Log) -> Any:
    """Answer every gate and decide every doubt until the run has ended.

    Each acknowledged answer and vote is logged.
    """
    while True:
        ending = asyncio.ensure_future(run.wait())
        while not ending.done():
            for gate in run.pending_gates:
                if gate.tally is not None:
                    # Who has voted does not vote again, unless the vote is lost.
                    name = VOTERS[len(gate.tally.votes)]
                    await run.answer("yes", gate.gate_id, voter=Voter(name))
                    log.add("voted", gate.gate_id, name)
                    continue
                answer = gate.choices[0] if gate.choices else f"{gate.prompt} yes"
                await run.answer(answer, gate.gate_id)
                log.add("answered", gate.gate_id)
            await asyncio.sleep(0)
        try:
            return ending.result()
        except RunHeld as held:
            path = run.to_info().held["path"]
            if held.reason != "in doubt":
                raise
            await run.skip(path, 2)
