"""The world of an agent: settings of steps, agent files and configuration, and what providers can honour."""

import asyncio
import json
import os
import subprocess

import pytest

from agents.test_conversation import Agent, saying, says
from cli.conftest import *  # noqa: F403 - the fixtures of commands
from core.workflow.support import within
from nerve import ExecutionContext, Session, WorkflowContext
from nerve.agents import AgentNode, AssistantText, Capabilities, TurnFinished
from nerve.agents.acp import AcpProvider
from nerve.agents.claude import ClaudeProvider
from nerve.agents.codex import CodexProvider
from nerve.agents.command_provider import CommandProvider
from nerve.agents.llm_provider import LlmProvider
from nerve.agents.setting_support import check_settings, fill_settings, resolve_settings
from nerve.project.agent_settings import (
    STEP_SETTING_KEYS,
    AgentSettings,
    escape_references,
    fill_references,
    parse_setting,
)
from nerve.project.config import read_config
from nerve.project.ownership import agent_file_with_programs, config_names_programs
from nerve.spec import models
from nerve.testing import ScriptedProvider
from nerve.text.source import InvalidDefinition

SETTINGS = {
    "permissions": {"mode": "read", "deny": ["Bash"]},
    "system": "You are brief.",
    "effort": "low",
    "env": {"COLOUR": "red"},
    "mcp": {"docs": {"command": "docs-server", "args": ["--quick"], "env": {"DOCS_KEY": "key"}}},
    "skills": ["greet"],
    "hooks": {"PreToolUse": [{"matcher": "Bash", "command": "./check.sh", "timeout": 3}]},
    "subagents": {"short": {"description": "Sums up.", "prompt": "Be brief.", "tools": ["Read"]}},
    "instructions": False,
}
HEARD = {name: value for name, value in SETTINGS.items() if name != "permissions"}


def heard(agent: ScriptedProvider) -> dict:
    """Return the settings with which the agent was called last, as plain data."""
    options = json.loads(json.dumps(agent.calls[-1].options, default=list))
    return {name: options[name] for name in HEARD if name in options}


def workflow(**step) -> str:
    body = {"kind": "prompt", "id": "go", "text": "Go.", "provider": "scripted", **step}
    return json.dumps({"name": "flow", "body": body})


STEP = json.dumps(SETTINGS)
NOTATIONS = {
    "yaml": "name: flow\ndescription: d\nnodes:\n"
    f"  - {{id: go, prompt: Go., provider: scripted, {STEP[1:]}\n",
    "lisp": """
(workflow flow
  (roles (dev :agent-kind scripted :permissions {:mode "read" :deny ["Bash"]} :system "You are brief."
           :effort "low" :env {:COLOUR "red"} :skills ["greet"] :instructions false
           :subagents {:short {:description "Sums up." :prompt "Be brief." :tools ["Read"]}}
           :mcp {:docs {:command "docs-server" :args ["--quick"] :env {:DOCS_KEY "key"}}}
           :hooks {:PreToolUse [{:matcher "Bash" :command "./check.sh" :timeout 3}]}))
  (state work (send-prompt :agent dev :template "Go." :tag t) (await (transcript-response :request-id t))))
""",
    "full form": workflow(**SETTINGS),
    "json": json.dumps(
        {"id": "flow", "steps": [{"id": "go", "type": "agent", "agent": "scripted", **SETTINGS}]}
    ),
}


@pytest.mark.parametrize("notation", NOTATIONS)
async def test_every_notation_can_set_the_world_of_an_agent(notation, tmp_path):
    agent = ScriptedProvider(["done"])
    session = Session(providers={"scripted": agent}, project=tmp_path)
    session.load(NOTATIONS[notation], "json" if notation == "full form" else notation)
    await within((await session.start("flow", "x")).wait())
    assert heard(agent) == HEARD


def test_steps_have_the_settings_that_are_parsed():
    own = models.AgentNodeBase.model_fields.keys() - models.NodeBase.model_fields.keys()
    assert own == set(STEP_SETTING_KEYS)


