"""A preview of a fork agrees with what the fork then does, in every notation."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from nerve import FunctionNode, Session
from nerve.core.workflow import WorkflowRun
from nerve.engine.fork_preview import ForkPreview
from nerve.journal.events import CallStarted, GateWaiting
from nerve.journal.index import RecordedEvent, read_events, read_start
from nerve.testing import ScriptedProvider

YAML = """
name: flow
description: Plan, ask, repeat and distribute.
body:
  kind: sequence
  steps:
    - {id: plan, kind: prompt, text: "plan {{ input }}"}
    - {id: sure, kind: gate, prompt: "Go on?", choices: [approve, reject]}
    - id: polish
      kind: loop
      until: "iteration == 2"
      max_iterations: 4
      body: {kind: call, target: echo, input: "{{ iteration }}"}
    - {id: fan, kind: map, over: "['a', 'b']", body: {kind: call, target: echo, input: "{{ item }}"}}
    - {id: last, kind: prompt, text: "close {{ steps.plan.output }}"}
"""
CHANGED_YAML = YAML.replace("close", "finish")
JSON = """
{
  "id": "flow",
  "steps": [
    { "id": "first", "type": "agent", "agent": "echo", "next": "second" },
    { "id": "second", "type": "agent", "agent": "loud", "input": "first", "next": "sure" },
    { "id": "sure", "type": "approval", "message": "Go on?", "next": "third" },
    { "id": "third", "type": "agent", "agent": "echo", "input": "second" }
  ]
}
"""
LISP = """
(workflow flow
  (roles (writer :agent-kind writer) (editor :agent-kind editor))
  (state write
    (send-prompt :agent writer :template "Write about ~a." :args ((input)) :tag draft)
    (await (transcript-response :request-id draft)))
  (state edit
    (send-prompt :agent editor :template "Correct: ~a" :args ((artifact writer)) :tag final)
    (await (transcript-response :request-id final))
    (terminal)))
