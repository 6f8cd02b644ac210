"""The Commander state, built from events."""

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from commander.core.events import BEGAN, Journal, make_run
from nerve.commander.core.state import MAX_RUN_CARDS, CommanderState


def followed(journal: Journal, **options: bool) -> CommanderState:
    """Return a state that follows a run and has no events of it yet."""
    state = CommanderState()
    state.merge_runs([make_run(journal.run_id, workflow=journal.workflow)])
    state.show_run(journal.run_id, **options)
    return state


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


def state_of(state: CommanderState) -> object:
    """Return the cards, blocks and gates, without the change flags."""
    cards = [
        (card.run_id, card.state, card.result, card.last_seq, len(card.gates)) for card in state.runs.values()
    ]
    blocks = [
        (b.kind, b.text, b.value, b.done, b.lines, [(p.text, p.done) for p in b.parts]) for b in state.blocks
    ]
    return cards, blocks, [gate.gate_id for gate in state.gates]


def test_a_run_known_from_events_gets_a_card_and_no_tree() -> None:
    state = CommanderState()
    for event in a_run().events[:4]:
        state.apply_event(event)
    card = state.runs["run-1"]
    assert (card.workflow, card.state, card.tree, state.blocks) == ("ship", "running", None, [])


def test_an_unfollowed_run_ends_like_a_followed_one() -> None:
    journal, heard = a_run(), CommanderState()
    heard.apply_events(journal.events)
    seen = followed(journal)
    seen.apply_events(journal.events)
    for name in ("state", "result", "error", "started_at", "ended_at", "gates"):
        assert getattr(heard.runs["run-1"], name) == getattr(seen.runs["run-1"], name)


def test_a_followed_run_has_a_tree_output_and_result() -> None:
    state = followed(journal := a_run())
    state.apply_events(journal.events)
    card, block = state.runs["run-1"], state.blocks[0]
    assert card.tree is not None
    assert [node.name for node in card.tree.root.view.tree] == ["build", "approve"]
    assert [(part.name, part.text, part.done) for part in block.parts] == [("build", "one\ntwo\n", True)]
    assert (block.done, block.value, block.text) == (True, {"version": 3}, '{\n  "version": 3\n}')


@given(st.lists(st.integers(1, 3), min_size=8, max_size=8))
def test_duplicate_events_change_nothing(times: list[int]) -> None:
    journal = a_run()
    once, again = followed(journal), followed(journal)
    for event, count in zip(journal.events, times, strict=True):
        once.apply_event(event)
        for _ in range(count):
            again.apply_event(event)
    again.apply_events(journal.events)
    assert state_of(again) == state_of(once)


@given(st.integers(0, 8), st.integers(0, 8))
def test_the_batching_of_events_does_not_matter(one: int, other: int) -> None:
    journal = a_run()
    whole, pieces = followed(journal), followed(journal)
    whole.apply_events(journal.events)
    first, second = sorted((one, other))
    for part in (journal.events[:first], journal.events[first:second], journal.events[second:]):
        pieces.apply_events(part)
    other_blocks = [block for block in pieces.blocks if block.kind != "gate"]
    assert [block.parts for block in other_blocks] == [b.parts for b in whole.blocks if b.kind != "gate"]
    assert pieces.runs["run-1"].state == whole.runs["run-1"].state == "completed"
    assert pieces.gates == whole.gates == []


def test_a_gap_is_detected_only_for_followed_runs() -> None:
    journal = a_run()
    state = followed(journal)
    state.apply_events(journal.events[:2])
    assert not state.has_gap_before("run-1", 3)
    assert state.has_gap_before("run-1", 4)
    heard = CommanderState()
    heard.apply_events(journal.events[:2])
    assert not heard.has_gap_before("run-1", 5)


def test_many_events_are_one_change() -> None:
    journal = Journal()
    journal.add("node_started", "/talk", node_id="talk")
    state = followed(journal)
    state.apply_events(journal.events)
    state.changes.drain()
    called: list[int] = []
    state.on_change = lambda: called.append(1)
    for _ in range(1000):
        state.apply_event(journal.add("output_chunk", "/talk", stream="partial", text="word "))
    assert called == [1]
    changed = state.changes.drain()
    assert (changed.blocks, changed.runs, changed.flags) == ({1}, {"run-1"}, set())
    assert not state.changes


def test_the_output_of_an_unfollowed_run_changes_nothing() -> None:
    journal, state = Journal(), CommanderState()
    state.apply_events(journal.events)
    state.changes.drain()
    for _ in range(100):
        state.apply_event(journal.add("output_chunk", "/talk", stream="partial", text="word "))
    assert not state.changes
    assert state.runs["run-1"].last_seq == 101