async def test_a_step_wins_over_its_agent_file_and_that_over_the_configuration(tmp_path):
    (tmp_path / ".nerve/agents").mkdir(parents=True)
    (tmp_path / ".nerve/config.json").write_text(
        json.dumps({"agents": {"scripted": {"effort": "low", "env": {"A": "1"}, "system": "from config"}}})
    )
    front = "provider: scripted\neffort: medium\nenv: {B: '2'}"
    (tmp_path / ".nerve/agents/dev.md").write_text(f"---\n{front}\n---\n\nfrom the file")
    agent = ScriptedProvider(["one", "two", "three"])
    session = Session(providers={"scripted": agent}, project=tmp_path)
    for step in ({"agent": "dev", "effort": "high"}, {"agent": "dev"}, {}):
        session.load(workflow(**step), "json")
        await within((await session.start("flow")).wait())
    worlds = [{name: call.options.get(name) for name in ("effort", "env", "system")} for call in agent.calls]
    assert worlds == [
        {"effort": "high", "env": {"B": "2"}, "system": "from the file"},
        {"effort": "medium", "env": {"B": "2"}, "system": "from the file"},
        {"effort": "low", "env": {"A": "1"}, "system": "from config"},
    ]


async def test_an_agent_node_has_the_same_settings():
    agent = ScriptedProvider(["done"])
    node = AgentNode("dev", None, agent, **{name: SETTINGS[name] for name in SETTINGS})
    await node.execute(ExecutionContext(input="Go."))
    assert heard(agent) == HEARD
    with pytest.raises(ValueError, match="'effort' must be a non-empty string, got 3"):
        AgentNode("dev", None, agent, effort=3)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("skills", 3, "'skills' must be true, false or a list of names, got 3"),
        ("instructions", "no", "'instructions' must be true or false, got 'no'"),
        ("env", {"A B": "1"}, "'env' must be a mapping of variable names to strings"),
        ("mcp", {"nerve": {"command": "x"}}, "and not 'nerve', got 'nerve'"),
        ("mcp", {"x": {}}, "'mcp' has a wrong server 'x': it needs either command or url"),
        ("mcp", {"x": {"comand": "y"}}, "has an unknown key 'comand'. Did you mean 'command'?"),
        ("mcp", {"x": {"command": "y", "headers": {}}}, "headers has no effect with command"),
        ("mcp", {"x": {"url": "http://y", "type": "sse"}}, "type must be http, got 'sse'"),
        ("mcp", {"x": {"command": "y", "args": ["${KEY}"]}}, "would be visible in the process list"),
        ("hooks", {"Stop": [{}]}, "has a wrong hook of Stop: it needs either command or response"),
        ("hooks", {"Stop": [{"command": "x", "timeout": 0}]}, "timeout must be a positive number"),
        ("subagents", {"a b": {}}, "must name agents with letters, digits, '_' and '-', got 'a b'"),
        ("subagents", {"x": {"prompt": "p"}}, "has a wrong 'x': description must be a non-empty string"),
        ("subagents", {"x": {"descripton": "d"}}, "unknown key 'descripton'. Did you mean 'description'?"),
        (
            "subagents",
            {"x": {"description": "d", "prompt": "p", "max_turns": 0}},
            "max_turns must be an integer of at least 1, got 0",
        ),
        ("permissions", {"mode": "edit"}, "it must be ask, edits, all or read, got 'edit'"),
        ("permissions", {"mode": "all", "otherwise": "ask"}, "has both mode and otherwise"),
    ],
)
def test_a_wrong_setting_is_refused_with_its_value(name, value, message):
    with pytest.raises(ValueError) as caught:
        parse_setting(name, value)
    assert message in str(caught.value)


def test_hooks_may_have_the_form_of_claude_code():
    nested = {"Stop": [{"matcher": "x", "hooks": [{"type": "command", "command": "a", "timeout": 1}]}]}
    assert parse_setting("hooks", nested) == {"Stop": ({"matcher": "x", "command": "a", "timeout": 1},)}


# -- what providers can do ---------------------------------------------------------------------------

