"""A test session: the names of a session in memory, with fakes of its steps."""

from __future__ import annotations

import asyncio
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from nerve import BashNode, FunctionNode, Graph, Retry, Session, WorkflowContext
from nerve.errors import NodeFailed
from nerve.testing import test_session

REVIEW = """
name: review
description: Test it, then review it.
nodes:
  - {id: check, bash: "exit 1"}
  - {id: judge, prompt: "Review {{ steps.check.output }}", depends_on: [check]}
"""


@dataclass
class Receipt:
    item: str
    amount: int


shop = Session("shop", store="shop.db")


@shop.step(retry=Retry(3, delay=3600, cap=3600, retry_on=OSError))
async def charge(item: str, amount: int = 1) -> Receipt:
    raise NotImplementedError


@shop.workflow
async def buy(ctx: WorkflowContext, item: str) -> Receipt:
    return await charge(item, amount=3)


async def call_node(ctx: WorkflowContext) -> Any:
    return (await ctx.run("fetch", {"page": 1}))["output"]


async def test_the_names_of_a_session_are_tested_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    before = dict(vars(shop))
    async with test_session(shop, fakes={"charge": Receipt("tea", 3)}) as s:
        run = await s.start(buy, "tea")
        assert await run.wait() == Receipt("tea", 3)
        s.workflow(call_node)
        assert "call_node" in shop.workflows
    assert list(shop.workflows) == ["buy"]
    assert vars(shop) == before
    assert os.listdir(tmp_path) == []


async def test_a_session_that_is_open_cannot_be_tested() -> None:
    async with Session("open") as session:
        with pytest.raises(RuntimeError, match=r"Session 'open' is open\. Close it"):
            async with test_session(session):
                pass
    with pytest.raises(TypeError, match="'budget' is an option of the tested session itself"):
        async with test_session(shop, budget={"turns": 1}):
            pass


async def test_a_fake_of_a_typed_step_gets_its_arguments_and_returns_its_type() -> None:
    async with test_session(shop) as s:
        fake = s.fake("charge", lambda item, amount: Receipt(item.upper(), amount))
        assert await (await s.start(buy, "tea")).wait() == Receipt("TEA", 3)
        assert fake.calls == [{"item": "tea", "amount": 3}]
        assert s.fakes["charge"] is fake


async def test_a_list_gives_one_outcome_for_each_call_and_the_policy_of_the_step_applies() -> None:
    outcomes = [OSError("1"), ConnectionError, lambda item, amount: Receipt(item, amount)]
    async with test_session(shop, fakes={"charge": outcomes}) as s:
        assert await (await s.start(buy, "tea")).wait() == Receipt("tea", 3)
        assert len(s.fakes["charge"].calls) == 3
        run = await s.start(buy, "milk")
        with pytest.raises(NodeFailed, match="Fake 'charge' has 3 outcomes, and this is call 4"):
            await run.wait()


async def test_an_exception_fails_the_step() -> None:
    async with test_session(shop, fakes={"charge": ValueError("declined")}) as s:
        with pytest.raises(NodeFailed, match="declined") as failed:
            await (await s.start(buy, "tea")).wait()
        assert failed.value.error_type == "ValueError"


async def test_a_value_of_another_type_than_the_step_declares_fails_it() -> None:
    async with test_session(shop, fakes={"charge": "not a receipt"}) as s:
        with pytest.raises(NodeFailed, match="charge"):
            await (await s.start(buy, "tea")).wait()


async def test_nodes_bash_steps_and_steps_of_graphs_are_replaced_by_name(tmp_path: Path) -> None:
    async with test_session(project=tmp_path) as s:
        FunctionNode("fetch", s, lambda context: 1 / 0)
        BashNode("build", s, "exit 1")
        graph = Graph("release", s)
        graph.add_step(s.get_node("fetch"), "download")
        graph.add_step(s.get_node("build"), "compile", depends_on=["download"])
        s.workflow(call_node)
        fetch = s.fake("fetch", lambda input: [input])
        assert await (await s.start("call_node")).wait() == [{"page": 1}]
        s.fake("download", "sources")
        built = s.fake("build", "a wheel")
        assert (await (await s.start("release", "v1")).wait()) == "a wheel"
        assert fetch.calls == [{"page": 1}]
        assert built.calls == ["sources"]


@pytest.mark.parametrize("name", ["judge", "claude"])
async def test_steps_and_agents_of_a_workflow_file_are_replaced_by_name(name: str, tmp_path: Path) -> None:
    fakes = {"check": "3 passed", name: lambda request: f"answer to {request['prompt']}"}
    async with test_session(project=tmp_path, fakes=fakes) as s:
        s.load(REVIEW)
        assert await (await s.start("review")).wait() == "answer to Review 3 passed"


async def test_a_test_starts_no_agent_unless_it_is_given_one(tmp_path: Path) -> None:
    async with test_session(project=tmp_path, fakes={"check": "3 passed"}) as s:
        s.load(REVIEW)
        with pytest.raises(
            Exception, match=r"Provider 'claude' is not replaced in this test\. Fake the step"
        ):
            await (await s.start("review")).wait()


async def test_an_unknown_name_is_an_error_with_the_nearest_name() -> None:
    async with test_session(shop) as s:
        with pytest.raises(ValueError, match=r"Cannot fake 'chrage': no step .* Did you mean 'charge'\?"):
            s.fake("chrage", 1)
        with pytest.raises(ValueError, match=r"Cannot fake the workflow 'buy'. Fake its steps."):
            s.fake("buy", 1)
        assert s.fakes == {}
    async with test_session(shop, fakes={"xyz": 1}) as s:
        with pytest.raises(ValueError, match=r"Cannot fake 'xyz': .* Known steps: charge"):
            await s.start(buy, "tea")


async def test_fakes_that_run_at_the_same_time_share_the_clock() -> None:
    async def work(seconds: float) -> float:
        await s.clock.sleep(seconds)
        return s.clock.elapsed.total_seconds()

    async def body(ctx: WorkflowContext) -> list[float]:
        results = await asyncio.gather(*(ctx.run("work", seconds) for seconds in (300, 100, 200)))
        return [result["output"] for result in results]

    async with test_session(fakes={"work": work}) as s:
        FunctionNode("work", s, lambda context: None)
        s.workflow(body)
        assert await (await s.start("body")).wait() == [300, 100, 200]
