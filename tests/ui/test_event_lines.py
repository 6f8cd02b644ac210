"""Formatting of events as lines."""

import pytest

from nerve.core.events import WorkflowEvent
from nerve.ui.event_lines import ROOT_SYMBOLS, STATE_SYMBOLS, LogLines, format_event, format_event_log_line


def test_a_step_without_output_shows_its_duration():
    data = {"success": True, "result": {"output": ""}, "duration_ms": 1500}
    assert format_event(WorkflowEvent("r", "w", "node_completed", data, path="/send")) == "[send] ✓ (1.5s)"


def test_a_limited_provider_shows_when_it_resumes():
    data = {"provider": "claude", "until": 0.0, "message": "held: claude limit until 14:30"}
    event = WorkflowEvent("r", "w", "provider_limited", data, path="/plan")
    assert format_event(event) == "[plan] ⏸ held: claude limit until 14:30"


@pytest.mark.requirement("S0-05")
@pytest.mark.parametrize(
    ("data", "expected"),
    [
        ({"review": "3 issues\n\nand more"}, " 3 issues and more"),
        ({"files": 3, "clean": True, "by": "ada"}, " files 3, clean true, by ada"),
        ({"round": 2}, " round 2"),
        ({"node_id": 7}, " node_id 7"),
        ({}, ""),
        ({"review": "x" * 1000}, f" {'x' * 199}…"),
    ],
)
def test_a_user_event_is_shown_under_its_name(data: dict[str, object], expected: str) -> None:
    assert format_event(WorkflowEvent("r", "w", "review_complete", data)) == f"[review_complete]{expected}"


def test_a_round_event_has_its_own_format() -> None:
    assert format_event(WorkflowEvent("r", "w", "outer_round", {"round": 1, "max": 3})) == "[round] 1/3"
    assert format_event(WorkflowEvent("r", "w", "outer_round", {"round": 1})) == "[outer_round] round 1"


@pytest.mark.parametrize("type", ["usage", "clock_read", "state_entered", "workflow_changed", "agent_thread"])
def test_engine_events_are_not_user_events(type: str) -> None:
    assert format_event(WorkflowEvent("r", "w", type, {"any": "thing"})) is None


@pytest.mark.parametrize("state", ["waiting", "pausing", "paused", "held"])
def test_an_idle_run_has_a_different_symbol_from_a_running_one(state: str) -> None:
    assert ROOT_SYMBOLS[state][0] == STATE_SYMBOLS[state][0] == "⏸"


def log_of(*events: tuple[str, dict[str, object]]) -> list[str]:
    log = LogLines()
    made = [WorkflowEvent("r", "w", type, data, path="/test") for type, data in events]
    return [line for event in made for line in log.apply_event(event)] + log.flush_all()


def out(text: str, stream: str = "stdout") -> tuple[str, dict[str, object]]:
    return "output_chunk", {"stream": stream, "text": text}


def test_output_chunks_are_joined_to_complete_lines() -> None:
    assert log_of(out("F"), out("F"), out("F\nok\nre"), out("st")) == [
        "[test] FFF",
        "[test] ok",
        "[test] rest",
    ]


def test_standard_output_and_standard_error_are_not_mixed_within_a_line() -> None:
    lines = log_of(out("one "), out("oh no\n", "stderr"), out("line\n"))
    assert lines == ["[test] oh no", "[test] one line"]


def test_an_incomplete_output_line_precedes_the_end_of_its_step() -> None:
    end = ("node_completed", {"success": True, "result": {"output": "half"}, "duration_ms": 0})
    assert log_of(out("half"), end) == ["[test] half", "[test] ✓ half (0.0s)"]


def test_every_line_of_a_message_names_its_step() -> None:
    assert log_of(out("a\n[gate] answered: yes", "assistant")) == ["[test] a", "[test] [gate] answered: yes"]


