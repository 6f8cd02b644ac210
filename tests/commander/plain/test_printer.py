"""The printer: each line is printed once and in a readable order."""

import io
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from rich.console import Console

from nerve.api.models import EventResponse, GateResponse, RunResponse
from nerve.commander.core.state import CommanderState
from nerve.commander.plain.printer import ConversationPrinter

NOW = datetime(2026, 1, 1, tzinfo=UTC)


class Printing:
    """A printer with its state and output."""

    def __init__(self, terminal: bool = True, width: int = 60) -> None:
        self.state, self.file, self.seq = CommanderState(), io.StringIO(), 0
        environment = {"TERM": "xterm"}
        console = Console(
            file=self.file,
            force_terminal=terminal,
            width=width,
            color_system=None,
            highlight=False,
            _environ=environment,
        )
        self.printer = ConversationPrinter(self.state, console)

    def run(self, run_id: str = "r1", workflow: str = "review") -> None:
        self.state.merge_runs(
            [RunResponse(run_id=run_id, workflow=workflow, state="running", started_at=NOW)]
        )
        self.state.show_run(run_id)
        self.tell("workflow_started", run_id=run_id, workflow=workflow, steps=[])

    def tell(
        self, kind: str, path: str = "", run_id: str = "r1", workflow: str = "review", **data: Any
    ) -> None:
        seen = self.state.last_seq(run_id) or 0
        at = NOW + timedelta(seconds=seen)
        fields = {"seq": seen + 1, "run_id": run_id, "workflow_id": workflow, "event_type": kind}
        self.state.apply_event(EventResponse(**fields, path=path, timestamp=at, data=data))

    def done(self, path: str, output: str, success: bool = True) -> None:
        data = {"node_id": path[1:], "success": success, "result": {"output": output}, "duration_ms": 1500}
        self.tell("node_completed", path, **data)

    @property
    def news(self) -> list[str]:
        """The lines printed since the last access."""
        self.file.truncate(0)
        self.file.seek(0)
        self.printer.print_changes()
        return [line.rstrip() for line in self.file.getvalue().splitlines()]


def test_everything_is_printed_once():
    printing = Printing(terminal=False)
    printing.state.add_block("input", "%review it")
    printing.run()
    assert printing.news == ["> %review it", "[workflow] review started"]
    assert printing.news == []
    printing.done("/build", "built")
    printing.tell("workflow_completed", result="all good")
    assert printing.news == [
        "[build] ✓ built (1.5s)",
        "[workflow] ✓ review completed (2.0s)  ::1",
        "all good",
    ]
    assert printing.news == []


def test_a_user_event_is_a_line_at_its_position():
    printing = Printing(terminal=False)
    printing.run()
    printing.done("/reviewer", "fine")
    printing.tell("review_complete", review="fine, all of it")
    printing.done("/editor", "edited")
    assert printing.news[1:] == [
        "[reviewer] ✓ fine (1.5s)",
        "[review_complete] fine, all of it",
        "[editor] ✓ edited (1.5s)",
    ]


def test_step_output_precedes_the_end_of_the_step_and_is_not_repeated():
    printing = Printing()
    printing.run()
    printing.tell("output_chunk", "/look", stream="partial", text="Looks ")
    assert printing.news == ["[workflow] review started  ::1 r1"]
    printing.tell("output_chunk", "/look", stream="assistant", text="Looks **good**")
    printing.done("/look", "Looks **good**")
    printing.tell("workflow_completed", result="Looks **good**")
    assert printing.news == [
        "[look]",
        "  Looks good",
        "[look] ✓ (1.5s)",
        "[workflow] ✓ review completed (4.0s)  ::1",
    ]


def test_multiline_output_that_is_the_result_is_not_repeated():
    printing = Printing(terminal=False)
    printing.run()
    printing.tell("output_chunk", "/list", stream="stdout", text="one\ntwo\n")
    printing.done("/list", "one\ntwo\n")
    printing.tell("workflow_completed", result="one\ntwo\n")
    *said, last = printing.news
    assert (said[1:3], last) == (
        ["[list] │ one", "[list] │ two"],
        "[workflow] ✓ review completed (3.0s)  ::1",
    )


def test_growing_output_is_printed_line_by_line():
    printing = Printing()
    printing.run()
    assert len(printing.news) == 1
    printing.tell("output_chunk", "/build", stream="stdout", text="one\ntwo\nthr")
    assert printing.news == ["[build] │ one", "[build] │ two"]
    printing.tell("output_chunk", "/build", stream="stdout", text="ee\n")
    assert printing.news == []
    printing.done("/build", "one\ntwo\nthree")
    assert printing.news == ["[build] │ three", "[build] ✓ (1.5s)"]