REFUSED = [
    (ClaudeProvider(), {"effort": "minimal"}, "Provider 'claude' cannot honour effort 'minimal'"),
    (ClaudeProvider(), {"hooks": {"PreTool": [{"command": "x"}]}}, "has no hook 'PreTool'. Did you mean"),
    (CodexProvider(), {"effort": "max"}, "Provider 'codex' cannot honour effort 'max'"),
    (CodexProvider(), {"hooks": {"Notification": [{"command": "x"}]}}, "'codex' has no hook 'Notification'"),
    (CodexProvider(), {"subagents": SETTINGS["subagents"]}, "Provider 'codex' cannot use subagents"),
    (CodexProvider(), {"model": "large"}, "Provider 'codex' has no model for the alias 'large'"),
    (AcpProvider(["agent"]), {"skills": True}, "Provider 'acp' leaves skills to its agent"),
    (AcpProvider(["agent"]), {"instructions": False}, "Provider 'acp' leaves instructions to its agent"),
    (AcpProvider(["agent"]), {"hooks": {"Stop": [{"command": "x"}]}}, "Provider 'acp' has no hook 'Stop'"),
    (LlmProvider(), {"instructions": True}, "'llm' does not read the instruction files of a project"),
    (LlmProvider(), {"skills": ["x"]}, "Provider 'llm' cannot use skills"),
    (LlmProvider(), {"hooks": {"Stop": [{"command": "x"}]}}, "Provider 'llm' has no hook 'Stop'"),
    (CommandProvider(["cat"]), {"effort": "low"}, "Provider 'command' cannot honour effort 'low'. Remove it"),
    (CommandProvider(["cat"]), {"mcp": {"x": {"command": "y"}}}, "'command' cannot use MCP servers"),
    (CommandProvider(["cat"]), {"permissions": {"mode": "read"}}, "permission mode 'read'"),
]


@pytest.mark.parametrize(("provider", "settings", "message"), REFUSED)
def test_a_setting_that_a_provider_cannot_honour_is_refused_by_name(provider, settings, message):
    problems = list(check_settings(provider, None, AgentSettings.of(settings), None, None))
    assert [problem.key for problem in problems] == list(settings)
    assert message in str(problems[0])


@pytest.mark.parametrize(
    ("provider", "settings"),
    [
        (ClaudeProvider(), {**SETTINGS, "skills": True, "model": "small"}),
        (CodexProvider(), {**SETTINGS, "skills": True, "subagents": None}),
        (AcpProvider(["agent"]), {"mcp": SETTINGS["mcp"], "permissions": {"mode": "edits"}, "effort": "low"}),
        (LlmProvider(), {"effort": "low", "system": "x", "env": {"A": "1"}, "instructions": False}),
        (CommandProvider(["cat"]), {"system": "x", "env": {"A": "1"}, "skills": False}),
    ],
)
def test_what_a_provider_can_honour_is_accepted(provider, settings):
    assert not list(check_settings(provider, None, AgentSettings.of(settings), None, None))


async def test_a_run_with_a_setting_that_its_provider_cannot_honour_does_not_start(tmp_path):
    session = Session(providers={"scripted": Agent(says)}, project=tmp_path)
    session.load(workflow(effort="high"), "json")
    with pytest.raises(InvalidDefinition, match=r"Provider 'agent' cannot honour effort 'high'\. Remove it"):
        await session.start("flow")


async def test_a_python_agent_with_a_setting_that_its_provider_cannot_honour_fails_its_step():
    node = AgentNode("dev", None, Agent(says), skills=["x"])
    result = await node.execute(ExecutionContext(input="Go."))
    assert result.error == "Provider 'agent' cannot use skills. Remove 'skills'."


async def test_a_function_has_no_world(tmp_path):
    session = Session(project=tmp_path)
    session.node(lambda context: "x", id="upper")
    session.load(json.dumps({"name": "flow", "body": {"kind": "call", "target": "upper", "effort": "low"}}))
    with pytest.raises(InvalidDefinition, match="'upper' is not an agent, so it has no effort"):
        await session.start("flow")


