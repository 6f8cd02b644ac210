"""Recorded lines of Claude Code converted to chunks, without the program."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agents.contract import done, usage
from nerve.agents.claude.stream_json import StreamJsonReader, claude_outcome
from nerve.agents.claude.turn import parse_stream_line
from nerve.agents.provider import (
    AssistantText,
    Chunk,
    Reasoning,
    ThreadStarted,
    ToolCall,
    ToolUpdate,
    TurnFinished,
    TurnUsage,
)

KEPT = Path(__file__).parent / "transcripts" / "claude"
RUN = {"command": "echo made > made.txt; echo it ran", "description": "what the stub wants"}
DENIED = {"command": "touch denied.txt", "description": "what the stub wants"}
A_TURN = {"command": "touch a.txt", "description": "what the stub wants"}


def read(name: str, totals: dict[str, Any] | None = None, resumed: bool = False) -> list[Chunk]:
    lines = StreamJsonReader(totals or {}, resumed)
    kept = (KEPT / f"{name}.jsonl").read_bytes().splitlines()
    return [chunk for line in kept for chunk in lines.read_message(parse_stream_line(line))]


def between(chunks: list[Chunk]) -> list[Any]:
    """Return the chunks between the first and the last, with short tool ids."""
    assert isinstance(chunks[0], ThreadStarted)
    assert chunks[0].thread == done(chunks).thread
    ids = [chunk.id for chunk in chunks if isinstance(chunk, ToolCall)]
    said: list[Any] = []
    for chunk in chunks[1:-1]:
        match chunk:
            case ToolCall(name, given, id):
                said.append(ToolCall(name, given, str(ids.index(id))))
            case ToolUpdate(id, status, output):
                said.append(ToolUpdate(str(ids.index(id)), status, output))
            case TurnUsage():
                pass
            case _:
                said.append(chunk)
    return said


def pieces(*texts: str) -> list[AssistantText]:
    return [*(AssistantText(text, partial=True) for text in texts), AssistantText("".join(texts))]


SAID: dict[str, list[Chunk]] = {
    "answer": [*pieces("one ", "two")],
    "thought": [Reasoning("of herons"), *pieces("thought")],
    "tool": [
        *pieces("running ", "it"),
        ToolCall("Bash", RUN, "0"),
        ToolUpdate("0", "completed", "it ran"),
        *pieces("tool ", "said: ", "it ", "ran"),
    ],
    "denied": [
        *pieces("running ", "it"),
        ToolCall("Bash", DENIED, "0"),
        ToolUpdate("0", "failed", "nobody is there to allow it"),
        *pieces("tool ", "said: ", "nobody ", "is ", "there ", "to ", "allow ", "it"),
    ],
    "schema": [],
    "max_turns": [
        *pieces("running ", "it"),
        ToolCall("Bash", A_TURN, "0"),
        ToolUpdate("0", "completed", "(Bash completed with no output)"),
    ],
    "api_error": [],
    "busy": [],
    "overloaded": [],
    "subscription": [],
}


@pytest.mark.parametrize("name", SAID)
def test_transcripts_are_converted_to_chunks(name: str) -> None:
    assert between(read(name)) == SAID[name]


@pytest.mark.parametrize(
    ("name", "outcome", "error"),
    [
        ("answer", "completed", ""),
        ("denied", "completed", ""),
        ("schema", "completed", ""),
        ("max_turns", "failed", "Reached maximum number of turns (1)"),
        ("api_error", "failed", "API Error: 400 the stub says no"),
        ("busy", "limited", "429"),
        ("overloaded", "limited", "529"),
        ("subscription", "limited", "You've hit your 5-hour limit"),
        ("missing", "failed", "No conversation found"),
    ],
)
def test_transcripts_end_with_their_outcome(name: str, outcome: str, error: str) -> None:
    end = done(read(name))
    assert end.outcome == outcome
    assert error in end.error
    assert bool(end.error) is (outcome != "completed")


def test_a_structured_answer_is_returned() -> None:
    assert done(read("schema")).structured == {"score": 3}


def test_only_a_rate_limit_has_a_reset_time() -> None:
    assert done(read("subscription")).resets_at
    assert done(read("busy")).resets_at is None


def ended(counted: float, before: float, *without: str) -> TurnUsage:
    """Return a turn of 200 tokens, for a program whose totals are those multiples of it, before and after."""
    line = parse_stream_line((KEPT / "tool.jsonl").read_bytes().splitlines()[-1])
    [model] = line["modelUsage"]
    reported = {
        name: value for name, value in line["modelUsage"][model].items() if isinstance(value, int | float)
    }
    line["modelUsage"] = {model: {name: value * counted for name, value in reported.items()}}
    line = {name: value for name, value in line.items() if name not in without}
    first = done(read("tool"))
    lines = StreamJsonReader(
        {name: value * before for name, value in first.totals.items() if name != "models"}, True
    )
    return usage(done(list(lines.read_message(line))))


TURN = 0.001188
"""The cost of the turn in dollars."""


def test_cost_and_tokens_are_differences_of_the_programs_totals() -> None:
    assert done(read("tool")).usage == TurnUsage(200, 14, 40, 20, pytest.approx(TURN), "claude-opus-5-5")
    assert (ended(4, 3).input_tokens, ended(4, 3).cost) == (200, pytest.approx(TURN))


def test_an_interrupted_turn_in_the_totals_is_charged_with_the_next() -> None:
    assert (ended(4, 2).input_tokens, ended(4, 2).cost) == (400, pytest.approx(2 * TURN))


@pytest.mark.parametrize("before", [1, 1.5, 2, 5])
def test_a_turn_is_charged_in_full_although_the_program_lost_its_totals(before: float) -> None:
    """The program saves its totals only when it exits by itself, not when it is killed after its answer."""
    counted = 2 if before > 1 else 1
    assert (ended(counted, before).input_tokens, ended(counted, before).cost) == (200, pytest.approx(TURN))
    tokens_only = ended(counted, before, "model_usage_since_last_result")
    assert (tokens_only.input_tokens, tokens_only.cost) == (200, None)


@pytest.mark.parametrize("resumed", [True, False])
def test_unreported_usage_is_unknown(resumed: bool) -> None:
    totals = done(read("tool")).totals
    lines = StreamJsonReader(totals, resumed)
    end = done(list(lines.read_message({"type": "result", "session_id": "s", "is_error": False})))
    assert usage(end) == TurnUsage()
    assert end.totals == totals


def test_usage_grows_during_the_turn() -> None:
    reported = [chunk for chunk in read("tool") if isinstance(chunk, TurnUsage)]
    assert [chunk.input_tokens for chunk in reported] == [100, 200]
    assert [chunk.output_tokens for chunk in reported] == [7, 14]


@pytest.mark.parametrize(
    ("line", "outcome"),
    [
        ({"is_error": False, "subtype": "success"}, "completed"),
        ({"is_error": True, "subtype": "success"}, "failed"),
        ({"is_error": True, "subtype": "success", "terminal_reason": "completed"}, "failed"),
        ({"is_error": False, "subtype": "success", "terminal_reason": "max_turns"}, "failed"),
        ({"is_error": False, "subtype": "success", "terminal_reason": "something new"}, "failed"),
        ({"is_error": True, "terminal_reason": "aborted_streaming"}, "interrupted"),
        ({"is_error": False, "terminal_reason": "aborted_tools"}, "interrupted"),
        ({"is_error": True, "terminal_reason": "api_error", "result": "resets at 3pm"}, "limited"),
        ({"is_error": True, "terminal_reason": "api_error", "api_error_status": 500}, "failed"),
        ({"is_error": True, "terminal_reason": "budget_exhausted", "api_error_status": None}, "failed"),
    ],
)
def test_neither_the_subtype_nor_a_single_flag_determines_the_outcome(
    line: dict[str, Any], outcome: str
) -> None:
    matches, error = claude_outcome(line)
    assert matches == outcome
    assert bool(error) is (outcome != "completed")


def test_a_sub_agent_emits_tool_calls_but_no_text() -> None:
    block = {"type": "tool_use", "id": "t", "name": "Read", "input": {"file_path": "a"}}
    message = {"id": "m", "content": [{"type": "text", "text": "a secret"}, block]}
    line = {"type": "assistant", "message": message, "parent_tool_use_id": "p"}
    delta = {"type": "content_block_delta", "delta": {"type": "text_delta", "text": "a secret"}}
    lines = StreamJsonReader({}, False)
    assert list(lines.read_message(line)) == [ToolCall("Read", {"file_path": "a"}, "t")]
    assert list(lines.read_message({"type": "stream_event", "event": delta, "parent_tool_use_id": "p"})) == []


LINES = [line for file in sorted(KEPT.glob("*.jsonl")) for line in file.read_text().splitlines()]
ODD = st.sampled_from(
    [None, True, 7, "word", [], [None], [{}], {}, {"type": "text"}, {"content": 3}, {"m": 1}]
)


@settings(max_examples=500)
@given(st.sampled_from(LINES), st.data())
def test_the_known_parts_of_an_unexpected_line_are_read(line: str, data: st.DataObject) -> None:
    changed = json.loads(line)
    place = changed
    while True:
        key = data.draw(
            st.sampled_from(sorted(place) if isinstance(place, dict) else list(range(len(place))))
        )
        if not isinstance(place[key], dict | list) or not place[key] or data.draw(st.booleans()):
            place[key] = data.draw(ODD)
            break
        place = place[key]
    lines = StreamJsonReader({}, False)
    for chunk in lines.read_message(changed):
        assert not isinstance(chunk, TurnFinished) or lines.done is chunk


@given(st.binary())
def test_lines_that_are_not_json_are_skipped(line: bytes) -> None:
    assert list(StreamJsonReader({}, False).read_message(parse_stream_line(line))) == []
