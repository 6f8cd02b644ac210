"""`nerve demo` in a pipe: every line it prints is true, and nothing is left behind."""

import json
from pathlib import Path

import pytest

from cli.processes import Process
from nerve.demo.scratch_project import STUB_SOURCE, THIRD_VERSION, ScratchProject


def tags(output: str) -> list[str]:
    """Who says something, in order, and whether it went well."""
    return [
        line.split("]")[0][1:] + line.split("]")[1][1:2] for line in output.splitlines() if line[0] == "["
    ]


def test_it_goes_round_until_tests_and_linter_are_content(nerve, scratch) -> None:
    done = nerve("demo", "--yes")
    assert (done.returncode, done.stderr) == (0, "")
    assert tags(done.stdout) == [
        *["workflowd", "dev✓", "round1", "coach✗", "dev✓", "coach✓", "reviewer✗", "dev✓"],
        *["round2", "coach✓", "reviewer✓", "reviewer_acceptedr", "gateR", "gatea", "merge✓"],
    ]
    assert "[coach] ✗ FAILED (failures=2)" in done.stdout
    assert done.stdout.endswith("after 2 rounds: slug.py is merged.\n")
    assert not list(scratch.iterdir())


def test_without_a_terminal_it_says_how_and_takes_the_default(nerve) -> None:
    done = nerve("demo")
    assert done.returncode == 0
    assert "the default is taken: reject. Answer with --yes, or run this in a terminal." in done.stdout
    assert done.stdout.endswith("slug.py is not merged.\n")


def kept(output: str) -> ScratchProject:
    return ScratchProject(Path(output.splitlines()[-1].removeprefix("Kept: ")))


def test_what_is_kept_is_what_was_shown_and_is_not_resumed(nerve) -> None:
    project = kept(nerve("demo", "--keep").stdout)
    assert (project.work_folder / "slug.py").read_text() == THIRD_VERSION
    assert (project.merged_folder / "slug.py").read_text() == STUB_SOURCE
    assert len(project.read_effect_keys()) == len(set(project.read_effect_keys())) == 8
    done = nerve("demo", "--resume", str(project.folder))
    assert done.returncode == 0
    assert done.stdout == f"There is no open run in this folder.\nKept: {project.folder}\n"


def test_as_json_it_is_one_object_and_nothing_is_shown(nerve, scratch) -> None:
    done = nerve("demo", "--yes", "--json", "--quiet")
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout) == {"code": 0, "merged": True, "folder": None}
    assert not list(scratch.iterdir())


def test_a_crash_reuses_what_is_settled_and_leaves_nothing_behind(nerve, scratch) -> None:
    done = nerve("demo", "--crash", "--yes")
    assert (done.returncode, done.stderr) == (0, "")
    assert "was killed by SIGKILL: 4 of 8 lines of slug.py are written." in done.stdout
    assert "recovers the run: its journal has 5 steps and the beginning of dev[3]." in done.stdout
    assert done.stdout.splitlines()[-3:] == [
        "reused   5 steps settled before, from the journal",
        "ran now  4 steps, dev[3] again because it was cut off",
        "checked  10 lines in effects.log for 9 steps: no settled step ran twice",
    ]
    assert tags(done.stdout).count("coach✓") == 2
    assert not list(scratch.iterdir())


@pytest.mark.parametrize("closed", [1, 3])
def test_a_closed_pipe_ends_it_quietly(closed: int, scratch) -> None:
    demo = Process("demo", "--yes")
    for _ in range(closed):
        demo.stdout.readline()
    demo.stdout.close()
    with demo.stderr:
        assert demo.stderr.read() == ""
    assert demo.wait() in (0, 1)
    assert not list(scratch.iterdir())