def test_nerve_check_reports_them_with_their_place(do, project):
    (project / ".nerve/config.json").write_text('{"agents": {"llm": {"instructions": true}}}')
    text = "name: x\ndescription: d\nnodes:\n  - {id: a, prompt: Go., provider: codex, effort: max}\n"
    (project / "x.yaml").write_text(text + "  - {id: b, prompt: Go., provider: llm}\n")
    done = do("check", "x.yaml")
    assert done.code == 1
    assert "x.yaml:4:51: Provider 'codex' cannot honour effort 'max'. It has none, minimal, low" in done.out
    assert "x.yaml:5:5: Provider 'llm' does not read the instruction files of a project" in done.out


def test_nerve_check_reports_agent_files_and_the_configuration(do, project):
    (project / ".nerve/config.json").write_text('{"agents": {"cluade": {"effort": "low"}}}')
    (project / ".nerve/agents").mkdir(exist_ok=True)
    (project / ".nerve/agents/dev.md").write_text("---\nprovider: codex\neffort: max\n---\n\nYou develop.\n")
    out = do("check").out
    assert "dev.md:3:9: Provider 'codex' cannot honour effort 'max'" in out
    assert "warning: Unknown provider 'cluade' in 'agents'. Did you mean 'claude'?" in out


# -- model aliases, MCP servers, environment -----------------------------------------------------------

CONFIG = read_config(
    json.dumps(
        {
            "models": {"small": {"codex": "tiny"}, "fast": "swift"},
            "mcp": {
                "docs": {"url": "http://127.0.0.1:1/${DOCS_PATH}", "headers": {"Authorization": "${KEY}"}}
            },
        }
    )
)


@pytest.mark.parametrize(
    ("model", "provider", "expected"),
    [
        ("small", "codex", "tiny"),
        ("small", "claude", "haiku"),
        ("large", "claude", "opus"),
        ("fast", "llm", "swift"),
        ("opus", "claude", "opus"),
    ],
)
def test_an_alias_is_the_model_of_the_provider(model, provider, expected):
    assert resolve_settings(provider, CONFIG, AgentSettings(model=model)).model == expected


async def test_a_fallback_gets_its_own_model_of_an_alias(tmp_path):
    (tmp_path / ".nerve").mkdir()
    models_by_provider = {"fast": {"agent": "first", "other": "second"}}
    (tmp_path / ".nerve/config.json").write_text(json.dumps({"models": models_by_provider}))
    limited, other = Agent(saying(TurnFinished("t", outcome="limited", error="429"))), Agent(says)
    other.name = "other"
    session = Session(providers={"agent": limited, "other": other}, project=tmp_path)
    session.load(workflow(provider="agent", model="fast", fallback="other"), "json")
    await within((await session.start("flow")).wait())
    assert (limited.calls[0][2].model, other.calls[0][2].model) == ("first", "second")


def test_servers_of_the_configuration_are_named():
    servers = resolve_settings("x", CONFIG, AgentSettings.of({"mcp": ["docs"]}))
    filled = fill_settings(servers, {"DOCS_PATH": "mcp", "KEY": "Bearer k"})
    assert filled.mcp == {"docs": {"url": "http://127.0.0.1:1/mcp", "headers": {"Authorization": "Bearer k"}}}
    with pytest.raises(ValueError, match=r"Unknown MCP server 'dogs'\. Did you mean 'docs'\?"):
        resolve_settings("x", CONFIG, AgentSettings.of({"mcp": ["dogs"]}))


def test_a_reference_is_filled_and_a_filled_value_is_no_reference():
    assert fill_references("a ${X} $${X} $X", {"X": "1"}) == "a 1 ${X} $X"
    for text in ("${X}", "$${X}", "$$${X}", "${X}${Y}"):
        assert fill_references(escape_references(text), {}) == text
    with pytest.raises(ValueError, match="Environment variable 'X' is not set"):
        fill_references("${X}", {})


