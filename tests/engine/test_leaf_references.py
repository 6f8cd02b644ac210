"""Every leaf that a run executes can be restored from plain data, also in another process."""

import json
import subprocess
import sys
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nerve import BashNode, FunctionNode, Graph, Session, WorkflowContext
from nerve.agents.agent_node import AgentNode
from nerve.core.nodes import LoopNode, MockNode
from nerve.core.nodes.attempt import execute_safely
from nerve.core.nodes.base import ControlNode, Node
from nerve.core.nodes.context import ExecutionContext
from nerve.core.nodes.fact_nodes import AssertNode, RetractNode
from nerve.core.nodes.workspace import (
    CloseWorkspace,
    MergeWorkspace,
    OpenWorkspace,
    ReadWorkspace,
    RecordBase,
)
from nerve.core.workflow.detached_start import StartNode
from nerve.engine.leaf_references import (
    LEAF_KINDS,
    UnknownLeaf,
    check_portable,
    describe_leaf,
    restore_leaf,
)
from nerve.spec import models
from nerve.spec.builder import NodeBuilder
from nerve.spec.dataspace_nodes import RequestNode, ResponseNode
from nerve.spec.expectations import ExpectationFailure, FileCheck
from nerve.spec.file_nodes import ReadFile
from nerve.spec.scope import Scope
from nerve.testing import ScriptedProvider
from restored_leaves import restore, restore_leaves
from spec.strategies import fields
from spec.support import outcome

pytestmark = pytest.mark.local("looks at references of leaves")

LEAVES: list[tuple[Node, dict[str, Any]]] = [
    (BashNode("b", None, "make"), {"kind": "bash", "id": "b", "command": "make"}),
    (BashNode(None, None, ""), {"kind": "bash", "id": None, "command": ""}),
    (BashNode("b", None), {"kind": "bash", "id": "b"}),
    (
        BashNode("b", None, "x", "sub", {"A": "1"}, True),
        {"kind": "bash", "id": "b", "command": "x", "cwd": "sub", "env": {"A": "1"}, "inside_project": True},
    ),
    (BashNode("b", None, "x", Path("/tmp")), {"kind": "bash", "id": "b", "command": "x", "cwd": "/tmp"}),
    (AssertNode("a"), {"kind": "assert", "id": "a"}),
    (RetractNode("r"), {"kind": "retract", "id": "r"}),
    (StartNode("s"), {"kind": "start", "id": "s"}),
    (RequestNode("_request"), {"kind": "request", "id": "_request"}),
    (ResponseNode("_response"), {"kind": "response", "id": "_response"}),
    (RecordBase("w"), {"kind": "workspace_base", "id": "w"}),
    (OpenWorkspace("w"), {"kind": "workspace_open", "id": "w"}),
    (MergeWorkspace("w"), {"kind": "workspace_merge", "id": "w"}),
    (ReadWorkspace("w"), {"kind": "workspace_read", "id": "w"}),
    (CloseWorkspace("w"), {"kind": "workspace_close", "id": "w"}),
    (FileCheck("expect"), {"kind": "file_check", "id": "expect"}),
    (ReadFile("f"), {"kind": "file", "id": "f"}),
    (ExpectationFailure("expect"), {"kind": "unmet", "id": "expect"}),
]


@pytest.fixture
def session(tmp_path: Path) -> Session:
    session = Session(project=tmp_path, providers={"claude": ScriptedProvider(lambda call: "{}")})
    FunctionNode("upper", session, lambda context: str(context.input).upper())
    return session


@pytest.mark.parametrize(("node", "reference"), LEAVES, ids=str)
def test_a_leaf_without_a_name_is_described_by_its_kind(
    session: Session, node: Node, reference: dict[str, Any]
) -> None:
    assert describe_leaf(node, session) == reference
    restore(node, session)


def test_the_table_has_every_kind() -> None:
    assert {reference["kind"] for _, reference in LEAVES} == {*LEAF_KINDS}


def test_every_leaf_class_of_nerve_is_found_by_name_or_in_the_table() -> None:
    with_names = {"AgentNode", "FunctionNode", "MockNode", "StepNode"}
    # of tests, dry runs, what sends leaves away, and a base class
    only_here = {"FakeNode", "PassThroughNode", "StubNode", "RemoteLeaf", "WorkspaceLeaf"}
    assert {node_class.__name__ for node_class in leaf_classes(Node)} <= (
        with_names | only_here | {kind.class_name for kind in LEAF_KINDS.values()}
    )


