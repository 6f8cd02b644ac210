"""The dataspace: facts, and observers that see every change once."""

# ruff: noqa: PT009 - `assert_` is a method of the space, not of a test case

import asyncio
import gc
import itertools
import logging
from collections.abc import Sequence
from typing import Any

import pytest

from nerve.dataspace import Change, Dataspace, Fact, Lagged, Pattern, Record, VersionConflict, builtin_records


@pytest.fixture
def space() -> Dataspace:
    ticks = itertools.count(1)
    return Dataspace(clock=lambda: float(next(ticks)))


def texts(facts: Sequence[Fact]) -> list[str]:
    return [str(fact.record) for fact in facts]


def brief(change: Change) -> tuple[Any, ...]:
    return change.kind, str(change.fact.record), change.captures


async def take(observation: Any, count: int) -> list[Change]:
    return [await asyncio.wait_for(anext(observation), 5) for _ in range(count)]


@pytest.mark.requirement("S4-14")
def test_a_fact_exists_until_it_is_retracted(space: Dataspace) -> None:
    change = space.assert_("(note 1)", by="run-1")
    assert change is not None
    assert space.facts() == [change.fact] == space.facts("(note _)")
    assert change.fact == Fact(Record("note", (1,)), Record("note", (1,)).id, "run-1", 1.0, 1)
    [gone] = space.retract("(note ?n)", by="run-2")
    assert (gone.kind, gone.fact, gone.version, gone.by) == ("retracted", change.fact, 2, "run-2")
    assert space.facts() == []
    assert space.retract("(note ?n)") == []


def test_asserting_an_existing_fact_is_not_a_change(space: Dataspace) -> None:
    first = space.assert_("(note 1)", by="a")
    assert first is not None
    assert space.assert_(["note", 1.0], by="b") is None
    assert space.facts() == [first.fact]
    assert space.version == 1


def test_a_newer_signal_replaces_the_older_one(space: Dataspace) -> None:
    first = space.assert_(builtin_records.signal("go", "a", 1))
    space.assert_(builtin_records.signal("go", "b", 1))
    second = space.assert_(builtin_records.signal("go", "a", 2))
    assert first is not None
    assert second is not None
    assert second.replaced == first.fact
    assert second.fact.id == first.fact.id
    assert texts(space.facts("(signal go ...)")) == [
        '(signal go :key "b" :value 1)',
        '(signal go :key "a" :value 2)',
    ]


def test_reading_a_signal_does_not_consume_it(space: Dataspace) -> None:
    space.assert_(builtin_records.signal("go", "a", 1))
    for _ in range(2):
        assert len(space.facts(builtin_records.signal_pattern("go", "a"))) == 1


def test_find_returns_the_captures(space: Dataspace) -> None:
    space.assert_("(note a 1)")
    space.assert_("(note b 2)")
    assert [found.captures for found in space.find("(note ?who ?n)")] == [
        {"who": "a", "n": 1},
        {"who": "b", "n": 2},
    ]


@pytest.mark.requirement("S4-14")
async def test_an_observer_sees_current_facts_and_then_each_change_once(space: Dataspace) -> None:
    space.assert_("(note 1)")
    async with space.observe("(note ?n)") as changes:
        space.assert_("(note 2)")
        space.assert_("(note 2)")
        space.assert_("(other 2)")
        space.retract("(note 1)")
        seen = await take(changes, 3)
        assert [(change.kind, change.captures["n"], change.present) for change in seen] == [
            ("asserted", 1, True),
            ("asserted", 2, False),
            ("retracted", 1, False),
        ]
        waiting = asyncio.ensure_future(anext(changes))
        await asyncio.sleep(0)
        assert not waiting.done()
        space.assert_("(note 3)")
        assert (await asyncio.wait_for(waiting, 60)).captures == {"n": 3}


async def test_an_observer_may_skip_current_facts(space: Dataspace) -> None:
    space.assert_("(note 1)")
    async with space.observe("(note ?n)", present=False) as changes:
        space.assert_("(note 2)")
        assert [change.captures["n"] for change in await take(changes, 1)] == [2]


