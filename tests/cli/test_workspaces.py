"""`nerve workspaces`: list, diff and remove, and the guide's example."""

import asyncio
import os
import runpy
import shutil
import signal
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from cli.terminal import Terminal
from docs.pages import FILE, page
from nerve import Session
from nerve.store.port import Append, EventRow
from nerve.store.sqlite import SqliteStore
from nerve.testing import RecordedQuery, ScriptedProvider
from nerve.ui.sanitize import INDENT
from nerve_processes import PATIENCE, Process
from workspaces.repositories import commit, git, make_repository, read_files, write

WORKFLOW = """name: work
description: Makes files
body:
  kind: bash
  workspace: worktree
  command: echo new > new.txt
"""


@pytest.fixture
def run_id(project: Path, do) -> str:
    (project / ".nerve/workflows/work.yaml").write_text(WORKFLOW)
    make_repository(project)
    done = do("run", "work", "--json")
    assert done.json["state"] == "completed", done
    return done.json["run_id"]


def test_a_project_without_workspaces(do) -> None:
    assert do("workspaces").out == "No workspaces.\n"
    assert do("workspaces", "--json").json == []


def test_work_that_is_not_merged_is_listed_and_shown(do, run_id: str) -> None:
    [listed] = do("workspaces", "--json").json
    assert (listed["run"], listed["name"], listed["files"]) == (run_id, "run", ["new.txt"])
    assert listed["folder"] == f".nerve/workspaces/{run_id}/run"
    assert do("workspaces").out.splitlines() == [
        f"{run_id}/run  1 changed file",
        f"    folder .nerve/workspaces/{run_id}/run",
        f"    branch nerve/{run_id}/run",
    ]
    assert "+new" in do("workspaces", "diff", run_id).out
    assert "+new" in do("workspaces", "diff", f"{run_id}/run", "--json").json["diff"]


def test_work_is_removed_only_when_it_is_discarded(do, run_id: str, project: Path) -> None:
    refused = do("workspaces", "remove", run_id)
    assert refused.code == 2
    assert f"nerve workspaces remove {run_id}/run --discard" in refused.err
    kept = do("delete", run_id)
    assert "has a workspace with work that is not merged" in kept.err
    assert do("workspaces", "remove", run_id, "--discard").out == "Removed.\n"
    assert do("workspaces").out == "No workspaces.\n"
    assert git(project, "show", f"refs/nerve-files/{run_id}/run:new.txt") == "new"
    assert do("delete", run_id).code == 0
    assert git(project, "for-each-ref", "refs/nerve-files") == ""


def make_old(project: Path, run_id: str) -> None:
    """Let a run have ended 40 days ago."""
    with closing(SqliteStore(project / ".nerve/nerve.db")) as store:
        row = store.run(run_id)
        assert row is not None
        head = store.events(row.run)[-1].seq
        event = EventRow(head + 1, row.ended or 0.0, "log", "", None, "{}")
        old = row._replace(ended=(row.ended or 0.0) - 40 * 86_400)
        store.append([Append(row.run, head, [event], old)])


def test_gc_keeps_a_run_whose_workspace_has_work_and_lists_the_commands(
    do, run_id: str, project: Path
) -> None:
    assert do("gc", "--json").json["kept"] == []
    make_old(project, run_id)
    for arguments in ((), ("--yes",)):
        lines = do("gc", *arguments).out.splitlines()
        assert lines == [
            "No old runs.",
            f"{run_id}  work  stays: its work in run is not merged",
            f"    nerve workspaces diff {run_id}/run",
            f"    nerve workspaces remove {run_id}/run --discard",
        ]
    [kept] = do("gc", "--yes", "--json").json["kept"]
    assert (kept["run_id"], kept["workspaces"]) == (run_id, ["run"])
    assert len(do("workspaces", "--json").json) == 1
    assert do("workspaces", "remove", f"{run_id}/run", "--discard").code == 0
    assert "1 runs deleted" in do("gc", "--yes").out
    assert git(project, "for-each-ref", "refs/nerve-files") == ""


