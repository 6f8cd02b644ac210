"""Agent files that are wrong: one clear error with its place and its fix, from whatever looks at them."""

from pathlib import Path

import pytest

ASK = "name: ask\ndescription: d\nnodes:\n  - id: a\n    agent: dev\n    prompt: hello\n"
BROKEN = [
    ("---\nname: dev\nprovider: [claude\n---\nx\n", 3, "This is not YAML", "Close the bracket"),
    ("---\nname: dev\nprovider: 5\n---\nx\n", 3, "'provider' must be a string", "Put quotes around it."),
    (
        "---\nname: dev\nprovider: claude\n",
        1,
        "The front matter is not closed",
        "Close it with a line '---'.",
    ),
    ("---\n- dev\n---\nx\n", 2, "The front matter must be a mapping", "Write 'name: …'."),
]


@pytest.fixture
def agent(project: Path):
    """Writes the file of an agent that a workflow names."""
    (project / ".nerve/workflows/ask.yaml").write_text(ASK)
    (project / ".nerve/workflows/ship.json").unlink()
    (project / ".nerve/agents").mkdir()

    def write(text: str, file: str = ".nerve/agents/dev.md") -> None:
        (project / file).parent.mkdir(parents=True, exist_ok=True)
        (project / file).write_text(text)

    return write


@pytest.mark.parametrize(("text", "line", "message", "fix"), BROKEN)
@pytest.mark.parametrize("arguments", [["check"], ["check", "ask"], ["run", "ask"], ["doctor", "--quiet"]])
def test_a_broken_agent_file_is_one_error_with_location_and_fix(
    do, agent, arguments, text, line, message, fix
) -> None:
    agent(text)
    done = do(*arguments)
    said = done.out + done.err
    assert done.code == (2 if arguments[0] == "run" else 1)
    assert said.count(f".nerve/agents/dev.md:{line}:") == 1
    assert message in said
    assert fix in said
    assert "Agent not found" not in said


def test_a_broken_file_is_reported_for_the_agent_name_inside_it(do, agent) -> None:
    agent("---\nname: dev\nprovider: 5\n---\n", ".nerve/agents/someone.md")
    done = do("run", "ask")
    assert done.err == ".nerve/agents/someone.md:3:11: 'provider' must be a string. Put quotes around it.\n"


def test_a_broken_file_is_not_skipped_in_favour_of_a_shadowed_file(do, agent) -> None:
    agent("---\nname: dev\nprovider: 5\n---\n")
    agent("---\nname: dev\nprovider: command\n---\n", ".claude/agents/dev.md")
    assert do("run", "ask").err.startswith(".nerve/agents/dev.md:3:11:")


def test_a_broken_shadowed_file_does_not_block_runs(do, agent, project) -> None:
    (project / ".nerve/config.json").write_text(
        '{"providers": {"robot": {"kind": "scripted", "answers": ["done"]}}}'
    )
    agent("---\nname: dev\nprovider: robot\n---\n")
    agent("---\nname: dev\nprovider: 5\n---\n", ".claude/agents/dev.md")
    assert (do("run", "ask").code, do("check", "ask").code) == (0, 0)
    assert ".claude/agents/dev.md:3:11:" in do("check").out


@pytest.mark.parametrize("key", ["provider", "fallback"])
def test_an_unknown_provider_in_an_agent_file_is_reported_with_location_and_suggestion(
    do, agent, key
) -> None:
    front = {"provider": "provider: scriptd", "fallback": "provider: robot\nfallback: scriptd"}[key]
    agent(f"---\nname: dev\n{front}\n---\nx\n")
    Path(".nerve/config.json").write_text('{"providers": {"robot": {"kind": "scripted", "answers": []}}}')
    line = 3 if key == "provider" else 4
    told = f".nerve/agents/dev.md:{line}:11: "
    why = "Unknown provider 'scriptd'. Did you mean 'scripted'?"
    for target in ([], ["ask"]):
        done = do("check", *target)
        assert done.out.count(f"{told}warning: {why}") == 1
        assert done.code == 0  # Python code may bring it
    done = do("run", "ask")
    assert (done.code, done.err.count("\n")) == (2, 1)
    assert done.err.startswith(f"{told}{why} Available: ")
    assert f"○ agent dev: {told}{why}" in do("doctor").out


def test_a_missing_provider_of_an_agent_file_is_reported_with_the_install_command(
    do, agent, monkeypatch
) -> None:
    monkeypatch.setattr("nerve.agents.registry.installed_provider_names", list)
    agent("---\nname: dev\nprovider: claude-code\n---\n")
    told = "Unknown provider 'claude-code'. Install it: pip install '.[claude]' in the clone of Nerve."
    assert do("run", "ask").err == f".nerve/agents/dev.md:3:11: {told}\n"


def test_an_unknown_provider_in_a_workflow_is_reported_with_location_and_suggestion(do, project) -> None:
    two = "body: {kind: sequence, steps: [{kind: prompt, id: a, text: x}, {kind: prompt, id: b, text: x}]}"
    (project / "ask.yaml").write_text(f"name: ask\ndescription: d\nprovider: scriptd\n{two}\n")
    told = "ask.yaml:3:11: Agent not found: scriptd. Did you mean 'scripted'?"
    assert do("run", "ask.yaml").err.startswith(told)
    assert do("run", "ask.yaml").err.count("\n") == 1
    assert do("check", "ask.yaml").out.startswith(told.replace(" Agent", " warning: Agent"))


def test_the_doctor_lists_the_agents_of_a_project(do, agent) -> None:
    agent("---\nname: dev\nprovider: command\n---\n")
    assert "✓ agents: dev\n" in do("doctor").out


def test_the_router_agent_is_checked(do, project) -> None:
    file = project / ".nerve/config.json"
    file.write_text(
        '{"providers": {"robot": {"kind": "scripted", "answers": ["WORKFLOW: shout"]}},\n "router": "robt"}'
    )
    told = ".nerve/config.json:2:12: Unknown agent or provider 'robt'. Did you mean 'robot'?"
    assert f"{told.replace(': Unknown', ': warning: Unknown')}" in do("check").out
    assert f"○ router: {told}" in do("doctor").out
    assert told in do("route", "loudly please").err
    file.write_text(file.read_text().replace("robt", "robot"))
    assert "router" not in do("check").out
    assert "✓ router: agent 'robot' selects the workflow\n" in do("doctor").out
    assert do("route", "loudly please").out == "shout  loudly please\n"
    file.write_text("{}")
    assert "○ router: no agent configured, keywords select the workflow  → Set an agent" in do("doctor").out