async def test_a_replacement_is_one_change_or_a_retraction_for_observers_of_the_older_fact(
    space: Dataspace,
) -> None:
    seen: dict[str, list[tuple[Any, ...]]] = {"both": [], "old": [], "new": []}
    patterns = {"both": "(signal go)", "old": "(signal go :value 1)", "new": "(signal go :value 2)"}
    for name, pattern in patterns.items():
        space.watch(pattern, lambda change, name=name: seen[name].append(brief(change)))  # type: ignore[misc]
    space.assert_(builtin_records.signal("go", None, 1))
    space.assert_(builtin_records.signal("go", None, 2))
    old, new = "(signal go :key nil :value 1)", "(signal go :key nil :value 2)"
    assert seen == {
        "both": [("asserted", old, {}), ("asserted", new, {})],
        "old": [("asserted", old, {}), ("retracted", old, {})],
        "new": [("asserted", new, {})],
    }


def test_an_ended_watcher_is_not_notified(space: Dataspace) -> None:
    seen: list[Change] = []
    end = space.watch("(note _)", seen.append, present=True)
    space.assert_("(note 1)")
    end()
    end()
    space.assert_("(note 2)")
    assert [change.fact.record for change in seen] == [Record("note", (1,))]


def test_a_watcher_can_start_with_current_facts(space: Dataspace) -> None:
    space.assert_("(note 1)")
    seen: list[Change] = []
    space.watch("(note _)", seen.append, present=True)
    assert [change.present for change in seen] == [True]


def test_a_watcher_that_changes_the_space_does_not_disturb_the_order(space: Dataspace) -> None:
    seen: list[tuple[str, int]] = []

    def echo(change: Change) -> None:
        seen.append(("first", change.version))
        if change.version < 3:
            space.assert_(["note", change.version])

    space.watch("(note _)", echo)
    space.watch("(note _)", lambda change: seen.append(("second", change.version)))
    space.assert_("(note 0)")
    assert seen == [(who, version) for version in (1, 2, 3) for who in ("first", "second")]


def test_a_watcher_added_during_a_notification_sees_nothing_twice(space: Dataspace) -> None:
    seen: list[Change] = []

    def begin(change: Change) -> None:
        if change.version == 1:
            space.assert_("(note 2)")
            space.watch("(note _)", seen.append, present=True)

    space.watch("(note _)", begin)
    space.assert_("(note 1)")
    assert [change.fact.version for change in seen] == [1, 2]


def test_a_watcher_can_end_another_one_during_a_notification(space: Dataspace) -> None:
    seen: list[Change] = []
    space.watch("(note _)", lambda _: end())
    end = space.watch("(note _)", seen.append)
    space.assert_("(note 1)")
    assert seen == []


def test_a_failing_watcher_does_not_affect_others(space: Dataspace, caplog: pytest.LogCaptureFixture) -> None:
    seen: list[Change] = []
    space.watch("(note _)", lambda _: 1 / 0)
    space.watch("(note _)", seen.append)
    with caplog.at_level(logging.ERROR):
        assert space.assert_("(note 1)") is not None
    assert len(seen) == 1
    assert "observer of" in caplog.text


async def test_an_observer_that_does_not_keep_up_gets_an_error(space: Dataspace) -> None:
    changes = space.observe("(note ?n)", buffer=3)
    for number in range(10):
        space.assert_(["note", number])
    assert [change.captures["n"] for change in await take(changes, 3)] == [0, 1, 2]
    with pytest.raises(Lagged, match=r"lags by more than 3 changes.*Observe again"):
        await anext(changes)
    with pytest.raises(StopAsyncIteration):
        await anext(changes)
    assert watchers(space) == 0


async def test_a_buffer_holds_at_least_one_change(space: Dataspace) -> None:
    with pytest.raises(ValueError, match="buffer must be at least 1, got 0"):
        space.observe("(note)", buffer=0)


