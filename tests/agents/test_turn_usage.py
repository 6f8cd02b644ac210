"""The ledger: usage of agents by step, run, day and model."""

import asyncio
import json

import pytest

from agents.test_conversation import Agent, saying
from core.workflow.support import within
from nerve import FunctionNode, Session
from nerve.agents import AgentNode, TurnFinished, TurnUsage
from nerve.agents.claude.stream_json import StreamJsonReader
from nerve.agents.turn_usage import add_usage, usage_entry
from nerve.api import models, queries
from nerve.core.limits import Limits
from nerve.core.result import Result
from nerve.errors import RunHeld

DEAR = TurnUsage(10, 5, 100, 20, 0.5, "dear")
CHEAP = TurnUsage(1, 2, cost=0.25, model="cheap", inferred=True)
SILENT = TurnUsage(model="dear")


def register(session, *usages):
    turns = [saying(TurnFinished("t", usage)) for usage in usages]
    AgentNode("dev", session, Agent(*turns), thread="fresh")

    @session.workflow
    async def body(ctx):
        for _ in usages:
            await ctx.run("dev", "x")

    @session.workflow
    async def parent(ctx):
        await ctx.run_workflow("body")


DEAR_TOLD = {
    "turns": 2,
    "input_tokens": 10,
    "output_tokens": 5,
    "cache_read_tokens": 100,
    "cache_write_tokens": 20,
    "reported_cost": 0.5,
    "turns_without_tokens": 1,
    "turns_without_cost": 1,
}
CHEAP_TOLD = {"turns": 1, "input_tokens": 1, "output_tokens": 2, "inferred_cost": 0.25}
NOBODY_TOLD = {"turns": 1, "turns_without_tokens": 1, "turns_without_cost": 1}


async def test_usage_of_a_run_is_reported_by_model_and_step_and_unknown_stays_unknown():
    session = Session()
    register(session, DEAR, CHEAP, SILENT, None)
    run = await session.start("body")
    await within(run.wait())
    by_model = {"dear": DEAR_TOLD, "cheap": CHEAP_TOLD, "unknown": NOBODY_TOLD}
    assert run.view.ledger.by_model() == by_model
    reported = await queries.run(session, models.ShowRunRequest(run=run.run_id))
    assert reported.models == by_model
    assert {node.path: node.usage.get("turns") for node in reported.tree} == {
        "/dev": 1,
        "/dev[2]": 1,
        "/dev[3]": 1,
        "/dev[4]": 1,
    }
    assert reported.tree[1].usage == CHEAP_TOLD


async def test_usage_of_a_child_is_in_its_parents_ledger_and_once_in_the_daily_one():
    session = Session()
    register(session, DEAR, CHEAP)
    run = await session.start("parent")
    await within(run.wait())
    reported = {**DEAR_TOLD, "turns": 1}
    del reported["turns_without_tokens"], reported["turns_without_cost"]
    assert run.view.ledger.by_model() == {"dear": reported, "cheap": CHEAP_TOLD}
    assert list(run.view.ledger.by_step()) == ["/body"]
    assert (await queries.usage(session, models.EmptyRequest())).models == {
        "dear": reported,
        "cheap": CHEAP_TOLD,
    }


async def test_the_daily_ledger_is_updated_by_events_and_restored_after_a_restart(tmp_path):
    async with Session(store=tmp_path / "n.db") as session:
        register(session, CHEAP)
        assert (await queries.usage(session, models.EmptyRequest())).models == {}
        for count in (1, 2):
            await within((await session.start("body")).wait())
            reported = (await queries.usage(session, models.EmptyRequest())).models
            assert reported["cheap"]["turns"] == count
    async with Session(store=tmp_path / "n.db") as session:
        assert (await queries.usage(session, models.EmptyRequest())).models == reported


async def test_usage_inherited_by_a_fork_is_not_charged_again(tmp_path):
    async with Session(store=tmp_path / "n.db", budget={"cost": 99}) as session:
        register(session, CHEAP, CHEAP)
        run = await session.start("body")
        await within(run.wait())
        assert session.engine.models_used_today()["cheap"]["turns"] == 2
        fork = await session.fork(run.run_id, "/dev[2]")
        await within(fork.wait())
        assert session.engine.models_used_today()["cheap"]["turns"] == 3
        assert session.engine.budgets.update_day().usage.turns == 3
    async with Session(store=tmp_path / "n.db", budget={"cost": 99}) as session:
        assert session.engine.models_used_today()["cheap"]["turns"] == 3
        assert session.engine.budgets.update_day().usage.turns == 3


@pytest.mark.parametrize("late", range(6))
async def test_usage_of_today_is_counted_once_while_runs_continue(late):
    session = Session()
    FunctionNode("ask", session, lambda context: Result.ok("fine", {"usage": {"tokens": 1}}))

    @session.workflow
    async def body(ctx):
        await ctx.run("ask")
        await ctx.gate("Go on?")
        await ctx.run("ask")

    runs = [await session.start("body") for _ in range(5)]
    for _ in range(late):
        await asyncio.sleep(0)
    assert session.engine.usage_today().tokens <= 5
    for run in runs:
        await within(run.next_gate())
    assert session.engine.usage_today().tokens == 5
    for run in runs:
        await run.answer("yes")
        await within(run.wait())
    assert session.engine.usage_today().tokens == 10
    await session.close()