async def test_a_variable_is_filled_when_the_agent_starts_and_is_not_in_the_journal(tmp_path, monkeypatch):
    monkeypatch.setenv("DEPLOY_TOKEN", "very-secret-1")
    mcp = {"x": {"command": "y", "env": {"OTHER_TOKEN": "also-secret-2"}}}
    agent = ScriptedProvider([["I saw very-secret-1 and also-secret-2"]])
    session = Session(providers={"scripted": agent}, project=tmp_path)
    env = {"TOKEN": "${DEPLOY_TOKEN}", "WORD": "{{ input }}"}
    session.load(workflow(env=env, mcp=mcp), "json")
    run = await session.start("flow", "${DEPLOY_TOKEN}")
    assert "very-secret-1" not in str(await within(run.wait()))
    assert agent.calls[0].options["env"] == {"TOKEN": "very-secret-1", "WORD": "${DEPLOY_TOKEN}"}
    journal = str([event.data for event in await run.history()])
    assert "very-secret-1" not in journal
    assert "I saw [TOKEN] and [OTHER_TOKEN]" in journal or "I saw [DEPLOY_TOKEN]" in journal


def test_settings_that_start_programs_need_trust(tmp_path):
    (tmp_path / ".nerve").mkdir()
    for key, value in (("agents", {"claude": {"env": {"A": "1"}}}), ("mcp", {"x": {"command": "y"}})):
        (tmp_path / ".nerve/config.json").write_text(json.dumps({key: value}))
        assert config_names_programs(tmp_path)
    (tmp_path / ".nerve/config.json").unlink()
    agents = tmp_path / ".claude/agents"
    agents.mkdir(parents=True)
    (agents / "a.md").write_text("---\nname: a\n---\n\nmcp:\n")
    assert agent_file_with_programs(tmp_path) is None
    (agents / "b.md").write_text("---\nname: b\nhooks: {Stop: [{command: x}]}\n---\n")
    assert agent_file_with_programs(tmp_path) == agents / "b.md"


# -- what agents read ----------------------------------------------------------------------------------


class Reading(Agent):
    capabilities = Capabilities(skills=True, instructions=("CLAUDE.md",), resume=True)


@pytest.fixture
def read_project(tmp_path):
    (tmp_path / "CLAUDE.md").write_text("Obey.")
    for skill in ("greet", "sing"):
        (tmp_path / ".claude/skills" / skill).mkdir(parents=True)
        text = f"---\nname: {skill}\ndescription: How to {skill}: well\n---\n"
        (tmp_path / ".claude/skills" / skill / "SKILL.md").write_text(text)
    return tmp_path


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({}, ["agent reads CLAUDE.md and the skills greet, sing"]),
        ({"skills": ["sing"]}, ["agent reads CLAUDE.md and the skill sing"]),
        ({"skills": False}, ["agent reads CLAUDE.md"]),
        ({"skills": False, "instructions": False}, []),
    ],
)
async def test_a_run_reports_once_what_its_agents_read(settings, told, read_project):
    session = Session(project=read_project)
    AgentNode("dev", session, Reading(says), cwd=str(read_project), **settings)

    @session.workflow
    async def flow(ctx: WorkflowContext) -> None:
        await ctx.run("dev", "one")
        await ctx.run("dev", "two")

    run = await session.start("flow")
    await within(run.wait())
    logs = [event.data["message"] for event in await run.history() if event.event_type == "log"]
    assert logs == told


async def test_a_run_reports_what_an_agent_can_read_that_chooses_itself(read_project):
    class Choosing(Agent):
        capabilities = Capabilities(reads_on_its_own=True)

    session = Session(project=read_project)
    AgentNode("dev", session, Choosing(says), cwd=str(read_project))

    @session.workflow
    async def flow(ctx: WorkflowContext) -> None:
        await ctx.run("dev", "one")

    run = await session.start("flow")
    await within(run.wait())
    logs = [event.data["message"] for event in await run.history() if event.event_type == "log"]
    assert logs == ["agent reads what it chooses of CLAUDE.md and the skills greet, sing"]


async def test_an_unknown_skill_fails_the_check_with_the_known_ones(read_project):
    session = Session(providers={"scripted": Reading(says)}, project=read_project)
    session.load(workflow(skills=["sings"]), "json")
    message = r"Skill not found: sings\. Did you mean 'sing'\?$"
    with pytest.raises(InvalidDefinition, match=message):
        await session.start("flow")


