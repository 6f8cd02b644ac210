"""The parts of a run block: messages, tool calls, thoughts, diffs and plain output."""

import pytest

from commander.core.events import Journal
from commander.core.test_state import followed
from nerve.commander.core.blocks import MAX_PART_CHARS, MAX_PARTS, Block, BlockPart
from nerve.commander.core.references import resolve_references
from nerve.ui.diffs import is_diff, tool_input_diff


def block_of(journal: Journal) -> Block:
    state = followed(journal)
    state.apply_events(journal.events)
    return state.blocks[0]


def talk(*chunks: tuple[str, dict[str, object]]) -> list[BlockPart]:
    journal = Journal()
    journal.add("node_started", "/talk", node_id="talk")
    for type, data in chunks:
        journal.add(type, "/talk", **data)
    return block_of(journal).parts


def test_a_partial_message_grows_and_is_replaced_by_the_complete_one() -> None:
    pieces = [("output_chunk", {"stream": "partial", "text": text}) for text in ("Hel", "lo")]
    (part,) = talk(*pieces)
    assert (part.text, part.kind, part.done) == ("Hello", "text", False)
    (part,) = talk(*pieces, ("output_chunk", {"stream": "assistant", "text": "Hello you"}))
    assert (part.text, part.done) == ("Hello you", True)


def test_the_next_message_is_a_new_part() -> None:
    said = [("output_chunk", {"stream": "assistant", "text": text}) for text in ("one", "two")]
    assert [part.text for part in talk(*said)] == ["one", "two"]


def test_a_tool_call_is_folded_and_keeps_its_output() -> None:
    (part,) = talk(
        ("tool_call", {"name": "Read", "input": {"file": "a.py"}, "id": "1"}),
        ("tool_call", {"id": "1", "status": "completed", "text": "print(1)\n"}),
    )
    assert (part.kind, part.folded, part.done) == ("tool", True, True)
    assert part.text == 'Read {"file":"a.py"}\nprint(1)'


def test_a_tool_that_is_running_shows_its_output_as_it_comes() -> None:
    call = ("tool_call", {"name": "Bash", "input": {"command": "make test"}, "id": "1"})
    parts = [("tool_call", {"id": "1", "status": "running", "text": text}) for text in ("one\n", "two\n")]
    (part,) = talk(call, *parts)
    assert (part.done, part.text) == (False, "Bash make test\none\ntwo\n")
    (part,) = talk(call, *parts, ("tool_call", {"id": "1", "status": "completed", "text": "one\ntwo\n3\n"}))
    assert (part.done, part.text) == (True, "Bash make test\none\ntwo\n3")


def test_a_thought_is_folded() -> None:
    (part,) = talk(("output_chunk", {"stream": "thought", "text": "hm"}))
    assert (part.kind, part.folded) == ("thought", True)


def test_an_edit_is_a_diff() -> None:
    edit = {"file_path": "a.py", "old_string": "one\ntwo", "new_string": "one\n2"}
    (part,) = talk(("tool_call", {"name": "Edit", "input": edit, "id": "1"}))
    assert (part.kind, part.folded) == ("diff", False)
    assert part.text.splitlines() == ["--- a.py", "+++ a.py", "@@ -1,2 +1,2 @@", " one", "-two", "+2"]
    assert tool_input_diff({"old_string": 3, "new_string": "x"}) == tool_input_diff("text") == ""


def test_output_that_is_a_diff_is_shown_as_a_diff_when_complete() -> None:
    text = "diff --git a/x b/x\n--- a/x\n+++ b/x\n@@ -1 +1 @@\n-a\n+b\n"
    assert is_diff(text)
    assert not is_diff("--- only a line\n")
    journal = Journal()
    journal.add("node_started", "/show", node_id="show")
    journal.add("output_chunk", "/show", stream="stdout", text=text)
    journal.add("node_completed", "/show", node_id="show", success=True, result={}, duration_ms=1)
    assert block_of(journal).parts[0].kind == "diff"


