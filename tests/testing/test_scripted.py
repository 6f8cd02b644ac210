"""ScriptedProvider: scripted answers, and a record of every call."""

import asyncio
import subprocess
import sys

import pytest

from nerve.agents import AssistantText, QueryOptions, ToolCall, TurnFinished
from nerve.testing import ScriptedProvider


async def say(provider, prompt="hello", resume=None, cwd=None, **options):
    return [chunk async for chunk in provider.query(prompt, cwd, resume, QueryOptions(**options))]


async def test_answers_of_a_list_are_used_in_order_and_its_end_is_an_error_with_the_prompt():
    provider = ScriptedProvider(["one", "two"])
    assert await say(provider) == [AssistantText("one"), TurnFinished("thread-1")]
    assert await say(provider) == [AssistantText("two"), TurnFinished("thread-2")]
    with pytest.raises(LookupError, match=r"All 2 scripted answers are used up\. The prompt was: third"):
        await say(provider, "third")
    assert len(provider.calls) == 3


async def test_the_first_pattern_that_matches_the_prompt_answers():
    provider = ScriptedProvider({r"^Plan\b": "a plan", "(?i)review": "a review", "": "anything"})
    assert (await say(provider, "Plan the review"))[0] == AssistantText("a plan")
    assert (await say(provider, "Please REVIEW"))[0] == AssistantText("a review")
    assert (await say(provider, "Planning"))[0] == AssistantText("anything")


async def test_a_prompt_without_a_matching_pattern_is_an_error_with_both():
    with pytest.raises(LookupError, match=r"'Plan', 'Review'\. The prompt was: Implement"):
        await say(ScriptedProvider({"Plan": "a", "Review": "b"}), "Implement")


async def test_a_function_answers_sync_or_async():
    async def later(call):
        return call.prompt.upper()

    assert (await say(ScriptedProvider(later)))[0] == AssistantText("HELLO")
    assert (await say(ScriptedProvider(lambda call: call.cwd), cwd="/tmp"))[0] == AssistantText("/tmp")


async def test_a_call_is_recorded_before_it_is_answered():
    seen = []
    provider = ScriptedProvider(lambda call: str(seen.append(call is provider.calls[-1])))
    await say(provider, "hi", resume="thread-4", cwd="/tmp", model="opus")
    assert seen == [True]
    (call,) = provider.calls
    assert (call.prompt, call.resume, call.cwd) == ("hi", "thread-4", "/tmp")
    assert call.options == {"model": "opus"}


@pytest.mark.requirement("S3-16")
async def test_a_call_without_a_thread_gets_a_new_one_and_resuming_keeps_it():
    provider = ScriptedProvider(["a", "b", "c"])
    threads = [(await say(provider, resume=resume))[-1].thread for resume in (None, "thread-1", None)]
    assert threads == ["thread-1", "thread-1", "thread-2"]


@pytest.mark.requirement("S3-19")
async def test_an_answer_can_be_chunks():
    provider = ScriptedProvider(
        [
            {"text": "t"},
            {"tool": "Bash"},
            ["a", {"tool": "Bash", "input": {"command": "ls"}}, {"text": "b"}, {"usage": {"tokens": 1}}],
            [ToolCall("Read"), TurnFinished("mine"), "never"],
        ]
    )
    assert await say(provider) == [AssistantText("t"), TurnFinished("thread-1")]
    assert await say(provider) == [ToolCall("Bash"), TurnFinished("thread-2")]
    assert await say(provider) == [
        AssistantText("a"),
        ToolCall("Bash", {"command": "ls"}),
        AssistantText("b"),
        TurnFinished("thread-3", {"tokens": 1}),
    ]
    assert await say(provider) == [ToolCall("Read"), TurnFinished("mine")]


@pytest.mark.parametrize("answer", [RuntimeError("no"), ["first", RuntimeError("no")]])
async def test_a_scripted_exception_is_raised(answer):
    with pytest.raises(RuntimeError, match="no"):
        await say(ScriptedProvider([answer]))


@pytest.mark.parametrize("answer", [None, 3, {"verdict": "ok"}, {"text": "a", "tool": "b"}, [["nested"]]])
async def test_an_invalid_answer_is_refused_with_a_fix(answer):
    with pytest.raises(TypeError, match="answers with JSON, pass the JSON text"):
        await say(ScriptedProvider([answer]))


@pytest.mark.parametrize("answers", ["text", 3, None])
def test_invalid_answers_are_refused_immediately(answers):
    with pytest.raises(TypeError, match="answers must be a list"):
        ScriptedProvider(answers)


def test_importing_it_loads_neither_the_core_nor_pytest():
    code = "import sys, nerve.testing; print([m for m in sys.modules if m == 'pytest' or 'nerve.core' in m])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == "[]", done.stderr


async def test_an_answer_can_be_delayed():
    provider = ScriptedProvider([["one", {"delay": 0.01}, "two"]])
    began = asyncio.get_running_loop().time()
    assert await say(provider) == [AssistantText("one"), AssistantText("two"), TurnFinished("thread-1")]
    assert asyncio.get_running_loop().time() - began >= 0.01


async def test_a_fork_has_its_own_thread():
    provider = ScriptedProvider(["a", "b"])
    await say(provider)
    assert (await say(provider, resume="thread-1", fork=True))[-1].thread == "thread-2"
    assert [(call.resume, call.thread) for call in provider.calls] == [
        (None, "thread-1"),
        ("thread-1", "thread-2"),
    ]
