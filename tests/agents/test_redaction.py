"""Secrets of the environment are never stored, whatever an agent does with them."""

from base64 import b64encode
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.test_conversation import Agent, saying
from core.workflow.support import within
from nerve import Session
from nerve.agents import (
    AgentNode,
    AssistantText,
    PermissionRequest,
    PlanUpdate,
    Reasoning,
    ToolCall,
    ToolUpdate,
    TurnFinished,
)
from nerve.agents.redaction import Redactor
from nerve.agents.registry import create_provider

KEY = "sk-canary/1+2=3 4"


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CANARY_API_KEY", KEY)


def written(folder) -> bytes:
    return b"".join(file.read_bytes() for file in folder.iterdir())


async def ran(folder, provider, **settings):
    """Return the result of an agent step and its events, after checking that no file contains the secret."""
    async with Session(store=folder / "n.db") as session:
        AgentNode("dev", session, provider, **settings)

        @session.workflow
        async def body(ctx):
            return await ctx.run("dev", "Do it")

        run = await session.start("body")
        result = await within(run.wait())
        events = run.events
    assert KEY.encode() not in written(folder)
    return result, events


async def test_a_secret_that_a_command_prints_is_replaced_by_its_name(tmp_path) -> None:
    argv = ["sh", "-c", "cat >/dev/null; echo The key is $CANARY_API_KEY."]
    result, _ = await ran(
        tmp_path, create_provider("command", {"argv": argv, "pass_env": ["CANARY_API_KEY"]})
    )
    assert result["output"].strip() == "The key is [CANARY_API_KEY]."


async def test_a_secret_in_a_failure_message_is_redacted(tmp_path) -> None:
    argv = ["sh", "-c", "cat >/dev/null; echo $CANARY_API_KEY >&2; exit 3"]
    result, _ = await ran(
        tmp_path, create_provider("command", {"argv": argv, "pass_env": ["CANARY_API_KEY"]})
    )
    assert "[CANARY_API_KEY]" in result["error"]


@pytest.mark.parametrize(
    "told",
    [
        KEY,
        quote(KEY, safe=""),
        b64encode(KEY.encode()).decode(),
        b64encode(KEY.encode()).decode().rstrip("="),
    ],
)
async def test_no_output_of_an_agent_contains_a_secret_in_any_encoding(tmp_path, told) -> None:
    turn = saying(
        Reasoning(f"I found {told}"),
        ToolCall("Bash", {"command": f"curl -H 'x-api-key: {told}'", told: [told]}, "t1"),
        ToolUpdate("t1", "completed", told),
        PlanUpdate([{"content": told, "status": "pending"}]),
        AssistantText(f"It is {told}"),
        TurnFinished("t", structured={"key": told}),
    )
    await ran(tmp_path, Agent(turn), output_schema={"type": "object"})
    assert told.encode() not in written(tmp_path)


async def test_partial_messages_never_contain_half_a_secret(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr("nerve.agents.turn_output.PARTIAL_INTERVAL_S", 0.0)
    pieces = [AssistantText(letter, partial=True) for letter in f"so: {KEY}!"]
    turn = saying(*pieces, AssistantText(f"so: {KEY}!"), TurnFinished("t"))
    _, events = await ran(tmp_path, Agent(turn))
    shown = [event.data["text"] for event in events if event.data.get("stream") == "partial"]
    assert "".join(shown) == "so: [CANARY_API_KEY]!"


async def test_a_gate_shows_the_redacted_input_and_the_answer_applies_to_the_real_one(tmp_path) -> None:
    request = PermissionRequest("Bash", {"command": f"echo {KEY}"})

    async def turn(prompt, resume, options):
        decision = await options.ask(request)
        yield TurnFinished("t", outcome="completed" if decision.allow else "failed")

    async with Session(store=tmp_path / "n.db") as session:
        AgentNode("dev", session, Agent(turn))

        @session.workflow
        async def body(ctx):
            return await ctx.run("dev", "Do it")

        run = await session.start("body")
        gate = await within(run.next_gate())
        assert "echo [CANARY_API_KEY]" in gate.prompt
        await run.answer("allow")
        await within(run.wait())
    assert KEY.encode() not in written(tmp_path)


def test_only_variables_with_secret_names_are_redacted() -> None:
    secrets = Redactor(
        {"HOME": "/home/somebody", "ANTHROPIC_BASE_URL": "http://localhost", "SHORT_KEY": "true"}
    )
    assert secrets.redact_value({"text": "true in /home/somebody at http://localhost"}) == {
        "text": "true in /home/somebody at http://localhost"
    }


@given(
    st.lists(st.integers(0, 50), max_size=6),
    st.lists(st.sampled_from(["abcabcab", "cab-cab-", "a", "b", "c-"])),
)
def test_redaction_does_not_depend_on_how_a_text_is_split(cuts, words) -> None:
    secrets, whole = Redactor({"A_TOKEN": "abcabcab", "B_TOKEN": "cab-cab-"}), "".join(words)
    shown, rest, start = "", "", 0
    for cut in sorted(cuts):
        reported, rest = secrets.redact_partial(rest + whole[start:cut])
        shown, start = shown + reported, max(start, min(cut, len(whole)))
    assert shown + secrets.redact_text(rest + whole[start:]) == secrets.redact_text(whole)
