"""`nerve demo` in a pipe: every line it prints is true, and nothing is left behind."""

import json
from pathlib import Path

import pytest

from nerve.demo.scratch_project import STUB_SOURCE, THIRD_VERSION, ScratchProject
from nerve_processes import Process


def tags(output: str) -> list[str]:
    """Who says something, in order, and whether it went well."""
    return [
        line.split("]")[0][1:] + line.split("]")[1][1:2] for line in output.splitlines() if line[0] == "["
    ]


def test_the_demo_loops_until_tests_and_linter_pass(nerve, scratch) -> None:
    done = nerve("demo", "--yes")
    assert (done.returncode, done.stderr) == (0, "")
    assert tags(done.stdout) == [
        *["workflowd", "dev✓", "round1", "coach✗", "dev✓", "coach✓", "reviewer✗", "dev✓"],
        *["round2", "coach✓", "reviewer✓", "reviewer_acceptedr", "gateR", "gatea", "merge✓"],
    ]
    assert "[coach] ✗ FAILED (failures=2)" in done.stdout
    assert done.stdout.endswith("after 2 rounds: slug.py is merged.\n")
    assert not list(scratch.iterdir())


def test_without_a_terminal_the_default_answer_is_used_and_reported(nerve) -> None:
    done = nerve("demo")
    assert done.returncode == 0
    assert (
        "using the default answer: reject. Use --yes to approve, or run the demo in a terminal."
        in done.stdout
    )
    assert done.stdout.endswith("slug.py is not merged.\n")


def kept(output: str) -> ScratchProject:
    return ScratchProject(Path(output.splitlines()[-1].removeprefix("Kept: ")))


def test_a_kept_folder_has_the_shown_result_and_no_open_run(nerve) -> None:
    project = kept(nerve("demo", "--keep").stdout)
    assert (project.work_folder / "slug.py").read_text() == THIRD_VERSION
    assert (project.merged_folder / "slug.py").read_text() == STUB_SOURCE
    assert len(project.read_effect_keys()) == len(set(project.read_effect_keys())) == 8
    done = nerve("demo", "--resume", str(project.folder))
    assert done.returncode == 0
    assert done.stdout == f"This folder has no open run.\nKept: {project.folder}\n"


def test_json_prints_one_object_and_no_progress(nerve, scratch) -> None:
    done = nerve("demo", "--yes", "--json", "--quiet")
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout) == {"code": 0, "merged": True, "folder": None}
    assert not list(scratch.iterdir())


def test_a_crash_reuses_settled_steps_and_removes_the_folder(nerve, scratch) -> None:
    done = nerve("demo", "--crash", "--yes")
    assert (done.returncode, done.stderr) == (0, "")
    assert "was killed by SIGKILL: 4 of 8 lines of slug.py are written." in done.stdout
    assert "recovers the run: its journal has 5 steps and the start of dev[3]." in done.stdout
    assert done.stdout.splitlines()[-3:] == [
        "reused   5 steps settled before, from the journal",
        "ran now  4 steps, dev[3] again because it was interrupted",
        "checked  10 lines in effects.log for 9 steps: no settled step ran twice",
    ]
    assert tags(done.stdout).count("coach✓") == 2
    assert not list(scratch.iterdir())


@pytest.mark.parametrize("closed", [1, 3])
def test_a_closed_pipe_ends_the_demo_quietly(closed: int, scratch) -> None:
    demo = Process("demo", "--yes")
    for _ in range(closed):
        demo.stdout.readline()
    demo.stdout.close()
    with demo.stderr:
        assert demo.stderr.read() == ""
    assert demo.wait() in (0, 1)
    assert not list(scratch.iterdir())
