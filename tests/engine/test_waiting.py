"""What runs wait for: the same in memory, after a restart, in lists, facts and the API."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from nerve import Queue, Session
from nerve.api import Api
from nerve.core.workflow import WorkflowContext, WorkflowRun
from nerve.dataspace import Record

pytestmark = pytest.mark.local("lists the runs of this process")


def open_session(file: Path | None = None) -> Session:
    session = Session(store=file)

    @session.workflow
    async def ask(ctx: WorkflowContext) -> Any:
        return await ctx.gate("Ship it?")

    @session.workflow
    async def ask_thrice(ctx: WorkflowContext) -> Any:
        return await asyncio.gather(*(ctx.gate(f"Ship {number}?") for number in range(3)))

    @session.workflow
    async def listen(ctx: WorkflowContext) -> Any:
        return await ctx.wait_signal("shipped", key="42")

    @session.workflow
    async def receive(ctx: WorkflowContext) -> Any:
        ctx.update("add_item", lambda value: value)
        return await ctx.receive("orders")

    @session.workflow
    async def sleep(ctx: WorkflowContext) -> Any:
        await ctx.sleep(36 * 3600)

    @session.workflow
    async def call(ctx: WorkflowContext) -> Any:
        return await ctx.run_workflow("listen")

    session.add_queue(Queue("emails", concurrency=1))

    @session.step(queue="emails")
    async def send() -> None: ...

    @session.workflow
    async def mail(ctx: WorkflowContext) -> Any:
        return await send()

    @session.workflow
    async def work_and_listen(ctx: WorkflowContext) -> Any:
        async with ctx.timeout(3600):
            return await ctx.wait_signal("shipped")

    return session


async def start_waiting(session: Session, workflow: str) -> WorkflowRun[Any]:
    if workflow == "mail":
        await session.pause_queue("emails")
    run = await session.start(workflow)
    async with asyncio.timeout(30):
        while run.waiting_for is None:
            await run.wait_for_change()
    return run


def phrase_of(workflow: str, run: WorkflowRun[Any]) -> str:
    child = next((child.run_id for child in run.open_children.values()), "")
    morning = datetime.now() + timedelta(hours=36)
    return {
        "ask": 'for gate "Ship it?"',
        "ask_thrice": "for 3 gates",
        "listen": "for signal shipped (key 42)",
        "receive": 'for message "orders"',
        "sleep": f"until {morning:%Y-%m-%d}",
        "mail": 'for queue "emails"',
        "work_and_listen": "for signal shipped",
        "call": f"for child run {child} (for signal shipped (key 42))",
    }[workflow]


def state_fact(session: Session, run: WorkflowRun[Any]) -> Record:
    (fact,) = session.dataspace.facts(["workflow/state", {"run": run.run_id}])
    return fact.record


WORKFLOWS = ["ask", "ask_thrice", "listen", "receive", "sleep", "mail", "work_and_listen", "call"]


@pytest.mark.parametrize("workflow", WORKFLOWS)
@pytest.mark.parametrize("create_file", [lambda folder: None, lambda folder: folder / "nerve.db"])
async def test_a_waiting_run_says_for_what(
    tmp_path: Path, workflow: str, create_file: Callable[[Path], Path | None]
) -> None:
    async with open_session(create_file(tmp_path)) as session:
        run = await start_waiting(session, workflow)
        phrase = phrase_of(workflow, run)
        assert str(run.waiting_for).startswith(phrase)
        api = Api(session)
        assert str((await api.run(run=run.run_id)).waiting_for).startswith(phrase)
        listed = {each.run_id: each.waiting_for for each in (await api.runs()).runs}
        assert str(listed[run.run_id]).startswith(phrase)


@pytest.mark.parametrize("workflow", WORKFLOWS)
async def test_a_waiting_run_says_for_what_after_a_restart(tmp_path: Path, workflow: str) -> None:
    file = tmp_path / "nerve.db"
    async with open_session(file) as session:
        run = await start_waiting(session, workflow)
        phrase = phrase_of(workflow, run)
    async with open_session(file) as session:
        (listed,) = [each for each in (await Api(session).runs()).runs if each.run_id == run.run_id]
        assert str(listed.waiting_for).startswith(phrase)
        assert run.run_id not in session.engine.executors


async def test_a_run_that_does_not_wait_says_nothing() -> None:
    async with open_session() as session:
        run = await start_waiting(session, "ask")
        await run.pause()
        assert run.waiting_for is None
        await run.resume()
        assert run.waiting_for == 'for gate "Ship it?"'
        await run.answer("yes")
        await run.wait()
        assert run.waiting_for is None
        assert (await Api(session).run(run=run.run_id)).waiting_for is None


@pytest.mark.parametrize("looks_first", [True, False])
@pytest.mark.parametrize("workflow", WORKFLOWS)
async def test_the_fact_of_a_run_says_what_it_waits_for(workflow: str, looks_first: bool) -> None:
    async with open_session() as session:
        if looks_first:
            session.dataspace.facts()
        run = await start_waiting(session, workflow)
        phrase = phrase_of(workflow, run).partition(" (for ")[0]
        async with asyncio.timeout(30):
            while (found := state_fact(session, run)).get("status") != "waiting":
                assert found.get("waiting-for") is None
                await asyncio.sleep(0.001)
        assert str(found.get("waiting-for")).startswith(phrase)


async def test_a_list_of_waiting_runs_reads_no_journal(tmp_path: Path, monkeypatch: Any) -> None:
    file = tmp_path / "nerve.db"
    async with open_session(file) as session:
        for _ in range(5):
            await start_waiting(session, "listen")
    async with open_session(file) as session:
        engine = session.engine
        read: list[str] = []
        events = engine.store.events

        def count_reads(run: str, after: int = 0, limit: int | None = None) -> Any:
            if limit != 1:
                read.append(run)
            return events(run, after, limit)

        monkeypatch.setattr(engine.store, "events", count_reads)
        runs = (await Api(session).runs()).runs
        assert {each.waiting_for for each in runs} == {"for signal shipped (key 42)"}
        assert read == []