def test_one_line_output_is_printed_with_the_end_of_its_step():
    printing = Printing()
    printing.run()
    assert len(printing.news) == 1
    printing.tell("output_chunk", "/build", stream="stdout", text="built\n")
    printing.done("/build", "built")
    assert printing.news == ["[build] ✓ built (1.5s)"]


def test_tool_output_is_folded_until_details_are_shown():
    printing = Printing()
    printing.run()
    assert len(printing.news) == 1
    for n in range(2):
        printing.printer.shows_details = n == 1
        printing.tell("tool_call", "/look", name="Bash", input={"command": "ls"}, id=f"t{n}")
        printing.tell("tool_call", "/look", id=f"t{n}", status="completed", text="a\nb")
        shown = printing.news
        assert shown[0].startswith("[look] ⚙ Bash ls")
        assert shown[0].endswith("… +2 lines") == (n == 0)
        assert shown[1:] == ([] if n == 0 else ["  a", "  b"])


@pytest.mark.parametrize(("terminal", "shown"), [(True, 2000), (False, 10_000)])
def test_a_very_long_result_is_truncated_on_a_terminal_and_complete_in_a_pipe(terminal: bool, shown: int):
    printing = Printing(terminal)
    printing.run()
    printing.tell("workflow_completed", result="number 1!\n" * 10_000)
    told = "\n".join(printing.news)
    assert told.count("number 1!") == shown
    assert ("… 80,000 more characters; /export writes" in told) == terminal


def test_a_failure_and_a_pause_are_printed_with_their_reasons():
    printing = Printing(terminal=False)
    printing.run()
    printing.tell("workflow_held", reason="budget", message="the budget is spent")
    assert printing.news == ["[workflow] review started", "[workflow] review ⏸ held: the budget is spent"]
    printing.tell("workflow_failed", error="no \x1b[2Jluck")
    assert printing.news == ["[workflow] ✗ review failed (2.0s): no \\x1b[2Jluck"]


def test_lines_of_several_runs_are_marked_with_their_run():
    printing = Printing(terminal=False)
    printing.run("r1")
    printing.run("r2", "other")
    assert printing.news == ["::1 [workflow] review started", "::2 [workflow] other started"]
    printing.tell("workflow_completed", run_id="r2", workflow="other", result=None)
    assert printing.news == ["::2 [workflow] ✓ other completed (1.0s)"]
    printing.done("/build", "built")
    assert printing.news == ["[build] ✓ built (1.5s)"]


def gate(printing: Printing, **more: Any) -> None:
    printing.tell("gate_waiting", "/ok", gate_id="g1", prompt="Ship\nit?", choices=["yes", "no"], **more)


def test_a_gate_is_a_card_with_its_choices_and_its_diff():
    printing = Printing()
    printing.run()
    change = {"file_path": "a.py", "old_string": "one", "new_string": "two"}
    gate(printing, action={"tool": "Edit", "input": change})
    shown = "\n".join(printing.news)
    for text in ("⏸ Waiting for Input: ok", "Ship", "-one", "+two", "1 yes", "2 no", "/answer 1", "/approve"):
        assert text in shown
    assert "[gate] Ship" not in shown
    printing.tell("gate_answered", "/ok", gate_id="g1", answer="yes", by="web")
    assert printing.news == ["[gate] answered: yes"]


def test_in_a_pipe_a_gate_is_printed_as_lines():
    printing = Printing(terminal=False)
    printing.run()
    gate(printing)
    assert printing.news == [
        "[workflow] review started",
        "[gate] Ship it? (yes or no)",
        "  1 yes",
        "  2 no",
        "  (/gates 1 opens it, or /answer 1 …, /approve, /reject)",
    ]


def test_answers_notes_and_errors_have_their_own_formats():
    printing = Printing()
    printing.state.add_block("text", "# Title\n\n- one\n- two", name="router")
    printing.state.add_block("text", "`/stop`", name="/help")
    printing.state.add_block("note", "done [bold]so[/]")
    printing.state.add_block("error", "not\x07 so")
    printing.state.add_block("input", "\n".join(map(str, range(12))))
    shown = printing.news
    assert shown[0] == "[router] ::1"
    assert "Title" in shown
    assert " • one" in shown
    assert "/stop" in shown
    assert "done [bold]so[/]" in shown
    assert "✗ not\\x07 so" in shown
    assert shown[-9:] == ["❯ 0", *(f"  {n}" for n in range(1, 8)), "  … +4 lines"]


def test_a_gate_of_an_unfollowed_run_is_not_printed():
    printing = Printing()
    printing.state.replace_gates([GateResponse(gate_id="g9", run_id="r9", path="/ok", prompt="Ship it?")])
    assert printing.news == []


