"""Agents of Python code that run at the same time: they do not share a folder unless someone says so."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from nerve import Graph, MapNode, Session, WorkflowContext
from nerve.agents import AgentNode
from nerve.core.nodes import WorkspaceNode
from nerve.errors import NodeFailed, WorkflowFailed
from nerve.testing import RecordedQuery, ScriptedProvider
from workspaces.repositories import make_repository, read_files

FIVE = "one\ntwo\nthree\nfour\nfive\n"
BOTH = FIVE.replace("one", "ONE").replace("five", "FIVE")
REFUSAL = "Two calls of the agent 'edit' would edit the folder of the project at the same time"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    return make_repository(tmp_path / "project")


class Office:
    """A session with the agent `edit`, whose prompt is `OLD NEW`; it reads, waits for others, and writes."""

    def __init__(self, project: Path, **settings: Any) -> None:
        self.project, self.together = project, 2
        self.everyone = asyncio.Event()
        self.started = 0
        provider = ScriptedProvider(self.edit, "claude")
        self.session = Session(project=project, providers={"claude": provider})
        AgentNode("edit", self.session, provider, **settings)

    async def edit(self, call: RecordedQuery) -> str:
        old, new = call.prompt.split()[:2]
        file = Path(call.cwd or self.project) / "slug.py"
        text = file.read_text()
        self.started += 1
        if self.started == self.together:
            self.everyone.set()
        await self.everyone.wait()
        await asyncio.sleep(0)
        file.write_text(text.replace(old, new))
        return "done"


async def run_main(session: Session) -> Any:
    return await (await session.start("main")).wait()


def define_gather(session: Session) -> None:
    @session.workflow
    async def main(ctx: WorkflowContext) -> None:
        await asyncio.gather(ctx.run("edit", "one ONE"), ctx.run("edit", "five FIVE"))


def define_children(session: Session) -> None:
    @session.workflow
    async def child(ctx: WorkflowContext) -> None:
        await ctx.run("edit", ctx.input)

    @session.workflow
    async def main(ctx: WorkflowContext) -> None:
        await asyncio.gather(ctx.run_workflow("child", "one ONE"), ctx.run_workflow("child", "five FIVE"))


def define_graph(session: Session) -> None:
    graph = Graph("flow", session)
    graph.add_step(session.nodes["edit"], "a", input_fn=lambda given: "one ONE")
    graph.add_step(session.nodes["edit"], "b", input_fn=lambda given: "five FIVE")
    define_run_of(session, "flow")


def define_map(session: Session) -> None:
    MapNode("flow", session, session.nodes["edit"])
    define_run_of(session, "flow", ["one ONE", "five FIVE"])


def define_run_of(session: Session, name: str, input: Any = None) -> None:
    @session.workflow
    async def main(ctx: WorkflowContext) -> None:
        result = await ctx.run(name, input)
        if not result.success:
            raise RuntimeError(result.error)


@pytest.mark.parametrize("define", [define_gather, define_children, define_graph, define_map])
async def test_the_second_agent_in_a_folder_is_refused_with_the_fix(project: Path, define: Any) -> None:
    office = Office(project)
    office.together = 1
    define(office.session)
    with pytest.raises((NodeFailed, RuntimeError, WorkflowFailed), match=REFUSAL) as caught:
        await run_main(office.session)
    assert "set workspace='shared' if they edit different files" in str(caught.value)
    assert office.started == 1


async def test_run_parallel_refuses_the_second_agent_and_keeps_the_first(project: Path) -> None:
    office = Office(project)
    office.together = 1

    @office.session.workflow
    async def main(ctx: WorkflowContext) -> list[str]:
        results = await ctx.run_parallel([("edit", "one ONE"), ("edit", "five FIVE")])
        return [result.error_type for result in results]

    assert await run_main(office.session) == ["", "SharedFolder"]
    assert read_files(project) == {"slug.py": FIVE.replace("one", "ONE")}


@pytest.mark.parametrize("define", [define_gather, define_children, define_graph, define_map])
async def test_agents_that_share_files_on_purpose_run_at_the_same_time(project: Path, define: Any) -> None:
    office = Office(project, workspace="shared")
    define(office.session)
    await run_main(office.session)
    assert office.started == 2


@pytest.mark.parametrize("settings", [{"permissions": {"mode": "read"}}, {"tools": ["Read"]}])
async def test_agents_that_only_read_run_at_the_same_time(project: Path, settings: dict[str, Any]) -> None:
    office = Office(project, **settings)
    define_gather(office.session)
    await run_main(office.session)
    assert office.started == 2


async def test_a_block_says_that_its_agents_share_files(project: Path) -> None:
    office = Office(project)

    @office.session.workflow
    async def main(ctx: WorkflowContext) -> None:
        async with ctx.workspace("shared"):
            await ctx.run_parallel([("edit", "one ONE"), ("edit", "five FIVE")])

    await run_main(office.session)
    assert office.started == 2


async def test_a_node_says_that_its_agents_share_files(project: Path) -> None:
    office = Office(project)
    session = office.session
    both = MapNode("both", session, session.nodes["edit"])
    WorkspaceNode("flow", session, both, "shared")
    define_run_of(session, "flow", ["one ONE", "five FIVE"])
    await run_main(session)
    assert office.started == 2


async def test_each_item_of_a_map_of_workspaces_keeps_its_edit(project: Path) -> None:
    office = Office(project)
    session = office.session
    MapNode("flow", session, WorkspaceNode("own", session, session.nodes["edit"]))
    define_run_of(session, "flow", ["one ONE", "five FIVE"])
    await run_main(session)
    assert read_files(project) == {"slug.py": BOTH}


async def test_agents_in_one_workspace_share_its_folder(project: Path) -> None:
    office = Office(project)
    office.together = 1

    @office.session.workflow
    async def main(ctx: WorkflowContext) -> list[str]:
        async with ctx.workspace("shared"), ctx.workspace(merge="files"):
            results = await ctx.run_parallel([("edit", "one ONE"), ("edit", "five FIVE")])
        return [result.error_type for result in results]

    assert await run_main(office.session) == ["", "SharedFolder"]


async def test_agents_work_in_different_folders_or_one_after_the_other(project: Path) -> None:
    for name in ("a", "b"):
        make_repository(project / name)
    office = Office(project)

    @office.session.workflow
    async def main(ctx: WorkflowContext) -> None:
        requests = [{"prompt": "one ONE", "cwd": folder} for folder in ("a", "./b", "b")]
        await ctx.run_parallel([("edit", request) for request in requests[:2]])
        await ctx.run("edit", requests[2])

    await run_main(office.session)
    assert office.started == 3


async def test_nodes_without_a_run_are_refused_as_well(project: Path) -> None:
    from nerve.core.nodes.context import ExecutionContext

    office = Office(project)
    office.together = 1
    node = MapNode("flow", office.session, office.session.nodes["edit"])
    context = ExecutionContext(office.session, ["one ONE", "five FIVE"])
    result = await node.execute(context)
    assert not result.success
    assert REFUSAL in result.error
