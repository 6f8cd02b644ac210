"""The workflows whose journals are kept; they must stay as they are for the journals to be replayed."""

from __future__ import annotations

import asyncio
from typing import Any

from nerve import BashNode, FunctionNode, Graph, MockNode, Session, WorkflowContext
from nerve.core.nodes.control import (
    BranchNode,
    GateNode,
    LoopNode,
    MachineNode,
    MapNode,
    ParallelNode,
    ReduceNode,
    State,
    SwitchNode,
    WhileNode,
)

NAMES = ("function", "control", "parent", "gave_up")


def register(session: Session, done: list[str]) -> None:
    async def add(context: Any) -> Any:
        done.append(context.path)
        return (context.input if isinstance(context.input, int) else 0) + 1

    node = FunctionNode("add", session, add)
    BashNode("echo", session, "cat; printf ' %s' done")
    control_nodes(session, node)

    @session.workflow
    async def function(ctx: WorkflowContext) -> Any:
        ctx.emit("progress", {"percent": 10})
        one = await ctx.run("add", 1)
        many = await asyncio.gather(
            *(ctx.run("add", n) for n in range(3)), ctx.gate("Go on?", choices=["yes", "no"])
        )
        first = [(await one)["output"] for one in asyncio.as_completed([ctx.run("add", n) for n in (7, 8)])]
        await ctx.sleep(0.01)
        said = await ctx.run("echo", "hello")
        failed = await ctx.run("echo", object())
        return [
            one["output"],
            many[-1],
            first,
            said["output"],
            failed["success"],
            ctx.now().year > 2000,
            ctx.new_id(),
        ]

    @session.workflow
    async def child(ctx: WorkflowContext) -> Any:
        return [(await ctx.run("add", ctx.input))["output"], await ctx.gate("Child?")]

    @session.workflow
    async def parent(ctx: WorkflowContext) -> Any:
        return [await ctx.run_workflow("child", 4), await ctx.run_parallel([("add", 1), ("add", 2)])]

    @session.workflow
    async def gave_up(ctx: WorkflowContext) -> Any:
        task = asyncio.ensure_future(ctx.gate("Never answered"))
        await ctx.run("add", 1)
        task.cancel()
        await asyncio.wait([task])
        try:
            async with ctx.timeout(0.01):
                await ctx.wait_signal("never")
        except TimeoutError:
            return "gave up"


def control_nodes(session: Session, node: FunctionNode) -> None:
    graph = Graph("control", session)
    graph.add_step(WhileNode("w", session, lambda state: state.current_value < 3, node), "while")
    graph.add_step(LoopNode("l", session, node, times=2, accumulate=True), "loop", depends_on=["while"])
    graph.add_step(BranchNode("b", session, lambda given: True, node), "branch", depends_on=["while"])
    graph.add_step(
        SwitchNode("s", session, lambda given: "one", {"one": node}), "switch", depends_on=["branch"]
    )
    graph.add_step(MapNode("m", session, node, max_parallel=2), "map", input_fn=lambda up: [1, 2, 3])
    graph.add_step(ReduceNode("r", session, lambda acc, item: acc + item, 0), "reduce", depends_on=["map"])
    graph.add_step(
        ParallelNode("p", session, {"x": node, "y": MockNode(responses=[ValueError("no")])}, require=1),
        "parallel",
    )
    states = {"start": State(node, "end"), "end": State(node)}
    graph.add_step(MachineNode("states", session, states), "machine", depends_on=["reduce"])
    graph.add_step(MockNode(responses=[ValueError("no")]), "skip", on_error="skip")
    graph.add_step(
        GateNode("g", session, "Done?"), "gate", depends_on=["machine", "switch", "loop", "parallel", "skip"]
    )
    session.register_workflow(graph)
