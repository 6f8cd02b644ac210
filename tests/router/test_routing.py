"""Text in, decision out: by an agent, and without one."""

import asyncio
from collections.abc import AsyncIterator
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nerve.agents.provider import (
    AssistantText,
    Capabilities,
    Chunk,
    QueryOptions,
    Reasoning,
    ThreadStarted,
    ToolCall,
    TurnFinished,
    TurnUsage,
    Unavailable,
)
from nerve.router import (
    Candidate,
    ConversationDecision,
    Decision,
    QuestionDecision,
    WorkflowDecision,
    route,
    stream,
)
from nerve.spec.models import InputSpec
from nerve.testing.scripted import ScriptedProvider

REVIEW = Candidate("review", "Reviews a change")
SHIP = Candidate(
    "ship",
    "Ships a version",
    {
        "number": InputSpec(type="integer", required=True, description="Which version."),
        "where": InputSpec(choices=["test", "live"], default="test"),
        "hosts": InputSpec(type="array"),
    },
)
WORKFLOWS = [REVIEW, SHIP]


class Filling(ScriptedProvider):
    """Fills in the fields of a schema."""

    capabilities = Capabilities(schema=True)


def filled(**fields: Any) -> list[Any]:
    empty = {"workflow": None, "inputs": {"number": None, "where": None, "hosts": None}}
    return [TurnFinished("t-1", structured=empty | {"intent": "", "reply": "", "question": ""} | fields)]


async def all_of(
    text: str, provider: Any, workflows: list[Candidate] = WORKFLOWS
) -> tuple[list[str], Decision]:
    parts = [part async for part in stream(text, workflows, provider)]
    decision = parts.pop()
    assert not isinstance(decision, str)
    assert all(isinstance(part, str) for part in parts)
    return parts, decision  # type: ignore[return-value]


# -- by the line -----------------------------------------------------------------------------------


@pytest.mark.requirement("S3-13")
async def test_an_agent_chooses_by_the_line() -> None:
    provider = ScriptedProvider(["WORKFLOW: review\nLook at the login."])
    decision = await route("look at it", WORKFLOWS, provider, cwd="/somewhere")
    assert decision == WorkflowDecision("review", "Look at the login.", text="look at it", thread="thread-1")
    (call,) = provider.calls
    assert (call.cwd, call.resume, call.options) == ("/somewhere", None, {"tools": ()})
    assert '"look at it"' in call.prompt


@pytest.mark.requirement("S3-12")
async def test_without_workflows_the_agent_just_gets_the_message() -> None:
    provider = Filling(["Hello!"])
    assert await route("hi", [], provider) == ConversationDecision("Hello!", text="hi", thread="thread-1")
    assert provider.calls[0].prompt == "hi"
    assert "schema" not in provider.calls[0].options


async def test_a_conversation_can_go_on() -> None:
    provider = ScriptedProvider(["Which one?", "WORKFLOW: review\nLook."])
    first = await route("hm", WORKFLOWS, provider)
    await route("the review", WORKFLOWS, provider, resume=first.thread)
    assert provider.calls[1].resume == "thread-1"


async def test_a_conversation_is_shown_while_it_comes() -> None:
    said = [
        ThreadStarted("t"), Reasoning("hm"), AssistantText("Hel", partial=True),
        AssistantText("lo\nWO", partial=True), AssistantText("rld", partial=True),
        AssistantText("Hello\nWOrld!"), ToolCall("Read"), AssistantText("More."),
        TurnUsage(3, 4), TurnFinished("t"),
    ]  # fmt: skip
    shown, decision = await all_of("hi", ScriptedProvider([said]))
    assert shown == ["Hel", "lo\n", "WOrld", "!", "\n\nMore."]
    assert decision == ConversationDecision(
        "Hello\nWOrld!\n\nMore.", text="hi", thread="t", usage=TurnUsage(3, 4)
    )


