"""Conversations of parallel prompts."""

from __future__ import annotations

from typing import Any

import pytest

from nerve import Session
from nerve.testing import ScriptedProvider
from spec.support import outcome, problems


def prompt(id: str, *after: str, **more: Any) -> dict[str, Any]:
    return {
        "kind": "prompt",
        "id": id,
        "text": id,
        "thread": "shared",
        "workspace": "shared",
        "depends_on": list(after),
    } | more


def sequence(*steps: dict[str, Any]) -> dict[str, Any]:
    return {"kind": "sequence", "id": "all", "steps": list(steps)}


def graph(*steps: dict[str, Any]) -> dict[str, Any]:
    return {"kind": "graph", "id": "graph", "steps": list(steps)}


async def resumed(body: dict[str, Any]) -> dict[str, str | None]:
    """The conversation that each prompt resumed, named by the prompt that started it."""
    provider = ScriptedProvider(lambda call: "ok")
    await outcome(Session("s", providers={"claude": provider}), body)
    began = {call.thread: call.prompt for call in reversed(provider.calls)}
    return {call.prompt: began[call.resume] if call.resume else None for call in provider.calls}


@pytest.mark.requirement("S3-16")
async def test_branches_have_separate_conversations_and_the_outer_one_continues() -> None:
    branch = {**sequence(prompt("b"), prompt("c")), "id": "branch"}
    both = {"kind": "parallel", "id": "both", "branches": [branch, prompt("d")]}
    told = await resumed(sequence(prompt("a"), both, prompt("e")))
    assert told == {"a": None, "b": None, "c": "b", "d": None, "e": "a"}


async def test_items_of_a_map_have_separate_conversations() -> None:
    item = {**sequence(prompt("b", text="b{{ item }}"), prompt("c", text="c{{ item }}")), "id": "item"}
    each = {"kind": "map", "id": "each", "over": "[1, 2]", "body": item}
    told = await resumed(sequence(prompt("a"), each, prompt("e")))
    assert told == {"a": None, "b1": None, "b2": None, "c1": "b1", "c2": "b2", "e": "a"}


async def test_a_prompt_in_a_graph_continues_the_conversation_of_its_dependency() -> None:
    fresh = {"thread": "fresh"}
    told = await resumed(
        graph(
            prompt("a", **fresh),
            prompt("b", **fresh),
            {"kind": "transform", "id": "t", "expression": "1", "depends_on": ["a"]},
            prompt("c", "t"),
            prompt("d", "b"),
        )
    )
    assert told == {"a": None, "b": None, "c": "a", "d": "b"}


async def test_a_linear_graph_continues_the_outer_conversation_and_returns_it() -> None:
    told = await resumed(sequence(prompt("a"), graph(prompt("b"), prompt("c", "b")), prompt("d")))
    assert told == {"a": None, "b": "a", "c": "a", "d": "a"}


def test_two_parallel_prompts_cannot_continue_one_conversation() -> None:
    (problem,) = problems(graph(prompt("a"), prompt("b", "a"), prompt("c", "a")))
    assert problem == (
        "'b' and 'c' can run in parallel and both continue the conversation of 'a'"
        " Start a new conversation (fresh) in one of them, or make one depend on the other."
    )


@pytest.mark.parametrize(
    "steps",
    [
        [prompt("a"), prompt("b", "a"), prompt("c", "a", thread="fresh")],
        [prompt("a"), prompt("b", "a"), prompt("c", "b")],
        [prompt("a"), prompt("b"), prompt("c", "a"), prompt("d", "b")],
        [prompt("a"), prompt("b", "a"), prompt("c", "a", thread="side")],
    ],
)
def test_prompts_that_cannot_share_a_conversation_are_allowed(steps: list[dict[str, Any]]) -> None:
    assert problems(graph(*steps)) == []
