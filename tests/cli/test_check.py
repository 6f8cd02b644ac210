"""`nerve check`, `nerve show` and `nerve convert`: looked at, never executed."""

import json
import socket
import subprocess
from pathlib import Path

import pytest

from nerve.notations import read_source
from nerve.spec.validation import spec_hash, validate_document

EXAMPLES = Path(__file__).parents[2] / "examples"
BAD = """{
  "name": "bad",
  "body": {"kind": "sequence", "steps": [
    {"kind": "bash", "id": "a", "comand": "ls"},
    {"kind": "transform", "id": "b", "expression": "steps.c.output"}
  ]}
}
"""


def test_a_project_without_errors_says_so(do, project) -> None:
    done = do("check")
    assert (done.code, done.err) == (0, "")
    assert done.out.splitlines()[-1] == "4 workflows, no errors, 1 warning"
    assert ".nerve/workflows/ship.json:13:46: warning: Agent not found: notifier." in done.out
    (project / ".nerve/workflows/ship.json").unlink()
    assert do("check").out == "3 workflows, no problems\n"


def test_an_unknown_provider_in_the_configuration_is_an_error(do, project) -> None:
    file = project / ".nerve/config.json"
    file.write_text('{"providers": {\n  "robot": {"kind": "script"}}}')
    done = do("check")
    assert done.code == 1
    assert ".nerve/config.json:2:21: Unknown provider 'script'. Did you mean 'scripted'?" in done.out
    file.write_text('{"providers": {"robot": {"kind": "scripted", "answers": ["no"]}, "llm": {}}}')
    assert do("check").code == 0


def test_every_problem_has_a_location_and_a_fix(do, project) -> None:
    (project / "bad.json").write_text(BAD)
    (project / "bad.yaml").write_text("name: x\ndescription: d\nsteps:\n  - stp: plan\n")
    done = do("check", "bad.json", "bad.yaml", "shout")
    assert (done.code, done.err) == (1, "")
    lines = done.out.splitlines()
    assert lines[0] == "bad.json:4:33: Unknown key 'comand'. Did you mean 'command'?"
    assert any(line.startswith("bad.yaml:4:5: Unknown key 'stp'. Did you mean 'step'?") for line in lines)
    assert lines[-1].startswith("3 workflows, ")


def test_problems_as_one_json_object(do, project) -> None:
    (project / "bad.json").write_text(BAD)
    done = do("check", "bad.json", "--json")
    assert done.code == 1
    assert (done.json["workflows"], done.json["errors"]) == (1, len(done.json["problems"]))
    assert done.json["problems"][0] == {
        "file": "bad.json",
        "line": 4,
        "column": 33,
        "severity": "error",
        "message": "Unknown key 'comand'. Did you mean 'command'?",
        "fix": "",
    }


def test_all_files_of_the_project_are_checked_including_invalid_ones(do, project) -> None:
    (project / ".nerve/workflows/torn.json").write_text('{"name": ')
    (project / ".archon/workflows").mkdir(parents=True)
    (project / ".archon/workflows/shout.yaml").write_text(
        (project / ".nerve/workflows/shout.yaml").read_text()
    )
    done = do("check")
    assert done.code == 1
    assert ".nerve/workflows/torn.json:1:10: " in done.out
    assert ".archon/workflows/shout.yaml:1:1: warning: 'shout' is not used" in done.out


@pytest.mark.parametrize("verb", [["check"], ["show"], ["convert", "--to", "json"]])
def test_missing_and_python_targets_are_refused(verb, do) -> None:
    for target, message in (("nothing", "File or workflow 'nothing' not found"), ("flows.py", "is Python")):
        done = do(verb[0], target, *verb[1:])
        assert (done.code, done.out) == (2, "")
        assert message in done.err


def test_an_empty_folder_has_no_workflows(do, tmp_path, monkeypatch) -> None:
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path / "empty")
    done = do("check")
    assert (done.code, done.out) == (
        0,
        "No workflows found. Create workflows in .nerve/workflows/, or name a file.\n",
    )
    done = do("run", "greet")
    assert done.code == 2
    assert "File or workflow 'greet' not found. The project has no workflows. Create one with" in done.err
    assert "nerve init" in done.err


def test_an_invalid_configuration_is_a_problem(do, project) -> None:
    (project / ".nerve/config.json").write_text('{"enabeld": true}')
    done = do("check")
    assert done.code == 1
    assert done.out.startswith(".nerve/config.json:1:2: Unknown key 'enabeld' in the configuration")


