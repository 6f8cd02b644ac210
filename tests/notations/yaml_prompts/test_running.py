"""Chains that run: conversations, variables, artifacts and failures, with agents from a script."""

import asyncio
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from nerve import Session
from nerve.errors import WorkflowFailed
from nerve.notations.workflow_files import discover
from nerve.testing import ScriptedProvider
from nerve.text.source import InvalidDefinition

EXAMPLE = Path(__file__).parents[3] / "examples/projects/feature-development"
HEAD = "name: chain\ndescription: A chain.\n"


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def put(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def chain(project: Path, text: str, folder: str = ".archon", **prompts: str) -> Path:
    for name, prompt in prompts.items():
        put(project / folder / f"steps/{name}.md", prompt)
    return put(project / folder / "workflows/chain.yaml", HEAD + text)


def scripted(answers: Any) -> ScriptedProvider:
    return ScriptedProvider(answers, "claude")


async def run(project: Path, path: Path, provider: ScriptedProvider, input: Any = None, **params: Any) -> Any:
    session = Session(providers={"claude": provider}, project=project)
    workflow = session.load(path)
    run = await session.start(workflow.name, input, params)
    return run, await run.wait()


@pytest.mark.requirement("S3-01")
@pytest.mark.requirement("S3-03")
@pytest.mark.requirement("S3-28")
@pytest.mark.requirement("S3-31")
@pytest.mark.requirement("S3-02")
async def test_the_shipped_example_runs_as_it_stands(project: Path) -> None:
    shutil.copytree(EXAMPLE, project, dirs_exist_ok=True)
    provider = scripted(["planned", "implemented", "opened"])
    (found,) = discover(project).workflows
    done, output = await run(project, found.path, provider, "Add a dark mode")
    assert output == "opened"
    plan, implement, create = provider.calls
    assert "## User Intent\n\nAdd a dark mode\n" in plan.prompt
    assert f"Save your plan to: `.archon/artifacts/{done.run_id}/plan.md`" in plan.prompt
    assert f"Read the plan from `.archon/artifacts/{done.run_id}/plan.md`" in implement.prompt
    assert "Create PR" in create.prompt
    assert [call.options["model"] for call in provider.calls] == ["sonnet"] * 3
    assert [call.resume for call in provider.calls] == [None, None, "thread-2"]


@pytest.mark.requirement("S3-16")
@pytest.mark.requirement("S3-31")
async def test_conversations_go_on_until_the_context_is_cleared(project: Path) -> None:
    steps = (
        "steps: [{step: a}, {step: b}, {step: c, clearContext: true}, {step: d}, {step: e, thread: side}]\n"
    )
    path = chain(project, steps, a="a", b="b", c="c", d="d", e="e")
    provider = scripted(lambda call: call.prompt.upper())
    _, output = await run(project, path, provider)
    assert output == "E"
    assert [call.resume for call in provider.calls] == [None, "thread-1", None, "thread-2", None]


@pytest.mark.requirement("S3-15")
@pytest.mark.requirement("S3-29")
async def test_variables_are_filled_in_when_a_step_runs(project: Path) -> None:
    prompt = "$USER_MESSAGE|$1|$2|$9|$HOME|$INPUTS.topic|{{ inputs.topic }}|{{ args.n }}"
    prompt += "|$ARTIFACTS_DIR|$WORKFLOW_ID"
    text = "inputs: {topic: string}\nsteps:\n  - step: a\n    args: {n: '{{ 1 + 1 }}'}\n  - step: b\n"
    path = chain(project, text, a=prompt, b="before: {{ steps.a.output }}")
    provider = scripted(["$1 {{ inputs }}", "done"])
    done, _ = await run(project, path, provider, 'fix "the $1 page"', topic="birds")
    first, second = provider.calls
    folder = f".archon/artifacts/{done.run_id}"
    assert first.prompt == f'fix "the $1 page"|fix|the $1 page|$9|$HOME|birds|birds|2|{folder}|{done.run_id}'
    assert second.prompt == "before: $1 {{ inputs }}"


@pytest.mark.requirement("S3-32")
async def test_a_step_that_did_not_write_what_was_expected_fails_the_run(project: Path) -> None:
    path = chain(project, "steps: [{step: plan, expect: [plan.md]}, {step: go}]\n", plan="plan", go="go")
    provider = scripted(["planned", "gone"])
    session = Session(providers={"claude": provider}, project=project)
    started = await session.start(session.load(path).name, "x")
    with pytest.raises(Exception, match=r"artifacts/.*/plan\.md"):
        await started.wait()
    assert started.state.value == "failed"
    assert len(provider.calls) == 1


@pytest.mark.requirement("S3-32")
async def test_a_step_that_meets_its_expectations_completes(project: Path) -> None:
    path = chain(
        project, "steps: [{step: plan, expect: [plan.md]}, {step: go}]\n", plan="$ARTIFACTS_DIR", go="go"
    )

    def answer(call: Any) -> str:
        if call.prompt != "go":
            (project / call.prompt / "plan.md").write_text("the plan")
        return "done"

    _, output = await run(project, path, scripted(answer))
    assert output == "done"


@pytest.mark.requirement("S3-32")
async def test_a_step_is_tried_again_and_replaced_as_the_file_says(project: Path) -> None:
    text = "steps:\n  - step: a\n    retry: {attempts: 2, delay: 0}\n    on_error: {step: b}\n"
    path = chain(project, text, a="a", b="b")
    provider = scripted([RuntimeError("busy"), RuntimeError("busy"), "mended"])
    _, output = await run(project, path, provider)
    assert output == "mended"
    assert [call.prompt for call in provider.calls] == ["a", "a", "b"]


@pytest.mark.requirement("S3-29")
async def test_a_failure_in_the_middle_stops_the_run(project: Path) -> None:
    path = chain(project, "steps: [{step: a}, {step: b}, {step: c}]\n", a="a", b="b", c="c")
    provider = scripted(["fine", RuntimeError("the agent broke")])
    session = Session(providers={"claude": provider}, project=project)
    started = await session.start(session.load(path).name)
    with pytest.raises(Exception, match="the agent broke"):
        await started.wait()
    assert started.state.value == "failed"
    assert len(provider.calls) == 2


@pytest.mark.requirement("S3-08")
@pytest.mark.requirement("S3-29")
async def test_a_missing_prompt_is_refused_before_anything_is_spent(project: Path) -> None:
    path = chain(project, "steps:\n  - step: a\n  - step: implment\n", a="a", implement="b")
    provider = scripted([])
    session = Session(providers={"claude": provider}, project=project)
    with pytest.raises(
        InvalidDefinition, match=r"chain\.yaml:5:11: Step prompt not found: implment\.md.*'implement'"
    ):
        session.load(path)
    assert session.list_workflows() == []
    assert provider.calls == []


@pytest.mark.requirement("D3-13")
@pytest.mark.requirement("S3-04")
@pytest.mark.requirement("S3-32")
async def test_providers_and_models_are_the_workflows_or_the_steps_own(project: Path) -> None:
    text = "provider: codex\nmodel: little\nsteps: [{step: a}, {step: b, provider: claude, model: big}]\n"
    path = chain(project, text, a="a", b="b")
    codex, claude = ScriptedProvider(["1"], "codex"), ScriptedProvider(["2"], "claude")
    session = Session(providers={"codex": codex, "claude": claude}, project=project)
    started = await session.start(session.load(path).name)
    assert await started.wait() == "2"
    assert codex.calls[0].options["model"] == "little"
    assert claude.calls[0].options["model"] == "big"


async def test_an_unknown_provider_is_rejected_at_the_start(project: Path) -> None:
    path = chain(project, "provider: cluade\nsteps: [{step: a}]\n", a="a")
    session = Session(providers={"claude": scripted([])}, project=project)
    with pytest.raises(Exception, match="cluade"):
        await session.start(session.load(path).name)


@pytest.mark.requirement("S3-07")
@pytest.mark.requirement("S3-08")
async def test_two_folders_have_workflows_and_prompts_of_their_own(project: Path) -> None:
    archon = chain(project, "steps: [{step: a}]\n", ".archon", a="archon")
    claude = chain(project, "steps: [{step: a}, {step: shared}]\n", ".claude", a="claude")
    put(project / ".agents/commands/shared.md", "shared")
    provider = scripted(["1", "2", "3"])
    done, _ = await run(project, archon, provider)
    assert [call.prompt for call in provider.calls] == ["archon"]
    other, _ = await run(project, claude, provider)
    assert [call.prompt for call in provider.calls] == ["archon", "claude", "shared"]
    assert (project / f".archon/artifacts/{done.run_id}").is_dir()
    assert (project / f".claude/artifacts/{other.run_id}").is_dir()


@pytest.mark.requirement("S3-32")
async def test_a_graph_runs_independent_nodes_in_parallel(project: Path) -> None:
    text = """nodes:
  - id: diff
    bash: printf '%s' "$USER_MESSAGE; echo no"
  - id: one
    prompt: "one {{ steps.diff.output }}"
    depends_on: diff
  - id: two
    command: second
    workspace: shared
    depends_on: [diff]
  - id: sum
    prompt: "{{ steps.one.output }}+{{ steps.two.output }}"
    depends_on: [one, two]
    context: shared
"""
    put(project / ".archon/commands/second.md", "two {{ steps.diff.output }}")
    path = chain(project, text)
    provider = scripted(lambda call: call.prompt.split()[0])
    await run(project, path, provider, "$(touch canary) 'x")
    assert {call.prompt for call in provider.calls[:2]} == {
        "one $(touch canary) 'x; echo no",
        "two $(touch canary) 'x; echo no",
    }
    assert provider.calls[2].prompt == "one+two"
    assert [call.resume for call in provider.calls[:2]] == [None, None]
    assert not (project / "canary").exists()


async def test_an_approval_in_a_graph_can_be_answered(project: Path) -> None:
    text = "nodes:\n  - id: ask\n    approval: Go?\n  - id: go\n    prompt: go\n    depends_on: [ask]\n"
    path = chain(project, text)
    session = Session(providers={"claude": scripted(["gone"])}, project=project)
    started = await session.start(session.load(path).name)
    await started.next_gate()
    started.answer_gate("approve")
    await started.wait()
    assert started.state.value == "completed"


@pytest.mark.requirement("S3-09")
async def test_a_file_that_is_loaded_again_is_what_it_says_now(project: Path) -> None:
    provider = scripted(lambda call: call.prompt)
    session = Session(providers={"claude": provider}, project=project)
    session.load(chain(project, "steps: [{step: a}]\n", a="old"))
    session.load(chain(project, "steps: [{step: a}]\n", a="new"))
    assert session.list_workflows() == ["chain"]
    started = await session.start("chain")
    assert await started.wait() == "new"


async def test_an_agent_file_answers_with_its_own_model(project: Path) -> None:
    put(project / ".claude/agents/planner.md", "---\nmodel: opus\n---\nYou plan.\n")
    path = chain(project, "steps: [{step: a, agent: planner}]\n", a="plan it")
    provider = scripted(["planned"])
    await run(project, path, provider)
    assert provider.calls[0].options == {"model": "opus", "system": "You plan.\n"}


async def test_a_fork_asks_nothing_again_for_the_name_of_its_folder_and_finds_the_files_there(
    project: Path,
) -> None:
    steps = "steps: [{step: plan, expect: [plan.md]}, {step: look}, {step: go}]\n"
    plan, look = "Write $ARTIFACTS_DIR/plan.md", "Look at $ARTIFACTS_DIR/plan.md, as {{ steps.plan.output }}"
    path = chain(project, steps, plan=plan, look=look, go="Go on in $ARTIFACTS_DIR as $WORKFLOW_ID")
    works = False

    def answer(call: Any) -> str:
        verb, file = call.prompt.split()[0], call.prompt.split()[-1]
        if verb == "Write":
            (project / file).write_text("the plan")
            return f"wrote {file}"
        if verb == "Go" and not works:
            raise RuntimeError("not today")
        return verb

    provider = scripted(answer)
    session = Session(providers={"claude": provider}, project=project)
    first = await session.start(session.load(path).name, "x")
    with pytest.raises(WorkflowFailed, match="not today"):
        await first.wait()
    works = True
    again = await session.fork(first.run_id, at="/go")
    assert await again.wait() == "Go"
    second = await session.fork(again.run_id, at="/go")
    assert await second.wait() == "Go"
    assert [call.prompt.split()[0] for call in provider.calls] == ["Write", "Look", "Go", "Go", "Go"]
    for fork in (again, second):
        folder = f".archon/artifacts/{fork.run_id}"
        assert f"Go on in {folder} as {fork.run_id}" in [call.prompt for call in provider.calls]
        assert (project / folder / "plan.md").read_text() == "the plan"


async def test_a_fork_whose_files_cannot_be_copied_is_refused(project: Path) -> None:
    path = chain(project, "steps: [{step: plan}]\n", plan="Plan in $ARTIFACTS_DIR")
    session = Session(providers={"claude": scripted(["planned"])}, project=project)
    done = await session.start(session.load(path).name, "x")
    await done.wait()
    folder = project / f".archon/artifacts/{done.run_id}"
    os.mkfifo(folder / "pipe")
    with pytest.raises(ValueError, match=r"Cannot copy the files in .* to the fork: .*named pipe"):
        await session.fork(done.run_id, at="/plan")
    assert [info.run_id for info in session.list_workflow_runs()] == [done.run_id]


async def test_a_child_run_that_goes_on_in_a_fork_or_a_retry_has_the_files_of_the_other(
    project: Path,
) -> None:
    steps = "steps: [{step: plan, expect: [plan.md]}, {step: look}, {step: go}]\n"
    plan, look = "Write $ARTIFACTS_DIR/plan.md", "Look at $ARTIFACTS_DIR/plan.md"
    path = chain(project, steps, plan=plan, look=look, go="Go on in $ARTIFACTS_DIR")
    works, looking = False, asyncio.Event()

    async def answer(call: Any) -> str:
        verb, file = call.prompt.split()[0], call.prompt.split()[-1]
        if verb == "Write":
            (project / file).write_text("the plan")
        if verb == "Look" and not looking.is_set():
            looking.set()
            await asyncio.Event().wait()
        if verb == "Go":
            assert (project / file / "plan.md").read_text() == "the plan"
            if not works:
                raise RuntimeError("not today")
        return verb

    provider = scripted(answer)
    session = Session(providers={"claude": provider}, project=project)
    child = session.load(path).name

    @session.workflow
    async def parent(ctx: Any) -> Any:
        return await ctx.run_workflow(child, "x")

    first = await session.start("parent")
    await looking.wait()
    await first.stop()
    fork = await session.fork(first.run_id)
    with pytest.raises(WorkflowFailed, match="not today"):
        await fork.wait()
    works = True
    again = await session.retry(fork.run_id)
    assert await again.wait() == "Go"
    assert [call.prompt.split()[0] for call in provider.calls] == ["Write", "Look", "Look", "Go", "Go"]


async def test_a_step_whose_checks_did_not_hold_is_asked_again_by_a_retry(project: Path) -> None:
    text = "steps: [{step: first}, {step: plan, expect: [plan.md]}]\n"
    path = chain(project, text, first="First", plan="Plan $ARTIFACTS_DIR/plan.md")
    works = False

    def answer(call: Any) -> str:
        if call.prompt.startswith("Plan") and works:
            (project / call.prompt.split()[-1]).write_text("the plan")
        return str(call.prompt.split()[0])

    provider = scripted(answer)
    session = Session(providers={"claude": provider}, project=project)
    failed = await session.start(session.load(path).name)
    with pytest.raises(WorkflowFailed, match="does not exist"):
        await failed.wait()
    works = True
    again = await session.retry(failed.run_id)
    assert await again.wait() == "Plan"
    assert [call.prompt.split()[0] for call in provider.calls] == ["First", "Plan", "Plan"]