@pytest.mark.parametrize("answer", ["yes", "no"])
def test_gc_asks_on_a_terminal_for_a_run_whose_workspace_has_work(
    do, run_id: str, project: Path, answer: str
) -> None:
    make_old(project, run_id)
    with Terminal("gc", "--yes", columns=200) as terminal:
        terminal.until(f"Run {run_id} of work has work that is not merged in run. Delete both? [y/N] ")
        terminal.type(answer)
        assert terminal.end() == 0
        shown = terminal.shown
    is_deleted = answer == "yes"
    assert ("1 runs deleted" in shown) is is_deleted
    assert (f"nerve workspaces diff {run_id}/run" in shown) is not is_deleted
    assert do("runs", "--json").json == [] if is_deleted else do("workspaces", "--json").json
    assert (git(project, "branch", "--list", "nerve/*") == "") is is_deleted


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("dif",), "Unknown action 'dif'. Did you mean 'diff'?"),
        (("remove",), "The name of the workspace is missing"),
        (("diff", "x"), "'x' is not a workspace. Workspaces: none."),
        (("diff", "x", "--discard"), "--discard is for removing"),
    ],
)
def test_wrong_usage_names_the_fix(do, arguments: tuple[str, ...], message: str) -> None:
    done = do("workspaces", *arguments)
    assert done.code == 2
    assert message in done.err


def test_the_example_of_the_guide_prints_both_changes(do, project: Path) -> None:
    text = page("docs/guides/workspaces.md")
    [(name, workflow)] = [(found[1], found[2]) for found in FILE.finditer(text)]
    write(project, {name: workflow, "page.txt": "Hello\n…\n…\n…\nBye\n"})
    make_repository(project)
    done = do("run", "both")
    printed = text.split("```text\n")[1].split("```")[0]
    assert done.out.endswith(printed), done
    assert read_files(project)["page.txt"] == printed


