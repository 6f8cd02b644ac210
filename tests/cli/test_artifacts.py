"""`nerve artifacts`: without a server, in a pipe and on a terminal."""

import sys
from pathlib import Path

import pytest

WORKFLOW = """name: draw
description: Makes files
body:
  kind: sequence
  steps:
    - kind: bash
      id: make
      command: >-
        mkdir -p "{{ run.artifacts }}/charts" &&
        printf "first\\033[31m\\n" > "{{ run.artifacts }}/plan.md" &&
        printf "\\000\\377" > "{{ run.artifacts }}/charts/cost.png"
"""


@pytest.fixture
def run_id(project: Path, do) -> str:
    (project / ".nerve/workflows/draw.yaml").write_text(WORKFLOW)
    done = do("run", "draw", "--label", "v1", "--json")
    assert done.json["state"] == "completed", done
    return done.json["run_id"]


def test_the_files_of_a_run_are_listed(do, run_id: str) -> None:
    lines = do("artifacts", "v1").out.splitlines()
    assert [line.split()[:4] for line in lines] == [
        ["name", "size", "type", "modified"],
        ["charts/cost.png", "2", "B", "image/png"],
        ["plan.md", "11", "B", "text/markdown"],
    ]
    listed = do("artifacts", run_id, "--json").json
    assert [each["path"] for each in listed] == [
        f".nerve/artifacts/{run_id}/charts/cost.png",
        f".nerve/artifacts/{run_id}/plan.md",
    ]


def test_a_run_without_files_has_no_artifacts(do) -> None:
    run = do("run", "shout", "--json").json["run_id"]
    assert do("artifacts", run).out == "No artifacts.\n"
    assert do("artifacts", run, "--json").json == []


def test_a_file_is_printed_or_saved(do, run_id: str, project: Path) -> None:
    assert do("artifacts", "v1", "plan.md").out == "first\x1b[31m\n"
    done = do("artifacts", "v1", "charts/cost.png", "-o", "copy.png")
    assert (done.code, done.out) == (0, "Saved copy.png (2 B).\n")
    assert (project / "copy.png").read_bytes() == b"\0\xff"
    saved = do("artifacts", "v1", "plan.md", "--output", "copy.md", "--json").json
    assert saved == {"name": "plan.md", "file": "copy.md", "size": 11}


def test_a_terminal_gets_text_only_and_no_control_characters(
    do, run_id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    assert do("artifacts", "v1", "plan.md").out == "first\\x1b[31m\n"
    done = do("artifacts", "v1", "charts/cost.png")
    assert (done.code, done.out) == (2, "")
    assert "'charts/cost.png' is not text. Save it: nerve artifacts v1 charts/cost.png -o FILE" in done.err


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["v1", "gone.md"], "has no artifact 'gone.md'. See the list: nerve artifacts"),
        (["v1", "../../nerve.db"], "has no artifact '../../nerve.db'"),
        (["gone"], "Workflow run 'gone' not found"),
        (["v1", "-o", "x"], "-o needs the NAME of an artifact"),
        (["v1", "plan.md", "--json"], "--json prints no artifact. Save it: -o FILE"),
        (["v1", "plan.md", "-o", "."], ". is a folder. Name a file"),
        (["v1", "plan.md", "-o", "no/such/file"], "no/such/file cannot be written: No such file"),
    ],
)
def test_a_mistake_is_one_error(do, run_id: str, arguments: list[str], problem: str) -> None:
    done = do("artifacts", *arguments)
    assert done.code == 2
    assert problem in done.err


def test_a_name_that_is_not_found_leaves_the_file_as_it_is(do, run_id: str, project: Path) -> None:
    (project / "kept.md").write_text("kept")
    assert do("artifacts", "v1", "gone.md", "-o", "kept.md").code == 2
    assert (project / "kept.md").read_text() == "kept"
