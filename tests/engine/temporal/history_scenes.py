"""Workflows and commands that together show what a workflow of Temporal sends and receives."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

from engine.temporal.temporal_runs import CommandRefused, TemporalRun, TemporalRuns, first_part
from nerve import FunctionNode, Session, WorkflowContext
from nerve.agents import AgentNode
from nerve.core.nodes.context import ExecutionContext
from nerve.core.runtime import GateWait
from nerve.core.steering import SteeringQueue
from nerve.errors import WorkflowFailed
from nerve.journal.events import decode_event
from nerve.store.port import EventRow
from nerve.testing import ScriptedProvider

NODES = """
name: nodes
inputs:
  parts: {type: array}
body:
  kind: sequence
  steps:
    - kind: bash
      id: build
      command: echo built
      expect: [{condition: "output.includes('built')"}, {command: "true"}, {file: slug.py}]
    - kind: graph
      id: net
      steps:
        - {kind: bash, id: left, command: "echo left"}
        - {kind: bash, id: right, command: "echo right", depends_on: [left]}
    - {kind: while, id: again, condition: "iteration < 2", body: {kind: call, id: say, target: echo}}
    - {kind: loop, id: polish, times: "2", body: {kind: call, id: polished, target: echo}}
    - {kind: branch, id: fork, condition: "1 < 2", then: {kind: call, id: chosen, target: echo}}
    - {kind: switch, id: way, key: "'a'", cases: {a: {kind: call, id: first, target: echo}}}
    - {kind: map, id: each, over: inputs.parts, max_parallel: 2, body: {kind: call, id: part, target: echo}}
    - {kind: reduce, id: sum, over: inputs.parts, initial: 0, expression: "acc + item"}
    - kind: parallel
      id: both
      branches:
        - {kind: call, id: one, target: echo}
        - {kind: wait, id: brief, seconds: 0.2}
    - kind: machine
      id: states
      states:
        - {name: begin, body: {kind: goto, state: end}}
        - {name: end, body: {kind: call, id: inside, target: echo}, terminal: true}
    - {kind: emit, id: progress, event: progress, data: {percent: 50}}
    - {kind: bash, id: fails, command: "exit 3", retry: {attempts: 2, delay: 0.01}, on_error: skip}
    - {kind: assert, id: claim, fact: [claim, 1]}
    - {kind: retract, id: withdraw, fact: [claim, 1]}
    - {kind: prompt, id: ask, agent: writer, text: "Go", thread: fresh}
    - {kind: prompt, id: later, agent: writer, text: "Go on", thread: fresh, tag: answer, detach: true}
    - {kind: wait, id: join, any: [{response: answer}]}
    - {kind: bash, id: unmet, command: "echo no", expect: [{condition: "output == 'yes'"}], on_error: skip}
    - {kind: workflow, id: child, workflow: asks, input: 1}
    - {kind: gate, id: ship, prompt: "Ship it?", choices: [approve, reject], reject: [reject]}
    - {kind: transform, id: last, expression: "steps.sum.output"}
    - {kind: cancel, id: stop, reason: "all kinds are shown"}
"""
MERGES = """
name: merges
body:
  kind: sequence
  steps:
    - kind: sequence
      id: change
      workspace: {merge: none}
      steps:
        - {kind: bash, id: write, command: "echo changed > file", expect: [{file: file}]}
        - {kind: gate, id: right, prompt: "Right?"}
    - {kind: merge, id: merge, of: change}
"""
EDITS = """
name: edits
body:
  kind: parallel
  id: both
  branches:
    - {kind: bash, id: one, command: "echo one > one.txt", workspace: worktree}
    - {kind: bash, id: two, command: "echo two > two.txt", workspace: worktree}
"""
READS = """
name: reads
body:
  kind: sequence
  steps:
    - {kind: bash, id: write, command: "echo text > note"}
    - {kind: file, id: read, path: note}