def test_the_newest_runs_come_first_regardless_of_source() -> None:
    state = CommanderState()
    state.merge_runs([make_run(f"r{n}", started_at=BEGAN + timedelta(minutes=n)) for n in (3, 2, 1)])
    state.apply_events(Journal("later").events)
    assert next(iter(state.runs)) == "later"
    state.merge_runs([make_run("r2", "completed", started_at=BEGAN + timedelta(minutes=2))])
    assert [each for each in state.runs if each != "later"] == ["r3", "r2", "r1"]
    assert state.runs["r2"].state == "completed"


def test_the_number_of_cards_is_limited_and_open_runs_are_kept() -> None:
    state = CommanderState()
    runs = [
        make_run(f"r{n:04}", "waiting" if n == 0 else "completed", started_at=BEGAN + timedelta(seconds=n))
        for n in range(MAX_RUN_CARDS + 10)
    ]
    state.merge_runs(reversed(runs))
    assert len(state.runs) == MAX_RUN_CARDS + 1
    assert "r0000" in state.runs
    assert "r0001" not in state.runs


def test_a_child_run_is_shown_in_its_parent() -> None:
    parent, child = (
        Journal("parent", "outer"),
        Journal("child", "inner", parent="parent", parent_path="/call"),
    )
    state = followed(parent)
    state.apply_events(parent.events)
    state.apply_event(parent.add("node_started", "/call", node_id="inner", child="child"))
    state.apply_events(child.events)
    state.apply_event(child.gate())
    card = state.runs["parent"]
    assert "child" not in state.runs
    assert card.tree is not None
    assert set(card.tree.branches) == {"", "/call"}
    assert (card.state, [gate.run_id for gate in card.gates]) == ("waiting", ["child"])
    state.apply_event(child.answer())
    assert (card.state, card.gates) == ("running", [])


def test_the_gate_of_a_child_appears_on_its_unfollowed_parent() -> None:
    state = CommanderState()
    state.merge_runs([make_run("child", "waiting", parent="parent"), make_run("parent")])
    state.apply_event(Journal("child", parent="parent").gate())
    assert list(state.runs) == ["parent"]
    assert [gate.gate_id for gate in state.runs["parent"].gates] == ["g1"]


def test_a_retried_call_replaces_the_first_attempt() -> None:
    parent = Journal("parent")
    state = followed(parent)
    state.apply_events(parent.events)
    state.apply_event(parent.add("node_started", "/call", node_id="inner", child="first"))
    state.apply_events(Journal("first", parent="parent", parent_path="/call").events)
    state.apply_event(parent.add("node_started", "/call", node_id="inner", child="second"))
    state.apply_events(Journal("second", parent="parent", parent_path="/call").events)
    tree = state.runs["parent"].tree
    assert tree is not None
    assert tree.branches["/call"].run_id == "second"


def test_the_card_shows_the_cost_of_followed_and_unfollowed_runs() -> None:
    journal = Journal()
    journal.step("/think", usage={"input_tokens": 10, "output_tokens": 5, "cost": 0.25})
    heard, seen = CommanderState(), followed(journal)
    heard.apply_events(journal.events)
    seen.apply_events(journal.events)
    for state in (heard, seen):
        assert (state.runs["run-1"].usage.tokens, state.runs["run-1"].usage.cost) == (15, 0.25)


@pytest.mark.parametrize("type", ["gate_reminded", "signal_seen"])
def test_a_user_event_named_like_the_end_of_a_wait_ends_no_wait(type: str) -> None:
    journal = Journal()
    journal.add("signal_waiting", "/review", name="reviewed")
    journal.add(type, "/review")
    heard, seen = CommanderState(), followed(journal)
    heard.apply_events(journal.events)
    seen.apply_events(journal.events)
    assert [state.runs["run-1"].state for state in (heard, seen)] == ["waiting", "waiting"]
    tree = seen.runs["run-1"].tree
    assert tree is not None
    assert [wait["name"] for wait in tree.waits] == ["reviewed"]


def test_a_user_event_named_like_the_end_of_a_step_adds_no_cost() -> None:
    journal, heard = Journal(), CommanderState()
    journal.add("node_reviewed", "/think", result={"attributes": {"usage": {"cost": 1.0}}})
    heard.apply_events(journal.events)
    assert heard.runs["run-1"].usage.cost == 0