async def test_usage_reported_by_a_function_is_in_the_ledger():
    session = Session()
    used = {"usage": {"tokens": 70, "cost": 0.1, "model": "own"}}
    FunctionNode("ask", session, lambda context: Result.ok("fine", used))

    @session.workflow
    async def body(ctx):
        await ctx.run("ask")

    run = await session.start("body")
    await within(run.wait())
    assert run.view.ledger.by_model() == {"own": {"tokens": 70, "reported_cost": 0.1}}


def result(**models):
    usage = {
        name: {"inputTokens": count, "outputTokens": 1, "costUSD": cost}
        for name, (count, cost) in models.items()
    }
    line = {"type": "result", "session_id": "s", "is_error": False, "modelUsage": usage}
    return json.loads(json.dumps(line))


def turn(line, totals, resumed):
    lines = StreamJsonReader(totals, resumed)
    list(lines.read_message({"type": "system", "subtype": "init", "session_id": "s", "model": "opus"}))
    list(lines.read_message(line))
    return lines.done


def test_the_models_of_one_claude_turn_are_listed_separately():
    first = turn(result(haiku=(5, 0.1), opus=(10, 1.0)), {}, False)
    assert [(part.model, part.input_tokens, part.cost) for part in first.usage.parts] == [
        ("opus", 10, 1.0),
        ("haiku", 5, 0.1),
    ]
    assert (first.usage.model, first.usage.input_tokens) == ("opus", 15)
    second = turn(result(haiku=(7, 0.3), opus=(30, 4.0)), first.totals, True)
    assert [(part.model, part.input_tokens, part.cost) for part in second.usage.parts] == [
        ("opus", 20, 3.0),
        ("haiku", 2, pytest.approx(0.2)),
    ]
    third = turn(result(haiku=(7, 0.3), opus=(31, 4.5)), second.totals, True)
    assert third.usage.parts == ()


async def test_the_models_of_one_turn_are_separate_entries():
    session = Session()
    register(
        session,
        TurnUsage(11, 7, cost=0.75, model="dear", parts=(TurnUsage(10, 5, cost=0.5, model="dear"), CHEAP)),
    )
    run = await session.start("body", limits=Limits(cost=9))
    await within(run.wait())
    reported = run.view.ledger.by_model()
    assert reported["dear"] == {"turns": 1, "input_tokens": 10, "output_tokens": 5, "reported_cost": 0.5}
    assert reported["cheap"] == {"input_tokens": 1, "output_tokens": 2, "inferred_cost": 0.25}
    assert run.view.usage.cost == 0.75


@pytest.mark.parametrize(
    ("sources", "told"),
    [
        (("reported", "reported"), "reported"),
        (("reported", "inferred"), "inferred"),
        (("computed", "inferred"), "computed"),
        (("reported", "unknown"), "partly unknown"),
        (("unknown", "unknown"), "unknown"),
    ],
)
def test_a_sum_has_the_least_certain_cost_source(sources, told):
    first, second = ({"cost_source": source} for source in sources)
    assert add_usage(first, second)["cost_source"] == add_usage(second, first)["cost_source"] == told


def test_an_inferred_cost_is_marked_as_inferred():
    assert usage_entry(CHEAP, "acp", None)["cost_source"] == "inferred"


NONSENSE = [-200, -0.5, float("nan"), float("inf"), float("-inf"), "many", "-7", "nan", True, [5], {"a": 1}]


@pytest.mark.parametrize("value", NONSENSE)
@pytest.mark.parametrize("name", ["input_tokens", "cost"])
@pytest.mark.parametrize("form", [TurnUsage, dict])
async def test_an_invalid_amount_counts_as_unknown_and_refunds_nothing(form, name, value, caplog):
    session = Session()
    register(
        session, TurnUsage(input_tokens=10, cost=0.5, model="dear"), form(**{name: value, "model": "dear"})
    )
    run = await session.start("body")
    await within(run.wait())
    used = run.view.usage
    assert (used.tokens, used.cost, used.turns) == (10, 0.5, 2)
    took = run.view.ledger.by_model()["dear"]
    assert took["turns_without_tokens"] == took["turns_without_cost"] == 1
    assert f"agent reported {name}=" in caplog.text


async def test_an_amount_given_as_a_string_counts():
    session = Session()
    register(session, TurnUsage(input_tokens="100", output_tokens=" 7 ", cost="0.25", model="dear"))
    run = await session.start("body", limits={"tokens": 50})
    await within(run.wait())
    assert (run.view.usage.tokens, run.view.usage.cost) == (107, 0.25)
    assert run.view.ledger.by_model()["dear"]["input_tokens"] == 100


async def test_negative_usage_of_a_node_refunds_no_budget():
    session, requests = Session(), []

    def greedy(context):
        requests.append(1)
        return Result.ok("x", {"usage": {"tokens": 100 if len(requests) % 2 else -100, "turns": 1}})

    FunctionNode("greedy", session, greedy)

    @session.workflow
    async def body(ctx):
        for _ in range(40):
            await ctx.run("greedy")

    run = await session.start("body", limits={"tokens": 300})
    with pytest.raises(RunHeld, match="tokens"):
        await within(run.wait())
    assert len(requests) == 5