def test_static_commands_execute_nothing_open_no_connection_and_write_nothing(
    do, project, monkeypatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("touched the world")

    monkeypatch.setattr(socket, "socket", refuse)
    monkeypatch.setattr(subprocess, "Popen", refuse)
    before = {path: path.read_bytes() for path in project.rglob("*") if path.is_file()}
    (project / "steps.py").write_text("raise AssertionError('imported')")
    assert do("check").code == 0
    for target in ("ship", "shout", "parent"):
        assert do("show", target).code == 0
        assert do("convert", target, "--to", "lisp").code == 0
    (project / "steps.py").unlink()
    assert {path: path.read_bytes() for path in project.rglob("*") if path.is_file()} == before


def test_a_workflow_is_shown_as_a_tree(do) -> None:
    done = do("show", "ship")
    assert (done.code, done.err) == (0, "")
    assert done.out.splitlines()[1:] == [
        "├─ build  bash  echo built >> effects; echo built {{ inputs.count }}",
        "├─ approve  gate  Ship it? [yes | no]",
        "├─ tell  call  notifier",
        "└─ transform  transform  ({inputs: inputs, said: given})",
    ]
    assert do("show", "ship", "--tree").out == done.out


def test_a_workflow_is_shown_as_a_diagram_and_as_json(do) -> None:
    assert do("show", "ship", "--mermaid").out.startswith("flowchart TD\n")
    told = json.loads(do("show", "ship", "--json").out)
    assert (told["name"], told["notation"], told["tree"]["kind"]) == ("ship", "json", "workflow")
    assert [part["name"] for part in told["tree"]["parts"]][:2] == ["build", "approve"]
    assert do("show", "ship", "--json", "--mermaid").code == 2


def test_the_steps_of_a_json_file_keep_the_kind_names_of_the_file(do, project: Path) -> None:
    steps = [
        {"id": "test", "type": "agent", "agent": "tester", "next": "ok"},
        {"id": "ok", "type": "condition", "condition": "context.test.success", "then": "ask", "else": "end"},
        {"id": "ask", "type": "approval", "message": "Ship?"},
        {"id": "end", "type": "transform", "transform": "1"},
    ]
    (project / "steps.json").write_text(json.dumps({"id": "steps", "steps": steps}))
    assert do("show", "steps.json").out.splitlines()[1:] == [
        "├─ test  agent  tester → ok",
        "├─ ok  condition  context.test.success → ask if true, → end",
        "├─ ask  approval  Ship? [approve | reject] → end",
        "└─ end  transform  1 → end",
    ]


def test_a_workflow_with_errors_is_shown_if_its_structure_is_valid(do, project) -> None:
    (project / "odd.json").write_text(BAD.replace("comand", "command"))
    done = do("show", "odd.json")
    assert done.code == 0
    assert "odd.json:5:" in done.err
    assert "Unknown step 'c'" in done.err
    (project / "bad.json").write_text(BAD)
    done = do("show", "bad.json")
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith("bad.json:4:33: Unknown key 'comand'")


def hashed(text: str, notation: str) -> str:
    spec, problems = validate_document(read_source(text, notation=notation))
    assert spec is not None, problems
    return spec_hash(spec)


@pytest.mark.parametrize("to", ["json", "yaml", "lisp"])
@pytest.mark.parametrize("source", ["ship", "shout", "parent", "asking"])
def test_a_converted_workflow_is_the_same_workflow(source, to, do, project) -> None:
    path = next((project / ".nerve/workflows").glob(f"{source}.*"))
    done = do("convert", source, "--to", to)
    assert done.code == 0
    own = {"json": "json", "yaml": "yaml"}[path.suffix[1:]]
    assert hashed(done.out, to) == hashed(path.read_text(), own)


def test_steps_are_converted_to_steps_and_unsupported_features_are_reported(do, project) -> None:
    done = do("convert", str(EXAMPLES / "workflows/json/feature-dev.json"), "--to", "json")
    assert (done.code, done.err) == (0, "")
    assert "steps" in json.loads(done.out)
    done = do("convert", "ship", "--to", "json")
    assert "body" in json.loads(done.out)
    assert done.err.startswith("nerve: Steps cannot express ")
    assert done.err.endswith("nerve: Wrote the full form instead.\n")


def test_prompts_stay_in_their_files(do) -> None:
    file = EXAMPLES / "projects/feature-development/.archon/workflows/feature-development.yaml"
    done = do("convert", str(file), "--to", "lisp")
    assert "Prompts stay in their files (create-pr.md, implement.md, plan.md)" in done.err


def test_a_file_is_written_or_the_error_is_reported(do, project) -> None:
    done = do("convert", "shout", "--to", "lisp", "--output", "shout.lisp")
    assert (done.code, done.out, done.err) == (0, "", "")
    assert do("run", "shout.lisp").out == "loud\n"
    done = do("convert", "shout", "--to", "lisp", "--output", "no/where.lisp")
    assert (done.code, done.out) == (2, "")
    assert "Cannot write no/where.lisp: No such file or directory." in done.err
    assert "json" in do("convert", "shout", "--to", "xml").err


@pytest.mark.parametrize(
    "file", sorted((EXAMPLES / "workflows").glob("[!_]*/*.*")), ids=lambda path: path.name
)
def test_the_examples_have_no_errors_and_can_be_shown(file, do) -> None:
    if file.suffix in (".json", ".yaml", ".lisp"):
        assert do("check", str(file)).code == 0
        assert do("show", str(file)).code == 0


def test_errors_are_listed_before_notes(do, project) -> None:
    step = '{"id": "a", "type": "agent", "agent": "claude", "next": "b"}'
    (project / "odd.json").write_text(f'{{"id": "odd", "steps": [{step}]}}')
    first, *others = do("check", "odd.json", "--quiet").out.splitlines()
    assert first.endswith("Unknown step 'b'. Steps: a.")
    assert others
    assert all(": note: " in line for line in others)


def test_calling_a_workflow_without_a_required_input_is_an_error(do, project) -> None:
    folder = project / ".nerve/workflows"
    folder.mkdir(parents=True, exist_ok=True)
    kid = {
        "name": "kid",
        "inputs": {"who": {"required": True}},
        "body": {"kind": "transform", "expression": "1"},
    }
    (folder / "kid.json").write_text(json.dumps(kid))
    step = {"id": "c", "type": "agent", "agent": "workflow:kid"}
    (folder / "in.json").write_text(json.dumps({"id": "in", "steps": [step]}))
    said = do("check", "in")
    assert said.code == 1
    assert "Workflow 'kid' needs the input 'who' (string). Add it to params: {who: …}." in said.out
    (folder / "in.json").write_text(json.dumps({"id": "in", "steps": [{**step, "params": {"who": "Ada"}}]}))
    assert do("check", "in").code == 0
