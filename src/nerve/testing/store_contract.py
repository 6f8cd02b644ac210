"""The tests that every store must pass; subclass `StoreContract` and override its `store` fixture."""

from __future__ import annotations

import itertools
import json
import math
import threading
from collections.abc import Sequence

import pytest

from nerve.errors import Conflict, StoreError
from nerve.store.port import (
    CHAIN_KIND,
    EMPTIABLE_TYPE,
    MAX_INLINE_BYTES,
    MAX_SEARCHED_CHARS,
    MAX_VALUE_BYTES,
    PATCH_KIND,
    TAG_KIND,
    Append,
    Definition,
    EventRow,
    FactRow,
    PersonRow,
    ReplyRow,
    RunRow,
    StepUsageRow,
    Store,
    TagRow,
    UsageRow,
    WaitRow,
)


def event(seq: int, settles: str | None = None, data: str = "{}") -> EventRow:
    return EventRow(seq, 1763199999.123456, "happened", f"/main/{seq}", settles, data)


def output(seq: int, data: str = "{}") -> EventRow:
    """Return an event whose data may be deleted."""
    return event(seq, data=data)._replace(type=EMPTIABLE_TYPE)


def append(
    run: str, after: int, count: int = 1, row: RunRow | None = None, facts: Sequence[FactRow] = ()
) -> Append:
    return Append(run, after, [event(after + n) for n in range(1, count + 1)], row, facts=facts)


def run_row(run: str, state: str = "running", key: str | None = None, started: float = 1.0) -> RunRow:
    return RunRow(run, "default", "review", state, started, key=key)


def fact_row(id: str, version: int, *record: object, session: str = "default") -> FactRow:
    """Return an asserted fact; `retracted_fact_row` retracts it."""
    return FactRow(session, id, version, 1763199999.5 + version, "user", json.dumps(record or ["note"]))


def retracted_fact_row(id: str, version: int, session: str = "default") -> FactRow:
    return fact_row(id, version, session=session)._replace(record=None)


def append_facts(*rows: FactRow) -> Append:
    return Append("", 0, (), facts=rows)


def wait_row(run: str, path: str = "/gate", since: float = 1.5, kind: str = "gate") -> WaitRow:
    """Return an open wait; `closed_wait_row` closes it."""
    return WaitRow("default", run, path, kind, since, json.dumps({"prompt": "Continue?"}))


def closed_wait_row(run: str, path: str = "/gate") -> WaitRow:
    return wait_row(run, path)._replace(data=None)