def leaf_classes(parent: type[Node]) -> set[type[Node]]:
    found = set[type[Node]]()
    for child in parent.__subclasses__():
        if child.role == "leaf" and child.__module__.startswith("nerve.") and child is not ControlNode:
            found |= {child, *leaf_classes(child)}
    return found


def test_a_directory_inside_the_project_is_relative_to_it(session: Session, tmp_path: Path) -> None:
    for cwd, relative in [
        (tmp_path / "a/b", "a/b"),
        (tmp_path, "."),
        (tmp_path.parent, str(tmp_path.parent)),
    ]:
        assert describe_leaf(BashNode("b", None, "x", cwd), session)["cwd"] == relative


async def test_a_restored_command_runs_in_the_project_of_the_worker(session: Session, tmp_path: Path) -> None:
    reference = describe_leaf(BashNode("b", None, "pwd -P", tmp_path / "a"), session)
    (elsewhere := tmp_path / "elsewhere/a").mkdir(parents=True)
    worker = Session(project=elsewhere.parent)
    result = await execute_safely(restore_leaf(reference, worker), ExecutionContext(worker, None))
    assert result.output == f"{elsewhere}\n"


def test_named_nodes_agents_and_changed_copies_are_found_by_name(session: Session) -> None:
    agent = AgentNode("writer", session, "claude")
    session.nodes["other"] = MockNode()
    assert describe_leaf(session.nodes["upper"], session) == {"name": "upper"}
    assert describe_leaf(session.nodes["other"], session, "other") == {"name": "other"}
    assert describe_leaf(session.find("claude"), session) == {"name": "claude"}
    builder = NodeBuilder(Scope(), session)
    spec = models.CallSpec(kind="call", target="writer", output_schema={"type": "object"}, effort="low")
    copy = builder.preparer(spec, "step")(Scope().view(given=None)).node
    assert describe_leaf(copy, session) == {
        "name": "writer",
        "output_schema": {"type": "object"},
        "step_settings": {"effort": "low"},
    }
    assert describe_leaf(agent, session) == {"name": "writer"}
    restore(copy, session)


@pytest.mark.parametrize(
    "node", [FunctionNode("upper", None, str), MockNode(), AgentNode("x", None, "claude")]
)
def test_a_leaf_that_only_this_process_has_is_refused_with_the_fix(session: Session, node: Node) -> None:
    with pytest.raises(ValueError, match=r"A worker cannot find the step .* with an id and the session"):
        describe_leaf(node, session)


def test_a_session_with_such_a_leaf_is_refused_before_anything_runs(session: Session) -> None:
    session.nodes["other"] = MockNode()
    Graph("named", session).add_step(session.nodes["upper"], "go").add_step(BashNode("b", None, "x"))
    check_portable(session)
    loop = LoopNode("loop", session, MockNode("inner"), times=2)
    with pytest.raises(ValueError, match=r"step 'inner' \(MockNode\)"):
        check_portable(session)
    del session.nodes["loop"]
    graph = Graph("graph", session).add_step(loop, "go")
    with pytest.raises(ValueError, match="step 'inner'"):
        check_portable(session)
    del session.graphs["graph"]
    session.register_workflow(graph)
    with pytest.raises(ValueError, match="step 'inner'"):
        check_portable(session)


def test_a_fallback_that_only_this_process_has_is_refused(session: Session) -> None:
    FunctionNode("risky", session, str, on_error=MockNode("instead"))
    with pytest.raises(ValueError, match="step 'instead'"):
        check_portable(session)


def test_an_unknown_name_or_kind_is_reported_for_a_newer_worker(session: Session) -> None:
    with pytest.raises(UnknownLeaf, match="No step or agent 'later' on this worker"):
        restore_leaf({"name": "later"}, session)
    with pytest.raises(UnknownLeaf, match="Unknown kind of step 'later'"):
        restore_leaf({"kind": "later", "id": None}, session)


@settings(max_examples=150)
@given(
    st.sampled_from(["bash", "assert", "retract", "call"]).flatmap(lambda kind: fields(models.KINDS[kind], 0))
)
def test_the_leaves_of_random_specs_are_restored(data: dict[str, Any]) -> None:
    session = Session(providers={"claude": ScriptedProvider(lambda call: "{}")})
    data |= {"target": "claude"} if data["kind"] == "call" else {}
    try:
        spec = models.KINDS[data["kind"]].model_validate(data)
        node = NodeBuilder(Scope(), session).preparer(spec, "step")(Scope().view(given=None)).node
    except Exception:
        return
    restore(node, session)


