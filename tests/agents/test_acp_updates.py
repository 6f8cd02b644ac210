"""Messages of ACP agents, replayed from recordings; needs neither an agent nor the library."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nerve.agents.acp.cost import TOKEN_COST_WEIGHTS, turn_cost
from nerve.agents.acp.provider import outcome_of_error
from nerve.agents.acp.updates import UpdateReader, acp_turn_usage
from nerve.agents.permissions import Permissions, format_permission_question
from nerve.agents.provider import (
    AssistantText,
    Chunk,
    PermissionRequest,
    PlanUpdate,
    Reasoning,
    ToolCall,
    ToolUpdate,
    TurnUsage,
)
from nerve.agents.tool_patterns import ToolUse

TRANSCRIPTS = Path(__file__).parent / "transcripts" / "acp"


class Refused(Exception):
    def __init__(self, message: str, code: int = -32603, data: Any = None) -> None:
        super().__init__(message)
        self.code, self.data = code, data


def replay(name: str) -> tuple[list[Chunk], UpdateReader, dict[str, Any]]:
    """Return the chunks of a recorded turn, and its last message."""
    hearing = UpdateReader()
    lines = [json.loads(line) for line in (TRANSCRIPTS / f"{name}.jsonl").read_text().splitlines()]
    chunks = [chunk for line in lines[:-1] for chunk in hearing.read_update(line["params"]["update"])]
    return [*chunks, *hearing.finish()], hearing, lines[-1]


def test_a_claude_turn_with_a_tool_call() -> None:
    chunks, hearing, last = replay("run")
    whole = [chunk for chunk in chunks if not (isinstance(chunk, AssistantText) and chunk.partial)]
    call = next(chunk for chunk in chunks if isinstance(chunk, ToolCall))
    assert whole == [
        AssistantText("running it"),
        ToolCall("execute", {"command": "echo it ran", "description": "what the stub wants"}, call.id),
        ToolUpdate(call.id, "running", "what the stub wants"),
        ToolUpdate(call.id, "completed", "```console\nit ran\n```"),
        AssistantText("tool said: it ran"),
    ]
    assert hearing.cost == pytest.approx(0.001495)
    assert acp_turn_usage(last["result"], "opus") == TurnUsage(200, 14, 40, 20, model="opus")


def test_a_claude_rate_limit() -> None:
    _, _, last = replay("limit")
    error = last["error"]
    end = outcome_of_error("one", Refused(error["message"], error["code"], error["data"]), [])
    assert (end.outcome, end.resets_at) == ("limited", None)
    assert "429" in end.error


@pytest.mark.parametrize(
    ("message", "data", "outcome"),
    [
        ("Internal error", {"details": "the API said 429"}, "limited"),
        ("You have hit your usage limit", None, "limited"),
        ("Quota exceeded for model", None, "limited"),
        ("Internal error", {"status": "RESOURCE_EXHAUSTED"}, "limited"),
        ("Internal error", {"details": "500 out of order"}, "failed"),
        ("file 4290 is not there", None, "failed"),
    ],
)
def test_a_rate_limit_is_detected_by_its_text(message: str, data: Any, outcome: str) -> None:
    assert outcome_of_error("one", Refused(message, data=data), []).outcome == outcome


def test_a_rate_limit_may_have_a_reset_time() -> None:
    assert (
        outcome_of_error("one", Refused("rate limit, resets_at: 1900000000"), []).resets_at == 1_900_000_000
    )


def test_reasoning_plans_and_messages_are_separate() -> None:
    hearing = UpdateReader()
    updates: list[dict[str, Any]] = [
        {"sessionUpdate": "agent_thought_chunk", "content": {"type": "text", "text": "hm"}},
        {"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": "a"}, "messageId": "1"},
        {"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": "b"}, "messageId": "2"},
        {"sessionUpdate": "plan", "entries": [{"content": "look", "status": "pending", "priority": "low"}]},
        {"sessionUpdate": "user_message_chunk", "content": {"type": "text", "text": "you"}},
        {"sessionUpdate": "of a later version"},
    ]
    assert [chunk for update in updates for chunk in hearing.read_update(update)] == [
        Reasoning("hm"),
        AssistantText("a", partial=True),
        AssistantText("a"),
        AssistantText("b", partial=True),
        AssistantText("b"),
        PlanUpdate([{"content": "look", "status": "pending", "priority": "low"}]),
    ]


def test_a_permission_request_without_input_has_the_title() -> None:
    hearing = UpdateReader()
    call = {"toolCallId": "1", "title": "Delete the heron", "kind": "delete", "status": "pending"}
    assert list(hearing.read_update({"sessionUpdate": "tool_call", **call})) == []
    chunks, permission = hearing.read_permission_request({"toolCallId": "1"})
    assert chunks == [ToolCall("delete", {"title": "Delete the heron"}, "1")]
    assert permission == PermissionRequest("delete", {"title": "Delete the heron"}, "Delete the heron")
    assert list(hearing.finish()) == []


@pytest.mark.parametrize(
    ("tokens", "usage"),
    [
        ({"inputTokens": 100, "outputTokens": 7, "totalTokens": 137, "cachedReadTokens": 30}, (100, 7, 30)),
        ({"inputTokens": 130, "outputTokens": 7, "totalTokens": 137, "cachedReadTokens": 30}, (100, 7, 30)),
        ({"inputTokens": 100, "outputTokens": 7, "totalTokens": 110, "thoughtTokens": 3}, (100, 10, None)),
        ({"inputTokens": 100, "outputTokens": 7, "totalTokens": 107, "thoughtTokens": 3}, (100, 7, None)),
    ],
)
def test_every_token_is_counted_once(tokens: dict[str, int], usage: tuple[int, int, int | None]) -> None:
    assert acp_turn_usage({"usage": tokens}, None) == TurnUsage(*usage)


def test_gemini_usage_is_read_from_its_own_field() -> None:
    took = {"input_tokens": 50, "output_tokens": 5}
    quota = {"token_count": took, "model_usage": [{"model": "gemini-3.1-pro", "token_count": took}]}
    assert acp_turn_usage({"_meta": {"quota": quota}}, None) == TurnUsage(
        50, 5, model="google:gemini-3.1-pro"
    )
    assert acp_turn_usage({"stopReason": "end_turn"}, "heron") == TurnUsage(model="heron")


turns = st.lists(st.tuples(*[st.integers(1, 100_000)] * 4).map(lambda counts: TurnUsage(*counts)), min_size=1)


@given(turns, st.booleans())
def test_the_costs_of_the_turns_are_the_cost_of_the_session(turns: list[TurnUsage], of_session: bool) -> None:
    costs = [
        1e-6 * sum(TOKEN_COST_WEIGHTS[name] * getattr(turn, name) for name in TOKEN_COST_WEIGHTS)
        for turn in turns
    ]
    totals: dict[str, Any] = {}
    reported = []
    for at, turn in enumerate(turns):
        total = sum(costs[: at + 1]) if of_session else costs[at]
        usage, totals = turn_cost(total, turn, totals)
        reported.append(usage.cost)
        assert usage.inferred == (at > 0)
    assert reported == pytest.approx(costs)


def test_a_total_without_tokens_covers_the_session_unless_it_decreases() -> None:
    usage, totals = turn_cost(2.0, TurnUsage(), {})
    assert usage == TurnUsage(cost=2.0)
    usage, totals = turn_cost(5.0, TurnUsage(), totals)
    assert usage == TurnUsage(cost=3.0, inferred=True)
    assert turn_cost(1.0, TurnUsage(), totals)[0] == TurnUsage(cost=1.0, inferred=True)
    assert turn_cost(None, TurnUsage(), totals) == (TurnUsage(), totals)


def edit(text: str) -> dict[str, Any]:
    """Return a permission request for an edit by an agent that does not report the tool input."""
    diff = {"type": "diff", "path": "/p/config.py", "oldText": "a", "newText": text}
    words = {"type": "content", "content": {"type": "text", "text": "as agreed"}}
    places = [{"path": "/p/config.py", "line": 3}]
    call = {"toolCallId": "1", "title": "Write to config.py", "kind": "edit", "content": [diff, words]}
    return {**call, "locations": places}


def test_a_question_shows_what_an_edit_changes_and_where() -> None:
    _, permission = UpdateReader().read_permission_request(edit("import os"), "/p")
    assert permission.cwd == "/p"
    assert permission.input == {
        "title": "Write to config.py",
        "changes": [{"path": "/p/config.py", "oldText": "a", "newText": "import os"}],
        "locations": [{"path": "/p/config.py", "line": 3}],
        "content": ["as agreed"],
    }
    question = format_permission_question(
        "dev", ToolUse(permission.tool, permission.input, permission.cwd), permission.reason
    )
    assert question.startswith("dev wants to use edit(/p/config.py):")
    assert "import os" in question
    assert "In the folder /p" in question


def test_an_answer_applies_to_exactly_the_change_that_was_shown() -> None:
    hashes = set()
    for text, cwd in (("import os", "/p"), ("import sys", "/p"), ("import os", "/q")):
        _, permission = UpdateReader().read_permission_request(edit(text), cwd)
        hashes.add(ToolUse(permission.tool, permission.input, permission.cwd).to_dict()["hash"])
    assert len(hashes) == 3


def test_the_tool_input_is_shown_with_its_changes() -> None:
    tool_input = {"changes": "all", "command": "sed -i s/a/b/ x"}
    _, permission = UpdateReader().read_permission_request({**edit("b"), "rawInput": tool_input}, "/p")
    assert permission.input["command"] == "sed -i s/a/b/ x"
    change, rest = permission.input["changes"]
    assert (change["newText"], rest) == ("b", "all")


def test_an_edit_is_denied_by_the_file_that_its_diff_names() -> None:
    _, permission = UpdateReader().read_permission_request(edit("b"), "/p")
    assert Permissions(deny=("edit(config*)",)).find_rule(*permission.tool_uses()).verdict == "deny"


def test_a_tool_call_is_emitted_when_it_starts_with_its_complete_input() -> None:
    """As OpenCode reports a command: the folder first, the command later, and all output each time."""
    reader = UpdateReader()
    command = {"command": "echo one; echo two", "cwd": "/w"}

    def update(status: str, output: str = "", **fields: Any) -> list[Chunk]:
        content = [{"type": "content", "content": {"type": "text", "text": output}}] if output else []
        call = {"toolCallId": "1", "kind": "execute", "status": status, "content": content}
        return list(reader.read_update({"sessionUpdate": "tool_call_update", **call, **fields}))

    assert update("pending", rawInput={"cwd": "/w"}) == []
    assert update("in_progress", rawInput=command) == [ToolCall("execute", command, "1")]
    assert update("in_progress", "one\n") == [ToolUpdate("1", "running", "one\n")]
    assert update("in_progress", "one\n") == []
    assert update("in_progress", "one\ntwo\n") == [ToolUpdate("1", "running", "two\n")]
    assert update("completed", "one\ntwo\n") == [ToolUpdate("1", "completed", "one\ntwo\n")]