async def test_the_marker_line_and_the_text_after_it_are_never_shown() -> None:
    said = [
        AssistantText("Sure.\nWORK"),
        AssistantText("WORKFLOW: rev", partial=True),
        AssistantText("WORKFLOW: review\nLook"),
    ]
    shown, decision = await all_of("hi", ScriptedProvider([said]))
    assert shown == ["Sure.\n", "WORK\n\n"]
    assert decision == WorkflowDecision("review", "Look", text="hi", thread="thread-1")


@given(
    st.lists(st.sampled_from(["WORKFLOW:", " ", "\n", "review", "nope", "Sure", "WORK"]), max_size=8).map(
        "".join
    ),
    st.lists(st.integers(0, 60), max_size=6),
)
def test_pieces_put_together_are_the_reply_however_they_were_cut(answer: str, cuts: list[int]) -> None:
    at = sorted({cut % (len(answer) + 1) for cut in cuts} | {0, len(answer)})
    said = [AssistantText(answer[a:b], partial=True) for a, b in pairwise(at)]
    said = [*said, AssistantText(answer)] if answer else said
    shown, decision = asyncio.run(all_of("hi", ScriptedProvider([said])))
    whole = asyncio.run(route("hi", WORKFLOWS, ScriptedProvider([answer])))
    assert decision == whole
    if isinstance(decision, ConversationDecision):
        assert "".join(shown) == decision.reply


async def test_a_required_input_that_a_line_cannot_give_is_asked_for() -> None:
    decision = await route("ship", WORKFLOWS, ScriptedProvider(["WORKFLOW: ship\nShip it."]))
    assert isinstance(decision, QuestionDecision)
    assert decision.question == "To start 'ship': 'number' is needed (an integer): Which version."
    assert (decision.candidates, decision.intent, decision.inputs) == (("ship",), "Ship it.", {})


# -- by fields -------------------------------------------------------------------------------------


@pytest.mark.requirement("D3-7")
async def test_an_agent_that_can_fills_in_fields() -> None:
    fields = {"number": 3, "where": "live", "hosts": '["a", "b"]'}
    provider = Filling([filled(workflow="ship", inputs=fields, intent="Ship 3 to live")])
    decision = await route("ship 3 to live on a and b", WORKFLOWS, provider)
    assert isinstance(decision, WorkflowDecision)
    assert (decision.workflow, decision.intent, decision.thread) == ("ship", "Ship 3 to live", "t-1")
    assert decision.inputs == {"number": 3, "where": "live", "hosts": ["a", "b"]}
    assert provider.calls[0].options["schema"]["properties"]["workflow"]["enum"] == ["review", "ship", None]


@pytest.mark.parametrize(
    ("inputs", "asked", "right"),
    [
        ({}, "'number' is needed (an integer): Which version", {}),
        ({"number": "three"}, "'number' must be an integer, not 'three'", {}),
        (
            {"number": 3, "where": "moon"},
            """'where' must be one of ["test", "live"], not 'moon'""",
            {"number": 3},
        ),
        ({"number": 3, "hosts": "a, b"}, "'hosts' must be an array, not 'a, b'", {"number": 3}),
        ({"number": 3, "host": "a"}, "it has no input 'host', did you mean 'hosts'", {"number": 3}),
        ({"number": True}, "'number' must be an integer, not True", {}),
        ("nonsense", "'number' is needed (an integer): Which version", {}),
    ],
)
async def test_wrong_inputs_are_a_question_back(inputs: Any, asked: str, right: dict[str, Any]) -> None:
    decision = await route("ship", WORKFLOWS, Filling([filled(workflow="ship", inputs=inputs)]))
    assert isinstance(decision, QuestionDecision)
    assert decision.question == f"To start 'ship': {asked}."
    assert (decision.candidates, decision.inputs, decision.intent) == (("ship",), right, "ship")


async def test_a_reply_in_a_field_is_a_conversation_and_is_shown_at_the_end() -> None:
    shown, decision = await all_of("hi", Filling([[AssistantText('{"reply":'), *filled(reply="Hello!")]]))
    assert shown == ["Hello!"]
    assert decision == ConversationDecision("Hello!", text="hi", thread="t-1")


