"""What a project has: workflows, agents, and everything that is wrong with their files."""

import os
from pathlib import Path

import pytest

from nerve.notations.workflow_files import discover
from nerve.project.agent_files import discover_agents
from nerve.project.discovery import find_prompt, project_of_file
from nerve.project.paths import PROJECT_FOLDER_NAMES
from nerve.project.safe_files import FileRefused

EXAMPLE = Path(__file__).parents[2] / "examples/projects/feature-development"


def put(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def workflow(name: str, step: str = "plan") -> str:
    return f"name: {name}\ndescription: About {name}.\nsteps: [{{step: {step}}}]\n"


def refuse(monkeypatch: pytest.MonkeyPatch, ending: str, function: str = "open") -> None:
    """Deny to open paths with an ending, as the system would for somebody who is not root."""
    real = getattr(os, function)

    def refusing(path: str, *args: object, **kwargs: object) -> object:
        if str(path).endswith(ending):
            raise PermissionError(13, "Permission denied", str(path))
        return real(path, *args, **kwargs)

    monkeypatch.setattr(os, function, refusing)


@pytest.mark.requirement("S3-28")
@pytest.mark.requirement("S3-31")
def test_the_shipped_example_is_found() -> None:
    found = discover(EXAMPLE)
    assert found.problems == []
    (only,) = found.workflows
    assert only.name == "feature-development"
    assert only.notation == "yaml"
    assert only.folder == EXAMPLE / ".archon"
    assert only.document.data["model"] == "sonnet"
    steps = only.document.data["body"]["steps"]
    assert [(step["file"], step.get("thread", "shared")) for step in steps] == [
        ("plan", "shared"),
        ("implement", "fresh"),
        ("create-pr", "shared"),
    ]
    for step in steps:
        prompt = find_prompt(only.folder, step["file"])
        assert prompt is not None
        assert "$USER_MESSAGE" in prompt.text
        assert ".archon/artifacts/$WORKFLOW_ID/" in prompt.text


@pytest.mark.requirement("S3-06")
@pytest.mark.requirement("S3-07")
def test_every_folder_and_every_ending_is_looked_at(tmp_path: Path) -> None:
    for number, folder in enumerate(PROJECT_FOLDER_NAMES):
        put(tmp_path / folder / "workflows/a.yaml", workflow(f"yaml-{number}"))
        put(tmp_path / folder / "workflows/b.yml", workflow(f"yml-{number}"))
    put(tmp_path / ".nerve/workflows/c.json", '{"id": "j", "name": "json", "description": "", "steps": []}')
    put(tmp_path / ".nerve/workflows/notes.txt", "not a workflow")
    put(tmp_path / ".nerve/workflows/.hidden.yaml", "not: one")
    names = {each.name for each in discover(tmp_path).workflows}
    assert names >= {f"{ending}-{number}" for ending in ("yaml", "yml") for number in range(4)}


@pytest.mark.requirement("C-23")
@pytest.mark.requirement("S3-07")
def test_an_earlier_folder_shadows_a_later_one_and_says_so(tmp_path: Path) -> None:
    first = put(tmp_path / ".archon/workflows/x.yaml", workflow("same", "archon"))
    second = put(tmp_path / ".claude/workflows/y.yaml", workflow("same", "claude"))
    put(tmp_path / ".claude/workflows/z.yaml", workflow("other"))
    found = discover(tmp_path)
    assert [each.path.name for each in found.workflows] == ["x.yaml", "z.yaml"]
    (shadowed,) = found.shadowed
    assert (shadowed.name, shadowed.path, shadowed.shadowed_by) == ("same", second, first)
    assert shadowed.problem().severity == "warning"
    assert str(first) in str(shadowed.problem())
    assert found.get("other") is not None
    assert found.get("none") is None


@pytest.mark.requirement("C-23")
def test_names_that_have_the_same_id_shadow_each_other_and_say_so(tmp_path: Path) -> None:
    first = put(tmp_path / ".nerve/workflows/x.yaml", workflow("feat-x"))
    put(tmp_path / ".claude/workflows/y.yaml", workflow("Feat X"))
    found = discover(tmp_path)
    assert [each.name for each in found.workflows] == ["feat-x"]
    (shadowed,) = found.shadowed
    told = f"'Feat X' is not used: {first} has 'feat-x', which has the same id."
    assert told in str(shadowed.problem())


def test_two_files_of_one_folder_with_the_same_name_are_reported(tmp_path: Path) -> None:
    put(tmp_path / ".nerve/workflows/a.yaml", workflow("same"))
    put(tmp_path / ".nerve/workflows/a.yml", workflow("same"))
    found = discover(tmp_path)
    assert [each.path.name for each in found.workflows] == ["a.yaml"]
    assert [each.path.name for each in found.shadowed] == ["a.yml"]


@pytest.mark.requirement("S3-05")
@pytest.mark.requirement("S3-29")
def test_a_bad_file_is_a_problem_and_the_others_are_found(tmp_path: Path) -> None:
    folder = tmp_path / ".archon/workflows"
    put(folder / "bad.yaml", "name: [\n")
    put(folder / "empty.yaml", "")
    put(folder / "nameless.yaml", "description: x\nsteps: [{step: a}]\n")
    put(folder / "full.yaml", "body: {kind: goto}\n")
    put(folder / "good.yaml", workflow("good"))
    put(folder / "bytes.yaml", "").write_bytes(b"\xff\xfe\0x")
    (folder / "folder.yaml").mkdir()
    (folder / "gone.yaml").symlink_to("nowhere")
    (folder / "out.yaml").symlink_to("/etc/passwd")
    os.mkfifo(folder / "pipe.yaml")
    found = discover(tmp_path)
    assert [each.name for each in found.workflows] == ["good"]
    told = {Path(problem.file).stem: problem.message for problem in found.problems}
    assert set(told) == {"bad", "empty", "nameless", "full", "bytes", "folder", "gone", "out", "pipe"}
    assert "leads out" in told["out"]
    assert "UTF-16" in told["bytes"]


@pytest.mark.requirement("D3-14")
def test_only_invalid_files_in_one_folder_do_not_hide_the_next(tmp_path: Path) -> None:
    put(tmp_path / ".archon/workflows/x.yaml", "nothing")
    put(tmp_path / ".claude/workflows/x.yaml", workflow("x"))
    found = discover(tmp_path)
    assert [each.name for each in found.workflows] == ["x"]
    assert len(found.problems) == 1


@pytest.mark.requirement("S3-29")
def test_a_project_without_workflows_has_none(tmp_path: Path) -> None:
    assert discover(tmp_path).workflows == []
    (tmp_path / ".archon/workflows").mkdir(parents=True)
    found = discover(tmp_path)
    assert (found.workflows, found.problems, found.shadowed) == ([], [], [])


@pytest.mark.requirement("D3-4")
def test_permission_denied_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(tmp_path / ".archon/workflows/x.yaml", workflow("x"))
    put(tmp_path / ".claude/workflows/y.yaml", workflow("y"))
    refuse(monkeypatch, "x.yaml")
    refuse(monkeypatch, ".claude/workflows", "scandir")
    messages = [str(problem) for problem in discover(tmp_path).problems]
    assert len(messages) == 2
    assert all("Permission denied" in message for message in messages)


def test_a_file_in_the_place_of_a_folder_is_a_problem(tmp_path: Path) -> None:
    put(tmp_path / ".archon/workflows", "a file")
    assert "This is not a folder" in str(discover(tmp_path).problems[0])


def test_a_folder_that_leads_out_of_the_project_is_refused(tmp_path: Path) -> None:
    put(tmp_path / "other/workflows/x.yaml", workflow("x"))
    project = tmp_path / "project"
    project.mkdir()
    (project / ".archon").symlink_to(tmp_path / "other")
    found = discover(project)
    assert found.workflows == []
    assert "leads out of the project" in str(found.problems[0])


def test_one_folder_under_two_names_is_looked_at_once(tmp_path: Path) -> None:
    put(tmp_path / ".agents/workflows/x.yaml", workflow("x"))
    (tmp_path / ".claude").symlink_to(".agents")
    found = discover(tmp_path)
    assert len(found.workflows) == 1
    assert found.shadowed == []


def test_folders_that_the_project_names_come_first(tmp_path: Path) -> None:
    named = put(tmp_path / "project/flows/x.yaml", workflow("x")).parent
    outside = put(tmp_path / "shared/workflows/y.yaml", workflow("y")).parent
    put(tmp_path / "shared/steps/plan.md", "shared plan")
    put(tmp_path / "project/.nerve/workflows/x.yaml", workflow("x"))
    project = tmp_path / "project"
    found = discover(project, [named, outside])
    assert [each.path.parent for each in found.workflows] == [named, outside]
    assert [each.path.parent.parent.name for each in found.shadowed] == [".nerve"]
    prompt = find_prompt(found.workflows[1].folder, "plan", project)
    assert prompt is not None
    assert prompt.text == "shared plan"


def test_what_is_found_is_always_in_the_same_order(tmp_path: Path) -> None:
    for name in ("b", "a", "c"):
        put(tmp_path / f".nerve/workflows/{name}.yaml", workflow(name))
    assert [each.name for each in discover(tmp_path).workflows] == ["a", "b", "c"]


def test_a_file_knows_its_project() -> None:
    assert project_of_file(Path("/p/.archon/workflows/x.yaml")) == (Path("/p/.archon"), Path("/p"))
    assert project_of_file(Path("/p/workflows/x.yaml")) == (Path("/p"), Path("/p"))
    assert project_of_file(Path("/p/x.yaml")) == (Path("/p"), Path("/p"))


def test_a_prompt_is_found_by_a_plain_name_only(tmp_path: Path) -> None:
    put(tmp_path / ".nerve/steps/plan.md", "plan")
    put(tmp_path / ".nerve/secret.md", "secret")
    assert find_prompt(tmp_path / ".nerve", "plan") is not None
    assert find_prompt(tmp_path / ".nerve", "none") is None
    with pytest.raises(FileRefused):
        find_prompt(tmp_path / ".nerve", "../secret")


AGENT = """---
name: reviewer
description: Reviews changes.
model: opus
provider: claude
tools: Read, Grep
color: blue
---

You review changes.
"""


def test_agents_are_listed_by_their_front_matter(tmp_path: Path) -> None:
    put(tmp_path / ".claude/agents/rev.md", AGENT)
    put(tmp_path / ".claude/agents/plain.md", "You are plain.\n")
    put(tmp_path / ".claude/agents/list.md", "---\ntools: [Read, Edit]\n---\nx\n")
    found = discover_agents(tmp_path)
    assert found.problems == []
    reviewer = found.get("reviewer")
    assert reviewer is not None
    assert (reviewer.description, reviewer.model, reviewer.provider) == ("Reviews changes.", "opus", "claude")
    assert reviewer.tools == ("Read", "Grep")
    assert reviewer.read_prompt() == "You review changes.\n"
    plain, listed = found.get("plain"), found.get("list")
    assert plain is not None
    assert listed is not None
    assert (plain.read_prompt(), plain.tools, listed.tools) == ("You are plain.\n", None, ("Read", "Edit"))


def test_the_text_of_an_agent_is_read_when_it_is_asked_for(tmp_path: Path) -> None:
    path = put(tmp_path / ".nerve/agents/late.md", "---\nname: late\n---\nfirst\n")
    path.write_bytes(path.read_bytes() + b"\xff" * 100)
    (late,) = discover_agents(tmp_path).agents
    path.write_text("---\nname: late\n---\nsecond\n")
    assert late.read_prompt() == "second\n"


def test_bad_agent_files_are_problems_and_the_others_are_found(tmp_path: Path) -> None:
    folder = tmp_path / ".agents/agents"
    put(folder / "bad.md", "---\nname: [a\n---\n")
    put(folder / "open.md", "---\nname: x\n")
    put(folder / "list.md", "---\n- a\n---\n")
    put(folder / "number.md", "---\nmodel: 3\n---\n")
    put(folder / "tools.md", "---\ntools: 3\n---\n")
    put(folder / "good.md", AGENT)
    put(tmp_path / ".claude/agents/same.md", AGENT)
    (folder / "out.md").symlink_to("/etc/passwd")
    found = discover_agents(tmp_path)
    assert [agent.name for agent in found.agents] == ["reviewer"]
    assert [shadowed.path.name for shadowed in found.shadowed] == ["good.md"]
    told = {Path(problem.file).stem: problem.position.line for problem in found.problems}
    assert told == {"bad": 2, "open": 1, "list": 2, "number": 2, "tools": 2, "out": 1}
