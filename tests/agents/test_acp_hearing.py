"""What ACP agents say, replayed from recorded lines; needs neither an agent nor the library."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nerve.agents.acp.hearing import Hearing, usage_of
from nerve.agents.acp.limits import ended
from nerve.agents.acp.money import WEIGHTS, spent
from nerve.agents.permissions import Action, Permissions, question
from nerve.agents.port import Assistant, Chunk, Permission, Plan, Thought, Tool, ToolUpdate, Usage

TRANSCRIPTS = Path(__file__).parent / "transcripts" / "acp"


class Refused(Exception):
    def __init__(self, message: str, code: int = -32603, data: Any = None) -> None:
        super().__init__(message)
        self.code, self.data = code, data


def replay(name: str) -> tuple[list[Chunk], Hearing, dict[str, Any]]:
    """What a recorded turn tells, and its last message."""
    hearing = Hearing()
    lines = [json.loads(line) for line in (TRANSCRIPTS / f"{name}.jsonl").read_text().splitlines()]
    chunks = [chunk for line in lines[:-1] for chunk in hearing.update(line["params"]["update"])]
    return [*chunks, *hearing.over()], hearing, lines[-1]


def test_a_turn_of_claude_with_a_tool() -> None:
    chunks, hearing, last = replay("run")
    whole = [chunk for chunk in chunks if not (isinstance(chunk, Assistant) and chunk.partial)]
    call = next(chunk for chunk in chunks if isinstance(chunk, Tool))
    assert whole == [
        Assistant("running it"),
        Tool("execute", {"command": "echo it ran", "description": "what the stub wants"}, call.id),
        ToolUpdate(call.id, "running", "what the stub wants"),
        ToolUpdate(call.id, "completed", "```console\nit ran\n```"),
        Assistant("tool said: it ran"),
    ]
    assert hearing.cost == pytest.approx(0.001495)
    assert usage_of(last["result"], "opus") == Usage(200, 14, 40, 20, model="opus")


def test_a_limit_of_claude() -> None:
    _, _, last = replay("limit")
    error = last["error"]
    end = ended("one", Refused(error["message"], error["code"], error["data"]), [])
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
def test_a_limit_is_known_by_its_words(message: str, data: Any, outcome: str) -> None:
    assert ended("one", Refused(message, data=data), []).outcome == outcome


def test_a_limit_may_say_when_it_ends() -> None:
    assert ended("one", Refused("rate limit, resets_at: 1900000000"), []).resets_at == 1_900_000_000


def test_thoughts_plans_and_messages_are_apart() -> None:
    hearing = Hearing()
    updates: list[dict[str, Any]] = [
        {"sessionUpdate": "agent_thought_chunk", "content": {"type": "text", "text": "hm"}},
        {"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": "a"}, "messageId": "1"},
        {"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": "b"}, "messageId": "2"},
        {"sessionUpdate": "plan", "entries": [{"content": "look", "status": "pending", "priority": "low"}]},
        {"sessionUpdate": "user_message_chunk", "content": {"type": "text", "text": "you"}},
        {"sessionUpdate": "of a later version"},
    ]
    assert [chunk for update in updates for chunk in hearing.update(update)] == [
        Thought("hm"),
        Assistant("a", partial=True),
        Assistant("a"),
        Assistant("b", partial=True),
        Assistant("b"),
        Plan([{"content": "look", "status": "pending", "priority": "low"}]),
    ]


def test_a_question_about_a_call_that_showed_no_input_has_its_title() -> None:
    hearing = Hearing()
    call = {"toolCallId": "1", "title": "Delete the heron", "kind": "delete", "status": "pending"}
    assert list(hearing.update({"sessionUpdate": "tool_call", **call})) == []
    chunks, permission = hearing.asked({"toolCallId": "1"})
    assert chunks == [Tool("delete", {"title": "Delete the heron"}, "1")]
    assert permission == Permission("delete", {"title": "Delete the heron"}, "Delete the heron")
    assert list(hearing.over()) == []


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
    assert usage_of({"usage": tokens}, None) == Usage(*usage)


def test_gemini_counts_in_a_place_of_its_own() -> None:
    took = {"input_tokens": 50, "output_tokens": 5}
    quota = {"token_count": took, "model_usage": [{"model": "gemini-3.1-pro", "token_count": took}]}
    assert usage_of({"_meta": {"quota": quota}}, None) == Usage(50, 5, model="google:gemini-3.1-pro")
    assert usage_of({"stopReason": "end_turn"}, "heron") == Usage(model="heron")


turns = st.lists(st.tuples(*[st.integers(1, 100_000)] * 4).map(lambda counts: Usage(*counts)), min_size=1)


@given(turns, st.booleans())
def test_the_costs_of_the_turns_are_the_cost_of_the_session(turns: list[Usage], of_session: bool) -> None:
    costs = [1e-6 * sum(WEIGHTS[name] * getattr(turn, name) for name in WEIGHTS) for turn in turns]
    totals: dict[str, Any] = {}
    told = []
    for at, turn in enumerate(turns):
        total = sum(costs[: at + 1]) if of_session else costs[at]
        usage, totals = spent(total, turn, totals)
        told.append(usage.cost)
        assert usage.inferred == (at > 0)
    assert told == pytest.approx(costs)


def test_a_total_without_tokens_is_of_the_session_unless_it_falls() -> None:
    usage, totals = spent(2.0, Usage(), {})
    assert usage == Usage(cost=2.0)
    usage, totals = spent(5.0, Usage(), totals)
    assert usage == Usage(cost=3.0, inferred=True)
    assert spent(1.0, Usage(), totals)[0] == Usage(cost=1.0, inferred=True)
    assert spent(None, Usage(), totals) == (Usage(), totals)


def edit(text: str) -> dict[str, Any]:
    """A question about an edit, of an agent that shows no input of its tool."""
    diff = {"type": "diff", "path": "/p/config.py", "oldText": "a", "newText": text}
    words = {"type": "content", "content": {"type": "text", "text": "as agreed"}}
    places = [{"path": "/p/config.py", "line": 3}]
    call = {"toolCallId": "1", "title": "Write to config.py", "kind": "edit", "content": [diff, words]}
    return {**call, "locations": places}


def test_a_question_shows_what_an_edit_changes_and_where() -> None:
    _, permission = Hearing().asked(edit("import os"), "/p")
    assert permission.cwd == "/p"
    assert permission.input == {
        "title": "Write to config.py",
        "changes": [{"path": "/p/config.py", "oldText": "a", "newText": "import os"}],
        "locations": [{"path": "/p/config.py", "line": 3}],
        "content": ["as agreed"],
    }
    told = question("dev", Action(permission.tool, permission.input, permission.cwd), permission.reason)
    assert told.startswith("dev wants to use edit(/p/config.py):")
    assert "import os" in told
    assert "In the folder /p" in told


def test_an_answer_counts_for_exactly_the_change_that_was_shown() -> None:
    hashes = set()
    for text, cwd in (("import os", "/p"), ("import sys", "/p"), ("import os", "/q")):
        _, permission = Hearing().asked(edit(text), cwd)
        hashes.add(Action(permission.tool, permission.input, permission.cwd).to_dict()["hash"])
    assert len(hashes) == 3


def test_what_a_tool_is_given_is_shown_beside_what_it_changes() -> None:
    given = {"changes": "all", "command": "sed -i s/a/b/ x"}
    _, permission = Hearing().asked({**edit("b"), "rawInput": given}, "/p")
    assert permission.input["command"] == "sed -i s/a/b/ x"
    change, rest = permission.input["changes"]
    assert (change["newText"], rest) == ("b", "all")


def test_an_edit_is_denied_by_the_file_that_its_diff_names() -> None:
    _, permission = Hearing().asked(edit("b"), "/p")
    assert Permissions(deny=("edit(config*)",)).said(*permission.uses())[0] == "deny"