async def test_the_leaves_of_expectations_facts_and_detached_prompts_are_restored(
    session: Session, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "made").write_text("x")
    restored = restore_leaves(monkeypatch)
    expectations = [{"file": "made"}, {"command": "test -f made"}]
    steps = [
        {"kind": "bash", "command": "pwd", "expect": expectations},
        {"kind": "assert", "fact": ["seen", {"n": 1}]},
        {"kind": "retract", "fact": ["seen", {"n": "?n"}]},
        {"kind": "prompt", "provider": "claude", "text": "Go", "detach": True, "tag": "t"},
        {"kind": "bash", "command": "true", "expect": [{"file": "missing"}], "on_error": "skip"},
        {"kind": "transform", "expression": "1", "expect": [{"condition": "false"}], "on_error": "skip"},
    ]
    await outcome(session, {"kind": "sequence", "steps": steps})
    assert {type(node).__name__ for node in restored} == {
        *("BashNode", "AssertNode", "RetractNode", "AgentNode"),
        *("FileCheck", "RequestNode", "ResponseNode", "ExpectationFailure"),
    }


async def test_a_detached_start_is_restored(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    restored = restore_leaves(monkeypatch)

    @session.workflow
    async def other(ctx: WorkflowContext) -> None:
        await ctx.assert_fact(["seen", 1])

    @session.workflow
    async def first(ctx: WorkflowContext) -> str:
        return await ctx.start("other", detached=True)

    async with session:
        started = await (await session.start("first")).wait()
        run = session.get_workflow_run(started)
        assert run is not None
        await run.wait()
    assert [type(node).__name__ for node in restored] == ["StartNode", "AssertNode"]


PROJECT = """
    from nerve import FunctionNode, Session
    from nerve.agents.agent_node import AgentNode
    from nerve.testing import ScriptedProvider

    def open_project(folder):
        reversed_prompt = ScriptedProvider(lambda call: call.prompt[::-1])
        session = Session(project=folder, providers={"claude": reversed_prompt})
        FunctionNode("upper", session, lambda context: str(context.input).upper())
        AgentNode("writer", session, "claude")

        @session.step
        def double(number: int) -> int:
            return 2 * number

        return session
"""
WORKER = """
    import asyncio, json, sys
    from project import open_project
    from nerve.core.nodes.attempt import execute_safely
    from nerve.core.nodes.context import ExecutionContext
    from nerve.engine.leaf_references import restore_leaf

    session = open_project(sys.argv[1])
    for line in sys.stdin:
        leaf = json.loads(line)
        context = ExecutionContext(session, leaf["input"])
        result = asyncio.run(execute_safely(restore_leaf(leaf["reference"], session), context))
        print(json.dumps(result), flush=True)
"""


def test_a_second_process_executes_the_leaves(tmp_path: Path) -> None:
    (tmp_path / "project.py").write_text(dedent(PROJECT))
    (tmp_path / "worker.py").write_text(dedent(WORKER))
    (tmp_path / "made").write_text("12345")
    scope: dict[str, Any] = {}
    exec(dedent(PROJECT), scope)  # noqa: S102
    session = scope["open_project"]("/another/place")
    calls: list[tuple[Node, Any, Any]] = [
        (session.nodes["upper"], "a", "A"),
        (session.nodes["double"], {"number": 4}, 8),
        (session.nodes["writer"], "abc", "cba"),
        (session.find("claude"), "abc", "cba"),
        (BashNode("b", None, "pwd -P", "/another/place"), None, f"{tmp_path.resolve()}\n"),
        (FileCheck("expect"), "made", 5),
        (ReadFile("f"), {"path": "made"}, "12345"),
    ]
    lines = [json.dumps({"reference": describe_leaf(node, session), "input": i}) for node, i, _ in calls]
    done = subprocess.run(
        [sys.executable, str(tmp_path / "worker.py"), str(tmp_path)],
        input="\n".join(lines),
        capture_output=True,
        text=True,
        timeout=60,
    )
    results = [json.loads(line) for line in done.stdout.splitlines()]
    assert [result["output"] for result in results] == [expected for _, _, expected in calls], done.stderr
