"""Prompts that a Lisp workflow waits for: how they fail, and how long they may take."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from nerve import FunctionNode, MockNode
from nerve.core.workflow import WorkflowState
from nerve.errors import WorkflowFailed
from nerve.session import Session
from nerve.testing import ScriptedProvider
from notations.lisp.running import logged, session, until, value_of

ROLES = '(roles (p :agent-kind "worker") (q :agent-kind "other"))'
SEND = '(send-prompt :agent p :template "Do it" :tag one)'
AWAIT = "(await (transcript-response :request-id one))"
LATE = '(on-timeout (log "late") (goto end))'
END = '(state end (result "end") (terminal))'


def load(space: Session, *states: str) -> Session:
    space.load(f"(workflow w {ROLES} {' '.join(states)})", "lisp")
    return space


def fail_soon(space: Session) -> None:
    async def work(context: Any) -> Any:
        raise ValueError("boom")

    FunctionNode("worker", space, work)


def fail_as_workflow(space: Session) -> None:
    space.load('{"id": "worker", "steps": [{"id": "t", "type": "transform", "transform": "input.a.b"}]}')


def answer_none(space: Session) -> None:
    MockNode("worker", space, [None])


@pytest.mark.requirement("S4-08")
@pytest.mark.parametrize(("register", "error"), [(fail_soon, "boom"), (fail_as_workflow, "input.a")])
async def test_an_await_fails_as_the_node_or_the_workflow_that_was_asked(
    register: Callable[[Session], None], error: str
) -> None:
    async with session() as space:
        register(space)
        run = await load(space, f"(state s {SEND} {AWAIT} (terminal))").start("w")
        with pytest.raises(WorkflowFailed, match=error):
            await value_of(run)


@pytest.mark.requirement("S4-08")
async def test_an_await_of_a_node_that_returns_nothing_gives_an_empty_text() -> None:
    async with session() as space:
        answer_none(space)
        let = "(let ((said (await (transcript-response :request-id one)))) (result [said (artifact p)]))"
        run = await load(space, f"(state s {SEND} {let} (terminal))").start("w")
        assert await value_of(run) == ["", ""]


@pytest.mark.requirement("S4-08")
async def test_an_await_fails_when_an_error_is_asserted_from_outside() -> None:
    async with session() as space:
        hanging(space)
        run = await load(space, f"(state s {SEND} {AWAIT} (terminal))").start("w")
        await until(lambda: run.state is WorkflowState.WAITING)
        fact = ["agent-response", {"run": run.run_id, "request-id": "one", "error": "boom"}]
        await space.dataspace.assert_fact(fact)
        with pytest.raises(WorkflowFailed, match="boom"):
            await value_of(run)


@pytest.mark.requirement("S4-08")
async def test_an_await_fails_after_a_restart_as_it_does_without_one(tmp_path: Path) -> None:
    """The process dies when the node has failed and its answer is not asserted yet."""
    dead = tmp_path / "dead"
    states = [f"(state s {SEND} {AWAIT} (terminal))"]
    asked = asyncio.Event()

    async def work(context: Any) -> Any:
        if not dead.exists():
            asked.set()
            await asyncio.Event().wait()
        raise ValueError("boom")

    async with session(store=tmp_path / "nerve.db") as space:
        FunctionNode("worker", space, work)
        await load(space, *states).start("w")
        await asyncio.wait_for(asked.wait(), 10)
        snapshot(tmp_path, dead)
    async with session(store=dead / "nerve.db") as space:
        FunctionNode("worker", space, work)
        (run,) = await space.recover()
        with pytest.raises(WorkflowFailed, match="boom"):
            await value_of(run)


def snapshot(source: Path, target: Path) -> None:
    """What a process that dies now leaves on the disk."""
    target.mkdir()
    for file in source.glob("nerve.db*"):
        if not file.name.endswith(("lock", "shm")):
            shutil.copyfile(file, target / file.name)


def hanging(space: Session, name: str = "worker") -> list[str]:
    """A node that never ends; gives what has been begun and cancelled so far."""
    seen: list[str] = []

    async def work(context: Any) -> Any:
        seen.append("begun")
        try:
            await asyncio.Event().wait()
        finally:
            seen.append("cancelled")

    FunctionNode(name, space, work)
    return seen


def cancelled(run: Any) -> list[str]:
    return [event.path for event in run.events if event.event_type == "node_cancelled"]


@pytest.mark.parametrize(
    "body",
    [
        f"(with-timeout 0.5 {SEND} {AWAIT} {LATE})",
        f"(with-timeout 0.5 {SEND} (loop :times 2 (wait (signal never))) {LATE})",
        f"{SEND} (with-timeout 0.5 {AWAIT} {LATE})",
        f'{SEND} (select (on (transcript-response :request-id one) (log "no"))'
        ' (timeout 0.5 (log "late") (goto end)))',
    ],
    ids=["sent inside", "sent inside and not awaited", "sent outside", "select"],
)
async def test_a_prompt_is_stopped_when_the_time_for_it_is_up(body: str) -> None:
    async with session() as space:
        seen = hanging(space)
        run = await load(space, f"(state s {body})", END).start("w")
        assert await value_of(run) == "end"
    assert logged(run) == ["late"]
    assert seen == ["begun", "cancelled"]
    assert len(cancelled(run)) == 1


@pytest.mark.parametrize(
    ("body", "error"),
    [
        (f"(with-timeout 60 {SEND} {AWAIT} {LATE})", "boom"),
        (f"(with-timeout 60 (call worker) {LATE})", "boom"),
        (f"(with-timeout 60 (with-timeout 0.01 (wait (signal never))) {LATE})", "timed out after 0.01 s"),
        (f'(with-timeout 60 (gate "Sure?" :timeout 0.01) {LATE})', "Gate timeout"),
        (f"(with-timeout 60 (call late) {LATE})", "too late"),
        ("(with-timeout 60 (call worker) (on-timeout))", "boom"),
    ],
    ids=["prompt", "call", "time of an inner form", "time of a gate", "TimeoutError", "nothing to do"],
)
async def test_on_timeout_is_not_for_other_failures_of_the_body(body: str, error: str) -> None:
    async def late(context: Any) -> Any:
        raise TimeoutError("too late")

    async with session() as space:
        fail_soon(space)
        FunctionNode("late", space, late)
        run = await load(space, f"(state s {body})", END).start("w")
        with pytest.raises(WorkflowFailed, match=error):
            await value_of(run)
    assert logged(run) == []


async def test_the_inner_of_two_timeouts_is_handled_by_its_own_body() -> None:
    inner = '(with-timeout 0.01 (wait (signal never)) (on-timeout (result "inner")))'
    async with session() as space:
        run = await load(space, f"(state s (with-timeout 60 {inner} {LATE}) (terminal))", END).start("w")
        assert await value_of(run) == "inner"


async def test_a_prompt_sent_before_a_select_continues_until_its_state_ends() -> None:
    """A select that asks again and again must not stop what it waits for."""
    many = asyncio.Event()

    async def work(context: Any) -> Any:
        await many.wait()
        return "done"

    select = """(loop (select (on (transcript-response :request-id one) :as v (result v) (goto end))
      (timeout 0.02 (log "still waiting"))))"""
    async with session() as space:
        FunctionNode("worker", space, work)
        end = "(state end (result (artifact p)) (terminal))"
        run = await load(space, f"(state s {SEND} {select})", end).start("w")
        await until(lambda: len(logged(run)) >= 2)
        many.set()
        assert await value_of(run) == "done"
    assert cancelled(run) == []


async def test_a_prompt_of_another_branch_is_not_stopped_by_a_timeout() -> None:
    """The time of one branch of a parallel is none for what the other has sent."""
    answer = asyncio.Event()

    async def work(context: Any) -> Any:
        await answer.wait()
        return "done"

    prompts = {
        tag: {"kind": "prompt", "id": tag, "agent": agent, "text": "Do it", "detach": True, "tag": tag}
        for tag, agent in (("a", "worker"), ("b", "other"))
    }
    waits = {tag: {"kind": "wait", "id": f"w{tag}", "any": [{"response": tag}]} for tag in prompts}
    quick = {"kind": "sequence", "id": "quick", "steps": [prompts["a"], waits["a"]]}
    bounded = {**quick, "timeout": 0.5, "on_error": {"kind": "emit", "id": "late", "event": "log"}}
    other = {"kind": "sequence", "id": "other", "steps": [prompts["b"], waits["b"]]}
    body = {"kind": "parallel", "id": "both", "branches": [bounded, other]}
    async with session() as space:
        seen = hanging(space)
        FunctionNode("other", space, work)
        space.load(json.dumps({"name": "w", "body": body}), "json")
        run = await space.start("w")
        await until(lambda: "cancelled" in seen)
        answer.set()
        assert (await value_of(run))["other"] == "done"
    assert cancelled(run) == ["/quick/a"]


async def test_a_timeout_continues_after_a_crash_and_stops_the_prompt(tmp_path: Path) -> None:
    states = [f"(state s (with-timeout 1 {SEND} {AWAIT} {LATE}))", END]
    dead = tmp_path / "dead"
    async with session(store=tmp_path / "nerve.db") as space:
        seen = hanging(space)
        await load(space, *states).start("w")
        await until(lambda: "begun" in seen)
        snapshot(tmp_path, dead)
    async with session(store=dead / "nerve.db") as space:
        hanging(space)
        (run,) = await space.recover()
        assert await value_of(run) == "end"
        assert logged(run) == ["late"]
        assert cancelled(run) == ["/s/p"]


async def test_a_run_with_a_stopped_prompt_is_replayed_to_the_same_end(tmp_path: Path) -> None:
    """The process dies in the state after the one whose prompt was stopped."""
    states = [
        f"(state s (with-timeout 0.5 {SEND} {AWAIT} {LATE}))",
        '(state end (let ((sure (gate "Sure?"))) (result sure)) (terminal))',
    ]
    async with session(store=tmp_path / "nerve.db") as space:
        hanging(space)
        run = await load(space, *states).start("w")
        await run.next_gate()
    async with session(store=tmp_path / "nerve.db") as space:
        seen = hanging(space)
        (run,) = await space.recover()
        await run.answer("yes")
        assert await value_of(run) == "yes"
        assert logged(run) == ["late"]
    assert seen == []


async def test_a_provider_that_is_too_slow_is_stopped() -> None:
    stopped: list[str] = []

    async def slow(call: Any) -> str:
        try:
            await asyncio.Event().wait()
        finally:
            stopped.append(call.prompt)
        return "late"

    space = Session("s", providers={"worker": ScriptedProvider(slow), "other": ScriptedProvider([])})
    async with space:
        run = await load(space, f"(state s (with-timeout 0.5 {SEND} {AWAIT} {LATE}))", END).start("w")
        assert await value_of(run) == "end"
    assert stopped == ["Do it"]