"""


def define_linear(session: Session) -> None:
    @session.workflow
    async def flow(ctx: Any) -> Any:
        first = (await ctx.run("echo", ctx.input)).output
        constant = (await ctx.run("loud", "same")).output
        answer = await ctx.gate("Go on?", choices=["approve", "reject"])
        last = (await ctx.run("echo", [first, answer])).output
        return [last, constant, (await ctx.run("loud", "same again")).output]


def define_parallel(session: Session) -> None:
    @session.workflow
    async def flow(ctx: Any) -> Any:
        both = await ctx.run_parallel([("echo", ctx.input), ("loud", "b"), ("counted", "c")])
        await ctx.sleep(0)
        return (await ctx.run("echo", [result.output for result in both])).output


def define_nested(session: Session) -> None:
    @session.workflow
    async def inner(ctx: Any) -> Any:
        one = (await ctx.run("echo", ctx.input)).output
        await ctx.gate("Inside?", choices=["approve", "reject"])
        return (await ctx.run("loud", one)).output

    @session.workflow
    async def flow(ctx: Any) -> Any:
        before = (await ctx.run("echo", ctx.input)).output
        result = await ctx.run_workflow("inner", before)
        return (await ctx.run("echo", result)).output


def define_failing(session: Session) -> None:
    @session.workflow
    async def flow(ctx: Any) -> Any:
        first = (await ctx.run("echo", ctx.input)).output
        failed = await ctx.run("fails_once", first)
        if not failed.success:
            raise ValueError("failed")
        return (await ctx.run("echo", "end")).output


def load(source: str) -> Callable[[Session], None]:
    def define(session: Session) -> None:
        session.load(source)

    return define


FLOWS: dict[str, Callable[[Session], None]] = {
    "linear": define_linear,
    "parallel": define_parallel,
    "nested": define_nested,
    "failing": define_failing,
    "yaml": load(YAML),
    "json": load(JSON),
    "lisp": load(LISP),
}


@pytest.fixture
async def session(tmp_path: Path) -> AsyncIterator[Session]:
    provider = ScriptedProvider(lambda call: f"did {call.prompt.strip()}")
    providers = dict.fromkeys(("claude", "writer", "editor"), provider)
    calls = {"counted": 0, "fails_once": 0}
    async with Session("s", tmp_path / "nerve.db", providers=providers, project=tmp_path) as session:

        def count(context: Any) -> int:
            calls["counted"] += 1
            return calls["counted"]

        def fail_once(context: Any) -> str:
            calls["fails_once"] += 1
            if calls["fails_once"] == 1:
                raise ValueError("the first time")
            return "good"

        FunctionNode("echo", session, lambda context: context.input)
        FunctionNode("loud", session, lambda context: str(context.input).upper())
        FunctionNode("counted", session, count)
        FunctionNode("fails_once", session, fail_once)
        FunctionNode("writer", session, lambda context: f"wrote {context.input}")
        FunctionNode("editor", session, lambda context: f"edited {context.input}")
        yield session


async def finish(run: WorkflowRun) -> WorkflowRun:
    """Answer every gate of a run and wait for its end."""
    while (gate := await run.next_gate()) is not None:
        await run.answer("approve", gate.gate_id)
    assert run.held is None, run.held
    await asyncio.wait([asyncio.ensure_future(run.wait())])
    return run


def events_of(session: Session, run_id: str) -> list[RecordedEvent]:
    return read_events(session.engine.store.events(run_id))


@dataclass
class ForkRecord:
    """What a fork and its child runs have executed themselves, by full path."""

    calls: set[str]
    gates: set[str]
    hashes: dict[str, str]

    @classmethod
    def read(cls, session: Session, run_id: str) -> ForkRecord:
        record = cls(set(), set(), {})
        record.add(session, run_id, "")
        return record

    def add(self, session: Session, run_id: str, prefix: str) -> None:
        copied = read_start(session.engine.store, run_id).copied_events
        for row in events_of(session, run_id):
            if isinstance(row.event, CallStarted):
                self.hashes[prefix + row.path] = row.event.hash
                if row.event.child is not None:
                    if session.engine.store.run(row.event.child) is not None:
                        self.add(session, row.event.child, prefix + row.path)
                elif not row.event.is_control and row.seq > copied:
                    self.calls.add(prefix + row.path)
            elif isinstance(row.event, GateWaiting) and row.seq > copied:
                self.gates.add(prefix + row.path)


def check_agreement(preview: ForkPreview, source: ForkRecord, fork: ForkRecord) -> None:
    for step in preview.steps:
        executed = fork.calls if step.kind == "leaf" else fork.gates if step.kind == "gate" else None
        if executed is None:
            continue
        has_run = step.path in executed
        if step.fate == "reused":
            assert not has_run, step
        elif step.fate == "again":
            assert has_run, step
        elif step.kind == "leaf" and source.hashes[step.path] == fork.hashes.get(step.path):
            assert not has_run, step  # the same input was requested
        elif step.kind == "leaf" and step.path in fork.hashes:
            assert has_run, step


async def preview_and_fork(session: Session, run: WorkflowRun, **options: Any) -> ForkPreview:
    known_runs = len(session.engine.store.runs())
    preview = session.preview_fork(run.run_id, **options)
    assert len(session.engine.store.runs()) == known_runs
    fork = await finish(await session.fork(run.run_id, **options))
    check_agreement(preview, ForkRecord.read(session, run.run_id), ForkRecord.read(session, fork.run_id))
    return preview


def fates(preview: ForkPreview) -> dict[str, str]:
    return {step.path: step.fate for step in preview.steps}


@pytest.mark.parametrize("name", FLOWS)
async def test_the_preview_of_a_fork_at_any_step_agrees_with_the_fork(session: Session, name: str) -> None:
    FLOWS[name](session)
    run = await finish(await session.start("flow", "tea"))
    steps = session.preview_fork(run.run_id).steps
    assert steps
    for step in steps:
        preview = await preview_and_fork(session, run, at=step.path)
        assert fates(preview)[step.path] == "again"


@pytest.mark.parametrize("name", FLOWS)
async def test_the_preview_of_a_fork_with_another_input_agrees_with_the_fork(
    session: Session, name: str
) -> None:
    FLOWS[name](session)
    run = await finish(await session.start("flow", "tea"))
    preview = await preview_and_fork(session, run, input="coffee")
    assert preview.is_input_changed
    assert "reused" not in fates(preview).values()
    for step in preview.steps:
        if step.kind == "leaf" and step.run_id == run.run_id:
            await preview_and_fork(session, run, at=step.path, input="milk")


@pytest.mark.parametrize("name", FLOWS)
async def test_the_preview_of_a_fork_without_changes_reuses_everything(session: Session, name: str) -> None:
    FLOWS[name](session)
    run = await finish(await session.start("flow", "tea"))
    preview = await preview_and_fork(session, run)
    assert set(fates(preview).values()) <= {"reused"}


async def test_the_preview_of_a_retry_agrees_with_the_retry(session: Session) -> None:
    define_failing(session)
    run = await finish(await session.start("flow", "tea"))
    preview = session.preview_retry(run.run_id)
    assert fates(preview) == {"/echo": "reused", "/fails_once": "again"}
    retried = await finish(await session.retry(run.run_id))
    source, fork = ForkRecord.read(session, run.run_id), ForkRecord.read(session, retried.run_id)
    assert fork.calls - {"/echo[2]"} == {"/fails_once"}
    assert source.calls == {"/echo", "/fails_once"}


async def test_a_child_run_that_waits_continues_in_the_fork(session: Session) -> None:
    define_nested(session)
    run = await session.start("flow", "tea")
    await run.next_gate()
    preview = await preview_and_fork(session, run)
    assert fates(preview) == {
        "/echo": "reused",
        "/inner": "continues",
        "/inner/echo": "reused",
        "/inner/gate": "again",
    }
    assert len({step.run_id for step in preview.steps}) == 2
    await run.stop()


async def test_with_a_changed_definition_steps_are_reused_if_they_are_requested_alike(
    session: Session,
) -> None:
    session.load(YAML)
    run = await finish(await session.start("flow", "tea"))
    assert "reused_if_same" not in fates(session.preview_fork(run.run_id)).values()
    session.load(CHANGED_YAML)
    pinned = await preview_and_fork(session, run)
    assert not pinned.is_definition_changed
    preview = await preview_and_fork(session, run, definition="current")
    assert preview.is_definition_changed
    assert set(fates(preview).values()) == {"reused_if_same"}
    fork = await finish(await session.fork(run.run_id, definition="current"))
    assert ForkRecord.read(session, fork.run_id).calls == {"/last"}
    assert (
        await preview_and_fork(session, run, definition=preview.definition)
    ).definition == preview.definition


async def test_a_definition_of_another_workflow_is_refused(session: Session) -> None:
    session.load(YAML)
    run = await finish(await session.start("flow", "tea"))
    with pytest.raises(ValueError, match="Workflow 'flow' has no definition 'nothing'"):
        session.preview_fork(run.run_id, definition="nothing")


async def test_an_unknown_path_is_refused(session: Session) -> None:
    define_linear(session)
    run = await finish(await session.start("flow", "tea"))
    with pytest.raises(ValueError, match="Unknown path '/ecko'"):
        session.preview_fork(run.run_id, "/ecko")