async def test_a_question_in_a_field_is_a_question_back() -> None:
    asked = Filling(
        [filled(question="Which version?"), filled(question="Which?", workflow="ship", intent="Ship")]
    )
    assert await route("hm", WORKFLOWS, asked) == QuestionDecision("Which version?", text="hm", thread="t-1")
    about = await route("hm", WORKFLOWS, asked)
    assert about == QuestionDecision("Which?", ("ship",), "Ship", text="hm", thread="t-1")


async def test_a_name_in_a_field_that_does_not_exist_is_a_conversation_with_a_warning() -> None:
    decision = await route("hm", WORKFLOWS, Filling([filled(workflow="shop", reply="I will", intent="x")]))
    assert isinstance(decision, ConversationDecision)
    assert decision.reply == "I will"
    assert "'shop'. Did you mean 'ship'?" in decision.warnings[0]


async def test_a_name_that_does_not_exist_without_a_reply_is_answered_with_a_sentence_that_says_so() -> None:
    shown, decision = await all_of("look at it", Filling([filled(workflow="shop", intent="Look at it")]))
    told = "The routing agent chose the unknown workflow 'shop'. Available: 'review', 'ship'."
    assert isinstance(decision, ConversationDecision)
    assert (decision.reply, shown) == (told, [told])


@pytest.mark.parametrize(
    "answer",
    [
        '{"workflow": "review", "intent": "Look", "inputs": {}, "reply": "", "question": ""}',
        "WORKFLOW: review\nLook",
    ],
)
async def test_an_agent_that_answers_with_text_after_all_is_understood(answer: str) -> None:
    decision = await route("hm", WORKFLOWS, Filling([answer]))
    assert decision == WorkflowDecision("review", "Look", text="hm", thread="thread-1")


# -- without an agent, and when it fails ----------------------------------------------------------


async def test_without_a_provider_it_is_decided_offline_and_says_so() -> None:
    decision = await route("review my change", WORKFLOWS)
    assert isinstance(decision, WorkflowDecision)
    assert (decision.workflow, decision.by) == ("review", "words")
    assert decision.reason.startswith("decided offline, by words:")


async def test_offline_too_a_required_input_is_asked_for() -> None:
    decision = await route("ship the version", WORKFLOWS)
    assert isinstance(decision, QuestionDecision)
    assert "'number' is needed" in decision.question
    assert decision.by == "words"


async def test_offline_without_workflows_it_says_that_there_is_nothing() -> None:
    shown, decision = await all_of("hi", None, [])
    assert isinstance(decision, ConversationDecision)
    assert shown == [decision.reply]


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (RuntimeError("no network"), "RuntimeError: no network"),
        (Unavailable("install the extra"), "Unavailable: install the extra"),
        (TurnFinished("t", outcome="limited", error="resets at 14:30"), "limited: resets at 14:30"),
        ([AssistantText("WORKFLOW: ship\nSh"), TurnFinished("t", outcome="interrupted")], "interrupted"),
        ("", "it returned no answer"),
        (TurnFinished("t", structured={}), "it returned no answer"),
    ],
)
async def test_an_agent_that_fails_leaves_the_decision_to_the_words_with_a_warning(
    answer: Any, why: str
) -> None:
    decision = await route("review my change", WORKFLOWS, ScriptedProvider([answer], name="claude"))
    assert isinstance(decision, WorkflowDecision)
    assert (decision.workflow, decision.by) == ("review", "words")
    assert decision.warnings == (f"The agent 'claude' could not decide: {why}",)


async def test_an_agent_that_ends_without_a_word_has_crashed() -> None:
    class Crashing:
        name = "crashing"
        capabilities = Capabilities()

        async def query(self, *given: Any) -> AsyncIterator[Chunk]:
            yield AssistantText("WORKFLOW: review\nLook at")

    decision = await route("hm", WORKFLOWS, Crashing())
    assert isinstance(decision, QuestionDecision)
    assert "ended without a final message" in decision.warnings[0]