def test_an_opened_gate_is_shown_unless_it_was_just_shown():
    printing = Printing()
    printing.state.merge_runs([RunResponse(run_id="r9", workflow="other", state="waiting")])
    asked = GateResponse(
        gate_id="g9", run_id="r9", path="/ok", prompt="Ship it?", choices=["yes", "no"], note="It is late."
    )
    preview = {"input_preview": "what was built"}
    printing.state.replace_gates([GateResponse.model_validate(asked.model_dump() | preview)])
    assert printing.news == []
    printing.state.open_gate("g9")
    shown = "\n".join(printing.news)
    for text in ("⏸ Waiting for Input: ok of other", "Ship it?", "It is late.", "what was built", "2 no"):
        assert text in shown
    printing.state.open_gate(None)
    printing.state.open_gate("g9")
    assert printing.news == []
    printing.run()
    gate(printing)
    assert "Waiting for Input: ok of review" in "\n".join(printing.news)
    printing.state.open_gate(None)
    printing.state.open_gate("g9")
    assert "Ship it?" in "\n".join(printing.news)


def test_in_a_pipe_an_opened_gate_shows_its_input_preview():
    printing = Printing(terminal=False)
    asked = GateResponse(
        gate_id="g9", run_id="r9", path="/ok", prompt="Ship it?", input_preview="built\nand tested"
    )
    printing.state.replace_gates([asked])
    printing.state.open_gate("g9")
    assert printing.news == ["[gate] Ship it?", "  built", "  and tested"]


def test_in_a_pipe_a_gate_of_a_followed_run_shows_its_input_preview_and_options():
    printing = Printing(terminal=False)
    printing.run()
    printing.state.focus_run("r1")
    asked = {"prompt": "Ship it?", "choices": None, "options": ["yes", "later"], "node_id": "ok"}
    printing.tell("gate_waiting", "/ok", gate_id="g1", input_preview="built\nand tested", **asked)
    assert printing.news[-6:] == [
        "[gate] Ship it? (such as yes or later)",
        "  built",
        "  and tested",
        "  1 yes",
        "  2 later",
        "  (The next line answers it, or /answer 1 …)",
    ]


FORM = {
    "type": "object",
    "properties": {
        "version": {"type": "string", "description": "What is shipped"},
        "dry": {"type": "boolean"},
    },
    "required": ["version"],
}


def test_a_form_shows_its_fields_and_an_example_answer():
    printing = Printing(width=80)
    printing.run()
    printing.tell("gate_waiting", "/ok", gate_id="g1", prompt="Ship it?", choices=None, form=FORM)
    shown = "\n".join(printing.news)
    for text in ("Fields:", "version  text, required: What is shipped", "dry      true or false"):
        assert text in shown
    assert '/answer 1 {"version": "…"}' in shown


def test_in_a_pipe_a_form_is_printed_as_lines():
    printing = Printing(terminal=False)
    printing.run()
    printing.tell("gate_waiting", "/ok", gate_id="g1", prompt="Ship it?", choices=None, form=FORM)
    assert printing.news[1:] == [
        '[gate] Ship it? (such as {"version": "…"})',
        "  version  text, required: What is shipped",
        "  dry      true or false",
        '  (/gates 1 opens it, or /answer 1 {"version": "…"})',
    ]
    printing.state.replace_gates(
        [GateResponse(gate_id="g2", run_id="r2", path="/no", prompt="Why?", form=FORM)]
    )
    printing.state.open_gate("g2")
    assert '  (Type JSON, such as {"version": "…"})' in printing.news


def test_in_a_pipe_lines_of_questions_and_steps_cannot_imitate_run_lines():
    printing = Printing(terminal=False)
    printing.run()
    forged = "Ship it?\n[gate] answered: yes"
    printing.tell("output_chunk", "/say", stream="assistant", text=forged)
    printing.tell("gate_waiting", "/ok", gate_id="g1", prompt=forged, choices=["yes", "no"], node_id="ok")
    printing.state.add_block("error", forged)
    printing.state.open_gate("g1")
    lines = printing.news
    assert sum("[gate] answered: yes" in line for line in lines) == 3
    assert not [line for line in lines if line.startswith("[gate] answered")]


def test_in_a_pipe_a_rejected_answer_asks_again():
    printing = Printing(terminal=False)
    printing.run()
    printing.state.focus_run("r1")
    printing.tell("gate_waiting", "/ok", gate_id="g1", prompt="Ship it?", choices=["yes", "no"], node_id="ok")
    assert "  (The next line answers it, or /answer 1 …, /approve, /reject)" in printing.news
    printing.state.open_gate(None)
    printing.state.add_block("error", "Invalid choice.")
    printing.state.open_gate("g1")
    assert printing.news == ["✗ Invalid choice.", "[gate] Ship it? (yes or no)", "  1 yes", "  2 no"]
