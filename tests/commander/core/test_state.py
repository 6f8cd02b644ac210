"""The desk: what every screen shows, folded from events."""

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from commander.core.events import BEGAN, Journal, run_told
from nerve.commander.core.state import MAX_RUN_CARDS, CommanderState


def followed(journal: Journal, **options: bool) -> CommanderState:
    """A desk that follows a run, and has not heard of it yet."""
    desk = CommanderState()
    desk.merge_runs([run_told(journal.run_id, workflow=journal.workflow)])
    desk.show_run(journal.run_id, **options)
    return desk


def a_run() -> Journal:
    journal = Journal(steps=["build", "approve"])
    journal.add("node_started", "/build", node_id="build")
    journal.add("output_chunk", "/build", stream="stdout", text="one\n")
    journal.add("output_chunk", "/build", stream="stdout", text="two\n")
    journal.add("node_completed", "/build", node_id="build", success=True, result={}, duration_ms=5)
    journal.gate()
    journal.answer()
    journal.end({"version": 3})
    return journal


def state_of(desk: CommanderState) -> object:
    """Everything but what has changed."""
    cards = [
        (card.run_id, card.state, card.result, card.last_seq, len(card.gates)) for card in desk.runs.values()
    ]
    blocks = [
        (b.kind, b.text, b.value, b.done, b.lines, [(p.text, p.done) for p in b.parts]) for b in desk.blocks
    ]
    return cards, blocks, [gate.gate_id for gate in desk.gates]


def test_a_run_that_is_heard_of_gets_a_card_and_no_tree() -> None:
    desk = CommanderState()
    for event in a_run().events[:4]:
        desk.apply_event(event)
    card = desk.runs["run-1"]
    assert (card.workflow, card.state, card.tree, desk.blocks) == ("ship", "running", None, [])


def test_a_run_that_is_not_followed_ends_as_one_that_is() -> None:
    journal, heard = a_run(), CommanderState()
    heard.apply_events(journal.events)
    seen = followed(journal)
    seen.apply_events(journal.events)
    for name in ("state", "result", "error", "started_at", "ended_at", "gates"):
        assert getattr(heard.runs["run-1"], name) == getattr(seen.runs["run-1"], name)


def test_a_followed_run_has_its_tree_its_output_and_its_result() -> None:
    desk = followed(journal := a_run())
    desk.apply_events(journal.events)
    card, block = desk.runs["run-1"], desk.blocks[0]
    assert card.tree is not None
    assert [node.name for node in card.tree.root.view.tree] == ["build", "approve"]
    assert [(part.name, part.text, part.done) for part in block.parts] == [("build", "one\ntwo\n", True)]
    assert (block.done, block.value, block.text) == (True, {"version": 3}, '{\n  "version": 3\n}')


@given(st.lists(st.integers(1, 3), min_size=8, max_size=8))
def test_events_that_come_again_change_nothing(times: list[int]) -> None:
    journal = a_run()
    once, again = followed(journal), followed(journal)
    for event, count in zip(journal.events, times, strict=True):
        once.apply_event(event)
        for _ in range(count):
            again.apply_event(event)
    again.apply_events(journal.events)
    assert state_of(again) == state_of(once)


@given(st.integers(0, 8), st.integers(0, 8))
def test_it_does_not_matter_in_which_pieces_events_come(one: int, other: int) -> None:
    journal = a_run()
    whole, pieces = followed(journal), followed(journal)
    whole.apply_events(journal.events)
    first, second = sorted((one, other))
    for part in (journal.events[:first], journal.events[first:second], journal.events[second:]):
        pieces.apply_events(part)
    told = [block for block in pieces.blocks if block.kind != "gate"]
    assert [block.parts for block in told] == [b.parts for b in whole.blocks if b.kind != "gate"]
    assert pieces.runs["run-1"].state == whole.runs["run-1"].state == "completed"
    assert pieces.gates == whole.gates == []


def test_a_missing_event_is_noticed_only_where_a_tree_would_miss_it() -> None:
    journal = a_run()
    desk = followed(journal)
    desk.apply_events(journal.events[:2])
    assert not desk.has_gap_before("run-1", 3)
    assert desk.has_gap_before("run-1", 4)
    heard = CommanderState()
    heard.apply_events(journal.events[:2])
    assert not heard.has_gap_before("run-1", 5)


def test_many_events_are_one_change() -> None:
    journal = Journal()
    journal.add("node_started", "/talk", node_id="talk")
    desk = followed(journal)
    desk.apply_events(journal.events)
    desk.changes.drain()
    called: list[int] = []
    desk.on_change = lambda: called.append(1)
    for _ in range(1000):
        desk.apply_event(journal.add("output_chunk", "/talk", stream="partial", text="word "))
    assert called == [1]
    changed = desk.changes.drain()
    assert (changed.blocks, changed.runs, changed.flags) == ({1}, {"run-1"}, set())
    assert not desk.changes


def test_the_output_of_a_run_that_is_not_followed_changes_nothing() -> None:
    journal, desk = Journal(), CommanderState()
    desk.apply_events(journal.events)
    desk.changes.drain()
    for _ in range(100):
        desk.apply_event(journal.add("output_chunk", "/talk", stream="partial", text="word "))
    assert not desk.changes
    assert desk.runs["run-1"].last_seq == 101