def test_a_restarted_step_starts_a_new_part() -> None:
    pieces = [("output_chunk", {"stream": "partial", "text": text}) for text in ("Hel", "lo")]
    again = ("node_retrying", {"node_id": "talk", "attempt": 1, "recovered": True})
    assert [(part.text, part.done) for part in talk(*pieces, again, *pieces)] == [
        ("Hello", True),
        ("Hello", False),
    ]


def test_all_parts_are_finished_when_the_run_ends() -> None:
    journal = Journal()
    journal.add("node_started", "/talk", node_id="talk")
    journal.add("output_chunk", "/talk", stream="partial", text="Hel")
    journal.add("workflow_cancelled", "", reason="enough")
    block = block_of(journal)
    assert [part.done for part in block.parts] == [True]
    assert (block.text, block.done) == ("enough", True)


def test_a_plan_shows_its_current_state() -> None:
    def plan(*states: str) -> tuple[str, dict[str, object]]:
        return "plan", {"entries": [{"content": f"step {n}", "status": s} for n, s in enumerate(states)]}

    (part,) = talk(plan("in_progress", "pending"), plan("completed", "in_progress"))
    assert part.text == "✓ step 0\n● step 1"


@pytest.mark.requirement("S0-05")
def test_events_are_also_recorded_as_lines() -> None:
    journal = Journal("r", "code_review", steps=["reviewer"])
    journal.step("/reviewer", "looks fine")
    journal.add("review_complete", "", review="fine,\nall of it")
    journal.gate("/accept/answer", prompt="Accept, reject, or provide feedback:", choices=None)
    block = block_of(journal)
    assert block.lines == [
        "[workflow] code_review started",
        "[reviewer] ✓ looks fine (0.0s)",
        "[review_complete] fine, all of it",
        "[gate] Accept, reject, or provide feedback:",
    ]
    assert [(part.name, part.text) for part in block.parts] == [
        ("code_review", "[review_complete] fine, all of it")
    ]


def test_a_run_that_ends_after_other_output_is_the_last_result() -> None:
    journal = Journal()
    journal.gate()
    state = followed(journal)
    state.apply_events(journal.events)
    state.add_block("text", "Is 'ship' to be started?", name="router")
    assert resolve_references("::last", state.blocks) == "Is 'ship' to be started?"
    state.apply_events([journal.answer(), journal.end("shipped")])
    assert resolve_references("::last ::-2", state.blocks) == "shipped Is 'ship' to be started?"


def test_a_block_keeps_only_the_last_output() -> None:
    journal = Journal()
    for n in range(MAX_PARTS + 5):
        journal.add("output_chunk", "/talk", stream="assistant", text=f"{n}")
    journal.add("output_chunk", "/talk", stream="stdout", text="x" * (MAX_PART_CHARS + 1))
    block = block_of(journal)
    assert (len(block.parts), block.dropped_parts, block.parts[0].text) == (MAX_PARTS, 6, "6")
    assert len(block.parts[-1].text) == MAX_PART_CHARS


def test_a_failure_with_a_traceback_is_a_part_of_its_own() -> None:
    journal = Journal()
    journal.add("node_started", "/charge", node_id="charge")
    failure = {
        "error": "no card",
        "error_type": "LookupError",
        "location": "pay.py:6 in charge",
        "traceback": "Traceback\nLookupError: no card",
    }
    journal.add("node_error", "/charge", node_id="charge", success=False, duration_ms=10, **failure)
    journal.add("workflow_failed", "", **failure | {"location": "pay.py:13 in pay"})
    block = block_of(journal)
    step, run = block.parts
    assert (step.name, step.kind) == ("charge", "traceback")
    assert step.text == "LookupError: no card (pay.py:6 in charge)\nTraceback\nLookupError: no card"
    assert (run.name, run.kind) == ("ship", "traceback")
    assert block.text == "LookupError: no card (pay.py:13 in pay)"
