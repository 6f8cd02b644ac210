"""The laws of replay, over generated workflow functions."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from engine.programs import BLIND, LETTERS, World, build, copied, finish, programs, settled, spin
from nerve import FunctionNode, Session
from nerve.core.json_codec import decode_json
from nerve.journal.paths import is_within_step
from nerve.journal.run_view import fold_events
from nerve.store.memory import MemoryStore
from nerve.store.port import EventRow
from nerve.testing import assert_replays

pytestmark = pytest.mark.local("cuts the journal of the store")

DELAYS = st.lists(st.integers(0, 12), min_size=1, max_size=5)
QUICK = settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))
FULL = settings(max_examples=1500, deadline=None, suppress_health_check=list(HealthCheck))


async def complete(
    program: Any, delays: list[int], has_patches: bool = True
) -> tuple[Any, MemoryStore, str, World]:
    store, world = MemoryStore(), World(delays)
    session = build(program, world, store, has_patches)
    run = await session.start("main")
    return await finish(run), store, run.run_id, world


async def rebuilt(
    program: Any, delays: list[int], store: MemoryStore, run_id: str, upto: int
) -> tuple[Any, Any, World, MemoryStore]:
    world = World(delays)
    other = copied(store, run_id, upto)
    session = build(program, world, other)
    await session.recover()
    run = session.get_workflow_run(run_id)
    assert run is not None
    return await finish(run), run, world, other


async def check_every_prefix(program: Any, delays: list[int], blind: bool, step: int) -> None:
    result, store, run_id, original = await complete(program, delays)
    rows = store.events(run_id)
    for upto in sorted({*range(1, len(rows), step), len(rows) - 1}):
        again, run, world, other = await rebuilt(program, delays[::-1], store, run_id, upto)
        events = run.events
        assert not settled(rows[:upto]) & {path for run_of, path in world.done if run_of == run_id}, (
            "a settled call ran again"
        )
        assert [(e.seq, e.event_type, e.path) for e in events[:upto]] == [
            (r.seq, r.type, r.path) for r in rows[:upto]
        ]
        assert [event.seq for event in events] == list(range(1, len(events) + 1))
        recorded = settled(rows[:upto])
        # If the cut lost the event that abandons a call with a result, the body may receive the result.
        if not recorded & {row.path for row in rows[upto:]}:
            known = outcomes_before_loss(original, rows, upto)
            seen = outcomes_at(world.outcomes, recorded)
            is_complete = len(known) == len(original.outcomes)
            expected = outcomes_at(known, recorded)
            assert (seen if is_complete else seen[: len(expected)]) == expected, "another order"
        if blind:
            assert comparable(again) == comparable(result)
        if upto == len(rows) - 1:
            assert again == result
        assert run.view.state == "completed"
        new_rows = other.events(run_id)
        assert run.tags == run.view.tags == tags_of(new_rows)
        new_tags = tags_of(new_rows[upto:])
        assert not new_tags or [row.run for row in other.runs(tags=new_tags)] == [run_id]
        if upto == len(rows) - 1:
            assert tag_changes(new_rows) == tag_changes(rows), "a tag was recorded again"
        once_more, *_ = await rebuilt(program, delays, other, run_id, len(other.events(run_id)) - 1)
        assert once_more == again, "the run that was rebuilt is rebuilt otherwise"


async def check_patches_added_at_every_prefix(program: Any, delays: list[int], step: int) -> None:
    """Continue a run after any of its events with code to which patches were added."""
    _, store, run_id, _ = await complete(program, delays, has_patches=False)
    rows = store.events(run_id)
    for upto in sorted({*range(1, len(rows), step), len(rows) - 1}):
        again, run, world, other = await rebuilt(program, delays[::-1], store, run_id, upto)
        assert not settled(rows[:upto]) & {path for run_of, path in world.done if run_of == run_id}
        assert run.view.state == "completed"
        new_rows = other.events(run_id)
        outcomes = evaluated_patches(new_rows)
        for cut in {len(new_rows) - 1, (upto + len(new_rows)) // 2}:
            once_more, _, _, last = await rebuilt(program, delays, other, run_id, cut)
            recorded = evaluated_patches(new_rows[:cut])
            assert evaluated_patches(last.events(run_id)).items() >= recorded.items()
            if cut == len(new_rows) - 1:
                assert (once_more, recorded) == (again, outcomes)


async def check_cleanup_at_every_prefix(program: Any, delays: list[int], turns: int, step: int) -> None:
    """Stop a run, and continue its cleanup after any of its events."""
    store, world = MemoryStore(), World(delays)
    run = await build(program, world, store).start("tidy")
    ending = asyncio.ensure_future(finish(run))
    await spin(turns)
    await run.stop()
    with contextlib.suppress(asyncio.CancelledError):
        await ending
    rows = store.events(run.run_id)
    stops = [row.seq for row in rows if row.type == "workflow_stopping"]
    assert (run.state.value, len(stops)) == ("cancelled", 1)
    for upto in sorted({*range(stops[0], len(rows), step), len(rows) - 1}):
        again = World(delays[::-1])
        other = copied(store, run.run_id, upto)
        session = build(program, again, other)
        await session.recover()
        rebuilt_run = session.get_workflow_run(run.run_id)
        assert rebuilt_run is not None
        while not rebuilt_run.is_complete:
            assert rebuilt_run.held is None, rebuilt_run.held
            await asyncio.sleep(0)
        assert rebuilt_run.state.value == "cancelled"
        assert not settled(rows[:upto]) & {path for run_of, path in again.done if run_of == run.run_id}
        assert again.outcomes == world.outcomes, "the body was cancelled elsewhere"


async def check_replay_of_prefixes(program: Any, delays: list[int], turns: int) -> None:
    """Check the journal of a completed run, of a stopped one, and of every fifth prefix of the first."""
    _, store, run_id, _ = await complete(program, delays)
    rows = store.events(run_id)
    for upto in sorted({*range(1, len(rows), 5), len(rows)}):
        world = World(delays[::-1])
        session = build(program, world, copied(store, run_id, upto))
        run = session.get_workflow_run(run_id)
        assert run is not None
        await assert_replays(run)
        assert not world.done
        assert session.engine.store.events(run_id) == rows[:upto]
    run = await build(program, World(delays), MemoryStore()).start("main")
    await spin(turns)
    await run.stop("enough")
    await assert_replays(run)


async def check_chain_at_every_prefix(parts: list[Any], delays: list[int], step: int) -> None:
    """Continue a chain after any event of any of its runs: one next run each, and every letter once."""
    store, world = MemoryStore(), World(delays)
    run = await build(None, world, store).start("chain", [[], parts])
    await send_letters(run)
    result = await finish(run)
    ids = chain_ids(store, run.run_id)
    assert len(ids) == len(parts)
    assert result[1] == list(range(LETTERS))
    for place, run_id in enumerate(ids):
        rows = store.events(run_id)
        for upto in sorted({*range(1, len(rows), step), len(rows) - 1}):
            other, again = copied(store, run_id, upto), World(delays[::-1])
            session = build(None, again, other)
            await session.recover()
            rebuilt_run = session.get_workflow_run(run_id)
            assert rebuilt_run is not None
            await send_letters(rebuilt_run)
            assert (await finish(rebuilt_run))[1] == result[1], "a letter was lost or read twice"
            assert not settled(rows[:upto]) & {path for run_of, path in again.done if run_of == run_id}
            assert chain_ids(other, run_id) == ids[place:]
            assert sorted(row.run for row in other.runs(workflow="chain")) == sorted(ids[place:])


async def send_letters(run: Any) -> None:
    """Send the letters, or send them again: those that the chain has are not sent twice."""
    for letter in range(LETTERS):
        await run.send("letters", letter, key=f"letter {letter}")


def chain_ids(store: MemoryStore, run_id: str) -> list[str]:
    """Return the ids of a run and the later runs of its chain."""
    last = store.last_event(run_id)
    next_id = decode_json(last.data).get("continued_as") if last is not None else None
    return [run_id, *(chain_ids(store, next_id) if next_id is not None else [])]


def tags_of(rows: list[EventRow]) -> dict[str, str]:
    return {name: value for change in tag_changes(rows) for name, value in change.items()}


def tag_changes(rows: list[EventRow]) -> list[dict[str, str]]:
    return [decode_json(row.data)["tags"] for row in rows if row.type == "tags_changed"]


def evaluated_patches(rows: list[EventRow]) -> dict[str, bool]:
    """Return the outcomes of the patches in a journal; each is evaluated once."""
    events = [decode_json(row.data) for row in rows if row.type == "patch_evaluated"]
    outcomes = {data["name"]: data["active"] for data in events}
    assert len(outcomes) == len(events)
    return outcomes


def outcomes_before_loss(original: World, rows: list[EventRow], upto: int) -> list[tuple[str, str]]:
    """Return what the body saw before the first request that a cut lost.

    A lost call has not started when the body runs again. If the body abandons it because of an outcome that
    is recorded, it raises at once and not when the call has ended, and the body may go on otherwise.
    """
    lost = {row.path for row in rows[upto:]} - {row.path for row in rows[:upto]}
    seen_before = [
        seen
        for path, seen in original.requests.items()
        if any(is_within_step(lost_path, path) for lost_path in lost)
    ]
    return original.outcomes[: min(seen_before, default=len(original.outcomes))]


def outcomes_at(outcomes: list[tuple[str, str]], paths: set[str]) -> list[tuple[str, str]]:
    """Return what the body saw of these calls, in that order."""
    return [outcome for outcome in outcomes if outcome[0] in paths]


def comparable(value: Any) -> Any:
    """Return a result without clock readings, random values and call numbers."""
    if isinstance(value, list):
        if len(value) == 3 and isinstance(value[1], float):
            return "clock"
        return [comparable(item) for item in value]
    if isinstance(value, dict):
        return {name: comparable(item) for name, item in value.items() if name != "at"}
    return value


@QUICK
@given(programs(BLIND), DELAYS)
def test_discarding_a_run_after_any_event_and_rebuilding_it_changes_nothing(
    program: Any, delays: list[int]
) -> None:
    asyncio.run(check_every_prefix(program, delays, blind=True, step=3))


@QUICK
@given(programs(), DELAYS)
def test_an_order_sensitive_body_is_rebuilt_after_any_event(program: Any, delays: list[int]) -> None:
    asyncio.run(check_every_prefix(program, delays, blind=False, step=3))


@QUICK
@given(programs(), DELAYS)
def test_patches_can_be_added_after_any_event_and_keep_their_outcome(program: Any, delays: list[int]) -> None:
    asyncio.run(check_patches_added_at_every_prefix(program, delays, step=3))


@QUICK
@given(programs(), DELAYS, st.integers(0, 200))
def test_the_replay_check_accepts_every_journal_of_the_same_code(
    program: Any, delays: list[int], turns: int
) -> None:
    asyncio.run(check_replay_of_prefixes(program, delays, turns))


@QUICK
@given(programs(), DELAYS, st.integers(0, 200))
def test_a_cleanup_continues_after_any_event(program: Any, delays: list[int], turns: int) -> None:
    asyncio.run(check_cleanup_at_every_prefix(program, delays, turns, step=3))


@settings(QUICK, max_examples=12)
@given(st.lists(programs(), min_size=1, max_size=3), DELAYS)
def test_a_chain_continues_after_any_event_of_any_of_its_runs(parts: list[Any], delays: list[int]) -> None:
    asyncio.run(check_chain_at_every_prefix(parts, delays, step=5))


@pytest.mark.full
@settings(FULL, max_examples=500)
@given(st.lists(programs(), min_size=1, max_size=4), DELAYS)
def test_a_chain_continues_after_every_event_of_many_programs(parts: list[Any], delays: list[int]) -> None:
    asyncio.run(check_chain_at_every_prefix(parts, delays, step=1))


@pytest.mark.full
@FULL
@given(programs(), DELAYS, st.integers(0, 400))
def test_a_cleanup_continues_after_every_event_of_many_programs(
    program: Any, delays: list[int], turns: int
) -> None:
    asyncio.run(check_cleanup_at_every_prefix(program, delays, turns, step=1))


@pytest.mark.full
@FULL
@given(programs(), DELAYS)
def test_patches_can_be_added_after_every_event_of_many_programs(program: Any, delays: list[int]) -> None:
    asyncio.run(check_patches_added_at_every_prefix(program, delays, step=1))


@pytest.mark.full
@FULL
@given(programs(BLIND), DELAYS)
def test_rebuilding_after_every_event_changes_nothing_in_many_programs(
    program: Any, delays: list[int]
) -> None:
    asyncio.run(check_every_prefix(program, delays, blind=True, step=1))


@pytest.mark.skipif(sys.platform == "win32", reason="uvloop does not support Windows")
@settings(QUICK, max_examples=30)
@given(programs(), DELAYS)
def test_an_order_sensitive_body_is_rebuilt_on_a_loop_that_hides_its_queue(
    program: Any, delays: list[int]
) -> None:
    import uvloop

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(check_every_prefix(program, delays, blind=False, step=3))


@pytest.mark.full
@settings(FULL, max_examples=3000)
@given(programs(), DELAYS)
def test_rebuilding_order_sensitive_bodies_after_every_event_in_many_programs(
    program: Any, delays: list[int]
) -> None:
    asyncio.run(check_every_prefix(program, delays, blind=False, step=1))


@QUICK
@given(programs(BLIND), DELAYS, DELAYS)
def test_the_order_of_completion_changes_nothing_for_an_order_insensitive_body(
    program: Any, one: list[int], other: list[int]
) -> None:
    first = asyncio.run(complete(program, one))
    second = asyncio.run(complete(program, other))
    assert comparable(first[0]) == comparable(second[0])
    assert sorted(path for _, path in first[3].done) == sorted(path for _, path in second[3].done)


@QUICK
@given(programs(), DELAYS)
def test_the_view_of_any_prefix_is_valid_and_the_events_are_dense(program: Any, delays: list[int]) -> None:
    async def scenario() -> Any:
        store, world = MemoryStore(), World(delays)
        run = await build(program, world, store).start("main")
        await finish(run)
        return run.events

    events = asyncio.run(scenario())
    assert [event.seq for event in events] == list(range(1, len(events) + 1))
    assert all(event.event_type for event in events)
    states = [fold_events(events[:upto]).state for upto in range(len(events) + 1)]
    assert states[0] == "pending"
    assert set(states[1:-1]) <= {"running", "waiting"}
    assert states[-1] == "completed"


async def cancels_the_other(ctx: Any) -> Any:
    tasks = [asyncio.create_task(ctx.run(name)) for name in ("one", "two")]
    _, others = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for other in others:
        other.cancel()
    await asyncio.wait(tasks)


async def leaves_the_other(ctx: Any) -> Any:
    tasks = [asyncio.create_task(ctx.run(name)) for name in ("one", "two")]
    await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)


async def fails_before_the_other(ctx: Any) -> Any:
    async def fails(name: str) -> None:
        await ctx.run(name)
        raise ValueError("enough")

    await asyncio.gather(fails("one"), fails("two"))


@pytest.mark.parametrize("body", [cancels_the_other, leaves_the_other, fails_before_the_other])
async def test_a_body_that_ends_without_awaiting_a_result_ends_the_same_way_after_a_crash(body: Any) -> None:
    def opened(store: MemoryStore) -> Session:
        session, both = Session("test", store), asyncio.Barrier(2)

        async def work(context: Any) -> Any:
            await both.wait()

        for name in ("one", "two"):
            FunctionNode(name, session, work)
        session.workflow(body, id="main")
        return session

    store = MemoryStore()
    run = await opened(store).start("main")
    await run.wait_until_ended()
    rows = store.events(run.run_id)
    assert [row.type for row in rows[3:5]] == ["node_completed"] * 2
    (again,) = await opened(copied(store, run.run_id, 5)).recover()
    with contextlib.suppress(ValueError):
        await again.wait()
    assert again.state is run.state


async def abandons_a_call_after_two_results(ctx: Any) -> Any:
    tasks = [asyncio.create_task(ctx.run(name)) for name in ("one", "two")]
    await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    third = asyncio.create_task(ctx.run("third"))
    await asyncio.wait(tasks)
    third.cancel()
    await asyncio.wait([third])


async def test_a_call_that_the_recorded_results_abandon_does_not_start_after_a_crash() -> None:
    executed: list[str] = []

    def opened(store: MemoryStore) -> Session:
        session, both = Session("test", store), asyncio.Barrier(2)

        async def work(context: Any) -> Any:
            executed.append(context.path)
            if context.path != "/third":
                await both.wait()

        for name in ("one", "two", "third"):
            FunctionNode(name, session, work)
        session.workflow(abandons_a_call_after_two_results, id="main")
        return session

    store = MemoryStore()
    run = await opened(store).start("main")
    await run.wait()
    assert [row.type for row in store.events(run.run_id)[3:5]] == ["node_completed"] * 2
    executed.clear()
    (again,) = await opened(copied(store, run.run_id, 5)).recover()
    await again.wait()
    assert executed == []
    assert [event.event_type for event in again.events[5:]] == ["workflow_completed"]
