"""What a step says and does, as it arrives."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from nerve.core.events import WorkflowEvent
from nerve.ui.step_transcript import MAX_ENTRIES, StepTranscript

NOW = datetime(2026, 1, 2, tzinfo=UTC)


def transcript_of(*events: tuple[str, dict[str, Any]]) -> StepTranscript:
    transcript = StepTranscript("/agent")
    for type, data in events:
        transcript.apply_event(WorkflowEvent("run-1", "ship", type, data, NOW, path="/agent"))
    return transcript


def chunk(stream: str, text: str, **more: Any) -> tuple[str, dict[str, Any]]:
    return "output_chunk", {"stream": stream, "text": text, **more}


def test_streamed_parts_become_one_text_that_the_whole_message_replaces() -> None:
    live = transcript_of(chunk("partial", "I re"), chunk("partial", "ad "))
    assert [(entry.text, entry.is_partial) for entry in live.entries] == [("I read ", True)]
    whole = transcript_of(chunk("partial", "I re"), chunk("assistant", "I read it."), chunk("partial", "N"))
    assert [(entry.text, entry.is_partial) for entry in whole.entries] == [("I read it.", False), ("N", True)]


def test_lines_of_a_command_are_joined_by_stream() -> None:
    transcript = transcript_of(chunk("stdout", "a\n"), chunk("stdout", "b"), chunk("stderr", "c"))
    assert [(entry.name, entry.text) for entry in transcript.entries] == [("stdout", "a\nb"), ("stderr", "c")]
    assert not transcript.is_agent


def test_printed_text_and_log_records_are_no_output() -> None:
    transcript = transcript_of(
        chunk("stdout", "hi\n", printed=True), ("log", {"message": "late", "level": "warning", "logger": "x"})
    )
    assert [(entry.kind, entry.status) for entry in transcript.entries] == [("print", ""), ("log", "warning")]
    assert transcript.text == ""


def test_a_message_of_a_person_is_part_of_the_transcript() -> None:
    transcript = transcript_of(("steered", {"text": "Stop.", "by": "unix:ann"}))
    assert (transcript.entries[0].kind, transcript.entries[0].status) == ("steer", "unix:ann")


def test_a_tool_call_that_is_running_when_the_step_fails_is_cancelled() -> None:
    transcript = transcript_of(
        ("tool_call", {"name": "Bash", "input": {}, "id": "1"}), ("node_error", {"success": False})
    )
    assert transcript.entries[0].status == "cancelled"


def test_a_text_that_an_agent_gets_as_its_input_is_its_prompt() -> None:
    start = ("node_started", {"input": "Plan it."})
    assert transcript_of(start).entries == []
    kinds = [entry.kind for entry in transcript_of(start, chunk("assistant", "Done.")).entries]
    assert kinds == ["prompt", "text"]


def test_a_long_transcript_keeps_its_newest_entries() -> None:
    transcript = transcript_of(*(chunk("assistant", str(number)) for number in range(MAX_ENTRIES + 10)))
    assert len(transcript.entries) <= MAX_ENTRIES
    assert transcript.entries[-1].text == str(MAX_ENTRIES + 9)
    assert transcript.dropped_entries + len(transcript.entries) == MAX_ENTRIES + 10