def test_nerve_doctor_shows_what_agents_read(do, project):
    (project / "CLAUDE.md").write_text("Obey.")
    (project / ".agents/skills/greet").mkdir(parents=True)
    (project / ".agents/skills/greet/SKILL.md").write_text("---\ndescription: How to greet\n---\n")
    (project / ".agents/skills/broken").mkdir()
    (project / ".agents/skills/broken/SKILL.md").write_text("no front matter")
    providers = {
        "opencode": {"kind": "acp", "command": ["opencode", "acp"]},
        "llm": {"model": "openai:x"},
        "own": {"kind": "command", "argv": ["cat"]},
    }
    (project / ".nerve/config.json").write_text(json.dumps({"providers": providers}))
    out = do("doctor").out
    assert "agent claude: reads CLAUDE.md and the skill greet" in out
    assert "agent codex: reads the skill greet" in out
    assert "agent opencode: reads what it chooses of CLAUDE.md and the skill greet" in out
    assert "agent llm: reads none of CLAUDE.md and the skill greet" in out
    assert "agent own: reads none of CLAUDE.md and the skill greet" in out


# -- permission modes ------------------------------------------------------------------------------------


class Permitted(Agent):
    capabilities = Capabilities(
        permissions=True,
        modes=("ask", "edits", "all", "read"),
        edit_tools=("Edit",),
        read_tools=("Read",),
    )


@pytest.mark.parametrize(
    ("mode", "verdicts"),
    [
        ("ask", [None, None, None, None]),
        ("edits", ["allow", None, None, None]),
        ("all", ["allow", "allow", "allow", "allow"]),
        ("read", ["deny", "deny", "deny", "allow"]),
    ],
)
async def test_a_permission_mode_decides_by_what_a_tool_does(mode, verdicts, tmp_path):
    from nerve.agents import PermissionRequest

    agent = Permitted(says)
    node = AgentNode("dev", None, agent, cwd=str(tmp_path), permissions={"mode": mode})
    await node.execute(ExecutionContext(input="Go."))
    [(_, _, options)] = agent.calls
    here, there = str(tmp_path / "a.py"), str(tmp_path.parent / "b.py")
    uses = [("Edit", {"file_path": here}), ("Edit", {"file_path": there}), ("Bash", {"command": "ls"})]
    requests = [PermissionRequest(tool, given, cwd=str(tmp_path)) for tool, given in uses]
    requests.append(PermissionRequest("Read", {"file_path": here}, cwd=str(tmp_path)))
    assert [options.find_rule(request).verdict for request in requests] == verdicts
    node = AgentNode("dev", None, agent, permissions={"mode": "all", "deny": ["Bash(rm *)"]})
    await node.execute(ExecutionContext(input="Go."))
    removal = PermissionRequest("Bash", {"command": "rm -r x"}, cwd=os.getcwd())
    assert agent.calls[-1][2].find_rule(removal).verdict == "deny"


async def test_the_mode_read_asks_no_person():
    from nerve.agents import PermissionRequest

    decisions = []

    async def wants(prompt, resume, options):
        decisions.append(await options.decide(PermissionRequest("mcp__docs__write", {})))
        yield TurnFinished("t")

    agent = Permitted(wants)
    agent.capabilities = Capabilities(permissions=True, modes=("read",))
    node = AgentNode("dev", None, agent, permissions={"mode": "read"})
    await within(node.execute(ExecutionContext(input="Go.")))
    assert [(each.allow, each.message) for each in decisions] == [
        (False, "the permission mode 'read' allows only reading")
    ]


async def test_a_response_of_a_hook_is_printed_by_a_command():
    agent = ScriptedProvider([[AssistantText("x")]])
    node = AgentNode("dev", None, agent, hooks={"Stop": [{"response": {"it's": 1}}]})
    await node.execute(ExecutionContext(input="Go."))
    [hook] = agent.calls[0].options["hooks"]["Stop"]
    printed = await asyncio.to_thread(subprocess.check_output, ["bash", "-c", hook["command"]])
    assert json.loads(printed) == {"it's": 1}
