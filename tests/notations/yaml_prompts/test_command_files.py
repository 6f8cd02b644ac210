"""Commands and agents of Claude Code as prompts: front matter is honoured, and is never sent."""

from pathlib import Path
from typing import Any

import pytest

from nerve import Session
from nerve.notations import open_document
from nerve.project.agent_files import discover_agents
from nerve.project.front_matter import read_fields
from nerve.project.ownership import agent_file_with_programs
from nerve.testing import ScriptedProvider
from nerve.text.source import InvalidDefinition

COMMAND = """---
allowed-tools: Bash(git add:*), Bash(git status:*, git log:*), Read
argument-hint: [message]
description: Commit: with a message
model: haiku
---

Status: !`echo "branch is main"`

Commit with the message $ARGUMENTS, and `!` it.
"""
WORKFLOW = """name: flow
description: A flow.
nodes:
  - {id: commit, command: commit, thread: own}
"""


def put_project(project: Path, command: str = COMMAND, workflow: str = WORKFLOW) -> Path:
    for name, text in {"commands/git/commit.md": command, "workflows/flow.yaml": workflow}.items():
        path = project / ".claude" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return project / ".claude/workflows/flow.yaml"


async def test_a_command_runs_with_its_front_matter_and_the_output_of_its_commands(tmp_path: Path) -> None:
    provider = ScriptedProvider(lambda call: "done", "claude")
    session = Session(project=tmp_path, providers={"claude": provider})
    workflow = session.load(put_project(tmp_path))
    run = await session.start(workflow.name, "Fix it")
    assert await run.wait() == "done"
    call = provider.calls[0]
    assert call.prompt == "Status: branch is main\n\nCommit with the message Fix it, and `!` it.\n"
    assert call.options["model"] == "haiku"
    await session.close()


def test_allowed_tools_become_permissions_unless_the_step_sets_them(tmp_path: Path) -> None:
    node = prompt_of(put_project(tmp_path))
    assert node["permissions"] == {"allow": ["Bash(git add *)", "Bash(git status:*, git log *)", "Read"]}
    own = WORKFLOW.replace("thread: own", "model: opus, permissions: {deny: [Bash]}")
    node = prompt_of(put_project(tmp_path, workflow=own))
    assert (node["model"], node["permissions"]) == ("opus", {"deny": ["Bash"]})


def prompt_of(path: Path) -> Any:
    node = open_document(path, path.parents[2])[0].data["body"]["steps"][0]
    return node["steps"][-1] if node["kind"] == "sequence" else node


async def test_a_failing_command_fails_the_step(tmp_path: Path) -> None:
    provider = ScriptedProvider(lambda call: "done", "claude")
    session = Session(project=tmp_path, providers={"claude": provider})
    workflow = session.load(put_project(tmp_path, "!`exit 3` now"))
    run = await session.start(workflow.name, "")
    with pytest.raises(Exception, match="exit code 3"):
        await run.wait()
    assert provider.calls == []
    await session.close()


async def prompt_of_run(project: Path, command: str, input: str = "", workflow: str = WORKFLOW) -> str:
    """The prompt that the agent of a command gets."""
    provider = ScriptedProvider(lambda call: "done", "claude")
    async with Session(project=project, providers={"claude": provider}) as session:
        loaded = session.load(put_project(project, command, workflow))
        run = await session.start(loaded.name, input)
        assert await run.wait() == "done"
        return provider.calls[0].prompt


async def test_the_files_that_a_command_names_follow_its_text(tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "src/a.py").write_text("x = '{{ 1 }} $1 @b.md !`exit 1`'\n")
    (tmp_path / "b c.md").write_text("B")
    command = 'Compare @src/a.py#L5 with @"b c.md", (@src/a.py). List @src. Mail me@src/a.py.'
    assert await prompt_of_run(tmp_path, command) == (
        'Compare src/a.py#L5 with "b c.md", (src/a.py). List src. Mail me@src/a.py.'
        "\n\n<file path=\"src/a.py\">\nx = '{{ 1 }} $1 @b.md !`exit 1`'\n\n</file>"
        '\n\n<file path="b c.md">\nB\n</file>'
        '\n\n<file path="src">\na.py\n\n</file>'
    )


