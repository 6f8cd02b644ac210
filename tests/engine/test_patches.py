"""A patch is true for runs that reach its place live, and false for runs that passed it before."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from engine.programs import copied
from nerve import FunctionNode, Session, WorkflowContext
from nerve.store.memory import MemoryStore
from nerve.store.port import Store

pytestmark = pytest.mark.local("restarts with other code; Temporal needs another build for that")


def open_session(store: Store | Path | None, body: Any) -> Session:
    session = Session("test", store=store)
    FunctionNode("echo", session, lambda context: context.input)
    session.workflow(body, id="main")
    return session


async def old(ctx: WorkflowContext) -> list[Any]:
    first = await ctx.gate("Begin?")
    paid = await ctx.run("echo", "paid")
    return [first, paid["output"], await ctx.gate("Ship?")]


async def patched(ctx: WorkflowContext) -> list[Any]:
    first = await ctx.gate("Begin?")
    if ctx.patched("fraud-check"):
        await ctx.run("echo", "checked")
    paid = await ctx.run("echo", "paid")
    if ctx.patched("fraud-check"):
        first = f"checked {first}"
    return [first, paid["output"], await ctx.gate("Ship?")]


async def patch_removed(ctx: WorkflowContext) -> list[Any]:
    first = await ctx.gate("Begin?")
    await ctx.run("echo", "checked")
    paid = await ctx.run("echo", "paid")
    return [f"checked {first}", paid["output"], await ctx.gate("Ship?")]


async def until_gate(run: Any, prompt: str) -> None:
    while [gate.prompt for gate in run.pending_gates] != [prompt]:
        await run.wait_for_change()


async def reach(session: Session, prompt: str) -> Any:
    run = await session.start("main")
    await until_gate(run, "Begin?")
    if prompt != "Begin?":
        await run.answer("go")
        await until_gate(run, prompt)
    return run


async def continue_run(store: Store, body: Any, run_id: str) -> Any:
    session = open_session(store, body)
    await session.recover()
    run = session.get_workflow_run(run_id)
    assert run is not None
    for prompt, answer in (("Begin?", "go"), ("Ship?", "yes")):
        if not run.is_complete and [gate.prompt for gate in run.pending_gates] == [prompt]:
            await run.answer(answer)
        if prompt == "Begin?":
            await until_gate(run, "Ship?")
    return await run.wait()


def outcomes(run_events: Any) -> list[bool]:
    return [event.data["active"] for event in run_events if event.event_type == "patch_evaluated"]


async def test_a_new_run_takes_the_new_branch_and_records_it_once() -> None:
    run = await reach(open_session(None, patched), "Ship?")
    await run.answer("yes")
    assert await run.wait() == ["checked go", "paid", "yes"]
    assert outcomes(run.events) == [True]


async def test_a_run_that_has_not_reached_the_place_takes_the_new_branch() -> None:
    store = MemoryStore()
    run = await reach(open_session(store, old), "Begin?")
    assert await continue_run(store, patched, run.run_id) == ["checked go", "paid", "yes"]


async def test_a_run_that_has_passed_the_place_takes_the_old_branch_to_its_end() -> None:
    store = MemoryStore()
    run = await reach(open_session(store, old), "Ship?")
    assert await continue_run(store, patched, run.run_id) == ["go", "paid", "yes"]
    assert outcomes(run.events) == [False]


async def test_the_outcome_stays_the_same_after_every_restart(tmp_path: Path) -> None:
    file = tmp_path / "nerve.db"
    async with open_session(file, old) as session:
        passed, waiting = await reach(session, "Ship?"), await reach(session, "Begin?")
    for _ in range(3):
        async with open_session(file, patched) as session:
            await session.recover()
            for run, prompt in ((passed, "Ship?"), (waiting, "Begin?")):
                handle = session.get_workflow_run(run.run_id)
                assert handle is not None
                await until_gate(handle, prompt)
    async with open_session(file, patched) as session:
        await session.recover()
        late, early = (session.get_workflow_run(run.run_id) for run in (passed, waiting))
        assert late is not None
        assert early is not None
        await late.answer("yes")
        assert await late.wait() == ["go", "paid", "yes"]
        await early.answer("go")
        await until_gate(early, "Ship?")
        await early.answer("yes")
        assert await early.wait() == ["checked go", "paid", "yes"]
        assert (outcomes(late.events), outcomes(early.events)) == ([False], [True])


async def test_a_fork_keeps_the_outcome_of_its_source() -> None:
    store = MemoryStore()
    run = await reach(open_session(store, old), "Ship?")
    session = open_session(store, patched)
    await session.recover()
    passed = session.get_workflow_run(run.run_id)
    assert passed is not None
    await passed.answer("yes")
    await passed.wait()
    for source in (run.run_id, (await session.fork(run.run_id, "/gate[2]")).run_id):
        fork = await session.fork(source, "/gate[2]")
        await until_gate(fork, "Ship?")
        await fork.answer("no")
        assert await fork.wait() == ["go", "paid", "no"]
        assert outcomes(fork.events) == [False]


async def test_a_fork_of_a_run_that_passed_the_place_before_the_patch_takes_the_old_branch() -> None:
    store = MemoryStore()
    run = await reach(open_session(store, old), "Ship?")
    await run.answer("yes")
    await run.wait()
    session = open_session(store, patched)
    fork = await session.fork(run.run_id, "/gate[2]")
    await until_gate(fork, "Ship?")
    await fork.answer("no")
    assert await fork.wait() == ["go", "paid", "no"]
    before_place = await session.fork(run.run_id, "/echo")
    await until_gate(before_place, "Ship?")
    await before_place.answer("no")
    assert await before_place.wait() == ["checked go", "paid", "no"]


async def test_the_outcome_of_a_patch_is_recorded_before_what_follows_from_it() -> None:
    async def asks_twice(ctx: WorkflowContext, has_patch: bool) -> list[Any]:
        gates = [asyncio.ensure_future(ctx.gate(prompt)) for prompt in ("Begin?", "Ship?")]
        await asyncio.wait(gates, timeout=0)
        if has_patch and ctx.patched("fraud-check"):
            gates[1].cancel()
        await asyncio.wait(gates[1:] if not has_patch else gates)
        return [gates[0].result(), gates[1].cancelled()]

    async def before(ctx: WorkflowContext) -> list[Any]:
        return await asks_twice(ctx, False)

    async def after(ctx: WorkflowContext) -> list[Any]:
        return await asks_twice(ctx, True)

    store = MemoryStore()
    run = await open_session(store, before).start("main")
    while len(run.pending_gates) < 2:
        await run.wait_for_change()
    await run.answer("go", run.pending_gates[0].gate_id)
    for cut in range(4, 8):
        store = copied(store, run.run_id, cut)
        [again] = await open_session(store, after).recover()
        assert await again.wait() == ["go", True], f"after event {cut}"
        new_types = [event.event_type for event in again.events[4:]]
        assert new_types.index("patch_evaluated") < new_types.index("gate_cancelled")


async def test_a_patch_can_be_removed_when_no_run_needs_its_old_branch() -> None:
    store = MemoryStore()
    run = await reach(open_session(store, patched), "Ship?")
    assert await continue_run(store, patch_removed, run.run_id) == ["checked go", "paid", "yes"]


async def test_a_patch_without_a_name_is_rejected() -> None:
    async def body(ctx: WorkflowContext) -> bool:
        return ctx.patched("")

    run = await open_session(None, body).start("main")
    with pytest.raises(ValueError, match="The name of a patch must not be empty; use a name such as"):
        await run.wait()


async def test_the_open_runs_that_may_need_the_old_branch_are_listed() -> None:
    store = MemoryStore()
    session = open_session(store, old)
    waiting, passed, ended = [await reach(session, prompt) for prompt in ("Begin?", "Ship?", "Ship?")]
    await ended.answer("yes")
    await ended.wait()
    session = open_session(store, patched)
    with pytest.raises(ValueError, match=r"Unknown patch 'fraud-check'\. No run has a patch\."):
        session.runs(patch="fraud-check")
    new = await reach(session, "Ship?")

    def listed() -> set[str]:
        return {run.run_id for run in session.runs(patch="fraud-check")}

    assert listed() == {waiting.run_id, passed.run_id}, "neither has evaluated it yet"
    await session.recover()
    handles = {run.run_id: session.get_workflow_run(run.run_id) for run in (waiting, passed)}
    await handles[waiting.run_id].answer("go")  # type: ignore[union-attr]
    await until_gate(handles[waiting.run_id], "Ship?")
    assert listed() == {passed.run_id}, "one has reached the place live"
    assert session.runs(patch="fraud-check", state="completed") == []
    assert session.runs(patch="fraud-check", state="waiting")[0].run_id == passed.run_id
    await handles[passed.run_id].answer("yes")  # type: ignore[union-attr]
    await handles[passed.run_id].wait()  # type: ignore[union-attr]
    assert listed() == set()
    with pytest.raises(ValueError, match=r"Unknown patch 'fraud-chek'\. Did you mean 'fraud-check'\?"):
        session.runs(patch="fraud-chek")
    assert not new.is_complete