class StoreContract:
    @pytest.fixture
    def store(self) -> Store:
        raise NotImplementedError("Override the fixture `store` with one that returns an empty store")

    def stored_size(self, data: str) -> int:
        """Return the bytes that a store needs for some data; override it for a store that transforms data."""
        return len(data.encode())

    def test_a_journal_without_events_is_empty(self, store: Store) -> None:
        assert store.events("r") == []
        assert store.run("r") is None
        assert store.runs() == []
        assert store.run_by_key("default", "k") is None
        assert store.waits_of_run("r") == []
        assert store.open_waits("default", "gate") == []
        assert store.daily_usage("default", "", "9") == []
        assert store.daily_step_usage("default", "", "9") == []
        assert store.definition("none") is None
        assert store.facts("default") == []
        assert store.fact_version("default") == 0
        assert store.messages("c") == []
        assert store.stored_reply("default", "k") is None
        assert store.old_events("r", "happened", math.inf) == []

    def test_the_stream_has_the_events_of_all_runs_in_the_order_of_their_commits(self, store: Store) -> None:
        if (stream := store.stream) is None:
            pytest.skip("the store has no stream")
        assert stream.last_streamed("default") == 0
        for run, seq in (("r", 1), ("q", 1), ("r", 2)):
            store.append([append(run, seq - 1, 1, run_row(run) if seq == 1 else None)])
        pair = [
            EventRow(3, 1.5, "node_started", "/a", None, "{}"),
            EventRow(4, 2.5, "gate_waiting", "/b", None, "{}"),
        ]
        store.append([Append("r", 2, pair)])
        other = run_row("other")._replace(session="other")
        store.append([append("other", 0, 1, other)])
        events = stream.streamed_events("default", 0, 100)
        assert [(each.run, each.row.seq) for each in events] == [
            ("r", 1),
            ("q", 1),
            ("r", 2),
            ("r", 3),
            ("r", 4),
        ]
        assert [each.row for each in events[-2:]] == pair
        assert {each.workflow for each in events} == {"review"}
        numbers = [each.number for each in events]
        assert numbers == sorted(set(numbers))
        assert stream.last_streamed("default") == numbers[-1]
        for position, number in enumerate(numbers):
            assert stream.streamed_events("default", number, 100) == events[position + 1 :]
            assert stream.streamed_events("default", number, 1) == events[position + 1 : position + 2]
        assert stream.streamed_events("default", 0, 100, ["gate_waiting"]) == events[-1:]
        assert stream.streamed_events("default", 0, 100, ["happened", "node_started"]) == events[:-1]
        assert stream.streamed_events("default", 0, 100, []) == []

    def test_events_come_back_as_they_were_appended(self, store: Store) -> None:
        rows = [
            EventRow(1, 0.1 + 0.2, "started", "/", None, '{"text": "Grüße, 世界 🙂"}'),
            EventRow(2, math.nextafter(2e9, math.inf), "", "", "", ""),
            EventRow(3, -0.0, "a\nb", "c'd\"", "e\\f", "null"),
            EventRow(4, 5e-324, "x" * 1000, "/" * 1000, "/4", "0" * 100_000),
        ]
        assert store.append([Append("r", 0, rows)]) == [None]
        assert store.events("r") == rows
        assert all(isinstance(row, EventRow) for row in store.events("r"))

    @pytest.mark.parametrize("row", [None, run_row("r")])
    def test_events_are_read_after_a_number(self, store: Store, row: RunRow | None) -> None:
        store.append([append("r", 0, 5, row)])
        assert [row.seq for row in store.events("r", 3)] == [4, 5]
        assert store.events("r", 5) == []
        assert store.events("r", 9) == []
        assert [row.seq for row in store.events("r", 0, 2)] == [1, 2]
        assert [row.seq for row in store.events("r", 2, 2)] == [3, 4]
        assert [row.seq for row in store.events("r", 4, 2)] == [5]
        assert store.events("r", 5, 2) == []

    @pytest.mark.parametrize("after", [0, 1, 3])
    def test_an_append_after_the_wrong_event_is_a_conflict(self, store: Store, after: int) -> None:
        store.append([append("r", 0, 2)])
        [outcome] = store.append([append("r", after)])
        assert isinstance(outcome, Conflict)
        assert outcome.run == "r"
        assert "2 events" in str(outcome)
        assert store.events("r") == append("r", 0, 2).rows

    def test_a_conflict_does_not_affect_the_other_parts(self, store: Store) -> None:
        store.append([append("b", 0)])
        outcomes = store.append([append("a", 0), append("b", 0), append("c", 0)])
        assert [type(outcome) for outcome in outcomes] == [type(None), Conflict, type(None)]
        assert [len(store.events(run)) for run in "abc"] == [1, 1, 1]

    def test_one_batch_may_contain_several_parts_of_one_journal(self, store: Store) -> None:
        assert store.append([append("r", 0, 2), append("r", 2, 1), append("r", 3, 2)]) == [None] * 3
        assert [row.seq for row in store.events("r")] == [1, 2, 3, 4, 5]

    def test_the_first_of_two_parts_for_the_same_position_wins(self, store: Store) -> None:
        first, second = store.append([append("r", 0, 2), append("r", 0, 1)])
        assert first is None
        assert isinstance(second, Conflict)
        assert len(store.events("r")) == 2

    def test_a_path_settles_once(self, store: Store) -> None:
        store.append([Append("r", 0, [event(1), event(2, "/gate")])])
        [outcome] = store.append([Append("r", 2, [event(3), event(4, "/gate")])])
        assert isinstance(outcome, Conflict)
        assert "/gate is already settled by event 2" in str(outcome)
        assert len(store.events("r")) == 2

    def test_a_path_settles_once_in_a_batch(self, store: Store) -> None:
        batch = [
            Append("r", 0, [event(1, "/gate")]),
            Append("q", 0, [event(1, "/gate")]),
            Append("r", 1, [event(2, "/gate")]),
            Append("r", 1, [event(2, "/other")]),
        ]
        outcomes = store.append(batch)
        assert [outcome is None for outcome in outcomes] == [True, True, False, True]
        assert [row.settles for row in store.events("r")] == ["/gate", "/other"]

    def test_a_path_settles_once_in_a_part(self, store: Store) -> None:
        [outcome] = store.append([Append("r", 0, [event(1, "/gate"), event(2, "/gate")])])
        assert isinstance(outcome, Conflict)
        assert "by event 1" in str(outcome)
        assert store.events("r") == []

    def test_a_journal_accepts_events_after_a_conflict(self, store: Store) -> None:
        store.append([Append("r", 0, [event(1, "/gate")])])
        store.append([Append("r", 1, [event(2, "/gate")])])
        assert store.append([append("r", 1, 2)]) == [None]
        assert len(store.events("r")) == 3

    def test_a_refused_part_leaves_no_trace(self, store: Store) -> None:
        store.append([append("r", 0, 1, run_row("r"))])
        definition = Definition("h", "review", "yaml", "a", "b")
        store.append([Append("r", 0, [event(1)], run_row("r", "failed"), definition)])
        assert store.run("r") == run_row("r")
        assert store.definition("h") is None

    def test_the_last_row_of_a_run_wins(self, store: Store) -> None:
        last = RunRow(
            "r", "default", "review", "completed", 1.5, 2.5, "k", "parent", 3.5, "h", "c", "l", "{}"
        )
        store.append([append("r", 0, 1, run_row("r", key="k"))])
        assert store.append([append("r", 1, 1, run_row("r", "waiting", "k")), append("r", 2, 1, last)]) == [
            None,
            None,
        ]
        assert store.run("r") == last
        assert isinstance(store.run("r"), RunRow)

    def test_a_row_may_be_appended_without_events(self, store: Store) -> None:
        store.append([append("r", 0, 1, run_row("r"))])
        assert store.append([Append("r", 1, [], run_row("r", "held"))]) == [None]
        assert store.run("r") == run_row("r", "held")
        assert store.append([append("r", 1)]) == [None]

    def test_a_key_starts_one_run_per_session(self, store: Store) -> None:
        other = run_row("c", key="k")._replace(session="other")
        outcomes = store.append(
            [
                append("a", 0, 1, run_row("a", key="k")),
                append("b", 0, 1, run_row("b", key="k")),
                append("c", 0, 1, other),
            ]
        )
        assert [outcome is None for outcome in outcomes] == [True, False, True]
        assert isinstance(outcomes[1], Conflict)
        assert "already used by run a" in str(outcomes[1])
        assert store.run("b") is None
        assert store.events("b") == []
        assert store.run_by_key("default", "k") == run_row("a", key="k")
        assert store.run_by_key("other", "k") == other

    def test_runs_are_listed_oldest_first(self, store: Store) -> None:
        rows = [run_row(run, started=started) for run, started in (("a", 3.0), ("c", 1.0), ("b", 1.0))]
        store.append([append(row.run, 0, 1, row) for row in rows])
        assert [row.run for row in store.runs()] == ["b", "c", "a"]

    def test_the_newest_runs_are_found_without_reading_the_others(self, store: Store) -> None:
        rows = [run_row(run, started=started) for run, started in (("a", 1.0), ("b", 1.0), ("c", 2.0))]
        store.append([append(row.run, 0, 1, row) for row in rows])
        assert store.runs(newest=2) == rows[1:]
        assert store.runs(newest=9) == rows
        assert store.runs(newest=0) == []
        assert store.runs(before=rows[2]) == rows[:2]
        assert store.runs(before=rows[1]) == rows[:1]
        assert store.runs(before=rows[2], newest=1, session=rows[0].session) == rows[1:2]
        assert store.count_runs(rows[0].session) == {rows[0].state: 3}
        assert store.count_runs("unknown") == {}

    def test_the_newest_runs_of_a_session_are_found_by_state_and_workflow(self, store: Store) -> None:
        rows = [
            RunRow(run, session, workflow, state, started)
            for run, session, workflow, state, started in (
                ("a", "s", "review", "completed", 3.0),
                ("b", "s", "review", "held", 2.0),
                ("c", "s", "deploy", "completed", 2.0),
                ("d", "t", "review", "completed", 9.0),
                ("e", "s", "review", "completed", 1.0),
            )
        ]
        store.append([append(row.run, 0, 1, row) for row in rows])

        def find_runs(newest: int = 2, **filters: object) -> str:
            return "".join(row.run for row in store.runs(session="s", newest=newest, **filters))  # type: ignore[arg-type]

        assert find_runs() == "ca"
        assert find_runs(9) == "ebca"
        assert find_runs(0) == ""
        assert find_runs(before=rows[2]) == "eb"
        assert find_runs(workflow="review") == "ba"
        assert find_runs(states=["completed"]) == "ca"
        assert find_runs(states=["completed"], before=rows[2]) == "e"
        assert find_runs(states=["completed"], workflow="review") == "ea"
        assert find_runs(states=["held", "completed"], before=rows[0]) == "bc"
        assert find_runs(states=[]) == ""
        assert find_runs(prefix="e") == "e"
        store.append([append("a", 1, 1, rows[0]._replace(state="held", started=0.5))])
        assert (find_runs(), find_runs(states=["completed"])) == ("bc", "ec")

    def test_sessions_definitions_and_labels_are_listed_without_reading_the_runs(self, store: Store) -> None:
        rows = [
            RunRow("a", "t", "review", "running", 2.0, definition="h", label="feature-42"),
            RunRow("b", "s", "review", "running", 1.0, definition="h", label="feature-43"),
            RunRow("c", "t", "review", "running", 3.0, definition="h", label="feature-42"),
            RunRow("d", "t", "review", "running", 4.0, definition="g", label="fix"),
            RunRow("e", "t", "review", "running", 5.0, label="f%"),
            RunRow("f", "t", "review", "running", 6.0),
        ]
        assert (store.sessions(), store.count_definitions("t"), store.labels("t", "", 9)) == ([], {}, [])
        store.append([append(row.run, 0, 1, row) for row in rows])
        assert store.sessions() == ["s", "t"]
        assert list(store.count_definitions("t").items()) == [("h", 2), ("g", 1)]
        assert store.count_definitions("unknown") == {}
        assert store.labels("t", "f", 9) == ["f%", "feature-42", "fix"]
        assert store.labels("t", "f", 2) == ["f%", "feature-42"]
        assert store.labels("t", "feature-4", 9) == ["feature-42"]
        assert store.labels("t", "f_", 9) == []

    def test_the_last_event_of_a_journal_is_found_without_reading_the_others(self, store: Store) -> None:
        large = output(3, "x" * (MAX_INLINE_BYTES + 1))
        rows = [event(1)._replace(type="held"), event(2)._replace(type="held", data='"b"'), large]
        store.append([Append("r", 0, rows, run_row("r")), append("s", 0, 1)])
        assert store.last_event("r") == rows[2]
        assert store.last_event("r", "held") == rows[1]
        assert store.last_event("s") == event(1)
        assert store.last_event("s", "held") is None
        assert store.last_event("none") is None
        store.empty_events("r", [3])
        assert store.last_event("r") == large._replace(data="{}")
        store.delete_runs(["r"])
        assert store.last_event("r") is None

    def test_runs_are_found_by_their_fields(self, store: Store) -> None:
        rows = [
            RunRow("ab1", "s", "review", "running", 1.0),
            RunRow("ab2", "s", "deploy", "waiting", 2.0),
            RunRow("a%3", "t", "review", "completed", 3.0, conversation="c", label="feature-42"),
            RunRow("a4", "t", "review", "running", 4.0, conversation="c", label="feature-43"),
            RunRow("a5", "t", "deploy", "running", 5.0, conversation="d", label="feature-42"),
        ]
        store.append([append(row.run, 0, 1, row) for row in rows])

        def find_runs(**filters: object) -> list[int]:
            return [rows.index(row) for row in store.runs(**filters)]  # type: ignore[arg-type]

        assert find_runs(session="s") == [0, 1]
        assert find_runs(workflow="review") == [0, 2, 3]
        assert find_runs(states={"running", "completed"}) == [0, 2, 3, 4]
        assert find_runs(states=[]) == []
        assert find_runs(states=("waiting",), session="t") == []
        assert find_runs(states=["running", "waiting"], session="s", workflow="deploy", prefix="ab") == [1]
        assert find_runs(prefix="ab") == [0, 1]
        assert find_runs(prefix="a%") == [2]
        assert find_runs(prefix="ab2") == [1]
        assert find_runs(prefix="b") == []
        assert find_runs(conversation="c") == [2, 3]
        assert find_runs(conversation="c", states=["running"], session="t") == [3]
        assert find_runs(conversation="c", states=[]) == []
        assert find_runs(label="feature-42") == [2, 4]
        assert find_runs(label="feature-42", conversation="d", workflow="deploy", prefix="a") == [4]
        assert find_runs(label="feature-42", states=["waiting"]) == []
        assert find_runs(conversation="none", label="feature-42") == []

    def test_runs_are_found_by_their_tags(self, store: Store) -> None:
        def tag(run: str, number: int, **tags: str) -> RunRow:
            row = RunRow(run, "s", "review", "running" if number % 2 else "completed", float(number))
            rows = [TagRow(TAG_KIND, name, value, 1.0) for name, value in tags.items()]
            store.append([append(run, 0, 1, row)._replace(tags=rows)])
            return row

        rows = [
            tag("a", 1, customer="42", stage="review"),
            tag("b", 2, customer="7"),
            tag("c", 3, customer="42"),
            tag("d", 4),
            tag("e", 4, customer="42", stage="review"),
        ]

        def find_runs(**filters: object) -> str:
            return "".join(row.run for row in store.runs(**{"session": "s", **filters}))  # type: ignore[arg-type]

        assert find_runs(tags={"customer": "42"}) == "ace"
        assert find_runs(tags={"customer": "42"}, session=None) == "ace"
        assert find_runs(tags={"customer": "42"}, session="t") == ""
        assert find_runs(tags={"customer": "42", "stage": "review"}) == "ae"
        assert find_runs(tags={"customer": "7", "stage": "review"}) == ""
        assert find_runs(tags={"customer": "42"}, newest=2) == "ce"
        assert find_runs(tags={"customer": "42"}, newest=1, before=rows[4]) == "c"
        assert find_runs(tags={"customer": "42"}, states=["running"]) == "ac"
        assert find_runs(tags={"customer": "42"}, states=["running"], newest=1) == "c"
        assert find_runs(tags={"customer": "42"}, since=3.0) == "ce"
        assert find_runs(since=2.0, newest=9) == "bcde"
        assert find_runs(tags={}) == "abcde"
        assert store.tag_names("s", TAG_KIND) == ["customer", "stage"]
        assert store.tag_names("t", TAG_KIND) == []
        later = rows[0]._replace(ended=9.0, state="completed")
        changed = [TagRow(TAG_KIND, "stage", "done", 2.0)]
        store.append([append("a", 1, 1, later)._replace(tags=changed)])
        assert find_runs(tags={"stage": "review"}) == "e"
        assert find_runs(tags={"stage": "done", "customer": "42"}) == "a"
        store.delete_runs(["a"])
        assert find_runs(tags={"customer": "42"}) == "ce"
        assert store.tag_names("s", TAG_KIND) == ["customer", "stage"]
        store.delete_runs(["e"])
        assert store.tag_names("s", TAG_KIND) == ["customer"]

    def test_the_runs_that_may_need_the_old_branch_of_a_patch_are_found(self, store: Store) -> None:
        def start(run: str, started: float, *patches: TagRow, workflow: str = "review") -> None:
            row = RunRow(run, "s", workflow, "running", started)
            store.append([append(run, 0, 1, row)._replace(tags=patches)])

        def find_runs(patch: str) -> str:
            return "".join(row.run for row in store.runs(session="s", patch=patch))

        start("a", 1.0)
        start("b", 1.0, workflow="deploy")
        assert find_runs("fraud-check") == ""
        start("c", 2.0, TagRow(PATCH_KIND, "fraud-check", "false", 5.0))
        start("d", 3.0, TagRow(PATCH_KIND, "fraud-check", "true", 6.0))
        start("e", 5.5)
        start("f", 4.0, TagRow(PATCH_KIND, "other", "false", 9.0))
        assert find_runs("fraud-check") == "acf", "not the later run, nor the one of another workflow"
        assert find_runs("other") == "acdfe"
        assert find_runs("unknown") == ""
        assert store.tag_names("s", PATCH_KIND) == ["fraud-check", "other"]
        assert store.tag_names("s", TAG_KIND) == []

    def test_the_runs_of_a_chain_are_found_by_the_first_one(self, store: Store) -> None:
        def start(run: str, number: int, first: str | None = None) -> None:
            tags = [] if first is None else [TagRow(CHAIN_KIND, CHAIN_KIND, first, float(number))]
            row = RunRow(run, "s", "w", "running", float(number))
            store.append([Append(run, 0, [event(1)], row, tags=tags)])

        for number, (run, first) in enumerate([("a", None), ("b", "a"), ("x", "y"), ("c", "a")]):
            start(run, number, first)

        def find_runs(chain: str, **filters: object) -> str:
            return "".join(row.run for row in store.runs(chain=chain, **filters))  # type: ignore[arg-type]

        assert find_runs("a", session="s") == find_runs("a") == "bc"
        assert find_runs("a", session="s", newest=1) == "c"
        assert find_runs("b", session="s") == find_runs("a", session="other") == ""
        assert store.tag_names("s", TAG_KIND) == []
        store.delete_runs(["b"])
        assert find_runs("a", session="s") == "c"

    def test_a_part_that_needs_another_is_written_only_with_it(self, store: Store) -> None:
        store.append([append("a", 0), append("b", 0)])
        late = Append("a", 0, [event(1)])
        outcomes = store.append([late, append("n", 0)._replace(needs="a"), append("b", 1)])
        assert [outcome is None for outcome in outcomes] == [False, False, True]
        assert "only together with run a" in str(outcomes[1])
        assert store.events("n") == []
        assert store.append([append("a", 1), append("n", 0)._replace(needs="a")]) == [None, None]
        assert len(store.events("n")) == 1

    def test_runs_are_found_by_a_text_in_their_workflow_label_tags_and_input(self, store: Store) -> None:
        def start(
            run: str, number: int, input: object, workflow: str = "w", label: str | None = None
        ) -> None:
            row = RunRow(run, "s", workflow, "running", float(number), label=label)
            data = json.dumps({"input": input, "session": "hidden"}, ensure_ascii=False)
            first = event(1, data=data)
            tags = [TagRow(TAG_KIND, "stage", f"Stage-{number}", 1.0)]
            store.append([Append(run, 0, [first], row, tags=tags)])

        start("a", 1, "Please fix the login page")
        start("b", 2, {"task": "Fix it"})
        start("c", 3, ["nothing"], workflow="fixer")
        start("d", 4, 42, label="FIX-1")
        start("e", 5, None)
        start("f", 6, "fix" + "x" * MAX_SEARCHED_CHARS)
        store.append([append("g", 0, 1, RunRow("g", "s", "w", "running", 7.0))])

        def find_runs(search: str, **filters: object) -> str:
            return "".join(row.run for row in store.runs(session="s", search=search, **filters))  # type: ignore[arg-type]

        assert find_runs("fix") == find_runs("FIX") == "abcd"
        assert find_runs("stage-3") == find_runs("STAGE=stage-3") == "c"
        assert find_runs("hidden") == ""
        assert find_runs("fix", newest=2) == "cd"
        assert find_runs("fix", newest=2, before=store.run("c")) == "ab"
        assert find_runs("fix", workflow="w", states=["running"], since=2.0) == "bd"
        assert find_runs("fix", tags={"stage": "Stage-2"}) == "b"
        assert find_runs("42") == "d"
        assert find_runs("", newest=2) == "fg"

    def test_runs_are_counted_by_state_as_they_change(self, store: Store) -> None:
        other = run_row("c")._replace(session="other")
        store.append([append(row.run, 0, 1, row) for row in (run_row("a"), run_row("b"), other)])
        assert store.count_runs("default") == {"running": 2}
        store.append([append("a", 1, 1, run_row("a", "waiting")), append("a", 2, 1, run_row("a", "held"))])
        assert store.count_runs("default") == {"running": 1, "held": 1}
        store.append([Append("b", 1, [], run_row("b", "held")._replace(definition="h"))])
        assert store.count_runs("default") == {"held": 2}
        assert store.count_definitions("default") == {"h": 1}
        store.append([append("a", 1, 1, run_row("a", "failed"))])  # a conflict
        assert store.count_runs("default") == {"held": 2}
        store.delete_runs(["b", "c"])
        assert store.count_runs("default") == {"held": 1}
        assert store.count_definitions("default") == {}
        assert store.count_runs("other") == {}
        assert store.sessions() == ["default"]

    def test_open_waits_are_listed_oldest_first(self, store: Store) -> None:
        rows = [wait_row("b", "/2"), wait_row("b", "/1"), wait_row("a"), wait_row("c", since=0.5)]
        signal = wait_row("b", "/3", kind="signal")
        other = wait_row("d")._replace(session="other")
        store.append([append(run, 0, 1, run_row(run)) for run in "abcd"])
        parts = [Append(row.run, 1, [], waits=[row]) for row in (*rows, signal, other)]
        assert store.append(parts) == [None] * 6
        expected = [rows[3], rows[2], rows[1], rows[0]]
        assert store.open_waits("default", "gate") == expected
        assert all(isinstance(row, WaitRow) for row in store.open_waits("default", "gate"))
        assert store.open_waits("default", "gate", limit=2) == expected[:2]
        assert store.open_waits("default", "gate", expected[1], 1) == expected[2:3]
        assert store.open_waits("default", "gate", expected[3]) == []
        assert store.open_waits("default", "signal") == [signal]
        assert store.open_waits("other", "gate") == [other]
        assert store.open_waits("none", "gate") == []
        assert store.waits_of_run("b") == [rows[1], rows[0], signal]
        assert store.count_waits("default") == {"gate": 4, "signal": 1}
        assert store.count_waits("none") == {}

    def test_waits_are_opened_and_closed_with_the_events_of_their_part(self, store: Store) -> None:
        store.append([Append("r", 0, [event(1)], run_row("r"), waits=[wait_row("r")])])
        [outcome] = store.append([Append("r", 0, [event(1)], waits=[closed_wait_row("r")])])
        assert isinstance(outcome, Conflict)
        assert store.waits_of_run("r") == [wait_row("r")]
        changed = wait_row("r", since=3.0)
        store.append([Append("r", 1, [event(2)], waits=[changed, wait_row("r", "/2", 2.0)])])
        assert store.waits_of_run("r") == [wait_row("r", "/2", 2.0), changed]
        waits = [
            closed_wait_row("r"),
            closed_wait_row("r", "/none"),
            wait_row("r", "/3"),
            closed_wait_row("r", "/3"),
        ]
        store.append([Append("r", 2, [event(3, "/gate")], waits=waits)])
        assert store.waits_of_run("r") == [wait_row("r", "/2", 2.0)]
        store.append([append("r", 3, 1, run_row("r", "waiting"))])
        assert store.count_waits("default") == {"gate": 1}

    def test_a_run_that_ends_or_is_deleted_waits_no_more(self, store: Store) -> None:
        ended = run_row("a", "completed")._replace(ended=2.0)
        store.append([Append(run, 0, [event(1)], run_row(run), waits=[wait_row(run)]) for run in "abc"])
        store.append([append("a", 1, 1, ended)])
        assert [wait.run for wait in store.open_waits("default", "gate")] == ["b", "c"]
        store.delete_runs(["b"])
        assert [wait.run for wait in store.open_waits("default", "gate")] == ["c"]
        assert store.waits_of_run("b") == []

    def test_used_amounts_add_up_by_day_and_model(self, store: Store) -> None:
        def use(day: str, model: str, session: str = "default", **amounts: float) -> UsageRow:
            return UsageRow(session, day, model, amounts)

        store.append(
            [
                Append("a", 0, [event(1)], usage=[use("2025-11-15", "m", tokens=3, cost=0.5)]),
                Append("b", 0, [event(1)], usage=[use("2025-11-15", "m", tokens=4, turns=1)]),
                Append(
                    "c",
                    0,
                    [event(1)],
                    usage=[use("2025-11-15", "l", tokens=1), use("2025-11-16", "m", tokens=1)],
                ),
                Append("d", 0, [event(1)], usage=[use("2025-11-15", "m", "other", tokens=9)]),
                Append("e", 5, [event(6)], usage=[use("2025-11-15", "m", tokens=100)]),
            ]
        )
        store.append([Append("a", 1, [event(2)], usage=[use("2025-11-15", "m", tokens=1, cost=0.25)])])
        first = [use("2025-11-15", "l", tokens=1), use("2025-11-15", "m", tokens=8, cost=0.75, turns=1)]
        assert store.daily_usage("default", "2025-11-15", "2025-11-15") == first
        assert store.daily_usage("default", "2025-11-01", "2025-12-01") == [
            *first,
            use("2025-11-16", "m", tokens=1),
        ]
        assert store.daily_usage("other", "2025-11-15", "2025-11-15") == [
            use("2025-11-15", "m", "other", tokens=9)
        ]
        assert store.daily_usage("default", "2025-11-17", "2025-11-18") == []
        assert all(isinstance(row, UsageRow) for row in store.daily_usage("default", "", "9"))

    def test_used_amounts_add_up_by_day_workflow_step_and_model(self, store: Store) -> None:
        def use(
            day: str, step: str, model: str = "m", session: str = "default", **amounts: float
        ) -> StepUsageRow:
            return StepUsageRow(session, day, "review", step, model, amounts)

        first_day, second_day = "2025-11-15", "2025-11-16"
        store.append(
            [
                Append("a", 0, [event(1)], step_usage=[use(first_day, "/write", turns=1, reported_cost=0.5)]),
                Append("b", 0, [event(1)], step_usage=[use(first_day, "/write", turns=2, input_tokens=7)]),
                Append("c", 0, [event(1)], step_usage=[use(first_day, "/write", "l", turns=1)]),
                Append("d", 0, [event(1)], step_usage=[use(first_day, "/check", turns=1, runs=1)]),
                Append("e", 0, [event(1)], step_usage=[use(first_day, "/write", "m", "other", turns=9)]),
                Append("f", 5, [event(6)], step_usage=[use(first_day, "/write", turns=100)]),
            ]
        )
        both = [use(first_day, "", "", runs=1), use(second_day, "/check", turns=1)]
        store.append([Append("a", 1, [event(2)], step_usage=both)])
        store.append([Append("a", 2, [event(3)], step_usage=[use(first_day, "/write", reported_cost=0.25)])])
        on_first_day = [
            use(first_day, "", "", runs=1),
            use(first_day, "/check", turns=1, runs=1),
            use(first_day, "/write", "l", turns=1),
            use(first_day, "/write", turns=3, reported_cost=0.75, input_tokens=7),
        ]
        assert store.daily_step_usage("default", first_day, first_day) == on_first_day
        on_both_days = [*on_first_day, use(second_day, "/check", turns=1)]
        assert store.daily_step_usage("default", first_day, second_day) == on_both_days
        store.delete_runs(["a", "b"])
        assert store.daily_step_usage("default", "", "9") == on_both_days
        assert store.daily_step_usage("other", "", "9") == [use(first_day, "/write", "m", "other", turns=9)]
        assert all(isinstance(row, StepUsageRow) for row in store.daily_step_usage("default", "", "9"))

    def test_a_new_store_has_summaries_of_all_its_runs(self, store: Store) -> None:
        assert store.summarized_since == 0.0

    def test_a_definition_is_stored_by_its_hash(self, store: Store) -> None:
        definition = Definition("h", "review", "yaml", "source: 1\n", '{"source":1}')
        store.append([Append(run, 0, [event(1)], run_row(run), definition) for run in "abc"])
        assert store.definition("h") == definition
        later = definition._replace(source="source: 1 # the same\n")
        store.append([Append("d", 0, [event(1)], run_row("d"), later)])
        assert store.definition("h") == later

    def test_events_out_of_order_are_refused_with_the_complete_batch(self, store: Store) -> None:
        with pytest.raises(ValueError, match="event 2 must come next, got event 3"):
            store.append([append("a", 0), Append("r", 0, [event(1), event(3)])])
        assert store.events("a") == []
        assert store.events("r") == []
        assert store.append([append("a", 0), append("r", 0)]) == [None, None]

    @pytest.mark.parametrize("size", [MAX_INLINE_BYTES, MAX_INLINE_BYTES + 1, 300 * 1024, 10 * 1024 * 1024])
    def test_large_data_is_read_back_completely(self, store: Store, size: int) -> None:
        rows = [event(1, data="é" * (size // 2) + "x" * (size % 2)), event(2)]
        assert store.append([Append("r", 0, rows), Append("q", 0, rows)]) == [None, None]
        assert store.events("r") == rows
        assert store.events("q", 1) == rows[1:]

    def test_data_over_the_limit_is_refused_with_its_size(self, store: Store) -> None:
        data = "é" * (MAX_VALUE_BYTES // 2) + "x"
        with pytest.raises(ValueError, match=f"{MAX_VALUE_BYTES + 1:,}"):
            store.append([append("a", 0), Append("r", 0, [event(1, data=data)])])
        assert store.events("a") == []
        assert store.events("r") == []

    def test_a_large_group_is_appended_completely(self, store: Store) -> None:
        for turn in range(3):
            batch = [append(f"run-{n}", turn * 2, 2, run_row(f"run-{n}", str(turn))) for n in range(333)]
            assert store.append(batch) == [None] * 333
        assert all(len(store.events(f"run-{n}")) == 6 for n in range(333))
        assert len(store.runs(states=["2"])) == 333

    def test_an_empty_batch_is_accepted(self, store: Store) -> None:
        assert store.append([]) == []

    def test_a_conflict_is_a_store_error(self, store: Store) -> None:
        [outcome] = store.append([append("r", 7)])
        assert isinstance(outcome, StoreError)

    def test_reading_gives_copies(self, store: Store) -> None:
        store.append([append("r", 0, 2)])
        store.events("r").clear()
        store.runs().clear()
        assert len(store.events("r")) == 2

    @pytest.mark.requirement("S4-14")
    def test_facts_come_back_in_the_order_of_their_versions(self, store: Store) -> None:
        rows = [
            fact_row("c", 1, "signal", "Grüße, 世界 🙂", {"key": None, "value": 1.5}),
            fact_row("a", 2, "note", 'a "quoted" \\ text'),
            fact_row("b", 3, "signal"),
        ]
        assert store.append([append_facts(rows[1], rows[0]), append_facts(rows[2])]) == [None, None]
        assert store.facts("default") == rows
        assert store.facts("default", "signal") == [rows[0], rows[2]]
        assert store.facts("default", "sign") == []
        assert all(isinstance(row, FactRow) for row in store.facts("default"))

    def test_a_fact_with_the_same_id_replaces_the_older_one(self, store: Store) -> None:
        store.append([append_facts(fact_row("a", 1, "old"), fact_row("b", 2), fact_row("c", 3, "old"))])
        store.append(
            [append_facts(fact_row("a", 4, "new"), fact_row("c", 5, "newer"), fact_row("c", 6, "newest"))]
        )
        assert store.facts("default") == [
            fact_row("b", 2),
            fact_row("a", 4, "new"),
            fact_row("c", 6, "newest"),
        ]
        assert store.facts("default", "old") == []

    def test_a_retracted_fact_is_not_listed(self, store: Store) -> None:
        store.append([append_facts(fact_row("a", 1), fact_row("b", 2), fact_row("c", 3))])
        store.append([append_facts(retracted_fact_row("a", 4), retracted_fact_row("none", 5))])
        assert store.facts("default") == [fact_row("b", 2), fact_row("c", 3)]
        store.append(
            [
                append_facts(retracted_fact_row("b", 6)),
                append_facts(fact_row("b", 7)),
                append_facts(fact_row("d", 8)),
                append_facts(retracted_fact_row("d", 9)),
            ]
        )
        assert store.facts("default") == [fact_row("c", 3), fact_row("b", 7)]

    def test_the_version_of_a_retracted_fact_is_remembered(self, store: Store) -> None:
        store.append(
            [
                append_facts(fact_row("a", 1), fact_row("b", 2)),
                append_facts(retracted_fact_row("a", 3), retracted_fact_row("b", 7)),
            ]
        )
        assert store.facts("default") == []
        assert store.fact_version("default") == 7
        store.append([append_facts(fact_row("a", 5))])
        assert store.fact_version("default") == 7

    def test_each_session_has_its_own_facts(self, store: Store) -> None:
        other = fact_row("a", 9, "other", session="other")
        store.append([append_facts(fact_row("a", 1), other)])
        assert store.facts("default") == [fact_row("a", 1)]
        assert store.facts("other") == [other]
        assert [store.fact_version(session) for session in ("default", "other", "none")] == [1, 9, 0]
        store.append([append_facts(retracted_fact_row("a", 10, "other"))])
        assert store.facts("default") == [fact_row("a", 1)]

    def test_facts_are_written_with_the_events_of_their_part(self, store: Store) -> None:
        part = append("r", 0, 1, run_row("r"), [fact_row("a", 1)])
        assert store.append([part, append_facts(fact_row("b", 2))]) == [None, None]
        assert len(store.events("r")) == 1
        assert store.facts("default") == [fact_row("a", 1), fact_row("b", 2)]

    def test_facts_of_a_refused_part_are_not_written(self, store: Store) -> None:
        store.append([Append("r", 0, [event(1, "/gate")]), append_facts(fact_row("a", 1), fact_row("b", 2))])
        outcomes = store.append(
            [
                Append("r", 1, [event(2, "/gate")], facts=[retracted_fact_row("a", 3), fact_row("c", 8)]),
                Append("r", 0, [event(1)], facts=[retracted_fact_row("b", 4), fact_row("d", 9)]),
                Append("q", 0, [event(1, "/gate")], facts=[fact_row("e", 5)]),
                append_facts(fact_row("f", 6)),
            ]
        )
        assert [outcome is None for outcome in outcomes] == [False, False, True, True]
        assert [row.id for row in store.facts("default")] == ["a", "b", "e", "f"]
        assert store.fact_version("default") == 6

    def test_facts_of_a_refused_batch_are_not_written(self, store: Store) -> None:
        with pytest.raises(ValueError, match="must come next"):
            store.append([append_facts(fact_row("a", 1)), Append("r", 0, [event(2)])])
        assert store.facts("default") == []
        assert store.fact_version("default") == 0

    def test_many_facts_are_written_at_once(self, store: Store) -> None:
        rows = [fact_row(f"id-{n}", n) for n in range(1, 1001)]
        store.append([append_facts(*rows)])
        assert store.facts("default") == rows
        store.append([append_facts(*(retracted_fact_row(row.id, row.version + 1000) for row in rows[:-1]))])
        assert store.facts("default") == rows[-1:]

    def test_a_fact_over_the_limit_is_refused(self, store: Store) -> None:
        with pytest.raises(ValueError, match="fact a has"):
            store.append([append("r", 0), append_facts(fact_row("a", 1, "x" * MAX_VALUE_BYTES))])
        assert store.events("r") == []

    @pytest.mark.requirement("S3-11")
    def test_messages_are_numbered_in_each_conversation(self, store: Store) -> None:
        first = store.add_message("c", "user", "Grüße\x00, 世界 🙂", at=1.5)
        store.add_message("d", "user", "another")
        second = store.add_message("c", "assistant", "x" * 500_000, "run-1", 0.5)
        assert first == ("c", 1, 1.5, "user", "Grüße\x00, 世界 🙂", None)
        assert second == ("c", 2, 0.5, "assistant", "x" * 500_000, "run-1")
        assert store.messages("c") == [first, second]
        assert store.messages("c", 1) == [second]
        assert store.messages("c", 2) == []
        assert [row.text for row in store.messages("d")] == ["another"]

    def test_a_message_has_the_time_at_which_it_was_sent(self, store: Store) -> None:
        assert store.add_message("c", "user", "now").at > 1.7e9

    def test_messages_may_be_added_by_several_threads_while_events_are_appended(self, store: Store) -> None:
        def add_messages() -> None:
            for _ in range(20):
                store.add_message("c", "user", "hello")

        threads = [threading.Thread(target=add_messages) for _ in range(3)]
        for thread in threads:
            thread.start()
        for n in range(20):
            assert store.append([append("r", n)]) == [None]
        for thread in threads:
            thread.join()
        assert [row.seq for row in store.messages("c")] == list(range(1, 61))
        assert len(store.events("r")) == 20

    def test_a_journal_has_a_size(self, store: Store) -> None:
        data = ["é" * 10, "x" * (MAX_INLINE_BYTES + 1)]
        store.append([Append("r", 0, [event(1, data=data[0]), event(2, data=data[1])])])
        assert store.journal_size("r") == (2, sum(map(self.stored_size, data)))
        assert store.journal_size("none") == (0, 0)

    def test_runs_are_deleted_with_all_their_own_data(self, store: Store) -> None:
        shared, own = "s" * (MAX_INLINE_BYTES + 1), "o" * (MAX_INLINE_BYTES + 1)
        store.append(
            [
                Append("a", 0, [event(1, "/x", shared), event(2, data=own)], run_row("a", key="k")),
                Append("b", 0, [event(1, "/x", shared)], run_row("b")),
            ]
        )
        store.add_message("c", "assistant", "started", "a")
        store.mark_resuming(["a", "b"])
        store.delete_runs(["a", "none"])
        assert store.run("a") is None
        assert store.events("a") == []
        assert [row.run for row in store.runs()] == ["b"]
        assert store.run_by_key("default", "k") is None
        assert store.resume_counts() == {"b": 1}
        assert store.events("b") == [event(1, "/x", shared)]
        assert len(store.messages("c")) == 1
        again = Append("a", 0, [event(1, "/x", own)], run_row("a", key="k"))
        assert store.append([again]) == [None]
        assert store.events("a") == [event(1, "/x", own)]
        store.delete_runs([])
        store.delete_runs(["a", "b"])
        assert store.runs() == []

    def test_the_reply_to_a_command_is_stored_with_its_effect(self, store: Store) -> None:
        first = ReplyRow("default", "k", 5.0, "signal", "{}")
        other = first._replace(session="other", at=7.0)
        assert store.append([Append("", 0, (), facts=[fact_row("a", 1)], replies=[first])]) == [None]
        assert store.append([Append("", 0, (), replies=[first._replace(reply="[]"), other])]) == [None]
        assert store.stored_reply("default", "k") == first
        assert store.stored_reply("other", "k") == other
        assert store.stored_reply("default", "K") is None
        assert store.facts("default") == [fact_row("a", 1)]
        assert store.forget_replies("other", 7.0) == 0
        assert store.forget_replies("default", 8.0) == 1
        assert store.forget_replies("default", 8.0) == 0
        assert store.stored_reply("default", "k") is None
        assert store.stored_reply("other", "k") == other

    def test_a_reply_may_be_added_once_after_the_effect_of_a_command(self, store: Store) -> None:
        done = ReplyRow("default", "k", 5.0, "resume a", "")
        for reply in (done, done._replace(asked="stop a", reply="{}"), done._replace(at=6.0, reply="1")):
            store.append([Append("", 0, (), replies=[reply])])
        assert store.stored_reply("default", "k") == done._replace(reply="1")
        store.append([Append("", 0, (), replies=[done._replace(reply="2")])])
        assert store.stored_reply("default", "k") == done._replace(reply="1")

    def test_old_events_are_found_by_their_type_and_time(self, store: Store) -> None:
        rows = [output(1, '"é"'), output(2, "x" * (MAX_INLINE_BYTES + 1)), output(3), output(4, "[]")]
        rows[3] = rows[3]._replace(at=rows[3].at + 10)
        store.append([Append("r", 0, [*rows, event(5, data="[]")._replace(type="other")], run_row("r"))])
        first, second, _, fourth = ((row.seq, self.stored_size(row.data)) for row in rows)
        assert store.old_events("r", EMPTIABLE_TYPE, rows[3].at) == [first, second]
        assert store.old_events("r", EMPTIABLE_TYPE, math.inf, 1) == [second, fourth]
        assert store.old_events("r", EMPTIABLE_TYPE, math.inf, 0, 1) == [first]
        assert store.old_events("r", "other", math.inf) == [(5, self.stored_size("[]"))]
        store.empty_events("r", [1])
        assert store.old_events("r", EMPTIABLE_TYPE, math.inf) == [second, fourth]

    def test_a_long_run_is_deleted_with_all_its_data(self, store: Store) -> None:
        large = "x" * (MAX_INLINE_BYTES + 1)
        rows = [event(n, data=large if n % 1500 == 0 else "{}") for n in range(1, 5001)]
        store.append([Append("long", 0, rows, run_row("long")), Append("q", 0, [event(1, data=large)])])
        store.delete_runs(["long"])
        assert store.run("long") is None
        assert store.events("long") == []
        assert store.events("q") == [event(1, data=large)]

    def test_events_are_emptied_and_their_journal_accepts_more(self, store: Store) -> None:
        large = "x" * (MAX_INLINE_BYTES + 1)
        rows = [output(1, '"one"'), output(2, large), event(3, "/x", '"three"'), output(4, large)]
        store.append([Append("r", 0, rows, run_row("r")), Append("q", 0, rows)])
        for _ in range(2):
            store.empty_events("r", [1, 2])
        expected = [rows[0]._replace(data="{}"), rows[1]._replace(data="{}"), *rows[2:]]
        assert store.events("r") == expected
        assert store.events("r", 2) == expected[2:]
        assert store.events("q") == rows
        assert store.append([append("r", 4)]) == [None]
        store.empty_events("r", [4])
        assert store.events("r")[3].data == "{}"
        store.delete_runs(["r"])
        assert store.events("q") == rows

    def test_only_output_is_emptied(self, store: Store) -> None:
        rows = [output(1, '"one"'), event(2, data='"two"')]
        store.append([Append("r", 0, rows, run_row("r"))])
        with pytest.raises(ValueError, match="only 'output_chunk' events can be emptied"):
            store.empty_events("r", [1, 2])
        assert store.events("r") == rows

    def test_a_complete_store_reports_no_loss(self, store: Store) -> None:
        assert store.loss is None

    def test_the_runs_that_were_written_last_are_known(self, store: Store) -> None:
        assert store.last_written_runs(10) == []
        times = itertools.count(1.0)
        for run, after in (("old", 0), ("long", 0), ("new", 0), ("old", 2)):
            rows = [event(after + number)._replace(at=next(times)) for number in (1, 2)]
            store.append([Append(run, after, rows, run_row(run))])
        assert store.last_written_runs(1) == ["old"]
        assert sorted(store.last_written_runs(4)) == ["new", "old"]
        store.delete_runs(["old"])
        assert sorted(store.last_written_runs(10)) == ["long", "new"]

    def test_recovery_attempts_of_runs_are_counted(self, store: Store) -> None:
        assert store.resume_counts() == {}
        store.mark_resuming(["a", "b"])
        store.mark_resuming(["a"])
        store.mark_resuming([])
        assert store.resume_counts() == {"a": 2, "b": 1}
        store.clear_resuming(["a", "none"])
        store.clear_resuming([])
        assert store.resume_counts() == {"b": 1}

    def test_changes_of_people_are_numbered_without_gaps(self, store: Store) -> None:
        first = PersonRow("s", 1, 1.5, "ann", '{"Grüße": "世界"}', "a" * 64)
        second = PersonRow("s", 2, 0.5, "ben", "{}", "b" * 64)
        assert store.people_changes("s") == []
        assert store.add_people_change(first)
        assert not store.add_people_change(first._replace(name="eve"))
        assert store.add_people_change(second)
        assert store.add_people_change(first._replace(session="t"))
        assert store.people_changes("s") == [first, second]
        assert store.people_changes("s", 1) == [second]
        assert store.people_changes("s", 2) == []

    def test_of_changes_of_people_with_one_number_one_is_added(self, store: Store) -> None:
        added = []

        def add(name: str) -> None:
            if store.add_people_change(PersonRow("s", 1, 1.0, name, "{}", name)):
                added.append(name)

        threads = [threading.Thread(target=add, args=(f"p{n}",)) for n in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert [row.name for row in store.people_changes("s")] == added
        assert len(added) == 1

    def test_a_store_has_properties(self, store: Store) -> None:
        assert store.read_property("none") is None
        for value in ("one", "two"):
            store.write_property("mine", value)
            assert store.read_property("mine") == value
