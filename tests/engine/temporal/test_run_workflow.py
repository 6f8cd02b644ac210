"""Runs are executed in Temporal workflows as the local engine executes them."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest

from engine.temporal.temporal_runs import CommandRefused, TemporalRun, TemporalRuns, open_runs
from nerve import FunctionNode, Queue, Session, WorkflowContext
from nerve.core.nodes.context import ExecutionContext
from nerve.core.policy import Retry
from nerve.engine.temporal import run_workflow
from nerve.engine.temporal.carried_runs import carry_family
from nerve.errors import WorkflowFailed
from nerve.journal.events import RunOnHold, decode_event
from temporal_server import TemporalServer

YAML = """
name: release
inputs:
  parts: {type: array}
body:
  kind: sequence
  steps:
    - {kind: bash, id: build, command: "echo built {{ inputs.parts.length }}"}
    - kind: map
      id: each
      over: inputs.parts
      max_parallel: 2
      body: {kind: bash, id: test, command: "echo tested {{ item }}"}
    - kind: loop
      id: polish
      until: iteration >= 2
      max_iterations: 5
      body: {kind: bash, id: pass, command: "echo pass {{ iteration }}"}
    - {kind: gate, id: ship, prompt: "Ship it?", choices: [approve, reject], reject: [reject]}
    - {kind: transform, id: end, expression: "steps.build.output + steps.each.output.length"}