def test_the_function_of_the_guide_merges_the_work_of_its_agent(
    project: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    make_repository(project)
    file = tmp_path_factory.mktemp("guide") / "fix.py"
    file.write_text(page("docs/guides/workspaces.md").split("```python\n")[1].split("```")[0])
    names = runpy.run_path(str(file))
    session: Session = names["session"]

    def edit(call: RecordedQuery) -> str:
        (Path(call.cwd or "") / "new.txt").write_text("new")
        return "done"

    async def run() -> Any:
        session.providers["claude"] = ScriptedProvider(edit)
        return await (await session.start("fix", "Make a file")).wait()

    assert asyncio.run(run()).startswith("nerve/")
    assert git(project, "show", "HEAD:new.txt") == "new"


def test_the_workflows_of_the_guide_are_valid(do, project: Path) -> None:
    blocks = page("docs/guides/workspaces.md").split("```yaml\n")[1:]
    for number, block in enumerate(blocks):
        file = project / f"flow-{number}.yaml"
        file.write_text(block.split("```")[0])
        done = do("check", file.name)
        assert done.code in (0, 1), done
        assert "error" not in done.out + done.err, done


def test_a_branch_is_created_or_refused(do, run_id: str, project: Path) -> None:
    assert do("start", "work", "--branch", "fix-1", "--wait").code == 0
    assert git(project, "branch", "--list", "fix-1", "--format=%(refname:short)") == "fix-1"
    again = do("start", "work", "--branch", "fix-1", "--wait")
    assert again.code != 0
    assert "The branch 'fix-1' already exists" in again.out + again.err
    refused = do("start", "shout", "x", "--branch", "fix-2")
    assert "has no workspace, so it cannot create the branch 'fix-2'" in refused.err
    commit(project, "Go on")


def test_a_run_with_a_branch_names_the_command_that_creates_it(do, run_id: str) -> None:
    refused = do("run", "work", "--branch", "fix-1")
    assert "To name the branch of its workspace: nerve start work --branch NAME" in refused.err


def test_a_submodule_with_work_of_its_own_is_listed(
    do, project: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    library = make_repository(tmp_path_factory.mktemp("library"), **{"lib.py": "lib\n"})
    edit = WORKFLOW.replace("echo new > new.txt", "echo more >> lib/lib.py")
    (project / ".nerve/workflows/work.yaml").write_text(edit)
    make_repository(project)
    git(project, "-c", "protocol.file.allow=always", "submodule", "add", "--quiet", str(library), "lib")
    commit(project, "Add a submodule")
    run_id = do("run", "work", "--json").json["run_id"]
    listed = do("workspaces").out.splitlines()
    assert listed[0] == f"{run_id}/run  the submodule 'lib' has work of its own"


ASK = """name: ask
description: Asks about an edit
workspace: worktree
nodes:
  - {id: edit, bash: echo new > new.txt}
  - {id: ok, gate: Good?, depends_on: [edit]}
"""


def test_a_question_that_is_asked_again_says_why(do, project: Path) -> None:
    (project / ".nerve/workflows/ask.yaml").write_text(ASK)
    make_repository(project)
    run_id = do("run", "ask", "--json").json["run_id"]
    (project / f".nerve/workspaces/{run_id}/run/other.txt").write_text("other")
    again = do("answer", run_id, "yes")
    why = "'yes' was for other files: they have changed since the question was asked"
    assert f"[gate] Good?\n{INDENT}{why}\n" in again.err
    assert f"  at gate 'ok': Good?\n    {why}\n" in again.err
    assert f"    {why}\n    diff --git" in do("gates").out


def test_a_question_about_a_conflict_names_the_folder(do, project: Path) -> None:
    (project / ".nerve/workflows/clash.yaml").write_text(CLASH)
    make_repository(project)
    asked = do("run", "clash")
    folder = next((project / ".nerve/workspaces").glob("*/first")).relative_to(project)
    assert f"    Its workspace is {folder}\n" in asked.err
    assert f"    Its workspace is {folder}\n" in do("gates").out


SLOW_GIT = """#!/bin/sh
case "$*" in
*"read-tree -m -u"*) touch FOLDER/begun; until test -e FOLDER/go; do sleep 0.05; done;;
esac
exec GIT "$@"
"""


def test_a_merge_that_is_interrupted_is_finished_once(do, project: Path, tmp_path_factory) -> None:
    """Ctrl-C while git changes the files of the project."""
    folder = tmp_path_factory.mktemp("bin")
    program = folder / "git"
    program.write_text(SLOW_GIT.replace("FOLDER", str(folder)).replace("GIT", str(shutil.which("git"))))
    program.chmod(0o700)
    edit = WORKFLOW.replace("worktree", "{merge: files}").replace("echo new >", "echo more >>")
    (project / ".nerve/workflows/work.yaml").write_text(edit)
    make_repository(project)
    process = Process("run", "work", PATH=f"{folder}:{os.environ['PATH']}")
    deadline = time.monotonic() + PATIENCE
    while not (folder / "begun").exists():
        assert time.monotonic() < deadline
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    assert not (project / "new.txt").exists()
    (folder / "go").touch()
    _, err = process.communicate(timeout=PATIENCE)
    assert process.wait() == 130, err
    assert (project / "new.txt").read_text() == "more\n"
    [run] = do("runs", "--json").json
    assert run["state"] == "parked"
    assert do("resume", run["run_id"]).code == 0
    assert (project / "new.txt").read_text() == "more\n"
    assert do("workspaces").out == "No workspaces.\n"


def test_the_changes_of_steps_are_in_the_log_and_the_status(do, run_id: str) -> None:
    log = do("logs", run_id).out
    assert "[bash] ✓ changed new.txt" in log
    assert "+new" not in log
    assert "+++ b/new.txt\n@@ -0,0 +1 @@\n+new\n" in do("logs", run_id, "--diff").out
    assert "changed new.txt" in do("status", run_id).out


CLASH = """name: clash
description: Two commands edit one line.
body:
  kind: sequence
  steps:
    - {kind: bash, id: first, command: sed -i s/one/ONE/ slug.py, workspace: {merge: none}}
    - {kind: bash, id: other, command: sed -i s/one/two/ slug.py}
    - {kind: merge, id: land, of: first}
"""


def test_a_question_about_a_conflict_is_answered_in_advance(do, project: Path) -> None:
    (project / ".nerve/workflows/clash.yaml").write_text(CLASH)
    make_repository(project)
    wrong = do("run", "clash", "--answer", "merge=perhaps")
    assert "--answer merge=perhaps: the answer must be retry or keep or fail, got 'perhaps'." in wrong.err
    done = do("run", "clash", "--answer", "merge=keep")
    assert done.code == 0, done
    assert "[gate] answered: keep" in done.err
    listed = do("workspaces").out
    assert "1 changed file, in conflict: slug.py" in listed