async def test_closing_the_dataspace_ends_waiting_observers(space: Dataspace) -> None:
    async def all_of(changes: Any) -> list[Change]:
        return [change async for change in changes]

    one, two = space.observe("(note)"), space.observe("(other)")
    waiting = [asyncio.ensure_future(all_of(one)), asyncio.ensure_future(all_of(two))]
    await asyncio.sleep(0)
    one.close()
    space.close()
    assert await asyncio.wait_for(asyncio.gather(*waiting), 5) == [[], []]
    assert watchers(space) == 0


async def test_an_unreferenced_observation_ends(space: Dataspace) -> None:
    async for _ in observed(space):
        break
    gc.collect()
    assert watchers(space) == 0


def observed(space: Dataspace) -> Any:
    space.assert_("(note 1)")
    return space.observe("(note _)")


def watchers(space: Dataspace) -> int:
    return len(space._observers._observers)


@pytest.mark.requirement("S4-14")
def test_a_dataspace_can_be_restored_from_its_facts(space: Dataspace) -> None:
    space.assert_(builtin_records.signal("go", "a", 1), by="me")
    space.assert_("(note 1)")
    space.assert_(builtin_records.signal("go", "a", 2), by="you")
    again = Dataspace(reversed(space.facts()))
    assert again.facts() == space.facts()
    assert again.version == space.version
    change = again.assert_("(note 2)")
    assert change is not None
    assert change.version == 4


def test_the_version_counts_a_final_retraction(space: Dataspace) -> None:
    space.assert_("(note 1)")
    space.assert_("(note 2)")
    space.retract("(note 2)")
    again = Dataspace(space.facts(), space.version)
    change = again.assert_("(note 3)")
    assert change is not None
    assert change.version == 4


def untold(space: Dataspace, asserted: Sequence[str] = (), retracted: Sequence[str] = ()) -> int:
    """Apply changes without publishing them; return the last version."""
    changes = space.stage(asserted, retracted)
    space.apply(changes, publish=False)
    return changes[-1].version


def told(space: Dataspace, *, present: bool = False) -> list[tuple[str, str]]:
    seen: list[tuple[str, str]] = []
    space.watch("(_ ...)", lambda change: seen.append(brief(change)[:2]), present=present)
    return seen


def test_unpublished_changes_are_visible_at_once_and_published_in_order(space: Dataspace) -> None:
    seen = told(space)
    first = untold(space, ["(note 1)", "(note 2)"])
    second = untold(space, ["(note 3)"], ["(note 1)"])
    assert texts(space.facts()) == ["(note 2)", "(note 3)"]
    assert seen == []
    space.publish(first)
    assert seen == [("asserted", "(note 1)"), ("asserted", "(note 2)")]
    space.publish(first)
    space.publish(second)
    space.publish()
    assert seen[2:] == [("retracted", "(note 1)"), ("asserted", "(note 3)")]


def test_an_observer_that_starts_after_a_change_does_not_see_it_again(space: Dataspace) -> None:
    untold(space, ["(note 1)"])
    seen = told(space, present=True)
    space.publish()
    assert seen == [("asserted", "(note 1)")]


def test_a_reload_undoes_unpublished_changes(space: Dataspace) -> None:
    space.assert_("(note 1)")
    kept, seen = space.facts(), told(space)
    untold(space, ["(note 2)"], ["(note 1)"])
    space.reload(kept, 1)
    space.publish()
    assert space.facts() == kept
    assert seen == []
    assert space.assert_("(note 2)") is not None
    assert seen == [("asserted", "(note 2)")]


def test_observers_of_an_undone_change_get_a_correction(space: Dataspace) -> None:
    space.assert_("(note 1)")
    space.assert_('(signal go :value "old")')
    kept, before = space.facts(), told(space)
    untold(space, ["(note 2)", '(signal go :value "new")'], ["(note 1)"])
    after = told(space, present=True)
    later = untold(space, ["(note 3)"])
    space.reload(kept, later - 1)
    assert before == []
    assert after == [
        ("asserted", "(note 2)"),
        ("asserted", '(signal go :key nil :value "new")'),
        ("asserted", '(signal go :key nil :value "old")'),
        ("retracted", "(note 2)"),
        ("asserted", "(note 1)"),
    ]


