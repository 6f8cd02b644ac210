"""Prompts from files: found beside the workflow, and checked where they stand."""

import os
from pathlib import Path

import pytest

from nerve.notations import read_source
from nerve.notations.yaml_prompts import attach_prompts
from nerve.notations.yaml_prompts.prompt_files import iter_nodes
from nerve.text.source import Document

HEAD = "name: feature\ndescription: Build it.\n"


def put(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "project/.archon"


def chain(folder: Path, text: str = "steps: [{step: plan}]\n") -> Document:
    path = put(folder / "workflows/feature.yaml", HEAD + text)
    return read_source(path.read_text(), str(path))


def told(document: Document, folder: Path) -> list[str]:
    project = str(folder.parent)
    return [str(problem).replace(f"{project}/", "") for problem in attach_prompts(document)]


@pytest.mark.requirement("S3-08")
@pytest.mark.requirement("S3-29")
def test_a_prompt_gets_the_text_of_its_file_as_it_is(folder: Path) -> None:
    put(folder / "steps/plan.md", "# Plan\n\n$USER_MESSAGE {{ inputs.a }}\n")
    document = chain(folder, "steps: [{step: plan}]\ninputs: {a: string}\n")
    assert attach_prompts(document) == []
    step = document.data["body"]["steps"][0]
    assert step["text"] == "# Plan\n\n$USER_MESSAGE {{ inputs.a }}\n"
    assert document.position_of(("body", "steps", 0, "text")) == document.position_of(
        ("body", "steps", 0, "file")
    )


@pytest.mark.requirement("S3-08")
def test_a_missing_prompt_is_reported_with_the_closest_name(folder: Path) -> None:
    put(folder / "steps/implement.md", "x")
    document = chain(folder, "steps:\n  - step: implment\n")
    (problem,) = told(document, folder)
    assert problem == (
        ".archon/workflows/feature.yaml:4:11: Step prompt not found: implment.md. Did you mean 'implement'? "
        "Create .archon/steps/implment.md."
    )
    assert "text" not in document.data["body"]["steps"][0]


@pytest.mark.parametrize(
    ("place", "other"),
    [
        (".archon/steps", ".archon/commands"),
        (".archon/commands", ".nerve/steps"),
        (".nerve/steps", ".nerve/commands"),
        (".nerve/commands", ".claude/steps"),
        (".claude/commands", ".agents/steps"),
    ],
)
def test_prompts_are_looked_for_beside_the_workflow_first(folder: Path, place: str, other: str) -> None:
    put(folder.parent / place / "plan.md", "first")
    put(folder.parent / other / "plan.md", "second")
    document = chain(folder)
    assert attach_prompts(document) == []
    assert document.data["body"]["steps"][0]["text"] == "first"


def test_errors_inside_a_prompt_are_reported_with_its_own_line(folder: Path) -> None:
    put(folder / "steps/plan.md", "# Plan\n\nRead {{ inputs.topic + }} now.\n")
    put(folder / "steps/other.md", "$INPUTS.tpic\n")
    put(folder / "steps/empty.md", " \n")
    document = chain(folder, "steps: [{step: plan}, {step: other}, {step: empty}]\ninputs: {topic: string}\n")
    first, second, third = told(document, folder)
    assert first.startswith(".archon/steps/plan.md:3:24:")
    assert second.startswith(".archon/steps/other.md:1:1: Unknown input 'tpic'; did you mean `topic`?")
    assert third.startswith(".archon/steps/empty.md:1:1: The prompt is empty")


def test_a_variable_written_wrong_is_a_warning(folder: Path) -> None:
    put(folder / "steps/plan.md", "Do $USER_MESAGE in $HOME\n")
    document = chain(folder)
    (problem,) = attach_prompts(document)
    assert problem.severity == "warning"
    assert problem.fix == "Did you mean $USER_MESSAGE?"
    assert "text" in document.data["body"]["steps"][0]


def test_a_file_used_twice_is_reported_once(folder: Path) -> None:
    put(folder / "steps/plan.md", "{{ }}")
    assert len(told(chain(folder, "steps: [{step: plan}, {step: plan}]\n"), folder)) == 1


def test_ids_with_hyphens_can_be_used_in_prompts(folder: Path) -> None:
    put(folder / "steps/plan.md", "x")
    put(folder / "steps/create-pr.md", "{{ steps.make-plan.output }}")
    document = chain(folder, "steps: [{step: plan, id: make-plan}, {step: create-pr}]\n")
    assert attach_prompts(document) == []


def test_prompts_are_found_wherever_a_node_can_stand(folder: Path) -> None:
    put(folder / "steps/p.md", "text")
    prompt = "{kind: prompt, file: p}"
    text = f"""name: all
body:
  kind: sequence
  steps:
    - {prompt}
    - {{kind: while, condition: "true", body: {prompt}}}
    - {{kind: branch, condition: "true", then: {prompt}, otherwise: {prompt}}}
    - {{kind: switch, key: input, cases: {{a: {prompt}}}, default: {prompt}}}
    - {{kind: parallel, branches: [{prompt}]}}
    - {{kind: machine, states: [{{name: a, body: {prompt}}}]}}
    - {{kind: bash, command: x, on_error: {prompt}}}
    - {{kind: transform, expression: "1", input: {prompt}}}
"""
    document = read_source(text, str(folder / "workflows/all.yaml"))
    assert attach_prompts(document) == []
    found = [node for node in iter_nodes(document.data["body"]) if node.get("kind") == "prompt"]
    assert len(found) == 9
    assert all(node["text"] == "text" for node in found)
    assert "text" not in document.data["body"]["steps"][-1]["input"]


def test_a_prompt_with_a_text_is_left_alone(folder: Path) -> None:
    document = read_source(
        "name: x\nbody: {kind: prompt, file: none, text: mine}\n", str(folder / "workflows/x.yaml")
    )
    assert attach_prompts(document) == []
    assert document.data["body"]["text"] == "mine"


@pytest.mark.parametrize("name", ["../secret", "..", "/etc/passwd", "a/b", "x" * 300, "CON", "a b"])
def test_names_stay_inside_their_folder_in_every_notation(name: str, folder: Path) -> None:
    put(folder / "secret.md", "secret")
    document = read_source(
        f"name: x\nbody: {{kind: prompt, file: '{name}'}}\n", str(folder / "workflows/x.yaml")
    )
    (problem,) = told(document, folder)
    assert problem.startswith(".archon/workflows/x.yaml:2:29: Step prompt not found: ")
    assert "is not a valid file name" in problem


def test_a_prompt_that_is_a_link_out_of_the_project_is_refused(folder: Path) -> None:
    secret = put(folder.parent.parent / "secret.md", "secret")
    (folder / "steps").mkdir(parents=True)
    (folder / "steps/plan.md").symlink_to(secret)
    document = chain(folder)
    assert "leads out of its folder" in told(document, folder)[0]
    assert "secret" not in str(document.data)


@pytest.mark.requirement("D3-4")
def test_a_prompt_that_may_not_be_read_says_so(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(folder / "steps/plan.md", "x")
    opened = os.open

    def refusing(path: str, *args: int, **kwargs: int) -> int:
        if str(path).endswith("plan.md"):
            raise PermissionError(13, "Permission denied", path)
        return opened(path, *args, **kwargs)

    monkeypatch.setattr(os, "open", refusing)
    assert "Permission denied" in told(chain(folder), folder)[0]


def test_a_prompt_that_is_not_utf8_is_reported(folder: Path) -> None:
    put(folder / "steps/plan.md", "").write_bytes(b"a\n\xff\xfe")
    put(folder / "steps/long.md", "x" * 300_000)
    first, second = told(chain(folder, "steps: [{step: plan}, {step: long}]\n"), folder)
    assert first.startswith(".archon/steps/plan.md:2:1: This is not UTF-8 text")
    assert second.startswith(".archon/steps/long.md:1:1: The file has more than 256 KiB")


def test_a_file_anywhere_has_its_prompts_beside_it(tmp_path: Path) -> None:
    put(tmp_path / "steps/plan.md", "beside")
    path = put(tmp_path / "feature.yaml", HEAD + "steps: [{step: plan}]\n")
    document = read_source(path.read_text(), str(path))
    assert attach_prompts(document) == []
    assert document.data["body"]["steps"][0]["text"] == "beside"
