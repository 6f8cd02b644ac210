"""The templates run as they stand, with scripted agents."""

from typing import Any

import pytest

from nerve.errors import WorkflowFailed
from nerve.testing import ScriptedProvider
from notations.lisp.running import EXAMPLES, logged, prompts, session, value_of

pytestmark = pytest.mark.requirement("S4-13")


async def run(name: str, answers: Any, *given: Any) -> tuple[Any, ScriptedProvider]:
    provider = ScriptedProvider(answers)
    async with session(provider) as space:
        space.load(EXAMPLES / f"{name}.lisp")
        return await value_of(await space.start(name, *given, label="L")), provider


async def test_a_worker_works_until_the_planner_accepts() -> None:
    value, provider = await run(
        "planner-worker", ["plan", "did", "tests", "did tests", " accepted\n"], "Login"
    )
    assert value == "did tests"
    assert [prompt.rpartition("\n\n")[2] for prompt in prompts(provider)] == [
        "Login",
        "plan",
        "did",
        "tests",
        "did tests",
    ]


async def test_a_planner_who_never_accepts_is_not_asked_for_ever() -> None:
    with pytest.raises(WorkflowFailed):
        await run("planner-worker", lambda call: "no", "Login")


async def test_an_author_rewrites_until_the_review_approves() -> None:
    provider = ScriptedProvider(["draft", "too long", "shorter", "APPROVED"])
    async with session(provider) as space:
        space.load(EXAMPLES / "self-review.lisp")
        run = await space.start("self-review", "an ode")
        assert await value_of(run) == "shorter"
    assert logged(run) == ["Another round: too long"]
    assert [call.thread for call in provider.calls] == ["thread-1", "thread-2", "thread-1", "thread-2"]


async def test_two_sides_answer_each_other_and_a_judge_decides() -> None:
    def answer(call: Any) -> str:
        return {"thread-1": "pro", "thread-2": "con"}.get(call.thread, "pro wins")

    value, provider = await run("debate", answer, "Tea", {"rounds": 3})
    assert value == "pro wins"
    sides = [(call.thread, call.prompt) for call in provider.calls]
    assert sides.count(("thread-1", "Answer your opponent:\n\ncon")) == 3
    assert sides.count(("thread-2", "Answer your opponent:\n\npro")) == 3
    assert sides[-1][1].startswith("The claim: Tea\n\nIts advocate:\npro\n\nIts opponent:\ncon")


async def test_research_continues_until_the_sceptic_has_no_doubts() -> None:
    doubts = iter(["what of x?", "None"])

    def answer(call: Any) -> str:
        if "not proven" in call.prompt:
            return next(doubts)
        return call.prompt.split("\n")[0]

    value, provider = await run("research", answer, "Why?")
    assert value == "Write the report."
    assert sum(prompt.startswith("Find sources") for prompt in prompts(provider)) == 2
    assert "Say what must be found out to settle this:\n\nwhat of x?" in prompts(provider)


async def test_research_ends_when_somebody_says_that_it_is_enough() -> None:
    provider = ScriptedProvider(lambda call: "open questions")
    async with session(provider) as space:
        space.load(EXAMPLES / "research.lisp")
        await space.signal("research/enough", key="L")
        run = await space.start("research", "Why?", label="L")
        assert await value_of(run) == "open questions"
    assert len(provider.calls) == 5