async def test_what_was_shown_before_an_agent_broke_off_stays_said() -> None:
    said = [AssistantText("Well, I think"), TurnFinished("t", outcome="failed", error="overloaded")]
    shown, decision = await all_of("review my change", ScriptedProvider([said], name="claude"))
    assert shown == ["Well, I think"]
    assert isinstance(decision, ConversationDecision)
    assert decision.warnings == ("The agent 'claude' stopped early: failed: overloaded",)


async def test_leaving_the_stream_closes_the_agent() -> None:
    closed = asyncio.Event()

    class Talking:
        name = "talking"
        capabilities = Capabilities()

        async def query(
            self, prompt: str, cwd: Any, resume: Any, options: QueryOptions
        ) -> AsyncIterator[Chunk]:
            try:
                while True:
                    yield AssistantText("and so on ", partial=True)
            finally:
                closed.set()

    parts = stream("hi", WORKFLOWS, Talking())
    assert await anext(parts) == "and so on "
    await parts.aclose()
    assert closed.is_set()


# -- commands --------------------------------------------------------------------------------------


@pytest.mark.requirement("S3-26")
@pytest.mark.requirement("S3-27")
@pytest.mark.parametrize("text", ["/workflow list", "/stop", "/review my change", "/help"])
async def test_a_command_is_never_routed_and_no_agent_is_asked(text: str) -> None:
    provider = ScriptedProvider([])
    decision = await route(text, WORKFLOWS, provider)
    assert isinstance(decision, QuestionDecision)
    assert "Unknown command" in decision.question
    assert provider.calls == []


@pytest.mark.parametrize("text", ["//stop", "/etc/hosts is broken", "a /stop"])
async def test_a_text_with_slashes_is_not_a_command(text: str) -> None:
    assert await route(text, WORKFLOWS, ScriptedProvider(["Hm."])) == ConversationDecision(
        "Hm.", text=text, thread="thread-1"
    )


@pytest.mark.requirement("S0-62")
@pytest.mark.parametrize(
    ("text", "intent"), [("%review", ""), (" %review  Is it right?", "Is it right?"), ("%rev a\nb", "a\nb")]
)
async def test_a_prefix_names_the_workflow_and_no_agent_is_asked(text: str, intent: str) -> None:
    agent = ScriptedProvider([])
    decision = await route(text, WORKFLOWS, agent)
    assert isinstance(decision, WorkflowDecision)
    assert (decision.workflow, decision.intent, decision.by) == ("review", intent, "words")
    assert agent.calls == []


async def test_a_prefix_with_a_name_that_does_not_exist_is_a_question() -> None:
    decision = await route("%revue it", WORKFLOWS)
    assert isinstance(decision, QuestionDecision)
    assert decision.question == "Unknown workflow 'revue'. Did you mean 'review', 'ship'?"
    several = await route("%s it", [SHIP, Candidate("sign")])
    assert isinstance(several, QuestionDecision)
    assert several.candidates == ("ship", "sign")
    nothing = await route("%ship it", [])
    assert isinstance(nothing, QuestionDecision)
    assert nothing.question == "Unknown workflow 'ship'. The project has no workflows."


async def test_a_prefix_does_not_replace_a_required_input() -> None:
    decision = await route("%ship it", WORKFLOWS)
    assert isinstance(decision, QuestionDecision)
    assert "number" in decision.question


@pytest.mark.parametrize("text", ["% of reviews", "50% review", "%5 review"])
async def test_a_percent_sign_that_names_nothing_is_plain_text(text: str) -> None:
    decision = await route(text, WORKFLOWS, ScriptedProvider(["Fine."]))
    assert isinstance(decision, ConversationDecision)


def test_a_decision_is_plain_data() -> None:
    told = WorkflowDecision("ship", "Ship", {"number": 3}, text="ship", usage=TurnUsage(1, 2)).to_dict()
    assert told["kind"] == "workflow"
    assert told["inputs"] == {"number": 3}
    assert told["usage"]["input_tokens"] == 1
    assert QuestionDecision("Which?", ("a",)).to_dict()["kind"] == "question"
    assert ConversationDecision("Hi").to_dict()["kind"] == "conversation"
