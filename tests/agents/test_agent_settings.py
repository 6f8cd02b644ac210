"""Agent settings in workflow, agent and configuration files: budgets, tools, fallbacks, slots."""

import json

import pytest

from agents.test_conversation import Agent, saying, says
from core.workflow.support import until, within
from nerve import Session
from nerve.agents import AssistantText, TurnFinished, TurnUsage
from nerve.notations import read_source
from nerve.project.agent_files import discover_agents
from nerve.project.config import read_config
from nerve.spec.checker import check_document
from nerve.text.source import InvalidDefinition

YAML = """
name: flow
description: What it does.
provider: agent
nodes:
  - id: dev
    prompt: Decide.
    tools: [Read, "Bash(git status)"]
    max_turns: 7
    fallback: other
    limits: {tokens: 12}
"""
FULL = {
    "name": "flow",
    "provider": "agent",
    "body": {
        "kind": "prompt",
        "id": "dev",
        "text": "Decide.",
        "tools": ["Read", "Bash(git status)"],
        "max_turns": 7,
        "fallback": "other",
        "limits": {"tokens": 12},
    },
}
LISP = """
(workflow flow
  (roles (dev :agent-kind agent :tools ("Read" "Bash(git status)") :max-turns 7 :fallback other))
  (state work
    (send-prompt :agent dev :template "Decide." :tag t :limits {:tokens 12})
    (await (transcript-response :request-id t))))
"""
JSON = {"id": "flow", "steps": [{"id": "dev", "type": "agent", "agent": "agent", "limits": {"tokens": 12}}]}
NOT_JSON = saying(AssistantText("no json"), TurnFinished("t", TurnUsage(10, 5, cost=0.5)))


@pytest.mark.parametrize(
    ("text", "notation"),
    [(YAML, "yaml"), (json.dumps(FULL), "json"), (LISP, "lisp"), (json.dumps(JSON), "json")],
    ids=["yaml", "full form", "lisp", "steps"],
)
async def test_every_notation_can_set_step_limits(text, notation):
    session = Session(providers={"agent": Agent(NOT_JSON), "other": Agent(says)})
    session.load(text, notation)
    session.find("agent").output_schema = {"type": "object"}
    run = await session.start("flow", "Decide.")
    await until(lambda: run.held is not None)
    assert "exhausted: 15 of 12 tokens" in run.held["message"]
    assert f"Raise it with resume(limits={{'{run.held['path']}': {{'tokens': …}}}})" in run.held["message"]
    await run.stop()


@pytest.mark.parametrize(
    ("text", "notation"),
    [(YAML, "yaml"), (json.dumps(FULL), "json"), (LISP, "lisp")],
    ids=["yaml", "full form", "lisp"],
)
async def test_tools_max_turns_and_fallback_of_a_prompt_reach_the_agent(text, notation):
    limited = Agent(saying(TurnFinished("t", outcome="limited", error="429")))
    other = Agent(says)
    other.name = "other"
    session = Session(providers={"agent": limited, "other": other})
    session.load(text, notation)
    await within((await session.start("flow")).wait())
    [(_, _, options)] = other.calls
    assert (options.tools, options.max_turns) == (["Read", "Bash(git status)"], 7)


@pytest.mark.parametrize(
    ("change", "place", "message"),
    [
        (("limits: {tokens: 12}", "limits: {token: 12}"), (11, 14), "Unknown key 'token'"),
        (("limits: {tokens: 12}", "limits: {tokens: -1}"), (11, 22), "'tokens' must be at least 0"),
        (("max_turns: 7", "max_turns: 0"), (9, 16), "'max_turns' must be at least 1"),
        (('tools: [Read, "Bash(git status)"]', "tools: Read"), (8, 12), "list"),
        (("max_turns", "max_turn"), (9, 5), "Unknown key 'max_turn'. Did you mean 'max_turns'?"),
    ],
)
def test_invalid_limits_are_reported_with_their_position(change, place, message):
    try:
        problems = check_document(read_source(YAML.replace(*change), "flow.yaml")).errors
    except InvalidDefinition as error:
        problems = error.problems
    [problem] = problems
    assert (problem.position.line, problem.position.column) == place
    assert message in problem.message


