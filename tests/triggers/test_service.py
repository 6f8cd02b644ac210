"""Triggers start runs: schedules with their policies, files, facts and the ends of other runs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from nerve import Session
from nerve.core.workflow.context import WorkflowContext
from nerve.core.workflow.state import WorkflowState
from nerve.testing import VirtualClock, test_session
from nerve.testing.session import TestSession
from nerve.triggers import run_triggers, triggers_of
from nerve.triggers.start_arguments import NotStarted

NOON = datetime(2027, 3, 1, 12, tzinfo=UTC)
DEADLINE_S = 60.0


def register(session: Session) -> None:
    @session.workflow
    async def report(ctx: WorkflowContext, input: Any) -> Any:
        return input

    @session.workflow
    async def slow(ctx: WorkflowContext, input: Any) -> str:
        await ctx.sleep(3600)
        return "done"

    @session.workflow
    async def fails(ctx: WorkflowContext) -> None:
        raise ValueError("no")


@asynccontextmanager
async def session_at(
    now: datetime = NOON, *, store: Path | None = None, project: Path | None = None, **triggers: Any
) -> AsyncIterator[TestSession]:
    """Open a session whose clock a test moves, with triggers by name."""
    session = Session(project=project or "/nonexistent")
    register(session)
    for name, (workflow, definition) in triggers.items():
        session.trigger(name, workflow, **definition)
    async with test_session(session, store=store, clock=VirtualClock(now, skip=False)) as tested:
        yield tested


async def wait_until(condition: Callable[[], Any]) -> Any:
    """Return what a condition gives when it is true."""
    async with asyncio.timeout(DEADLINE_S):
        while not (found := condition()):  # noqa: ASYNC110 - no event for this
            await asyncio.sleep(0.01)
    return found


def keys_of(session: Session, name: str) -> list[str]:
    rows = session.engine.store.runs(session=session.name, tags={"trigger": name})
    return [(row.key or "").removeprefix(f"trigger:{name}:") for row in rows]


async def test_a_schedule_starts_a_run_at_its_times_with_the_input_tags_and_starter() -> None:
    definition = {
        "schedule": {"cron": "0 13 * * *", "timezone": "Europe/Berlin"},
        "input": {"at": "{{ time }}", "by": "{{ trigger }}"},
        "label": "daily-{{ time.slice(0, 10) }}",
        "tags": {"kind": "report"},
    }
    async with session_at(daily=("report", definition)) as session, run_triggers(session):
        await session.clock.advance(days=2)
        runs = session.runs(tags={"trigger": "daily"})
        assert [run.result for run in runs] == [
            {"at": "2027-03-03T13:00:00+01:00", "by": "daily"},
            {"at": "2027-03-02T13:00:00+01:00", "by": "daily"},
        ][: len(runs)]
        assert len(runs) == 2
        assert runs[0].label == "daily-2027-03-03"
        assert runs[0].tags == {"kind": "report", "trigger": "daily"}
        assert keys_of(session, "daily") == ["2027-03-02T12:00:00Z", "2027-03-03T12:00:00Z"]


async def test_a_decorator_declares_a_trigger_of_a_workflow_function() -> None:
    session = Session()

    @session.trigger("nightly", schedule="0 3 * * *")
    @session.workflow
    async def clean(ctx: WorkflowContext) -> None: ...

    assert session.triggers["nightly"].workflow == "clean"
    with pytest.raises(ValueError, match="Trigger 'bad': Unknown key 'shedule' in a trigger"):
        session.trigger("bad", "clean", shedule="0 3 * * *")


@pytest.mark.parametrize(
    ("overlap", "started", "open_runs"), [("skip", 3, 1), ("allow", 5, 2), ("cancel", 5, 1), ("queue", 3, 1)]
)
async def test_the_overlap_policy_decides_about_a_run_that_is_still_open(
    overlap: str, started: int, open_runs: int
) -> None:
    """A run takes an hour, and the schedule is every 40 minutes."""
    definition = {"schedule": {"every": "40min", "overlap": overlap}}
    async with session_at(tick=("slow", definition)) as session, run_triggers(session) as service:
        for _ in range(20):
            await session.clock.advance(minutes=10)
        assert len(keys_of(session, "tick")) == started
        assert len(service.open_runs(session.triggers["tick"])) == open_runs
        state = service.states.get("tick")
        if overlap == "skip":
            assert "is still open (overlap: skip)" in state.skips[0].reason
        if overlap == "queue":
            assert state.queued
            for _ in range(10):
                await session.clock.advance(minutes=30)
            keys = keys_of(session, "tick")
            assert keys == sorted(set(keys))


async def test_times_that_were_missed_start_after_a_restart_within_the_catch_up_window(
    tmp_path: Path,
) -> None:
    tick = ("report", {"schedule": {"cron": "0 * * * *", "catch_up": "3h", "overlap": "allow"}})
    async with session_at(store=tmp_path / "s.db", tick=tick) as session, run_triggers(session):
        await session.clock.advance(hours=1)
    later = datetime(2027, 3, 2, 12, 30, tzinfo=UTC)
    async with session_at(later, store=tmp_path / "s.db", tick=tick) as session:
        async with run_triggers(session) as service:
            await session.clock.advance(minutes=1)
            skips = service.states.get("tick").skips
        expected = [
            "2027-03-01T13:00:00Z",
            "2027-03-02T10:00:00Z",
            "2027-03-02T11:00:00Z",
            "2027-03-02T12:00:00Z",
        ]
        assert keys_of(session, "tick") == expected
        assert "missed" in skips[0].reason


async def test_nothing_starts_while_a_trigger_is_paused_nor_afterwards_for_that_time(tmp_path: Path) -> None:
    tick = ("report", {"schedule": {"every": "10min", "catch_up": "1d"}})
    async with session_at(store=tmp_path / "s.db", tick=tick) as session, run_triggers(session) as service:
        await session.clock.advance(minutes=15)
        await service.pause("tick", by="ann")
        await session.clock.advance(hours=1)
        assert len(keys_of(session, "tick")) == 1
    again = datetime(2027, 3, 1, 14, tzinfo=UTC)
    async with (
        session_at(again, store=tmp_path / "s.db", tick=tick) as session,
        run_triggers(session) as service,
    ):
        await session.clock.advance(minutes=30)
        assert service.states.get("tick").paused_by == "ann"
        assert len(keys_of(session, "tick")) == 1
        await service.resume("tick")
        await session.clock.advance(minutes=10)
        assert len(keys_of(session, "tick")) == 2


async def test_fire_starts_a_run_now_and_once_for_a_key() -> None:
    definition = {"webhook": {"signature": "github", "secret": {"env": "S"}}, "input": "{{ body.n }}"}
    async with session_at(hook=("report", definition)) as session:
        service = triggers_of(session)
        first = await service.fire("hook", {"body": {"n": 5}}, key="k")
        again = await service.fire("hook", {"body": {"n": 6}}, key="k")
        assert first.run_id == again.run_id
        assert await first.wait() == 5
        assert (await service.fire("hook", {"body": {"n": 6}})).run_id != first.run_id


async def test_a_backfill_starts_the_times_of_a_range_that_have_no_run() -> None:
    definition = {"schedule": "0 * * * *", "input": "{{ time }}"}
    async with session_at(tick=("report", definition)) as session, run_triggers(session) as service:
        await session.clock.advance(hours=2)
        end = NOON.timestamp() + 7200
        runs = await service.backfill("tick", end - 4 * 3600, end)
        assert len({run.run_id for run in runs}) == 5
        assert len(keys_of(session, "tick")) == 5
        with pytest.raises(ValueError, match="must not be in the future"):
            await service.backfill("tick", end, end + 3600)
        with pytest.raises(ValueError, match="more than 1000 times"):
            await service.backfill("tick", end - 3600 * 5000, end)


async def test_an_occurrence_that_cannot_start_is_recorded_with_the_reason() -> None:
    definition = {"schedule": {"every": "10min"}}
    async with session_at(tick=("reprot", definition)) as session, run_triggers(session) as service:
        await session.clock.advance(minutes=10)
        assert (
            "workflow 'reprot' not found. Did you mean 'report'?"
            in service.states.get("tick").skips[0].reason
        )


async def test_a_condition_that_is_false_starts_nothing() -> None:
    definition = {"schedule": {"every": "1h"}, "when": "time.includes('T14')"}
    async with session_at(tick=("report", definition)) as session, run_triggers(session):
        await session.clock.advance(hours=4)
        assert keys_of(session, "tick") == ["2027-03-01T14:00:00Z"]


# -- the API's definitions -------------------------------------------------------------------------------


async def test_a_trigger_of_the_api_is_stored_and_starts_runs_after_a_restart(tmp_path: Path) -> None:
    async with session_at(store=tmp_path / "s.db") as session:
        await triggers_of(session).define("tick", {"workflow": "report", "schedule": "0 * * * *"})
    async with session_at(store=tmp_path / "s.db") as session, run_triggers(session) as service:
        assert service.find("tick").source == "api"
        await session.clock.advance(hours=1)
        assert keys_of(session, "tick") == ["2027-03-01T13:00:00Z"]
        await service.remove("tick")
        await session.clock.advance(hours=1)
        assert len(keys_of(session, "tick")) == 1
    async with session_at(store=tmp_path / "s.db") as session:
        assert triggers_of(session).all() == {}


async def test_names_are_checked_and_the_nearest_one_is_named() -> None:
    async with session_at(nightly=("report", {"schedule": "0 3 * * *"})) as session:
        service = triggers_of(session)
        with pytest.raises(ValueError, match=r"Trigger 'nigthly' not found\. Did you mean 'nightly'\?"):
            service.find("nigthly")
        with pytest.raises(ValueError, match="is defined in Python code, which takes precedence"):
            await service.define("nightly", {"workflow": "report", "schedule": "0 3 * * *"})
        with pytest.raises(ValueError, match=r"is defined in Python code\. Remove it there, or pause it"):
            await service.remove("nightly")
        with pytest.raises(ValueError, match="The name of a trigger must be"):
            await service.define("a/b", {"workflow": "report", "schedule": "0 3 * * *"})


# -- runs, facts and files -------------------------------------------------------------------------------


async def test_the_end_of_a_run_starts_another_one_with_its_result() -> None:
    definition = {
        "run": {"workflow": "report", "state": ["completed", "failed"]},
        "when": "run.result.ok",
        "input": "{{ run.result.value }}",
    }
    async with session_at(after=("slow", definition)) as session, run_triggers(session) as service:
        await session.clock.advance(0)
        first = await session.start("report", {"ok": True, "value": 7})
        await session.start("report", {"ok": False, "value": 8})
        await wait_until(lambda: keys_of(session, "after"))
        assert keys_of(session, "after") == [f"run:{first.run_id}"]
        assert session.runs(workflow="slow")[0].input == 7
        assert not service.states.get("after").skips


async def test_a_run_that_ends_in_another_state_starts_nothing() -> None:
    definition = {"run": {"workflow": "fails", "state": "failed"}, "input": "{{ run.error }}"}
    async with (
        session_at(after=("report", definition), other=("report", {"run": {"workflow": "fails"}})) as session,
        run_triggers(session),
    ):
        await session.clock.advance(0)
        await session.start("fails")
        await wait_until(lambda: keys_of(session, "after"))
        assert "no" in session.runs(tags={"trigger": "after"})[0].input
        assert keys_of(session, "other") == []


async def test_a_trigger_that_starts_itself_ends_after_ten_runs_with_the_reason() -> None:
    async with session_at(loop=("report", {"run": "report"})) as session, run_triggers(session) as service:
        await session.clock.advance(0)
        await session.start("report", 1)
        state = await wait_until(lambda: service.states.get("loop").skips)
        assert "one because of the other" in state[0].reason
        assert len(keys_of(session, "loop")) == 10


async def test_a_run_that_ended_while_nothing_ran_starts_the_other_one_later(tmp_path: Path) -> None:
    after = ("slow", {"run": "report"})
    async with session_at(store=tmp_path / "s.db", after=after) as session:
        async with run_triggers(session) as service:
            await wait_until(lambda: service.states.get("after").hash)
        run = await session.start("report", 1)
        await run.wait()
        assert keys_of(session, "after") == []
    async with session_at(store=tmp_path / "s.db", after=after) as session:
        for _ in range(2):
            async with run_triggers(session):
                await wait_until(lambda: keys_of(session, "after"))
        assert keys_of(session, "after") == [f"run:{run.run_id}"]


async def test_a_run_whose_start_is_not_on_disk_yet_is_not_passed_by_the_stored_position(
    tmp_path: Path,
) -> None:
    after = ("slow", {"run": "report"})
    async with session_at(store=tmp_path / "s.db", after=after) as session:
        async with run_triggers(session) as service:
            await wait_until(lambda: service.states.get("after").hash)
            # It starts now, but is written only after the position is: as with a slow disk.
            late = await session.start("report", 1)
            await late.wait()
            await wait_until(lambda: keys_of(session, "after"))
            position = service.states.get("after").open_since
        assert position is not None
        assert late.started_at is not None
        assert position <= late.started_at.timestamp() - 60
    later = NOON.replace(minute=5)
    async with session_at(later, store=tmp_path / "s.db", after=after) as session, run_triggers(session):
        await session.clock.advance(minutes=1)
        assert keys_of(session, "after") == [f"run:{late.run_id}"]


async def test_a_run_whose_end_is_on_disk_but_not_reported_is_waited_for() -> None:
    after = ("slow", {"run": "report", "input": "{{ run.result.n }}"})
    async with session_at(after=after) as session:
        triggers_of(session).begin(session.triggers["after"])
        run = await session.start("report", {"n": 7})
        await run.wait()
        # As after a restart: the row says that it has ended before this process has heard of it.
        run.run_state.status = WorkflowState.RUNNING
        async with run_triggers(session) as service:
            await session.clock.advance(0)
            assert keys_of(session, "after") == []
            assert service.states.get("after").skips == []
            run.run_state.status = WorkflowState.COMPLETED
            run.run_state.notify_watchers()
            await wait_until(lambda: keys_of(session, "after"))
            assert session.runs(workflow="slow")[0].input == 7


async def test_a_fact_that_matches_starts_a_run_once(tmp_path: Path) -> None:
    order = ("report", {"fact": '(order ?id :status "new")', "input": "{{ captures.id }}"})
    async with session_at(store=tmp_path / "s.db", order=order) as session:
        await session.dataspace.assert_fact('(order 1 :status "new")')
        async with run_triggers(session) as service:
            await wait_until(lambda: service.states.get("order").hash)
            await session.dataspace.assert_fact('(order 2 :status "new")')
            await session.dataspace.assert_fact('(order 3 :status "old")')
            await wait_until(lambda: keys_of(session, "order"))
        await session.dataspace.assert_fact('(order 4 :status "new")')
    async with session_at(store=tmp_path / "s.db", order=order) as session:
        for _ in range(2):
            async with run_triggers(session):
                await wait_until(lambda: len(keys_of(session, "order")) == 2)
        assert sorted(run.input for run in session.runs(tags={"trigger": "order"})) == [2, 4]


async def test_a_file_that_is_created_or_changed_starts_a_run_also_while_nothing_ran(tmp_path: Path) -> None:
    inbox, store = tmp_path / "inbox", tmp_path / "s.db"
    inbox.mkdir()
    (inbox / "old.csv").write_text("there before")
    session = Session(store=store, project=tmp_path)
    register(session)
    session.trigger("csv", "report", files={"paths": ["inbox/*.csv"], "debounce": 0.05})

    def inputs() -> list[Any]:
        rows = session.engine.store.runs(session=session.name, tags={"trigger": "csv"})
        return [session.engine.run_handle(row).input for row in rows]

    async with session:
        async with run_triggers(session) as service:
            await wait_until(lambda: service.states.get("csv").hash)
            (inbox / "a.csv").write_text("1")
            (inbox / "a.txt").write_text("1")
            await wait_until(lambda: len(inputs()) == 1)
            (inbox / "a.csv").write_text("22")
            await wait_until(lambda: len(inputs()) == 2)
            (inbox / "a.csv").unlink()
            await wait_until(lambda: "inbox/a.csv" not in service.states.files("csv"))
        (inbox / "b.csv").write_text("3")
        (inbox / "old.csv").write_text("changed")
        for _ in range(2):
            async with run_triggers(session):
                await wait_until(lambda: len(inputs()) == 4)
        assert inputs()[:2] == [
            {"path": "inbox/a.csv", "name": "a.csv", "change": "created"},
            {"path": "inbox/a.csv", "name": "a.csv", "change": "changed"},
        ]
        changes = {entry["path"]: entry["change"] for entry in inputs()[2:]}
        assert changes == {"inbox/b.csv": "created", "inbox/old.csv": "changed"}


async def test_the_triggers_of_a_session_run_once_per_process() -> None:
    async with session_at() as session, run_triggers(session):
        with pytest.raises(RuntimeError, match="run already"):
            async with run_triggers(session):
                pass


async def test_a_start_that_fails_is_reported_to_who_fires_it() -> None:
    async with session_at(tick=("missing", {"schedule": "0 3 * * *"})) as session:
        with pytest.raises(NotStarted, match="workflow 'missing' not found"):
            await triggers_of(session).fire("tick")