"""
TELLS = """
name: tells
body: {kind: assert, id: tell, signal: later, value: 5}
"""

USAGE = {"usage": {"output_tokens": 10}}
DONE = [{"text": "done"}, USAGE]


class ListeningNode(FunctionNode):
    """A function that accepts messages of users."""

    asks = True


def register_scenes(session: Session) -> None:
    """Register the workflows of all scenes."""
    session.providers["scripted"] = ScriptedProvider(lambda call: DONE)
    AgentNode("writer", session, "scripted", thread="fresh")
    FunctionNode("question", session, ask_person)
    FunctionNode("impatient", session, ask_person, timeout=0.5, on_error="skip")
    ListeningNode("listen", session, listen)

    @session.node(id="sleep")
    async def sleep(context: ExecutionContext) -> Any:
        await asyncio.sleep(context.input)

    @session.node(id="pay", effect="once")
    async def pay(context: ExecutionContext) -> Any:
        context.emit("paying", {})
        await asyncio.sleep(60)

    @session.workflow
    async def asks(ctx: WorkflowContext) -> Any:
        return await ctx.gate("Child?", choices=["yes", "no"])

    @session.workflow(limits={"turns": 2})
    async def agent(ctx: WorkflowContext) -> Any:
        for number in range(3):
            await ctx.run("writer", number)
        await ctx.run("impatient")
        return [(await ctx.run("question")).output, (await ctx.run("listen")).output]

    @session.workflow
    async def commands(ctx: WorkflowContext) -> Any:
        items: list[Any] = []

        async def add(item: Any) -> int:
            items.append(item)
            return len(items)

        ctx.query("items", lambda: items)
        ctx.update("add", add)
        signal = await ctx.wait_signal("go")
        return [signal, await ctx.receive("inbox"), items]

    @session.workflow
    async def hears(ctx: WorkflowContext) -> Any:
        waiting = asyncio.ensure_future(ctx.wait_signal("later"))
        await ctx.run("echo", 1)
        return await waiting

    @session.workflow
    async def waits(ctx: WorkflowContext) -> Any:
        for wait in (ctx.gate("Never answered", timeout=0.1), ctx.wait_signal("never", timeout=0.1)):
            with suppress(TimeoutError):
                await wait
        with suppress(TimeoutError):
            await ctx.receive("never", timeout=0.1)
        ctx.tag(stage="patched" if ctx.patched("new") else "old")
        raise LookupError("the end")

    @session.workflow
    async def chain(ctx: WorkflowContext) -> Any:
        await ctx.run("echo", ctx.input)
        if ctx.input < 2:
            ctx.continue_as_new(ctx.input + 1)
        return ctx.input

    @session.workflow
    async def cleanup(ctx: WorkflowContext) -> Any:
        try:
            await ctx.run("sleep", 60)
        finally:
            async with ctx.cleanup():
                await ctx.run("echo", "tidy")

    @session.workflow
    async def doubt(ctx: WorkflowContext) -> Any:
        return (await ctx.run("pay")).output

    @session.workflow
    async def host_lost(ctx: WorkflowContext) -> Any:
        return (await ctx.run("echo", 1)).output

    @session.workflow
    async def detaches(ctx: WorkflowContext) -> Any:
        started = await ctx.start("asks", detached=True)
        return started is not None

    for text in (NODES, MERGES, EDITS, READS, TELLS):
        session.load(text, "yaml")


async def ask_person(context: ExecutionContext) -> Any:
    return await context.leaf_runtime.ask(GateWait(f"{context.path}/question", "Go on?", ["yes", "no"]))


async def listen(context: ExecutionContext) -> Any:
    messages = context.leaf_runtime.steering = SteeringQueue()
    context.emit("listening", {})
    return await messages.get()


# -- what is done with each run ------------------------------------------------------------------------


async def play(run: TemporalRun) -> Any:
    """Answer every gate of a family with its first choice, or yes, until the run has ended."""
    ending, answered = asyncio.ensure_future(run.wait()), set[str]()
    while not ending.done():
        for row in run.store.runs():
            for wait in run.store.waits_of_run(row.run):
                if wait.kind == "gate" and f"{row.run}{wait.path}" not in answered:
                    answered.add(f"{row.run}{wait.path}")
                    with suppress(CommandRefused):  # a run of another family
                        await answer(run.family_of(row.run), wait.path, wait.data or "{}")
        await asyncio.sleep(0.02)
    return ending.result()


async def answer(run: TemporalRun, path: str, data: str) -> None:
    gate = decode_event(EventRow(0, 0.0, "gate_waiting", path, None, data)).to_data()
    if gate["prompt"] != "Never answered":
        await run.command("answer", gate=path, value=(gate.get("choices") or ["yes"])[0])


async def play_nodes(runs: TemporalRuns) -> TemporalRun:
    run = await runs.start("nodes", params={"parts": [1, 2, 3]})
    with suppress(asyncio.CancelledError):
        await play(run)
    assert "all kinds are shown" in run.rows[-1].data, run.rows[-1]
    return run


async def play_agent(runs: TemporalRuns) -> TemporalRun:
    run = await runs.start("agent")
    await run.until(lambda: run.state == "held")
    await run.command("resume", limits={"turns": 9})
    await run.until(lambda: any(row.path == "/question" for row in run.rows))
    await run.next_wait("leaf_gate")
    await run.command("answer", value="yes")
    await run.until(lambda: "listening" in run.types)
    await run.command("steer", text="be brief", by="ada")
    assert await run.wait() == ["yes", "be brief"]
    return run


async def play_commands(runs: TemporalRuns) -> TemporalRun:
    run = await runs.start("commands")
    await run.next_wait("signal")
    assert await run.command("query", name="items") == []
    assert await run.command("update", name="add", value="tea", key="k") == 1
    await run.command("pause")
    await run.command("resume")
    await run.command("signal", label="go", value=1)
    await run.command("send", channel="inbox", value="hello")
    assert await run.wait() == [1, "hello", ["tea"]]
    return run


async def play_hears(runs: TemporalRuns) -> TemporalRun:
    run = await runs.start("hears")
    await run.until(lambda: "node_completed" in run.types)
    await (await runs.start("tells")).wait()
    assert await run.wait() == 5
    return run


async def play_cleanup(runs: TemporalRuns) -> TemporalRun:
    run = await runs.start("cleanup")
    await run.until(lambda: "node_started" in run.types)
    await run.command("stop", reason="enough")
    with suppress(asyncio.CancelledError):
        await run.wait()
    assert [row.path for row in run.rows if row.type == "node_completed"] == ["/echo"]
    return run


async def play_doubt(runs: TemporalRuns) -> TemporalRun:
    run = await runs.start("doubt")
    await run.until(lambda: "paying" in run.types)
    runs.interrupt_leaves()
    await run.until(lambda: run.state == "held")
    await run.command("decide", path="/pay", decision="skip", value="paid")
    assert await run.wait() == "paid"
    return run


async def play_host_lost(runs: TemporalRuns) -> TemporalRun:
    """Start a run whose files are on a host without workers; its timeout must be short."""
    journal = [first_part(runs.session, "host-lost", "host_lost", 0, {})]
    run = await runs.start_from(journal, "host-lost", host="gone")
    await run.until(lambda: run.state == "held")
    await run.command("resume")
    await run.wait()
    return run


async def play_waits(runs: TemporalRuns) -> TemporalRun:
    run = await runs.start("waits")
    with suppress(WorkflowFailed):
        await run.wait()
    assert "the end" in run.rows[-1].data, run.rows[-1]
    return run


async def play_detaches(runs: TemporalRuns) -> TemporalRun:
    run = await runs.start("detaches")
    assert await run.wait() is True
    return run


async def play_to_the_end(runs: TemporalRuns, name: str, params: dict[str, Any] | None = None) -> TemporalRun:
    run = await runs.start(name, 0, params=params)
    await play(run)
    return run


SCENES: dict[str, Callable[[TemporalRuns], Awaitable[TemporalRun]]] = {
    "nodes": play_nodes,
    "agent": play_agent,
    "commands": play_commands,
    "hears": play_hears,
    "waits": play_waits,
    "cleanup": play_cleanup,
    "doubt": play_doubt,
    "host_lost": play_host_lost,
    "chain": lambda runs: play_to_the_end(runs, "chain"),
    "detaches": play_detaches,
    "merges": lambda runs: play_to_the_end(runs, "merges"),
    "edits": lambda runs: play_to_the_end(runs, "edits"),
    "reads": lambda runs: play_to_the_end(runs, "reads"),
}
"""What is done with a run of each workflow."""
