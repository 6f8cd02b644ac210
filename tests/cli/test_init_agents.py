"""`nerve init --with`: the skill with which an agent uses the workflows, and the file that registers MCP."""

import json
import re
import shlex
import tomllib
from pathlib import Path

import pytest

from nerve.cli.exit_codes import COMPLETED, WAITING

FENCE = re.compile(r"^```sh\n(.*?)^```$", re.MULTILINE | re.DOTALL)
FILES = {
    "claude": [".claude/skills/nerve/SKILL.md", ".mcp.json"],
    "codex": [".agents/skills/nerve/SKILL.md", ".codex/config.toml"],
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "new"
    folder.mkdir()
    monkeypatch.chdir(folder)
    return folder


def test_without_agents_nothing_is_written_for_them(do, folder: Path) -> None:
    assert do("init").code == 0
    assert [each.name for each in folder.iterdir()] == [".nerve"]


@pytest.mark.parametrize("agent", FILES)
def test_a_skill_is_written_for_each_agent_and_mcp_only_on_request(agent: str, do, folder: Path) -> None:
    skill, registration = FILES[agent]
    created = do("init", "--with", agent, "--json").json["written"]
    assert skill in created
    assert registration not in created
    assert do("init", "--with", agent, "--mcp", "--json").json == {
        "folder": ".",
        "written": [registration],
        "kept": [skill],
    }
    front = (folder / skill).read_text().split("---\n")[1]
    assert re.match(r"name: nerve\ndescription: .{80,1000}\n$", front)


def test_the_registrations_start_the_same_server(do, folder: Path) -> None:
    do("init", "--with", "claude", "--with", "codex", "--mcp")
    claude = json.loads((folder / ".mcp.json").read_text())["mcpServers"]["nerve"]
    codex = tomllib.loads((folder / ".codex/config.toml").read_text())["mcp_servers"]["nerve"]
    assert (
        claude == {name: codex[name] for name in ("command", "args")} == {"command": "nerve", "args": ["mcp"]}
    )


def test_existing_files_are_never_changed(do, folder: Path) -> None:
    for name in (".mcp.json", ".claude/skills/nerve/SKILL.md"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("mine")
    done = do("init", "--with", "claude", "--mcp")
    assert done.code == 0
    assert (folder / ".mcp.json").read_text() == "mine"
    assert (folder / ".claude/skills/nerve/SKILL.md").read_text() == "mine"
    assert (
        ".mcp.json exists and was not changed. Register the server: "
        "claude mcp add --scope project nerve -- nerve mcp" in done.err
    )


def test_a_project_that_exists_gets_no_example_workflow(do, folder: Path) -> None:
    (folder / ".nerve").mkdir()
    assert do("init", "--with", "codex", "--json").json["written"] == [FILES["codex"][0]]


def test_mcp_without_an_agent_is_refused(do, folder: Path) -> None:
    refused = do("init", "--mcp")
    assert refused.code == 2
    assert "--with claude or --with codex" in refused.err
    assert [*folder.iterdir()] == []


def test_every_command_of_the_skill_runs(do, folder: Path) -> None:
    do("init", "--with", "claude")
    skill = (folder / FILES["claude"][0]).read_text()
    commands = [line for fence in FENCE.findall(skill) for line in fence.splitlines()]
    assert len(commands) == 11
    names = {"WORKFLOW": "greet", "INPUT": "Ann", "LABEL": "mine"}
    for command in commands:
        program, *words = [names.get(word, word) for word in shlex.split(command)]
        assert program == "nerve"
        done = do(*words)
        assert done.code in (COMPLETED, WAITING), (command, done.err)
        if "--json" in words:
            assert json.loads(done.out) is not None