def test_a_reload_notifies_observers_of_the_differences(space: Dataspace) -> None:
    other = Dataspace()
    for text in ("(note 1)", "(note 3)", "(signal go :value 2)"):
        other.assert_(text)
    for text in ("(note 2)", "(signal go :value 1)"):
        space.assert_(text)
    seen = told(space)
    space.reload(other.facts(), other.version)
    assert space.facts() == other.facts()
    assert seen == [
        ("retracted", "(note 2)"),
        ("asserted", "(signal go :key nil :value 2)"),
        ("asserted", "(note 1)"),
        ("asserted", "(note 3)"),
    ]


def test_a_change_after_an_undone_change_has_a_new_version(space: Dataspace) -> None:
    untold(space, ["(note 1)", "(note 2)"])
    seen = told(space)
    space.reload((), 0)
    change = space.assert_("(note 1)")
    assert change is not None
    assert change.version > 2
    assert seen[-1] == ("asserted", "(note 1)")


def test_several_changes_can_be_staged_and_applied_together(space: Dataspace) -> None:
    space.assert_("(note 1)")
    changes = space.stage(
        asserted=[
            "(note 1)",
            builtin_records.signal("go", None, 1),
            builtin_records.signal("go", None, 2),
            "(note 2)",
            "(note 2)",
        ],
        retracted=["(note _)", "(note 1)"],
        by="me",
    )
    assert texts(space.facts()) == ["(note 1)"]
    assert [change.version for change in changes] == [2, 3, 4, 5, 6]
    space.apply(changes)
    assert texts(space.facts()) == ["(note 1)", "(signal go :key nil :value 2)", "(note 2)"]


def test_outdated_staged_changes_are_rejected(space: Dataspace) -> None:
    changes = space.stage(asserted=["(note 1)"])
    space.assert_("(note 2)")
    with pytest.raises(VersionConflict, match=r"got change 1, expected 2\. Stage the changes again"):
        space.apply(changes)
    assert texts(space.facts()) == ["(note 2)"]


@pytest.fixture
def tried(monkeypatch: pytest.MonkeyPatch) -> list[Record]:
    """The records that patterns were matched against."""
    seen: list[Record] = []
    original = Pattern.match

    def counting(self: Pattern, record: Record) -> Any:
        seen.append(record)
        return original(self, record)

    monkeypatch.setattr(Pattern, "match", counting)
    return seen


def test_find_tries_only_facts_under_the_index_key(tried: list[Record]) -> None:
    space = Dataspace()
    for number in range(20_000):
        space.assert_(Record(f"label-{number // 10}", (number,)))
    for run in range(100):
        for seq in range(10):
            space.assert_(builtin_records.workflow_log(str(run), seq, "m"))
            space.assert_(builtin_records.signal("go", f"{run}-{seq}", seq))
        space.assert_(builtin_records.workflow_state(str(run), "w", "held" if run == 7 else "running"))
    for pattern, matches in [
        ('(workflow/state :status "held")', 1),
        ('(workflow/state :workflow w :status "held")', 1),
        ("(label-7 _)", 10),
        ("(label-7 75)", 1),
        ('(workflow/log :run "42")', 10),
        ('(workflow/log :run "42" :seq 3)', 1),
        ('(signal go :key "4-2")', 1),
        (space.facts("(label-9 _)")[0].record, 1),
        ("(nothing)", 0),
    ]:
        tried.clear()
        assert len(space.facts(pattern)) == matches
        assert len(tried) == matches


def test_a_change_is_tried_only_on_observers_under_its_index_keys(tried: list[Record]) -> None:
    space = Dataspace()
    woken: list[Change] = []
    for key in range(1_000):
        space.watch(builtin_records.signal_pattern("go", f"run-{key}"), woken.append)
    space.watch("(signal go)", woken.append)
    space.watch("(_ ...)", woken.append)
    space.assert_(builtin_records.signal("go", "run-7", 1))
    assert len(woken) == len(tried) == 3
