"""Runs continue with their original definition, even if its file changes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from nerve import Session
from nerve.core.workflow import WorkflowState
from nerve.testing import ScriptedProvider

FLOW = """description: Two prompts and a question
nodes:
  - id: first
    command: {first}
  - id: ask
    gate: Go on?
    depends_on: [first]
  - id: second
    command: {second}
    depends_on: [ask]
"""


def project(tmp_path: Path, first: str = "plan", second: str = "build") -> Path:
    """A project with a workflow `flow`; returns its file."""
    folder = tmp_path / ".nerve"
    for name in ("workflows", "steps"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    for name in ("plan", "build", "test"):
        (folder / "steps" / f"{name}.md").write_text(f"{name} it\n")
    file = folder / "workflows" / "flow.yaml"
    file.write_text("name: flow\n" + FLOW.format(first=first, second=second))
    return file


def on(tmp_path: Path) -> tuple[Session, ScriptedProvider]:
    provider = ScriptedProvider(lambda call: f"did {call.prompt.strip()}")
    return Session("s", tmp_path / "nerve.db", providers={"claude": provider}, project=tmp_path), provider


async def parked(tmp_path: Path) -> str:
    """A run that waits at its gate when the process ends."""
    session, _ = on(tmp_path)
    async with session:
        session.load(project(tmp_path))
        run = await session.start("flow", "hello", label="feature")
        await run.next_gate()
    return run.run_id


async def finished(run: Any) -> Any:
    await run.answer("yes")
    return await run.wait()


@pytest.mark.parametrize("now", ["never loaded", "edited", "deleted"])
async def test_an_open_run_continues_with_its_original_definition(tmp_path: Path, now: str) -> None:
    id = await parked(tmp_path)
    session, provider = on(tmp_path)
    async with session:
        if now == "edited":
            session.load(project(tmp_path, "plan", "test"))
        elif now == "deleted":
            for file in (tmp_path / ".nerve").rglob("*.md"):
                file.unlink()
            (tmp_path / ".nerve/workflows/flow.yaml").unlink()
        (run,) = await session.recover()
        assert [info.run_id for info in session.list_workflow_runs("flow")] == [id]
        assert await finished(run) == "did build it"
        assert [call.prompt.strip() for call in provider.calls] == ["build it"]
        if now == "edited":
            new = await session.start("flow", "hello")
            await new.next_gate()
            assert await finished(new) == "did test it"


@pytest.mark.parametrize("restart", [False, True])
async def test_a_run_resumed_with_changes_keeps_the_current_file(tmp_path: Path, restart: bool) -> None:
    session, provider = on(tmp_path)
    async with session:
        session.load(project(tmp_path))
        run: Any = await session.start("flow", "hello", label="feature")
        await run.next_gate()
        await run.pause()
        session.load(project(tmp_path, "plan", "test"))
        await run.resume(with_changes=True)
        await run.next_gate()
        if not restart:
            assert await finished(run) == "did test it"
            assert [call.prompt.strip() for call in provider.calls] == ["plan it", "test it"]
            assert [event.event_type for event in run.events].count("workflow_changed") == 1
            return
    session, provider = on(tmp_path)
    async with session:
        (run,) = await session.recover()
        assert await finished(run) == "did test it"
        assert [call.prompt.strip() for call in provider.calls] == ["test it"]


async def test_a_changed_step_runs_again_and_earlier_steps_do_not(tmp_path: Path) -> None:
    await parked(tmp_path)
    session, provider = on(tmp_path)
    async with session:
        (run,) = await session.recover()
        await run.pause()
        (tmp_path / ".nerve/steps/plan.md").write_text("plan it better\n")
        session.load(tmp_path / ".nerve/workflows/flow.yaml")
        await run.resume(with_changes=True)
        await run.next_gate()
        assert await finished(run) == "did build it"
        assert [call.prompt.strip() for call in provider.calls] == ["plan it better", "build it"]


@pytest.mark.parametrize(
    ("overrides", "asked", "model"),
    [
        ({"prompt": "plan otherwise"}, "plan otherwise", None),
        ({"model": "opus"}, "plan it", "opus"),
    ],
)
async def test_a_fork_takes_another_prompt_or_model(
    tmp_path: Path, overrides: dict[str, str], asked: str, model: str | None
) -> None:
    id = await parked(tmp_path)
    session, provider = on(tmp_path)
    async with session:
        await session.recover()
        fork = await session.fork(id, "/first", overrides={"/first": overrides})
        await fork.next_gate()
        assert fork.label == "feature"
        (call,) = provider.calls
        assert (call.prompt.strip(), call.options.get("model")) == (asked, model)
    session, provider = on(tmp_path)
    async with session:
        await session.recover()
        again: Any = session.get_workflow_run(fork.run_id)
        assert again.label == "feature"
        assert await finished(again) == "did build it"


async def test_a_fork_takes_another_command(tmp_path: Path) -> None:
    session = Session(project=tmp_path)
    body = {"kind": "bash", "id": "make", "command": "printf one"}
    session.load(json.dumps({"name": "flow", "body": body}), "json")
    run = await session.start("flow")
    assert await run.wait() == "one"
    fork = await session.fork(run.run_id, "/make", overrides={"/make": {"command": "printf two"}})
    assert await fork.wait() == "two"


async def test_a_child_gets_the_inputs_that_it_declares(tmp_path: Path) -> None:
    session = Session()
    child = {"kind": "transform", "id": "t", "expression": "[inputs.n, inputs.more]"}
    inputs = {"n": {"type": "integer", "required": True}, "more": {"type": "integer", "default": 3}}
    session.load(json.dumps({"name": "child", "inputs": inputs, "body": child}), "json")
    for n, params, error in ((1, {"n": 2}, None), (2, {}, "needs the input 'n'"), (3, {"n": "x"}, "integer")):
        call = {"kind": "workflow", "id": "c", "workflow": "child", "params": params}
        session.load(json.dumps({"name": f"flow-{n}", "body": call}), "json")
        if error is None:
            assert await (await session.start(f"flow-{n}")).wait() == [2, 3]
        else:
            with pytest.raises(Exception, match=error):
                await (await session.start(f"flow-{n}")).wait()


# -- rejections ------------------------------------------------------------------------------------

GATE = {"kind": "gate", "id": "ask", "prompt": "Ship it?", "choices": ["yes", "no"], "reject": ["no"]}


def rejecting(file: Path | None, body: dict[str, Any]) -> Session:
    session = Session("s", file)
    session.load(json.dumps({"name": "asks", "body": GATE}), "json")
    session.load(json.dumps({"name": "flow", "body": body}), "json")

    @session.workflow
    async def python(ctx: Any) -> Any:
        return await ctx.run_workflow("asks")

    return session


CALL = {"kind": "workflow", "id": "call", "workflow": "asks"}


@pytest.mark.parametrize(("name", "body"), [("flow", GATE), ("flow", CALL), ("python", GATE)])
async def test_an_answer_in_reject_cancels_the_run_and_its_caller(
    tmp_path: Path, name: str, body: dict[str, Any]
) -> None:
    async with rejecting(tmp_path / "nerve.db", body) as session:
        run: Any = await session.start(name)
        await run.next_gate()
        await run.answer("no")
        await run.wait_until_ended()
        assert (run.state, run.to_info().error) == (WorkflowState.CANCELLED, "rejected: no")
    async with rejecting(tmp_path / "nerve.db", body) as session:
        again: Any = session.get_workflow_run(run.run_id)
        assert (again.state, again.to_info().error) == (WorkflowState.CANCELLED, "rejected: no")
        last = again.events[-1]
        assert (last.event_type, last.data["reason"]) == ("workflow_cancelled", "rejected: no")
        assert await session.recover() == []


async def test_a_caller_handles_the_rejection_of_what_it_calls() -> None:
    session = rejecting(
        None, {**CALL, "on_error": {"kind": "transform", "id": "t", "expression": "'no then'"}}
    )
    run: Any = await session.start("flow")
    await run.next_gate()
    await run.answer("no")
    assert await run.wait() == "no then"


# -- the log beside the definition -----------------------------------------------------------------


def log_of(tmp_path: Path, id: str) -> list[dict[str, Any]]:
    text = (tmp_path / ".nerve/logs" / f"{id}.jsonl").read_text()
    return [json.loads(line) for line in text.splitlines()]


WHOLE = [
    "workflow_start",
    "step_start",
    "assistant",
    "step_complete",
    "step_start",
    "assistant",
    "step_complete",
    "workflow_complete",
]


@pytest.mark.requirement("S3-22")
@pytest.mark.requirement("S3-23")
@pytest.mark.parametrize("torn", [0, 1, 9])
async def test_the_log_of_a_run_is_complete_after_a_restart(tmp_path: Path, torn: int) -> None:
    id = await parked(tmp_path)
    file = tmp_path / ".nerve/logs" / f"{id}.jsonl"
    file.write_bytes(file.read_bytes()[: -torn or None])
    session, _ = on(tmp_path)
    async with session:
        (run,) = await session.recover()
        await finished(run)
        log = log_of(tmp_path, id)
    assert [line["type"] for line in log] == WHOLE
    assert [line["seq"] for line in log] == sorted({line["seq"] for line in log})
    assert [line.get("step_index") for line in log][1:-1] == [0, 0, 0, 1, 1, 1]


@pytest.mark.requirement("S3-22")
async def test_a_run_in_memory_has_its_log_when_it_has_been_waited_for(tmp_path: Path) -> None:
    session = Session("s", providers={"claude": ScriptedProvider(lambda call: "ok")}, project=tmp_path)
    session.load(project(tmp_path))
    run: Any = await session.start("flow", "hello")
    await run.next_gate()
    await finished(run)
    assert [line["type"] for line in log_of(tmp_path, run.run_id)] == WHOLE


async def test_a_log_that_lacks_the_end_of_a_run_gets_it_on_recovery(tmp_path: Path) -> None:
    """The process died between the last commit and the last line."""
    id = await parked(tmp_path)
    session, _ = on(tmp_path)
    async with session:
        (run,) = await session.recover()
        await finished(run)
    file = tmp_path / ".nerve/logs" / f"{id}.jsonl"
    file.write_text("".join(line + "\n" for line in file.read_text().splitlines()[:-2]))
    session, _ = on(tmp_path)
    async with session:
        await session.recover()
        assert [line["type"] for line in log_of(tmp_path, id)] == WHOLE


@pytest.mark.requirement("S3-20")
@pytest.mark.requirement("S3-21")
async def test_a_step_that_fails_stops_the_run_and_is_logged_and_agents_are_asked_through_one_port(
    tmp_path: Path,
) -> None:
    file = project(tmp_path)
    file.write_text(
        "name: flow\ndescription: Three\nsteps:\n  - step: plan\n  - step: build\n  - step: test\n"
    )
    provider = ScriptedProvider({"plan": "planned", "build": OSError("no disk"), "test": "never"})
    session = Session("s", providers={"claude": provider}, project=tmp_path)
    run = await session.start(session.load(file).name, "hello")
    with pytest.raises(Exception, match="no disk"):
        await run.wait()
    assert run.state is WorkflowState.FAILED
    asked = [(call.prompt.strip(), call.cwd, call.resume) for call in provider.calls]
    assert asked == [("plan it", str(tmp_path), None), ("build it", str(tmp_path), "thread-1")]
    log = [(line["type"], line.get("step_index")) for line in log_of(tmp_path, run.run_id)]
    assert log[-3:] == [("step_start", 1), ("step_error", 1), ("workflow_error", None)]
