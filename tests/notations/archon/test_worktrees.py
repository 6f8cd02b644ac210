"""A worktree of Archon is a workspace: of the run, or of a called workflow."""

from pathlib import Path

import pytest

from notations.archon.support import errors_of, problems_of, put_workflow, read, run_workflow
from workspaces.repositories import commit, git, make_repository, write

OWN = "worktree: {enabled: true}\n"
CHILD = "name: child\ndescription: A child.\n"
WRITES = "nodes:\n  - {id: go, bash: 'echo new > new.txt && pwd'}\n"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    project = make_repository(tmp_path / "project", **{"page.txt": "main", ".gitignore": ".env\n.nerve\n"})
    git(project, "checkout", "--quiet", "-b", "dev")
    commit(project, "On dev", **{"page.txt": "dev"})
    git(project, "checkout", "--quiet", "main")
    return project


async def test_a_run_works_in_a_worktree_of_the_base_branch_with_its_files(project: Path) -> None:
    write(project, {".env": "KEY=1", ".archon/config.yaml": "worktree: {baseBranch: dev, copyFiles: [.env]}"})
    nodes = "nodes:\n  - {id: a, bash: 'cat page.txt .env; echo x > new.txt'}\n"
    path = put_workflow(
        project, OWN + nodes + "  - {id: b, bash: 'ls && echo $BASE_BRANCH', depends_on: [a]}\n"
    )
    outcome = await run_workflow(path)
    assert (outcome.error, outcome.text_of("a")) == ("", "devKEY=1")
    assert outcome.text_of("b") == "new.txt\npage.txt\ndev"
    assert not (project / "new.txt").exists()
    [left] = (project / ".nerve/workspaces").glob("*/run/new.txt")
    assert left.read_text() == "x\n"


async def test_a_run_without_a_base_branch_starts_from_the_last_commit(project: Path) -> None:
    write(project, {"page.txt": "changed"})
    path = put_workflow(project, OWN + "nodes:\n  - {id: a, bash: cat page.txt}\n")
    assert (await run_workflow(path)).text_of("a") == "main"


def test_the_agents_of_a_worktree_share_it(project: Path) -> None:
    path = put_workflow(project, OWN + "nodes:\n  - {id: a, prompt: x}\n  - {id: b, prompt: y}\n")
    body = read(path).data["body"]
    assert (body["workspace"]["kind"], body["steps"][0]["workspace"]) == ("worktree", "shared")
    assert errors_of(path) == []


async def test_a_called_workflow_works_in_the_worktree_of_its_caller(project: Path) -> None:
    put_workflow(project, CHILD + WRITES, "child")
    nodes = "nodes:\n  - {id: call, workflow: child}\n  - {id: see, bash: cat new.txt, depends_on: [call]}\n"
    outcome = await run_workflow(put_workflow(project, OWN + nodes))
    assert (outcome.error, outcome.text_of("see")) == ("", "new")
    assert not (project / "new.txt").exists()


async def test_an_isolated_call_has_a_worktree_whose_work_stays_on_its_branch(project: Path) -> None:
    put_workflow(project, CHILD + WRITES, "child")
    path = put_workflow(project, "nodes:\n  - {id: call, workflow: child, isolation: worktree}\n")
    outcome = await run_workflow(path)
    assert outcome.error == ""
    folder = Path(outcome.text_of("call"))
    assert folder.is_relative_to(project / ".nerve/workspaces")
    assert ((folder / "new.txt").read_text(), (project / "new.txt").exists()) == ("new\n", False)


async def test_each_item_of_an_isolated_fan_out_has_a_worktree(project: Path) -> None:
    put_workflow(project, CHILD + WRITES, "child")
    path = put_workflow(
        project,
        "nodes:\n  - {id: list, bash: 'echo [1, 2]'}\n"
        "  - {id: each, workflow: child, isolation: worktree, depends_on: [list],"
        " fan_out: {items: $list.output}}\n",
    )
    outcome = await run_workflow(path)
    assert outcome.error == ""
    assert len(set(outcome.results["each"].output)) == 2
    assert len(list((project / ".nerve/workspaces").glob("*/*/new.txt"))) == 2
    assert not (project / "new.txt").exists()


@pytest.mark.parametrize(
    ("text", "config", "message"),
    [
        (OWN + "nodes:\n  - {id: a, prompt: See $STATE_DIR}\n", "{}", "'$STATE_DIR' in a worktree"),
        (OWN + "nodes:\n  - {id: a, bash: ls $STATE_DIR}\n", "{}", "'$STATE_DIR' in a worktree"),
        (
            OWN + "loop: {until: X, max_iterations: 2}\nprompt: $STATE_DIR\n",
            "{}",
            "'$STATE_DIR' in a worktree",
        ),
        (OWN + "nodes:\n  - {id: a, script: report, runtime: uv}\n", "{}", "'$STATE_DIR' in a worktree"),
        ("nodes:\n  - {id: a, workflow: child, isolation: box}\n", "{}", "'isolation' must be"),
        ("nodes:\n  - {id: a, workflow: own}\n", "{}", "'own' has worktree.enabled: true"),
        (OWN + "nodes:\n  - {id: a, workflow: state}\n", "{}", "'state' uses $STATE_DIR"),
        (OWN + "nodes:\n  - {id: a, bash: ls}\n", "{copyFiles: [a -> b]}", "'worktree.copyFiles'"),
    ],
)
def test_what_a_worktree_cannot_have_is_refused_by_name(
    project: Path, text: str, config: str, message: str
) -> None:
    write(project, {".archon/config.yaml": f"worktree: {config}"})
    put_workflow(project, CHILD + WRITES, "child")
    put_workflow(project, f"name: own\ndescription: x\n{OWN}{WRITES}", "own")
    put_workflow(project, "name: state\ndescription: x\nnodes:\n  - {id: a, bash: ls $STATE_DIR}\n", "state")
    path = put_workflow(project, text)
    assert [error for error in errors_of(path) if error.startswith(message)], errors_of(path)


def test_submodules_that_are_not_wanted_are_reported(project: Path) -> None:
    write(project, {".archon/config.yaml": "worktree: {initSubmodules: false}"})
    path = put_workflow(project, OWN + WRITES)
    assert any("'worktree.initSubmodules: false' has no effect" in each.message for each in problems_of(path))