"""


def make_session() -> Session:
    session = Session("team")
    failures: dict[str, int] = {}

    @session.node(id="echo")
    async def echo(context: ExecutionContext) -> Any:
        return context.input

    @session.node(id="sleep")
    async def sleep(context: ExecutionContext) -> Any:
        await asyncio.sleep(context.input)
        return "slept"

    @session.node(id="flaky", retry=Retry(attempts=3, delay=0.1))
    async def flaky(context: ExecutionContext) -> Any:
        failures[context.run_id] = failures.get(context.run_id, 0) + 1
        if failures[context.run_id] < 3:
            raise RuntimeError(f"failure {failures[context.run_id]}")
        return "third"

    @session.node(id="broken")
    async def broken(context: ExecutionContext) -> Any:
        raise LookupError("it broke")

    @session.workflow
    async def tour(ctx: WorkflowContext) -> Any:
        first = await ctx.run("echo", {"b": 1, "a": 2})
        parallel = await asyncio.gather(*(ctx.run("echo", number) for number in range(3)))
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(ctx.run("echo", number)) for number in (3, 4)]
        retried = await ctx.run("flaky")
        await ctx.sleep(0.2)
        answer = await ctx.gate("Continue?", choices=["yes", "no"])
        outputs = [each.output for each in (*parallel, *(task.result() for task in tasks))]
        return [first.output, outputs, retried.output, answer]

    @session.node(id="pay", effect="once")
    async def pay(context: ExecutionContext) -> Any:
        await asyncio.sleep(60)

    @session.workflow
    async def pays(ctx: WorkflowContext) -> Any:
        return (await ctx.run("pay")).output

    @session.workflow
    async def tidies(ctx: WorkflowContext) -> Any:
        try:
            await ctx.run("sleep", 60)
        finally:
            async with ctx.cleanup():
                await ctx.run("echo", "tidy")

    @session.workflow
    async def counts(ctx: WorkflowContext) -> Any:
        await ctx.run("echo", ctx.input)
        if ctx.input < 3:
            ctx.continue_as_new(ctx.input + 1)
        return ctx.input

    @session.workflow
    async def fails(ctx: WorkflowContext) -> Any:
        result = await ctx.run("broken")
        return result["output"]

    @session.workflow
    async def naps(ctx: WorkflowContext) -> Any:
        return (await ctx.run("sleep", 60)).output

    @session.workflow
    async def steps(ctx: WorkflowContext) -> Any:
        return [(await ctx.run("echo", number)).output for number in range(ctx.input)]

    @session.workflow
    async def asks(ctx: WorkflowContext) -> Any:
        return await ctx.gate("Child?", choices=["yes", "no"])

    @session.workflow
    async def calls(ctx: WorkflowContext) -> Any:
        return await ctx.run_workflow("asks")

    @session.workflow
    async def races(ctx: WorkflowContext) -> Any:
        calls = {asyncio.ensure_future(ctx.run("echo", number)) for number in range(5)}
        return sorted([(await each).output for each in asyncio.as_completed(calls)])

    @session.workflow
    async def hears(ctx: WorkflowContext) -> Any:
        signal = await ctx.wait_signal("shipped", key="7")
        message = await ctx.receive("inbox")
        return [signal, message]

    @session.workflow
    async def long(ctx: WorkflowContext) -> Any:
        gate = asyncio.ensure_future(ctx.gate("Meanwhile?", choices=["yes", "no"]))
        timer = asyncio.ensure_future(ctx.sleep(3))
        outputs = [(await ctx.run("echo", number)).output for number in range(ctx.input)]
        answer = await gate
        await timer
        return [outputs, answer, "slept"]

    @session.workflow
    async def watches(ctx: WorkflowContext) -> Any:
        child = asyncio.ensure_future(ctx.run_workflow("asks"))
        for number in range(9):
            await ctx.run("echo", number)
        return await child

    @session.workflow
    async def signalled(ctx: WorkflowContext) -> Any:
        value = asyncio.ensure_future(ctx.wait_signal("shipped"))
        for number in range(9):
            await ctx.run("echo", number)
        return await value

    session.load(YAML, "yaml")
    return session


@pytest.fixture
async def runs(temporal_url: str) -> AsyncIterator[TemporalRuns]:
    async with open_runs(temporal_url, make_session()) as runs:
        yield runs


@pytest.fixture(params=[100, 0], ids=["kept", "rebuilt"])
async def all_runs(request: pytest.FixtureRequest, temporal_url: str) -> AsyncIterator[TemporalRuns]:
    """Runs of a session, once with workflows that stay in memory and once with a replay for every task."""
    async with open_runs(temporal_url, make_session(), request.param) as runs:
        yield runs


async def answer_gate(run: TemporalRun, value: str) -> None:
    await run.next_wait()
    await run.command("answer", value=value, by="ada")


async def test_a_python_workflow_runs_to_its_end(all_runs: TemporalRuns) -> None:
    run = await all_runs.start("tour")
    await answer_gate(run, "yes")
    result = await run.wait()
    assert result == [{"b": 1, "a": 2}, [0, 1, 2, 3, 4], "third", "yes"]
    assert list(result[0]) == ["b", "a"]
    assert [row.seq for row in run.rows] == list(range(1, len(run.rows) + 1))
    assert run.types.count("node_completed") == 7
    assert run.types.count("node_retrying") == 2
    assert run.state == "completed"


async def test_a_yaml_workflow_runs_to_its_end(all_runs: TemporalRuns) -> None:
    run = await all_runs.start("release", params={"parts": ["a", "b", "c"]})
    await answer_gate(run, "approve")
    assert await run.wait() == "built 3\n3"


async def test_an_answer_that_does_not_fit_is_refused(runs: TemporalRuns) -> None:
    run = await runs.start("asks")
    await run.next_wait()
    with pytest.raises(CommandRefused, match="ValueError: Invalid choice 'maybe'"):
        await run.command("answer", value="maybe")
    await run.command("answer", value="no")
    assert await run.wait() == "no"


async def test_of_many_answers_one_wins(runs: TemporalRuns) -> None:
    run = await runs.start("asks")
    await run.next_wait()
    answers = [run.command("answer", value="yes", by=f"person-{number}") for number in range(8)]
    outcomes = await asyncio.gather(*answers, return_exceptions=True)
    assert outcomes.count(None) == 1
    assert sum(isinstance(outcome, CommandRefused) for outcome in outcomes) == 7
    assert await run.wait() == "yes"
    assert run.types.count("gate_answered") == 1


async def test_a_failure_fails_the_workflow_with_its_trace(runs: TemporalRuns) -> None:
    run = await runs.start("fails")
    with pytest.raises(WorkflowFailed, match="it broke"):
        await run.wait()
    [failed] = [row for row in run.rows if row.path == "/broken" and row.settles]
    assert "in broken" in failed.data
    assert run.state == "failed"


async def test_a_stop_cancels_the_leaf_on_its_worker(all_runs: TemporalRuns) -> None:
    run = await all_runs.start("naps")
    await run.until(lambda: "node_started" in run.types)
    assert await run.command("stop", reason="enough") == ["/sleep"]
    with pytest.raises(asyncio.CancelledError, match="enough"):
        await run.wait()
    assert run.types[-2:] == ["node_cancelled", "workflow_cancelled"]


async def test_an_interrupted_once_step_is_decided_by_a_person(runs: TemporalRuns) -> None:
    run = await runs.start("pays")
    await run.until(lambda: "node_started" in run.types)
    await asyncio.sleep(0.5)  # until the worker executes it
    runs.interrupt_leaves()
    await run.until(lambda: run.state == "held")
    with pytest.raises(CommandRefused, match='RuntimeError: Cannot resume: /pay has effect="once"'):
        await run.command("resume")
    await run.command("decide", path="/pay", decision="skip", value="paid")
    assert await run.wait() == "paid"
    assert run.types.count("node_started") == 1


async def test_a_stopped_run_cleans_up(all_runs: TemporalRuns) -> None:
    run = await all_runs.start("tidies")
    await run.until(lambda: "node_started" in run.types)
    await run.command("stop")
    with pytest.raises(asyncio.CancelledError):
        await run.wait()
    assert [row.path for row in run.rows if row.type == "node_completed"] == ["/echo"]


async def test_a_chain_is_one_workflow(runs: TemporalRuns) -> None:
    run = await runs.start("counts", 1)
    assert await run.wait() == 3
    assert [row.state for row in run.store.runs()] == ["completed"] * 3


async def test_a_paused_run_starts_no_steps(runs: TemporalRuns) -> None:
    run = await runs.start("steps", 3)
    await run.command("pause")
    await run.until(lambda: run.state == "paused")
    with pytest.raises(CommandRefused, match="RuntimeError"):
        await run.command("decide", decision="skip", path="/echo")
    await run.command("resume")
    assert await run.wait() == [0, 1, 2]


async def test_a_gate_of_a_child_run_is_answered_through_its_parent(runs: TemporalRuns) -> None:
    run = await runs.start("calls")
    child_id = await run.until(lambda: next((row.run for row in run.store.runs() if row.parent), None))
    child = run.family_of(child_id)
    await child.next_wait()
    await run.command("answer", value="yes")
    assert await run.wait() == "yes"
    assert child.state == "completed"


async def test_a_stop_ends_the_child_runs_first(runs: TemporalRuns) -> None:
    run = await runs.start("calls")
    child_id = await run.until(lambda: next((row.run for row in run.store.runs() if row.parent), None))
    child = run.family_of(child_id)
    await child.next_wait()
    await run.command("stop")
    with pytest.raises(asyncio.CancelledError):
        await run.wait()
    assert (run.state, child.state) == ("cancelled", "cancelled")


async def test_calls_in_a_set_are_sent_in_the_same_order_again(all_runs: TemporalRuns) -> None:
    run = await all_runs.start("races")
    assert await run.wait() == [0, 1, 2, 3, 4]


async def test_signals_and_messages_reach_the_body(runs: TemporalRuns) -> None:
    run = await runs.start("hears")
    await run.next_wait("signal")
    assert await run.command("signal", label="shipped", key="7", value={"number": 7}) == 1
    await run.command("send", channel="inbox", value="hello")
    assert await run.wait() == [{"number": 7}, "hello"]


async def test_a_run_of_the_local_engine_is_continued(runs: TemporalRuns) -> None:
    local = make_session()
    moved = await local.start("tour")
    assert await moved.next_gate() is not None
    store = local.engine.store
    row, rows = store.run(moved.run_id), store.events(moved.run_id)
    assert row is not None
    assert row.state == "waiting"
    await local.close()
    run = await runs.start_from(carry_family(store, row.run), row.run)
    await answer_gate(run, "no")
    assert await run.wait() == [{"b": 1, "a": 2}, [0, 1, 2, 3, 4], "third", "no"]
    assert run.rows[: len(rows)] == rows
    assert run.types[len(rows) :] == ["gate_answered", "workflow_completed"]


async def test_a_long_history_continues_in_a_new_one(runs: TemporalRuns) -> None:
    run = await runs.start("long", 12, history_events=40)
    await run.until(lambda: run.types.count("node_completed") == 12)
    await answer_gate(run, "yes")
    assert await run.wait() == [[*range(12)], "yes", "slept"]
    assert run.types.count("node_started") == 12
    assert [row.seq for row in run.rows] == list(range(1, len(run.rows) + 1))
    assert await run.count_histories() > 1


async def test_a_run_whose_journal_is_too_long_for_a_new_history_is_held_before_this_one_is_full(
    runs: TemporalRuns, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("nerve.engine.temporal.carried_runs.MAX_CARRIED_EVENTS", 5)
    monkeypatch.setattr("nerve.engine.temporal.run_workflow.FULL_EVENTS", 40)
    run = await runs.start("long", 12, history_events=20)
    await run.until(lambda: run.state == "held")
    hold = decode_event(run.rows[-1])
    assert isinstance(hold, RunOnHold)
    assert hold.reason == "history_full"
    assert "at most 5, and this one is nearly full" in hold.message
    assert run.types.count("node_completed") < 12
    await run.command("resume", limits={})
    await answer_gate(run, "yes")
    assert await run.wait() == [[*range(12)], "yes", "slept"]
    assert (await run.count_histories(), run.types.count("workflow_held")) == (1, 1)


async def test_a_child_at_a_gate_continues_in_a_new_history(runs: TemporalRuns) -> None:
    run = await runs.start("watches", history_events=30)
    await run.until(lambda: run.types.count("node_completed") == 9)
    child_id = next(row.run for row in run.store.runs() if row.parent)
    child = run.family_of(child_id)
    await child.next_wait()
    await run.command("answer", value="yes")
    assert await run.wait() == "yes"
    assert (child.types.count("gate_waiting"), child.state) == (1, "completed")


@pytest.fixture
async def runs_of_short_histories() -> AsyncIterator[TemporalRuns]:
    """Runs in a server that suggests a new history after 20 events."""
    with TemporalServer(**{"limit.historyCount.suggestContinueAsNew": "20"}) as server:
        async with open_runs(server.url(server.create_namespace()), make_session()) as runs:
            yield runs


async def test_a_long_step_does_not_stop_the_others_when_a_new_history_is_due(
    runs_of_short_histories: TemporalRuns, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_workflow, "PAUSE_TIMEOUT", timedelta(seconds=2))
    runs, released = runs_of_short_histories, asyncio.Event()
    runs.session.node(lambda context: released.wait(), id="waits")

    @runs.session.workflow
    async def beside(ctx: WorkflowContext) -> Any:
        waiting = asyncio.ensure_future(ctx.run("waits"))
        during = [(await ctx.run("echo", number)).output for number in range(20)]
        await waiting
        return [during, await ctx.gate("Continue?", choices=["yes", "no"])]

    run = await runs.start("beside")
    # With a pause for each step, they take twenty times as long as a pause.
    async with asyncio.timeout(20):
        await run.until(lambda: run.types.count("node_completed") == 20)
    assert await run.count_histories() == 1
    released.set()
    await run.until_histories(2)
    await answer_gate(run, "yes")
    assert await run.wait() == [[*range(20)], "yes"]


async def test_a_wait_for_a_signal_continues_in_a_new_history(runs: TemporalRuns) -> None:
    run = await runs.start("signalled", history_events=30)
    await run.until(lambda: run.types.count("node_completed") == 9)
    await run.until_histories(2)
    await runs.session.signal("shipped", value=7)
    assert await run.wait() == 7
    assert (run.types.count("signal_waiting"), run.types.count("signal_received")) == (1, 1)


async def test_a_large_value_is_not_in_the_history(runs: TemporalRuns) -> None:
    value = "x" * 1_000_000
    run = await runs.start("echo", value)
    assert await run.wait() == value
    history = (await run.handle.fetch_history()).events
    assert sum(event.ByteSize() for event in history) < 20_000
    assert sum(map(len, runs.projection.payloads.values())) > 1_000_000


async def test_queues_and_facts_are_replayed_in_every_task(temporal_url: str) -> None:
    session = Session()
    session.add_queue(Queue("one", concurrency=1))
    attempts: list[str] = []

    def echo(context: ExecutionContext) -> Any:
        attempts.append(f"{context.run_id}{context.input}")
        if attempts.count(attempts[-1]) == 1:
            raise ValueError("once more")
        return context.input

    FunctionNode("echo", session, echo)

    @session.workflow(queue="one")
    async def whole(ctx: WorkflowContext) -> Any:
        return await ctx.wait_signal("go", key=ctx.input)

    @session.workflow
    async def family(ctx: WorkflowContext) -> Any:
        async def wait(key: str) -> Any:
            await ctx.run("echo", key, queue="one", retry=Retry(attempts=2, delay=0.01))
            return await ctx.run_workflow("whole", key)

        waits = [asyncio.ensure_future(wait(key)) for key in ("a", "b")]
        await ctx.assert_fact(["signal", "go", {"key": "a", "value": 1}])
        with contextlib.suppress(TimeoutError):
            await ctx.wait_signal("go", key="never", timeout=0)
        await ctx.assert_fact(["signal", "go", {"key": "b", "value": 2}])
        return await asyncio.gather(*waits)

    # Without a cache, a worker replays the history in every task of a workflow.
    async with open_runs(temporal_url, session, max_cached_workflows=0) as runs:
        both = [await runs.start("family") for _ in range(2)]
        assert [await run.wait() for run in both] == [[1, 2], [1, 2]]
    assert len(attempts) == 8
