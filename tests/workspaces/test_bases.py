"""Workspaces of parallel steps start from the same files, whenever each of them is created."""

import json
from pathlib import Path
from typing import Any

import pytest

from nerve import BashNode, Graph, MapNode, Session, WorkflowContext
from nerve.core.nodes import ParallelNode, WorkspaceNode
from nerve.errors import WorkflowFailed
from nerve.store.memory import MemoryStore
from nerve.store.port import Append, EventRow, RunRow
from spec.support import loaded
from workspaces.repositories import make_repository, read_files

FIVE = "one\ntwo\nthree\nfour\nfive\n"
OLD_JOURNAL = Path(__file__).parent / "journals" / "parallel.json"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    return make_repository(tmp_path / "project")


def bash(id: str, command: str, **workspace: Any) -> dict[str, Any]:
    return {"kind": "bash", "id": id, "command": command, "workspace": {"kind": "worktree", **workspace}}


@pytest.mark.parametrize("base", [None, "HEAD", "main"])
async def test_an_item_that_starts_late_has_the_files_before_the_map(project: Path, base: str | None) -> None:
    """Item 2 starts after item 0 is merged; item 1 ends after item 2."""
    seen, merge = project.parent / "seen", "files" if base is None else "squash"
    script = project.parent / "work"
    script.write_text(
        f"""#!/bin/sh
case $1 in
0) echo 0 > 0.txt;;
1) echo 1 > 1.txt; until test -e '{seen}'; do sleep 0.01; done;;
2) ls > '{seen}.new' && mv '{seen}.new' '{seen}';;
esac
"""
    )
    script.chmod(0o700)
    body = bash("item", f"{script} {{{{ item }}}}", merge=merge, base=base)
    session = Session(project=project)
    flow = {"kind": "map", "id": "each", "over": "input", "max_parallel": 2, "body": body}
    run = await session.start(loaded(session, flow).name, [0, 1, 2])
    await run.wait()
    assert seen.read_text() == "slug.py\n"
    assert {"0.txt", "1.txt"} <= set(read_files(project))


async def test_items_in_turn_start_from_the_files_as_they_are(project: Path) -> None:
    session = Session(project=project)
    body = bash("item", "echo x >> log.txt; cat log.txt")
    flow = {"kind": "map", "id": "each", "over": "input", "max_parallel": 1, "body": body}
    run = await session.start(loaded(session, flow).name, [1, 2])
    assert await run.wait() == ["x\n", "x\nx\n"]


async def test_a_fork_at_a_branch_has_the_files_before_all_branches(project: Path) -> None:
    branches = [bash("a", "echo a > a.txt"), bash("b", "ls")]
    session = Session(project=project)
    run = await session.start(loaded(session, {"kind": "parallel", "id": "both", "branches": branches}).name)
    assert (await run.wait())["b"] == "slug.py\n"
    fork = await session.fork(run.run_id, "/b")
    assert (await fork.wait())["b"] == "slug.py\n"


async def test_a_step_after_another_one_in_a_branch_has_its_work(project: Path) -> None:
    steps = [bash("first", "echo a > a.txt"), bash("second", "ls")]
    branches = [{"kind": "sequence", "id": "a", "steps": steps}, bash("b", "echo b > b.txt")]
    session = Session(project=project)
    run = await session.start(loaded(session, {"kind": "parallel", "id": "both", "branches": branches}).name)
    assert "a.txt" in (await run.wait())["a"]


async def test_steps_of_a_graph_that_start_together_have_the_same_files(project: Path) -> None:
    """A step has the work of those it waits for; `late` is forked after `early` was merged."""
    steps = [
        bash("first", "echo first > first.txt"),
        {**bash("early", "echo early > early.txt"), "depends_on": ["first"]},
        {**bash("late", "ls"), "depends_on": ["first"]},
    ]
    session = Session(project=project)
    run = await session.start(loaded(session, {"kind": "graph", "id": "net", "steps": steps}).name)
    assert (await run.wait())["late"] == "first.txt\nslug.py\n"
    fork = await session.fork(run.run_id, "/late")
    assert (await fork.wait())["late"] == "first.txt\nslug.py\n"


@pytest.mark.parametrize("kind", ["parallel", "graph", "map"])
async def test_nodes_in_python_start_from_the_same_files(project: Path, kind: str) -> None:
    session = Session(project=project)
    edit = WorkspaceNode("edit", session, BashNode("make", None, "echo x > $RANDOM.txt; ls *.txt | wc -l"))
    if kind == "map":
        MapNode("both", session, edit, max_parallel=2)
    elif kind == "parallel":
        ParallelNode("both", session, {"one": edit, "two": edit})
    else:
        Graph("both", session).add_step(edit, "one").add_step(edit, "two")

    @session.workflow
    async def main(ctx: WorkflowContext) -> Any:
        return (await ctx.run("both", [1, 2])).output

    run = await session.start("main")
    await run.wait()
    last = next(event.path for event in reversed(run.events) if event.path.endswith("~workspace"))
    fork = await session.fork(run.run_id, last.removesuffix("/~workspace"))
    output = await fork.wait()
    assert {text.strip() for text in (output if kind == "map" else output.values())} == {"1"}


async def test_a_common_base_is_recorded_once_and_for_workspaces_only(project: Path) -> None:
    plain = {"kind": "bash", "id": "c", "command": "true"}
    both = {"kind": "parallel", "id": "both", "branches": [bash("a", "true"), bash("b", "true"), plain]}
    none = {"kind": "parallel", "id": "none", "branches": [{**plain, "id": "d"}, {**plain, "id": "e"}]}
    session = Session(project=project)
    run = await session.start(loaded(session, {"kind": "sequence", "steps": [both, none]}).name)
    await run.wait()
    paths = [event.path for event in run.events if event.event_type == "node_started"]
    assert [path for path in paths if path.endswith("~base")] == ["/both/~base"]


async def test_a_folder_without_a_repository_is_reported_by_the_branches(tmp_path: Path) -> None:
    session = Session(project=tmp_path)
    flow = {"kind": "parallel", "id": "both", "branches": [bash("a", "true"), bash("b", "true")]}
    run = await session.start(loaded(session, flow).name)
    with pytest.raises(WorkflowFailed, match=r"is not in a git repository\. Write workspace: copy"):
        await run.wait()
    failed = [event.path for event in run.events if (event.data.get("result") or {}).get("success") is False]
    assert sorted(failed) == ["/a~workspace", "/b~workspace"]


def load_old(upto: int | None) -> tuple[MemoryStore, dict[str, Any]]:
    """Return a store with the first events of a run of a version without common bases."""
    kept = json.loads(OLD_JOURNAL.read_text())
    store, [row] = MemoryStore(), [RunRow(*values) for values in kept["rows"]]
    events = [EventRow._make(event) for event in kept["journals"][row.run]]
    store.append([Append(row.run, 0, events[:upto], row._replace(state="running", ended=None))])
    return store, kept


@pytest.mark.parametrize("upto", [1, 2, 3, -1])
async def test_a_journal_without_a_base_continues(project: Path, upto: int) -> None:
    """Before the first workspace was created, while two were created, and before the end."""
    store, kept = load_old(upto)
    session = Session(store=store, project=project)
    loaded(session, kept["body"])
    [run] = await session.recover()
    assert await run.wait() == kept["result"]
    paths = [event.path for event in run.events if event.path.endswith("~base")]
    assert bool(paths) == (upto == 1)
    await session.close()
