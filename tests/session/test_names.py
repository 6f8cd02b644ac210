"""Names in workflow files: agents, providers, and workflows that can be missing or disabled."""

import json

import pytest

from nerve import Session
from nerve.agents import Unavailable
from nerve.testing import ScriptedProvider
from nerve.text.source import InvalidDefinition

ASK = """
name: ask
body:
  kind: sequence
  steps:
    - {kind: gate, id: sure, prompt: "Sure?"}
    - {kind: call, id: write, target: writer}
"""


@pytest.fixture
def file(tmp_path):
    return tmp_path / "nerve.db"


def configured(folder, **config):
    (folder / ".nerve").mkdir(exist_ok=True)
    (folder / ".nerve/config.json").write_text(json.dumps(config))


async def started(file, text=ASK):
    """Return the id of a parked run that waits at its gate."""
    async with Session(store=file, providers={"writer": ScriptedProvider(["done"])}) as session:
        workflow = session.load(text)
        run = await session.start(workflow.name)
        await run.next_gate()
        return run.run_id


async def test_a_run_with_a_missing_agent_is_skipped_and_reported(file, caplog):
    run_id = await started(file)
    async with Session(store=file) as session:
        assert await session.recover() == []
        [left] = session.engine.skipped_runs
        assert (left.run, left.workflow) == (run_id, "ask")
        assert left.reason.startswith("<ask>:7:39: Agent not found: writer.")
        assert left.reason in caplog.text
        assert [event.event_type for event in session.get_workflow_run(run_id).events][-1] == "gate_waiting"
    async with Session(store=file, providers={"writer": ScriptedProvider(["done"])}) as session:
        [run] = await session.recover()
        await run.answer("yes")
        assert await run.wait() == "done"


@pytest.mark.parametrize("state", ["waiting", "paused"])
async def test_an_answer_to_a_run_with_a_missing_agent_is_not_consumed(state, file):
    run_id = await started(file)
    async with Session(store=file) as session:
        run = session.get_workflow_run(run_id)
        if state == "paused":
            await run.pause()
        before = run.events
        with pytest.raises(InvalidDefinition, match="Agent not found: writer"):
            await (run.resume() if state == "paused" else run.answer("yes"))
        assert run.events == before
        assert (run.state.value, [gate.node_id for gate in run.pending_gates]) == (state, ["sure"])
        session.providers["writer"] = ScriptedProvider(["done"])
        if state == "paused":
            await run.resume()
        await run.answer("yes")
        assert await run.wait() == "done"


async def test_names_in_called_workflows_are_checked_too(tmp_path):
    session = Session(project=tmp_path)
    session.load(ASK)
    session.load("name: outer\nbody: {kind: workflow, workflow: ask}\n")
    with pytest.raises(InvalidDefinition, match="Agent not found: writer"):
        await session.start("outer")


@pytest.mark.requirement("S2-22")
@pytest.mark.parametrize(
    "call",
    [
        "{kind: workflow, workflow: inner}",
        "{kind: call, target: 'workflow:inner'}",
        "{kind: call, target: inner}",
        "{kind: prompt, agent: 'workflow:inner', text: go}",
    ],
)
async def test_a_workflow_is_callable_only_where_it_is_visible(call, tmp_path):
    configured(tmp_path, workflows={"inner": {"visible_to": ["plan"]}})
    session = Session(project=tmp_path)
    session.load("name: inner\nbody: {kind: transform, expression: '1'}\n")
    for name in ("plan", "build"):
        session.load(f"name: {name}\nbody: {call}\n")
    assert await (await session.start("plan")).wait() == 1
    with pytest.raises(InvalidDefinition, match="workflow 'inner' is visible only to plan"):
        await session.start("build")


@pytest.mark.requirement("S2-22")
async def test_a_disabled_workflow_is_neither_started_nor_called(tmp_path):
    configured(tmp_path, workflows={"inner": {"enabled": False}})
    session = Session(project=tmp_path)
    session.load("name: inner\nbody: {kind: transform, expression: '1'}\n")
    session.load("name: outer\nbody: {kind: workflow, workflow: inner}\n")
    for name in ("inner", "outer"):
        with pytest.raises(ValueError, match=r"workflow 'inner' is disabled in \.nerve/config\.json"):
            await session.start(name)


async def test_an_invalid_configuration_is_reported_on_use(tmp_path):
    configured(tmp_path, enabled=3)
    session = Session(project=tmp_path)
    session.load("name: inner\nbody: {kind: transform, expression: '1'}\n")
    with pytest.raises(InvalidDefinition, match=r"\.nerve/config\.json:1:13: enabled must be true or false"):
        await session.start("inner")


@pytest.fixture
def offered(monkeypatch):
    """Providers of an installed package; records which were created, with which settings."""
    made = []

    def make(name, settings=None):
        made.append((name, dict(settings or {})))
        if name == "absent":
            raise Unavailable("absent is not installed: pip install '.[absent]' in the clone of Nerve")
        return ScriptedProvider([f"{name} says it"] * 9)

    monkeypatch.setattr("nerve.agents.registry.installed_provider_names", lambda: ["claude", "absent"])
    monkeypatch.setattr("nerve.agents.registry.create_provider", make)
    return made


def prompts(*providers):
    steps = [f"{{kind: prompt, provider: {name}, text: hello}}" for name in providers]
    return f"name: ask\nbody: {{kind: sequence, steps: [{', '.join(steps)}]}}\n"


async def test_a_provider_is_created_once_on_first_use(offered, tmp_path):
    configured(tmp_path, providers={"claude": {"retries": 2}, "gemini": {"kind": "acp"}})
    session = Session(project=tmp_path)
    session.load(prompts("claude", "claude-code", "gemini"))
    assert offered == []
    assert await (await session.start("ask")).wait() == "gemini says it"
    assert offered == [("claude", {"retries": 2}), ("gemini", {"kind": "acp"})]


async def test_a_provider_of_the_session_takes_precedence_over_an_installed_one(offered, tmp_path):
    session = Session(project=tmp_path, providers={"claude": ScriptedProvider(["mine"])})
    session.load(prompts("claude"))
    assert await (await session.start("ask")).wait() == "mine"
    assert offered == []


async def test_a_missing_provider_is_reported_before_anything_runs(offered, tmp_path):
    session = Session(project=tmp_path)
    session.load(prompts("absent", "codex", "claud"))
    with pytest.raises(InvalidDefinition) as caught:
        await session.start("ask")
    assert [problem.fix for problem in caught.value.problems] == [
        "absent is not installed: pip install '.[absent]' in the clone of Nerve.",
        "Install it: pip install '.[codex]' in the clone of Nerve.",
        "Register a node or a provider with this name, or add an agent file.",
    ]