@pytest.mark.requirement("S3-17")
def test_the_router_reports_the_run_that_it_started() -> None:
    journal = Journal(steps=["build"])
    state = followed(journal, routed=True)
    journal.add("node_started", "/build", node_id="build")
    journal.add("node_error", "/build", node_id="build", success=False, error="no")
    journal.add("workflow_failed", "", error="no")
    state.apply_events(journal.events)
    assert [part.text for part in state.blocks[0].parts] == [
        "**Starting workflow**: ship",
        "**Step 1**: build",
        "**Workflow failed** at step: build\n\nError: no",
    ]
    assert (state.blocks[0].text, state.blocks[0].value) == ("no", None)


def test_imported_blocks_can_be_referenced() -> None:
    from nerve.commander.core.references import resolve_references

    state = CommanderState()
    state.add_block("text", "here")
    first = state.import_blocks(
        [{"kind": "run", "name": "ship", "text": "3", "value": 3}, {"kind": "strange", "text": "x"}]
    )
    assert first == 2
    assert [block.kind for block in state.blocks] == ["text", "run", "note"]
    assert resolve_references("it is ::ship, ::2", state.blocks) == "it is 3, 3"


def test_the_card_of_a_waiting_run_says_for_what() -> None:
    state = CommanderState()
    state.merge_runs([make_run("run-1", "waiting", waiting_for="for signal go")])
    card = state.runs["run-1"]
    assert card.waiting_for == "for signal go"
    journal = Journal("run-1")
    state.apply_events(
        [
            journal.add("signal_received", "/signal", label="go", key=None, value=1),
            journal.add("signal_waiting", "/signal[2]", label="shipped", key="42", deadline=None),
        ]
    )
    assert (card.state, card.waiting_for) == ("waiting", "for signal shipped (key 42)")
    state.apply_event(journal.add("signal_received", "/signal[2]", label="shipped", key="42", value=1))
    assert (card.state, card.waiting_for) == ("running", None)


def test_the_card_of_a_followed_run_says_what_its_tree_waits_for() -> None:
    journal = Journal()
    journal.gate()
    journal.gate("/other/answer", "g2")
    state = followed(journal)
    state.apply_events(journal.events)
    assert state.runs["run-1"].waiting_for == "for 2 gates"
    state.apply_event(journal.answer())
    assert state.runs["run-1"].waiting_for == 'for gate "Ship it?"'


def chain_of_two() -> tuple[Journal, Journal]:
    first, second = (
        Journal("run-1", label="v1"),
        Journal("run-2", continued_from={"run": "run-1"}, label="v1"),
    )
    first.step("/one")
    first.add("workflow_completed", "", result=None, continued_as="run-2")
    second.step("/two")
    second.gate("/ask/answer", "g2")
    return first, second


@pytest.mark.parametrize("is_followed", [True, False])
def test_the_card_of_a_run_shows_the_next_run_of_its_chain(is_followed: bool) -> None:
    first, second = chain_of_two()
    state = followed(first) if is_followed else CommanderState()
    state.focus_run("run-1")
    state.apply_events(first.events)
    card = state.runs["run-1"]
    assert (card.state, card.ended_at) == ("running", None)
    state.apply_events(second.events)
    assert list(state.runs) == ["run-1"]
    assert (card.state, [gate.run_id for gate in card.gates]) == ("waiting", ["run-2"])
    assert state.open_gate_id == "g2"
    assert state.runs_in_tree("run-1") == ["run-2"]
    state.apply_events(first.events)  # sent again after a reconnect
    assert card.state == "waiting"
    second.answer("/ask/answer", "g2")
    second.end()
    state.apply_events(second.events[4:])
    assert (card.state, card.result) == ("completed", "shipped")
    if is_followed:
        assert card.tree is not None
        assert list(card.tree.root.view.nodes) == ["/two", "/ask"]
        assert [block.done for block in state.blocks if block.kind == "run"] == [True]


def test_the_runs_of_a_chain_in_a_list_are_one_card() -> None:
    state = CommanderState()
    runs = [
        make_run("run-3", continued_from="run-2", label="v1", started_at=BEGAN + timedelta(seconds=3)),
        make_run(
            "run-2",
            "completed",
            continued_from="run-1",
            continued_as="run-3",
            started_at=BEGAN + timedelta(seconds=2),
        ),
        make_run("run-1", "completed", continued_as="run-2", started_at=BEGAN),
    ]
    state.merge_runs(runs)
    state.merge_runs(runs[1:])
    assert [(card.run_id, card.state) for card in state.runs.values()] == [("run-1", "running")]
    assert state.root_of("run-3") == "run-1"
