"""Tags are recorded once, kept by forks and restarts, and stored with the events that set them."""

from pathlib import Path
from typing import Any

import pytest

from nerve import FunctionNode, Session, WorkflowContext
from nerve.store.memory import MemoryStore
from nerve.store.port import Store


def open_session(store: Store | Path | None, body: Any) -> Session:
    session = Session("test", store=store)
    FunctionNode("echo", session, lambda context: context.input)
    session.workflow(body, id="main")
    return session


async def review(ctx: WorkflowContext) -> str:
    ctx.tag(stage="draft")
    await ctx.run("echo", 1)
    ctx.tag(stage="review", round=1)
    ctx.tag(stage="review")
    answer: str = await ctx.gate("Good?")
    ctx.tag(stage="done")
    return answer


def changes(run: Any) -> list[dict[str, Any]]:
    return [event.data["tags"] for event in run.events if event.event_type == "tags_changed"]


async def until_waiting(run: Any) -> None:
    while not run.pending_gates:
        await run.wait_for_change()


@pytest.mark.local("looks into the store")
async def test_a_run_has_the_tags_of_its_start_and_those_that_its_body_sets() -> None:
    session = open_session(None, review)
    run = await session.start("main", tags={"customer": 42, "urgent": True})
    assert run.tags.items() >= {"customer": "42", "urgent": "true"}.items()
    await until_waiting(run)
    expected = {"customer": "42", "urgent": "true", "stage": "review", "round": "1"}
    assert run.tags == run.view.tags == expected
    await run.answer("yes")
    await run.wait()
    assert run.tags == run.view.tags == {**expected, "stage": "done"}
    assert changes(run) == [{"stage": "draft"}, {"stage": "review", "round": "1"}, {"stage": "done"}]


@pytest.mark.local("looks into the store")
async def test_a_restart_keeps_the_tags_and_records_none_again(tmp_path: Path) -> None:
    file = tmp_path / "nerve.db"
    async with open_session(file, review) as session:
        run = await session.start("main", tags={"customer": "42"})
        await until_waiting(run)
        before = changes(run)
    async with open_session(file, review) as session:
        assert session.get_workflow_run(run.run_id).tags == run.tags  # type: ignore[union-attr]
        await session.recover()
        again = session.get_workflow_run(run.run_id)
        assert again is not None
        await again.answer("yes")
        await again.wait()
        assert again.tags == {"customer": "42", "stage": "done", "round": "1"}
        assert changes(again) == [*before, {"stage": "done"}]
        store = session.engine.store
        assert [row.run for row in store.runs(session="test", tags={"stage": "done"})] == [run.run_id]
        assert store.runs(session="test", tags={"stage": "review"}) == []


@pytest.mark.local("looks into the store")
async def test_a_line_that_sets_a_tag_can_be_added_and_removed_while_runs_are_open() -> None:
    async def changed(ctx: WorkflowContext) -> str:
        ctx.tag(owner="ann")
        await ctx.run("echo", 1)
        ctx.tag(stage="review", round=1)
        answer: str = await ctx.gate("Good?")
        return answer

    store = MemoryStore()
    run = await open_session(store, review).start("main")
    await until_waiting(run)
    session = open_session(store, changed)
    await session.recover()
    again = session.get_workflow_run(run.run_id)
    assert again is not None
    await again.answer("yes")
    assert await again.wait() == "yes"
    assert again.tags == {"stage": "review", "round": "1", "owner": "ann"}
    assert changes(again) == [*changes(run)[:2], {"owner": "ann"}]


@pytest.mark.local("looks into the store")
async def test_a_fork_keeps_the_tags_of_its_source_and_sets_them_again_in_its_own_part() -> None:
    session = open_session(None, review)
    run = await session.start("main", tags={"customer": "42"})
    await until_waiting(run)
    await run.answer("yes")
    await run.wait()
    fork = await session.fork(run.run_id, "/gate")
    assert fork.tags["customer"] == "42"
    assert fork.tags["round"] == "1"
    await until_waiting(fork)
    await fork.answer("no")
    await fork.wait()
    assert fork.tags == {"customer": "42", "stage": "done", "round": "1"}
    early = await session.fork(run.run_id, "/echo", input=2)
    await until_waiting(early)
    assert early.tags == {"customer": "42", "stage": "review", "round": "1"}
    assert {row.run for row in session.engine.store.runs(tags={"customer": "42"})} == {
        run.run_id, fork.run_id, early.run_id,
    }  # fmt: skip


async def test_a_child_run_does_not_inherit_tags() -> None:
    session = Session("test")

    @session.workflow
    async def child(ctx: WorkflowContext) -> None:
        ctx.tag(own="yes")

    @session.workflow
    async def parent(ctx: WorkflowContext) -> None:
        await ctx.run_workflow("child")

    run = await session.start("parent", tags={"customer": "42"})
    await run.wait()
    tags = {row.workflow: session.engine.run_handle(row).tags for row in session.engine.store.runs()}
    assert tags == {"parent": {"customer": "42"}, "child": {"own": "yes"}}


@pytest.mark.local("looks into the store")
async def test_a_wrong_tag_fails_before_anything_is_recorded() -> None:
    async def body(ctx: WorkflowContext) -> str:
        for number in range(31):
            ctx.tag(**{f"t{number}": number})
        try:
            ctx.tag(one=1, more=2)
        except ValueError as error:
            return str(error)
        return "accepted"

    session = open_session(None, body)
    with pytest.raises(ValueError, match="Tag 'customer' must be a string, a number or a boolean, got None"):
        await session.start("main", tags={"customer": None})
    assert session.engine.store.runs() == []
    run = await session.start("main", tags={"customer": "42"})
    assert await run.wait() == "A run has at most 32 tags, got 34"
    assert len(run.tags) == 32
