"""Detached runs: a run starts another one once, and does not take it along when it ends."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from engine.conftest import until
from nerve import Session, WorkflowContext, WorkflowState
from nerve.core.json_codec import decode_json
from nerve.store.memory import MemoryStore
from nerve.store.port import Append


@dataclass
class Report:
    title: str
    pages: int = 1


def register(session: Session) -> None:
    @session.workflow
    async def write_report(ctx: WorkflowContext, report: Report, language: str = "en") -> str:
        await ctx.receive("go")
        return f"{report.title} {report.pages} {language}"

    @session.workflow
    async def starter(ctx: WorkflowContext) -> list[str]:
        ids = [
            await ctx.start(write_report, Report("one"), {"language": "de"}, detached=True, label="r1"),
            await ctx.start("write_report", Report("two", 2), detached=True, tags={"customer": 42}),
        ]
        await ctx.gate("Go on?")
        return ids


async def test_a_detached_run_outlives_the_run_that_started_it(file: Path) -> None:
    async with Session(store=file) as session:
        register(session)
        run = await session.start("starter", conversation="c")
        await until(lambda: run.pending_gate)
        started = session.runs(workflow="write_report")[::-1]
        assert [each.label for each in started] == ["r1", started[1].run_id]
        assert [each.about["conversation"] for each in started] == ["c", "c"]
        assert started[1].tags == {"customer": "42"}
        assert not run.open_children
        await run.stop("enough")
        assert run.state is WorkflowState.CANCELLED
        for each in started:
            await each.send("go")
        assert [await each.wait() for each in started] == ["one 1 de", "two 2 en"]
        start = started[0].events[0].data
        assert start["started_by"] == {"run": run.run_id, "path": "/write_report"}
        assert "parent" not in start


async def test_detached_runs_continue_after_a_restart_and_keep_their_ids(file: Path) -> None:
    async with Session(store=file) as session:
        register(session)
        run = await session.start("starter")
        await until(lambda: run.pending_gate)
    async with Session(store=file) as session:
        register(session)
        assert len(await session.recover()) == 3
        again = session.get_workflow_run(run.run_id)
        assert again is not None
        await again.next_gate()
        await again.answer("yes")
        ids = await again.wait()
        assert [each.run_id for each in session.runs(workflow="write_report")][::-1] == ids


@pytest.mark.local("looks at executors")
@pytest.mark.parametrize("upto", [2, 3, 4, 5, 6])
async def test_a_crash_at_any_event_starts_each_of_them_once(upto: int) -> None:
    store = MemoryStore()
    session = Session(store=store)
    register(session)
    run = await session.start("starter")
    await until(lambda: run.pending_gate)
    other = MemoryStore()
    for row in store.runs():
        events = store.events(row.run)
        kept = events[:upto] if row.run == run.run_id else events
        if row.run != run.run_id and decode_json(events[0].data)["started_by"]["path"] not in {
            event.path for event in kept + store.events(run.run_id)[:upto]
        }:
            continue
        other.append([Append(row.run, 0, kept, row._replace(state="running", summary="{}"))])
    again = Session(store=other)
    register(again)
    await again.recover()
    rebuilt = again.get_workflow_run(run.run_id)
    assert rebuilt is not None
    await until(lambda: rebuilt.pending_gate)
    assert {row.run for row in other.runs()} == {row.run for row in store.runs()}


async def test_a_chain_can_start_a_run_in_each_of_its_runs() -> None:
    async with Session() as session:
        register(session)

        @session.workflow
        async def chain(ctx: WorkflowContext, number: int = 0) -> list[str]:
            await ctx.start("write_report", Report(str(number)), detached=True)
            if number == 2:
                return []
            ctx.continue_as_new(number + 1)

        await (await session.start(chain, 0)).wait()
        assert sorted(each.input["title"] for each in session.runs(workflow="write_report")) == [
            "0",
            "1",
            "2",
        ]


async def test_a_run_that_is_started_in_a_cleanup_does_not_clean_up_itself() -> None:
    async with Session() as session:

        @session.workflow
        async def follow_up(ctx: WorkflowContext) -> None:
            await ctx.gate("Never answered")

        @session.workflow
        async def cleans_up(ctx: WorkflowContext) -> None:
            try:
                await ctx.gate("Never answered")
            finally:
                async with ctx.cleanup():
                    await ctx.start("follow_up", detached=True)

        run = await session.start("cleans_up")
        await run.next_gate()
        await run.stop()
        (started,) = session.runs(workflow="follow_up")
        await until(lambda: started.pending_gate)
        await started.stop()
        assert started.state is WorkflowState.CANCELLED


async def test_wrong_calls_are_refused_before_anything_is_recorded() -> None:
    async with Session() as session:
        register(session)

        @session.workflow
        async def wrong(ctx: WorkflowContext) -> list[str]:
            problems = []
            calls: list[tuple[Any, ...]] = [
                ("write_reprt", None, {}),
                ("write_report", Report("x"), {"detached": False}),
                ("write_report", {"pages": "many"}, {}),
                ("write_report", Report("x"), {"params": {"lang": "de"}}),
                ("write_report", Report("x"), {"tags": {"no good": 1}}),
                (session.workflows["write_report"], None, {}),
            ]
            for workflow, input, options in calls:
                try:
                    await ctx.start(workflow, input, **{"detached": True, **options})
                except (ValueError, TypeError) as error:
                    problems.append(str(error))
            return problems

        run = await session.start("wrong")
        problems = await run.wait()
        assert len(run.events) == 2
        assert problems[0] == "Workflow 'write_reprt' not found. Did you mean 'write_report'?"
        assert problems[1] == (
            "ctx.start needs detached=True, because the run outlives this one."
            " Use ctx.run_workflow('write_report') to wait for its value"
        )
        assert "pages" in problems[2]
        assert "'lang'" in problems[3]
        assert "no good" in problems[4]
        assert problems[5].startswith("ctx.start needs the name of a workflow")