def test_the_newest_runs_come_first_however_they_are_heard_of() -> None:
    desk = CommanderState()
    desk.merge_runs([run_told(f"r{n}", started_at=BEGAN + timedelta(minutes=n)) for n in (3, 2, 1)])
    desk.apply_events(Journal("later").events)
    assert next(iter(desk.runs)) == "later"
    desk.merge_runs([run_told("r2", "completed", started_at=BEGAN + timedelta(minutes=2))])
    assert [each for each in desk.runs if each != "later"] == ["r3", "r2", "r1"]
    assert desk.runs["r2"].state == "completed"


def test_only_so_many_cards_are_kept_and_what_has_not_ended_is() -> None:
    desk = CommanderState()
    told = [
        run_told(f"r{n:04}", "waiting" if n == 0 else "completed", started_at=BEGAN + timedelta(seconds=n))
        for n in range(MAX_RUN_CARDS + 10)
    ]
    desk.merge_runs(reversed(told))
    assert len(desk.runs) == MAX_RUN_CARDS + 1
    assert "r0000" in desk.runs
    assert "r0001" not in desk.runs


def test_a_child_run_is_part_of_the_run_that_called_it() -> None:
    parent, child = (
        Journal("parent", "outer"),
        Journal("child", "inner", parent="parent", parent_path="/call"),
    )
    desk = followed(parent)
    desk.apply_events(parent.events)
    desk.apply_event(parent.add("node_started", "/call", node_id="inner", child="child"))
    desk.apply_events(child.events)
    desk.apply_event(child.gate())
    card = desk.runs["parent"]
    assert "child" not in desk.runs
    assert card.tree is not None
    assert set(card.tree.branches) == {"", "/call"}
    assert (card.state, [gate.run_id for gate in card.gates]) == ("waiting", ["child"])
    desk.apply_event(child.answer())
    assert (card.state, card.gates) == ("running", [])


def test_a_child_of_a_run_that_is_not_followed_has_its_gate_there() -> None:
    desk = CommanderState()
    desk.merge_runs([run_told("child", "waiting", parent="parent"), run_told("parent")])
    desk.apply_event(Journal("child", parent="parent").gate())
    assert list(desk.runs) == ["parent"]
    assert [gate.gate_id for gate in desk.runs["parent"].gates] == ["g1"]


def test_another_attempt_of_a_call_takes_the_place_of_the_first() -> None:
    parent = Journal("parent")
    desk = followed(parent)
    desk.apply_events(parent.events)
    desk.apply_event(parent.add("node_started", "/call", node_id="inner", child="first"))
    desk.apply_events(Journal("first", parent="parent", parent_path="/call").events)
    desk.apply_event(parent.add("node_started", "/call", node_id="inner", child="second"))
    desk.apply_events(Journal("second", parent="parent", parent_path="/call").events)
    tree = desk.runs["parent"].tree
    assert tree is not None
    assert tree.branches["/call"].run_id == "second"


def test_what_a_run_costs_is_on_its_card_followed_or_not() -> None:
    journal = Journal()
    journal.step("/think", usage={"input_tokens": 10, "output_tokens": 5, "cost": 0.25})
    heard, seen = CommanderState(), followed(journal)
    heard.apply_events(journal.events)
    seen.apply_events(journal.events)
    for desk in (heard, seen):
        assert (desk.runs["run-1"].usage.tokens, desk.runs["run-1"].usage.cost) == (15, 0.25)


@pytest.mark.parametrize("type", ["gate_reminded", "signal_seen"])
def test_an_event_that_is_only_called_like_the_end_of_a_wait_ends_none(type: str) -> None:
    journal = Journal()
    journal.add("signal_waiting", "/review", name="reviewed")
    journal.add(type, "/review")
    heard, seen = CommanderState(), followed(journal)
    heard.apply_events(journal.events)
    seen.apply_events(journal.events)
    assert [desk.runs["run-1"].state for desk in (heard, seen)] == ["waiting", "waiting"]
    tree = seen.runs["run-1"].tree
    assert tree is not None
    assert [wait["name"] for wait in tree.waits] == ["reviewed"]


def test_an_event_that_is_only_called_like_the_end_of_a_step_costs_nothing() -> None:
    journal, heard = Journal(), CommanderState()
    journal.add("node_reviewed", "/think", result={"attributes": {"usage": {"cost": 1.0}}})
    heard.apply_events(journal.events)
    assert heard.runs["run-1"].usage.cost == 0


@pytest.mark.requirement("S3-17")
def test_the_router_tells_of_the_run_that_it_has_started() -> None:
    journal = Journal(steps=["build"])
    desk = followed(journal, routed=True)
    journal.add("node_started", "/build", node_id="build")
    journal.add("node_error", "/build", node_id="build", success=False, error="no")
    journal.add("workflow_failed", "", error="no")
    desk.apply_events(journal.events)
    assert [part.text for part in desk.blocks[0].parts] == [
        "**Starting workflow**: ship",
        "**Step 1**: build",
        "**Workflow failed** at step: build\n\nError: no",
    ]
    assert (desk.blocks[0].text, desk.blocks[0].value) == ("no", None)


def test_blocks_that_are_brought_can_be_referred_to() -> None:
    from nerve.commander.core.references import resolve_references

    desk = CommanderState()
    desk.add_block("text", "here")
    first = desk.import_blocks(
        [{"kind": "run", "name": "ship", "text": "3", "value": 3}, {"kind": "strange", "text": "x"}]
    )
    assert first == 2
    assert [block.kind for block in desk.blocks] == ["text", "run", "note"]
    assert resolve_references("it is ::ship, ::2", desk.blocks) == "it is 3, 3"