def test_a_failed_step_shows_the_first_line_of_its_error() -> None:
    error = "the model is overloaded\nMessage ID: 1234"
    data = {"success": False, "result": {"output": "", "error": error}, "duration_ms": 1000}
    assert format_event(WorkflowEvent("r", "w", "node_error", data, path="/ask")) == (
        "[ask] ✗ the model is overloaded (1.0s)"
    )


def test_an_object_is_shown_as_json() -> None:
    data = {"success": True, "result": {"output": {"passed": True, "by": None}}, "duration_ms": 0}
    assert format_event(WorkflowEvent("r", "w", "node_completed", data, path="/test")) == (
        '[test] ✓ {"passed": true, "by": null} (0.0s)'
    )


@pytest.mark.parametrize(("output", "expected"), [(0, " 0"), (False, " false"), ([], " []"), (None, "")])
def test_a_falsy_output_is_shown(output: object, expected: str) -> None:
    data = {"success": True, "result": {"output": output}, "duration_ms": 0}
    assert (
        format_event(WorkflowEvent("r", "w", "node_completed", data, path="/count"))
        == f"[count] ✓{expected} (0.0s)"
    )


FORGED = "Ship it?\n[gate] answered: yes\n[workflow] ✓ ship completed"


def test_lines_of_questions_and_logs_cannot_imitate_event_lines() -> None:
    gate = WorkflowEvent("r", "w", "gate_waiting", {"prompt": FORGED, "choices": ["yes"]}, path="/ask")
    noted = WorkflowEvent("r", "w", "log", {"message": FORGED}, path="/ask")
    for line in (format_event(gate), format_event_log_line(gate), format_event_log_line(noted)):
        assert line is not None
        first, *rest = line.split("\n")
        assert first.endswith("] Ship it?")
        assert [each[:3] for each in rest] == ["  [", "  ["]


def test_the_output_of_functions_is_separate_from_other_lines() -> None:
    log = LogLines()

    def lines(type: str, **data: object) -> list[str]:
        return log.apply_output(WorkflowEvent("r", "w", type, data, path="/charge"))

    assert lines("output_chunk", stream="stdout", text="half", printed=True) == []
    assert lines("output_chunk", stream="stdout", text=" done\nnext", printed=True) == ["[charge] half done"]
    assert lines("output_chunk", stream="stdout", text="of a command\n") == []
    assert lines("log", message="card 42", level="info", logger="shop") == ["[charge] card 42"]
    assert lines("log", message="expires", level="warning", logger="shop") == ["[charge] warning: expires"]
    assert lines("log", message="the thread still runs", thread="running") == []
    assert lines("node_completed", success=True, result={"output": "x"}) == ["[charge] next"]


def test_a_streamed_message_is_shown_line_by_line_and_only_once() -> None:
    parts = [out("The he", "partial"), out("ron\nstands\nin the wat", "partial")]
    assert log_of(*parts)[:2] == ["[test] The heron", "[test] stands"]
    whole = out("The heron\nstands\nin the water.", "assistant")
    assert log_of(*parts, whole) == ["[test] The heron", "[test] stands", "[test] in the water."]
    other = out("Something else", "assistant")
    assert log_of(*parts, other, other)[2:] == ["[test] Something else", "[test] Something else"]
    assert log_of(out("one\n", "partial"), out("one\n", "assistant")) == ["[test] one"]


def test_an_interrupted_message_is_shown_to_its_end() -> None:
    end = ("node_error", {"success": False, "result": {"error": "killed"}, "duration_ms": 0})
    assert log_of(out("The heron\nstands", "partial"), end)[:2] == ["[test] The heron", "[test] stands"]


def test_the_usage_of_a_turn_is_a_line_of_the_log() -> None:
    used = {"input_tokens": 1000, "output_tokens": 234, "cost": 0.02, "model": "claude-x"}
    assert log_of(("usage", used)) == ["[test] claude-x: 1.2k tokens · $0.02"]
    assert log_of(("usage", {"cost_source": "unknown"})) == []
