"""Leaves of a spec: their checks, retries and detached prompts."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from nerve import FunctionNode, Session
from nerve.errors import WorkflowFailed
from nerve.testing import ScriptedProvider
from spec.support import loaded, outcome

SEND = {"kind": "prompt", "detach": True, "thread": "shared", "workspace": "shared"}


def session(answers: Any, **options: Any) -> Session:
    return Session("s", providers={"claude": ScriptedProvider(answers)}, **options)


def sequence(*steps: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"kind": "sequence", "id": "all", "steps": list(steps), **more}


async def test_a_detached_prompt_is_joined_at_the_end_of_a_workflow_without_states() -> None:
    asked = session(["done"])
    provider: Any = asked.providers["claude"]
    await outcome(asked, sequence({**SEND, "id": "ask", "text": "Do it"}))
    assert [call.prompt for call in provider.calls] == ["Do it"]
    (fact,) = asked.dataspace.facts("agent-response")
    assert fact.record.get("text") == "done"


async def test_an_unobserved_failure_of_a_detached_prompt_fails_the_run() -> None:
    with pytest.raises(WorkflowFailed, match="no money"):
        await outcome(session([OSError("no money")]), sequence({**SEND, "id": "ask", "text": "Do it"}))


async def test_a_handled_failure_does_not_fail_the_run() -> None:
    wait = {"kind": "wait", "id": "wait", "any": [{"response": "t"}], "on_error": "skip"}
    body = sequence({**SEND, "id": "ask", "tag": "t", "text": "Do it"}, wait)
    assert await outcome(session([OSError("no money")]), body) is None


async def test_detached_prompts_of_one_conversation_run_one_after_the_other() -> None:
    made = session(lambda call: f"heard {call.prompt}")
    provider: Any = made.providers["claude"]
    await outcome(
        made,
        sequence(
            {**SEND, "id": "one", "text": "1"},
            {**SEND, "id": "two", "text": "2"},
            {"kind": "prompt", "id": "three", "text": "3"},
        ),
    )
    assert [(call.prompt, call.resume) for call in provider.calls] == [
        ("1", None),
        ("2", "thread-1"),
        ("3", "thread-1"),
    ]


async def test_detached_prompts_of_map_items_have_separate_answers() -> None:
    made = session(lambda call: f"heard {call.prompt}")
    item = sequence(
        {**SEND, "id": "ask", "tag": "t", "text": "{{ item }}"},
        {"kind": "wait", "id": "wait", "any": [{"response": "t"}]},
    )
    each = {"kind": "map", "id": "each", "over": "[1, 2, 3]", "body": item}
    assert await outcome(made, each) == ["heard 1", "heard 2", "heard 3"]


async def test_the_timeout_of_a_machine_cancels_its_detached_prompts() -> None:
    async def never(call: Any) -> str:
        await asyncio.get_running_loop().create_future()
        return ""

    states = [{"name": "only", "body": {**SEND, "id": "ask", "text": "Do it"}, "terminal": True}]
    body = {"kind": "machine", "id": "m", "states": states, "timeout": 0.05, "on_error": "skip"}
    async with asyncio.timeout(60):
        assert await outcome(session(never), body) is None


@pytest.mark.parametrize("policy", [{"retry": {"attempts": 3, "delay": 0.0}}, {"timeout": 60.0}])
async def test_the_retries_and_bounds_of_a_checked_leaf_survive_a_restart(
    tmp_path: Path, policy: dict[str, Any]
) -> None:
    calls: list[str] = []

    def work(context: Any) -> Any:
        calls.append(context.path)
        return len(calls)

    checked = {"kind": "call", "id": "a", "target": "work", "expect": [{"condition": "output > 1"}], **policy}
    body = sequence({**checked, "on_error": "skip"}, {"kind": "gate", "id": "ask"})
    async with Session("s", tmp_path / "nerve.db") as first:
        FunctionNode("work", first, work)
        run = await first.start(loaded(first, body).name)
        await run.next_gate()
        before = list(calls)
    async with Session("s", tmp_path / "nerve.db") as second:
        FunctionNode("work", second, work)
        (run,) = await second.recover()
        await run.answer("yes")
        assert await run.wait() == "yes"
    assert calls == before


async def test_a_fork_at_a_step_repeats_the_checks_of_the_step(tmp_path: Path) -> None:
    made = session(lambda call: call.prompt, project=tmp_path)
    body = {"kind": "prompt", "id": "a", "text": "Do it", "expect": [{"file": "report.md"}]}
    (tmp_path / "report.md").write_text("all good")
    run = await made.start(loaded(made, body).name)
    assert await run.wait() == "Do it"
    (tmp_path / "report.md").unlink()
    forked = await made.fork(run.run_id, "/a", overrides={"/a": {"prompt": "Do it again"}})
    with pytest.raises(WorkflowFailed, match="does not exist"):
        await forked.wait()