async def test_an_unknown_fallback_is_reported_before_anything_runs():
    session = Session(providers={"agent": Agent(says)})
    session.load(YAML, "yaml")
    with pytest.raises(InvalidDefinition, match="Agent not found: other"):
        await session.start("flow")


def agent_file(folder, front):
    path = folder / ".nerve" / "agents" / "dev.md"
    path.parent.mkdir(parents=True)
    path.write_text(f"---\n{front}\n---\n\nYou develop.\n")


async def test_an_agent_file_sets_tools_and_limits(tmp_path):
    agent_file(
        tmp_path, "provider: agent\ntools: Read, Edit\nmax_turns: 3\nfallback: other\nlimits: {turns: 1}"
    )
    limited = Agent(saying(TurnFinished("t", outcome="limited", error="429")))
    other = Agent(says)
    other.name = "other"
    session = Session(providers={"agent": limited, "other": other}, project=tmp_path)
    session.load(json.dumps({"id": "flow", "steps": [{"id": "go", "type": "agent", "agent": "dev"}]}), "json")
    await within((await session.start("flow", "x")).wait())
    assert session.find("dev").policy.limits.turns == 1
    [(_, _, options)] = other.calls
    assert (options.tools, options.max_turns) == (["Read", "Edit"], 3)


@pytest.mark.parametrize(
    ("front", "message"),
    [
        ("max_turns: many", "'max_turns' must be an integer of at least 1"),
        ("fallback: [a]", "'fallback' must be a string"),
        ("limits: 5", "'limits' must be a mapping"),
        (
            "limits: {agents: 5}",
            "'limits' is invalid: A step cannot have the limit 'agents'. It can have: tokens, cost, turns",
        ),
        ("limits: {tokens: -5}", "'limits' is invalid: The limit tokens must be a non-negative number"),
    ],
)
def test_errors_in_an_agent_file_are_reported_with_their_position(tmp_path, front, message):
    agent_file(tmp_path, f"name: dev\n{front}")
    [problem] = discover_agents(tmp_path).problems
    assert message in problem.message
    assert problem.position.line == 3


def configured(folder, config):
    (folder / ".nerve").mkdir()
    (folder / ".nerve" / "config.json").write_text(json.dumps(config))


async def test_the_project_configuration_sets_slots_and_the_daily_budget(tmp_path):
    configured(tmp_path, {"slots": {"claude": 2, "codex": 3}, "budget": {"turns": 1}})
    session = Session(providers={"agent": Agent(says)}, project=tmp_path, slots={"codex": 9})
    assert session.provider_slots.slots == {"claude": 2, "codex": 9}
    session.load(json.dumps(FULL | {"body": {"kind": "prompt", "text": "x"}}), "json")
    await within((await session.start("flow")).wait())
    run = await session.start("flow")
    await until(lambda: run.held is not None)
    assert "Daily session budget exhausted: 1 of 1 turns" in run.held["message"]
    session.budget = {"turns": 2}
    await run.resume()
    await within(run.wait())


def test_the_session_budget_overrides_the_configuration(tmp_path):
    configured(tmp_path, {"budget": {"cost": 1}})
    session = Session(project=tmp_path, budget={"cost": 5})
    assert session.engine is not None
    assert session.budget.cost == 5


@pytest.mark.parametrize(
    ("text", "column", "message"),
    [
        ('{"slots": {"claude": 0}}', 22, "slots of 'claude' must be an integer of at least 1"),
        ('{"slots": 4}', 11, "'slots' must be an object"),
        ('{"budget": {"cost": "5"}}', 21, "cost of the budget must be a non-negative number"),
        ('{"budget": {"costs": 5}}', 13, "Unknown key 'costs' in 'budget'. Did you mean 'cost'?"),
    ],
)
def test_errors_in_the_configuration_are_reported_with_their_position(text, column, message):
    with pytest.raises(InvalidDefinition) as caught:
        read_config(text)
    [problem] = caught.value.problems
    assert (problem.position.line, problem.position.column) == (1, column)
    assert problem.message == message