async def test_braces_are_text_as_in_claude_code(tmp_path: Path) -> None:
    text = "Write {{ user.name }}, {{ input }}, \\{{ x }} and `${{ secrets.KEY }}` for"
    prompt = await prompt_of_run(tmp_path, f"{text} $ARGUMENTS: !`printf '{{{{.Id}}}}'`", "Ann")
    assert prompt == f"{text} Ann: {{{{.Id}}}}"


async def test_an_argument_can_name_the_file_of_a_command(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("A")
    prompt = await prompt_of_run(tmp_path, "Read @$1 for @$2", "a.txt bob")
    assert prompt == 'Read a.txt for @bob\n\n<file path="a.txt">\nA\n</file>'


async def test_a_name_that_is_not_a_file_keeps_its_sign(tmp_path: Path) -> None:
    command = f"Ask @alice about @pytest.mark and @{'x' * 300} and @types/node."
    assert await prompt_of_run(tmp_path, command) == command


@pytest.mark.parametrize("name", ["../secret.txt", "/etc/passwd", "link.txt", "data.bin"])
async def test_a_file_that_must_not_be_read_fails_the_step(tmp_path: Path, name: str) -> None:
    project = tmp_path / "project"
    project.mkdir()
    (tmp_path / "secret.txt").write_text("secret")
    (project / "link.txt").symlink_to(tmp_path / "secret.txt")
    (project / "data.bin").write_bytes(b"\xff\xfe\0")
    provider = ScriptedProvider(lambda call: "done", "claude")
    async with Session(project=project, providers={"claude": provider}) as session:
        run = await session.start(session.load(put_project(project, f"Read @{name}")).name, "")
        with pytest.raises(Exception, match="Cannot read the file"):
            await run.wait()
    assert provider.calls == []


async def test_a_file_is_a_recorded_step(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("A")
    provider = ScriptedProvider(lambda call: "done", "claude")
    async with Session(project=tmp_path, providers={"claude": provider}) as session:
        run = await session.start(session.load(put_project(tmp_path, "Read @a.txt")).name, "")
        await run.wait()
        outputs = [event.data for event in run.events if event.path.endswith("_commit_file_1")]
    assert outputs[-1]["result"]["output"] == "A"


async def test_commands_and_files_are_those_of_the_workspace_of_the_step(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("A")
    workflow = WORKFLOW.replace("thread: own", "workspace: copy")
    prompt = await prompt_of_run(tmp_path, "Read @a.txt in !`pwd`", workflow=workflow)
    folder, _, rest = prompt.removeprefix("Read a.txt in ").partition("\n")
    assert Path(folder) != tmp_path
    assert rest == '\n<file path="a.txt">\nA\n</file>'


def test_a_command_outside_the_folder_of_claude_code_is_text(tmp_path: Path) -> None:
    path = tmp_path / ".nerve/workflows/flow.yaml"
    path.parent.mkdir(parents=True)
    path.write_text(WORKFLOW)
    (tmp_path / ".nerve/commands").mkdir()
    (tmp_path / ".nerve/commands/commit.md").write_text("---\ndescription: x\n---\nSay !`date`")
    assert open_document(path, tmp_path)[0].data["body"]["steps"][0]["text"] == "Say !`date`"


@pytest.mark.parametrize(
    ("text", "fields"),
    [
        ("description: Use it for: reviews\nname: x", {"description": "Use it for: reviews", "name": "x"}),
        ("globs: *.py\nname: x", {"globs": "*.py", "name": "x"}),
        ("description: A: b\n  and: c\ntools: [Read]", {"description": "A: b and: c", "tools": ["Read"]}),
        ("argument-hint: [a] [b]\nname: x", {"argument-hint": "[a] [b]", "name": "x"}),
        ("", None),
    ],
)
def test_front_matter_is_read_as_leniently_as_by_claude_code(text: str, fields: Any) -> None:
    assert read_fields(text, "file.md") == fields


def test_an_agent_whose_description_is_not_yaml_is_found(tmp_path: Path) -> None:
    path = tmp_path / ".claude/agents/reviewer.md"
    path.parent.mkdir(parents=True)
    path.write_text("---\nname: reviewer\ndescription: Use it: always\ntools: Read, Grep\n---\nReview.")
    found = discover_agents(tmp_path)
    assert [(agent.name, agent.description, agent.tools) for agent in found.agents] == [
        ("reviewer", "Use it: always", ("Read", "Grep"))
    ]
    assert found.problems == []


def test_a_description_with_the_lines_of_a_dialogue_is_one_text(tmp_path: Path) -> None:
    text = (
        "description: Use it after changes: always.\n<example>\nContext: A change was made.\n"
        'user: "Please simplify"\nassistant: "I do.\n<commentary>\nIt is used.\n</example>\n\nmodel: opus\n'
    )
    put_agent(tmp_path, text, "simplifier")
    [agent] = discover_agents(tmp_path).agents
    assert (agent.name, agent.model, agent.warnings) == ("simplifier", "opus", ())
    assert agent.description.startswith("Use it after changes: always. <example> Context: A change was made.")
    assert agent.description.endswith("</example>")


def put_agent(project: Path, front: str, name: str = "reviewer", folder: str = ".claude/agents") -> Path:
    path = project / folder / f"{name}.md"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"---\nname: {name}\n{front}\n---\nReview.")
    return path


def test_an_agent_in_a_folder_below_the_agents_is_found(tmp_path: Path) -> None:
    put_agent(tmp_path, "color: red", "deep", ".claude/agents/team/web")
    (tmp_path / ".claude/agents/link").symlink_to(tmp_path.parent)
    found = discover_agents(tmp_path)
    assert [agent.name for agent in found.agents] == ["deep"]
    assert found.problems == []


def test_the_keys_of_agents_of_claude_code_are_settings(tmp_path: Path) -> None:
    put_agent(
        tmp_path,
        "maxTurns: 7\ndisallowedTools: Write, Bash(git push:*)\npermissionMode: acceptEdits\n"
        "mcpServers:\n  - docs: {command: docs-server}\n  - web: {url: http://127.0.0.1:1}",
    )
    found = discover_agents(tmp_path)
    agent = found.agents[0]
    assert (agent.max_turns, found.problems) == (7, [])
    assert agent.settings.permissions == {"deny": ["Write", "Bash(git push *)"], "mode": "edits"}
    assert agent.settings.mcp == {"docs": {"command": "docs-server"}, "web": {"url": "http://127.0.0.1:1"}}
    assert agent_file_with_programs(tmp_path) == agent.path


@pytest.mark.parametrize(
    ("mode", "permissions", "warnings"),
    [
        ("default", {"mode": "ask"}, []),
        ("plan", {"mode": "read"}, []),
        ("dontAsk", {"otherwise": "deny"}, []),
        ("bypassPermissions", None, ["'permissionMode: bypassPermissions' has no effect"]),
    ],
)
def test_the_permission_mode_of_claude_code_is_a_mode_or_a_warning(
    tmp_path: Path, mode: str, permissions: Any, warnings: list[str]
) -> None:
    put_agent(tmp_path, f"permissionMode: {mode}")
    found = discover_agents(tmp_path)
    assert found.agents[0].settings.permissions == permissions
    assert [problem.message for problem in found.problems] == warnings


def test_a_key_of_claude_code_without_effect_is_a_warning(tmp_path: Path) -> None:
    path = put_agent(tmp_path, "memory: user\nisolation: worktree")
    put_agent(tmp_path, "memory: user", "other", ".nerve/agents")
    found = discover_agents(tmp_path)
    assert [str(problem).removeprefix(str(path)) for problem in found.problems] == [
        f":{line}:1: warning: '{key}' has no effect in Nerve. Remove it, or set what it means in the step of"
        " the workflow."
        for line, key in ((3, "memory"), (4, "isolation"))
    ]


def test_permissions_of_an_agent_file_decide_alone(tmp_path: Path) -> None:
    put_agent(tmp_path, "permissions: {allow: [Read]}\ndisallowedTools: Write\npermissionMode: plan")
    assert discover_agents(tmp_path).agents[0].settings.permissions == {"allow": ["Read"]}


def test_the_keys_of_a_command_are_settings_of_its_step_or_warnings(tmp_path: Path) -> None:
    front = "disallowedTools: [Write]\nmaxTurns: 3\neffort: low\nallowed-tools: Read\ncontext: fork"
    path = put_project(tmp_path, f"---\n{front}\n---\nGo")
    node = prompt_of(path)
    assert node["permissions"] == {"deny": ["Write"], "allow": ["Read"]}
    assert (node["max_turns"], node["effort"]) == (3, "low")
    assert [problem.message for problem in open_document(path, tmp_path)[0].warnings] == [
        "'context' has no effect in Nerve"
    ]


def put_skill(project: Path, text: str, name: str = "commit") -> Path:
    path = project / ".claude/skills" / name / "SKILL.md"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


SKILL = (
    "---\nname: commit\ndescription: Commit: well\nlicense: MIT\nallowed-tools: Read\n---\n"
    "Skill of $1, !`echo here`"
)


async def test_a_skill_is_a_prompt_with_its_front_matter(tmp_path: Path) -> None:
    put_skill(tmp_path, SKILL)
    workflow = tmp_path / ".claude/workflows/flow.yaml"
    workflow.parent.mkdir(parents=True)
    workflow.write_text(WORKFLOW)
    provider = ScriptedProvider(lambda call: "done", "claude")
    async with Session(project=tmp_path, providers={"claude": provider}) as session:
        run = await session.start(session.load(workflow).name, "two words")
        assert await run.wait() == "done"
    assert provider.calls[0].prompt == "Skill of two, here"
    assert prompt_of(workflow)["permissions"] == {"allow": ["Read"]}
    assert open_document(workflow, tmp_path)[0].warnings == []


async def test_a_command_takes_precedence_over_a_skill(tmp_path: Path) -> None:
    put_skill(tmp_path, SKILL)
    assert await prompt_of_run(tmp_path, "Command") == "Command"


def test_a_skill_outside_of_the_project_is_not_read(tmp_path: Path) -> None:
    project = tmp_path / "project"
    path = put_project(project, workflow=WORKFLOW.replace("command: commit", "command: plan"))
    outside = put_skill(tmp_path, SKILL, "plan")
    (project / ".claude/skills").mkdir()
    (project / ".claude/skills/plan").symlink_to(outside.parent)
    with pytest.raises(InvalidDefinition, match="leads out of its folder"):
        Session(project=project).load(path)


def test_a_skill_is_suggested_for_a_misspelt_name(tmp_path: Path) -> None:
    put_skill(tmp_path, SKILL, "planning")
    path = put_project(tmp_path, workflow=WORKFLOW.replace("command: commit", "command: planing"))
    with pytest.raises(InvalidDefinition, match="Did you mean 'planning'"):
        Session(project=tmp_path).load(path)


@pytest.mark.parametrize(
    "front",
    [
        "{name: x, mcpServers: {a: {command: run}}}",
        '"m\\x63p": {a: {command: run}}',
        "  mcp: {a: {command: run}}",
    ],
)
def test_a_program_in_an_agent_file_needs_trust_however_its_key_is_written(
    tmp_path: Path, front: str
) -> None:
    path = tmp_path / ".claude/agents/x.md"
    path.parent.mkdir(parents=True)
    path.write_text(f"---\n{front}\n---\nGo")
    assert discover_agents(tmp_path).agents[0].settings.mcp == {"a": {"command": "run"}}
    assert agent_file_with_programs(tmp_path) == path
