"""A rejection cancels the run, unless the workflow handles it."""

import asyncio
import json
from typing import Any

import pytest

from nerve import FunctionNode, Graph, Retry, Session, Workflow
from nerve.core.nodes.control import GateNode, ParallelNode
from nerve.core.workflow import WorkflowRun, WorkflowState
from nerve.errors import NerveError, Rejected

pytestmark = [pytest.mark.requirement("S2-13"), pytest.mark.requirement("S2-21")]


@pytest.fixture
async def session():
    async with Session() as made:
        yield made


async def ended(run: WorkflowRun, *answers: str) -> tuple[WorkflowState, Any]:
    """Answer the gates of a run in turn; return its state and its value or error."""
    for answer in answers:
        await run.next_gate()
        run.answer_gate(answer)
    try:
        return WorkflowState.COMPLETED, await run.wait()
    except (NerveError, asyncio.CancelledError) as error:
        return run.state, str(error)


def steps(*steps: dict[str, Any]) -> str:
    return json.dumps({"id": "w", "steps": list(steps)})


def body(**body: Any) -> str:
    return json.dumps({"name": "w", "body": body})


DEPLOY = {"id": "deploy", "type": "transform", "transform": "'DEPLOYED'"}
HANDLER = {"id": "h", "type": "transform", "transform": "'handled'"}
ASKS = {"id": "ok", "type": "approval"}
GATE = {"kind": "gate", "id": "ok", "choices": ["approve", "reject"], "reject": ["reject"]}
SHIP = {"kind": "transform", "id": "ship", "expression": "'DEPLOYED'"}
INSTEAD = {"kind": "transform", "id": "instead", "expression": "'handled'"}


def approval(**more: Any) -> dict[str, Any]:
    return {"id": "ok", "type": "approval", "next": "deploy", **more}


def yaml(*lines: str) -> str:
    nodes = "".join(f"  - {{{line}}}\n" for line in lines)
    return f"name: w\ndescription: d\nnodes:\n{nodes}"


BASH = "id: deploy, bash: echo DEPLOYED, depends_on: [ok]"

SWALLOWED = {
    "JSON, on_error skip": (steps(approval(on_error="skip", timeout_ms=600_000), DEPLOY), "json"),
    "JSON, on_error step": (steps(approval(on_error="h"), HANDLER, DEPLOY), "json"),
    "JSON, retried": (steps(approval(max_retries=3), DEPLOY), "json"),
    "JSON, in a parallel": (
        steps(
            {"id": "p", "type": "parallel", "steps": [{"id": "ok", "type": "approval"}], "next": "deploy"},
            DEPLOY,
        ),
        "json",
    ),
    "JSON, in a parallel with on_error": (
        steps(
            {"id": "p", "type": "parallel", "steps": [{"id": "ok", "type": "approval"}], "on_error": "h"},
            HANDLER,
        ),
        "json",
    ),
    "JSON, in a parallel that needs none": (
        steps({"id": "p", "type": "parallel", "min_success": 0, "steps": [{"id": "ok", "type": "approval"}]}),
        "json",
    ),
    "YAML, on_error skip": (yaml('id: ok, approval: "Deploy?", timeout: 600, on_error: skip', BASH), "yaml"),
    "YAML, retried": (yaml('id: ok, approval: "Deploy?", retry: 3', BASH), "yaml"),
    "YAML, fallback": (yaml("id: ok, approval: ok?, on_error: {id: f, bash: echo fallback}", BASH), "yaml"),
    "Lisp, with-timeout": (
        '(workflow w (state s (with-timeout 50 (gate "ok?" :choices (approve reject) :reject (reject))'
        ' (on-timeout (result "late"))) (result "DEPLOYED") (terminal)))',
        "lisp",
    ),
    "full, on_error around": (
        body(
            kind="sequence",
            steps=[{"kind": "sequence", "steps": [GATE], "on_error": "skip", "retry": {"attempts": 3}}, SHIP],
        ),
        "json",
    ),
    "full, map": (
        body(kind="sequence", steps=[{"kind": "map", "over": "[1]", "require": 0, "body": GATE}, SHIP]),
        "json",
    ),
    "full, with an expectation": (
        body(
            kind="sequence", steps=[{**GATE, "on_error": INSTEAD, "expect": [{"condition": "false"}]}, SHIP]
        ),
        "json",
    ),
}


@pytest.mark.parametrize("text", SWALLOWED.values(), ids=SWALLOWED)
async def test_a_rejection_cancels_the_run_regardless_of_error_handlers(
    session: Session, text: tuple[str, str]
) -> None:
    run = await session.start(session.load(*text).id)
    state, said = await ended(run, "reject")
    assert state is WorkflowState.CANCELLED
    assert "rejected: reject" in said


@pytest.mark.parametrize(
    "text",
    [
        steps({"id": "p", "type": "parallel", "min_success": 1, "steps": [ASKS, HANDLER]}),
        body(kind="parallel", id="p", require=1, branches=[GATE, SHIP]),
    ],
)
async def test_a_rejection_in_a_parallel_does_not_say_that_too_few_succeeded(
    session: Session, text: str
) -> None:
    run = await session.start(session.load(text).id)
    state, said = await ended(run, "reject")
    assert state is WorkflowState.CANCELLED
    assert "ok: rejected: reject" in said
    assert "must succeed" not in said
    assert "required" not in said


@pytest.mark.parametrize("text", SWALLOWED.values(), ids=SWALLOWED)
async def test_an_approval_is_not_mistaken_for_a_rejection(session: Session, text: tuple[str, str]) -> None:
    run = await session.start(session.load(*text).id)
    state, _ = await ended(run, "approve")
    assert state is WorkflowState.COMPLETED


DECLARED = {
    "JSON, a step": (steps(approval(on_reject="h"), DEPLOY, HANDLER), "json", "handled"),
    "JSON, in a parallel": (
        steps(
            {
                "id": "p",
                "type": "parallel",
                "steps": [{"id": "ok", "type": "approval", "on_reject": "continue"}],
                "next": "t",
            },
            {"id": "t", "type": "transform", "transform": "context.ok.approved"},
        ),
        "json",
        False,
    ),
    "YAML": (
        yaml(
            'id: ok, approval: "Deploy?", on_reject: continue',
            "id: deploy, bash: echo DEPLOYED, depends_on: [ok], when: steps.ok.output === 'approve'",
            "id: no, bash: printf handled, depends_on: [deploy], when: steps.ok.output === 'reject'",
        ),
        "yaml",
        "handled",
    ),
    "full form": (
        body(
            kind="sequence",
            steps=[
                {**GATE, "reject": []},
                {
                    "kind": "branch",
                    "condition": "steps.ok.output === 'reject'",
                    "then": INSTEAD,
                    "otherwise": SHIP,
                },
            ],
        ),
        "json",
        "handled",
    ),
}


@pytest.mark.parametrize("case", DECLARED.values(), ids=DECLARED)
async def test_a_declared_rejection_goes_where_the_workflow_says(
    session: Session, case: tuple[str, str, Any]
) -> None:
    text, notation, value = case
    run = await session.start(session.load(text, notation).id)
    assert await ended(run, "reject") == (WorkflowState.COMPLETED, value)


@pytest.mark.parametrize("text", ["on_reject: stop", "on_reject: {bash: echo}"])
def test_yaml_names_what_on_reject_may_be(session: Session, text: str) -> None:
    with pytest.raises(ValueError, match="on_reject"):
        session.load(yaml(f'id: ok, approval: "Deploy?", {text}'), "yaml")


async def test_a_timeout_is_an_error_and_goes_to_its_handler(session: Session) -> None:
    text = steps(approval(timeout_ms=1, on_error="h"), DEPLOY, HANDLER)
    run = await session.start(session.load(text).id)
    assert await run.wait() == "handled"


async def test_a_default_answer_that_rejects_cancels(session: Session) -> None:
    text = body(kind="sequence", steps=[{**GATE, "timeout": 0, "default": "reject"}, SHIP])
    run = await session.start(session.load(text).id)
    state, said = await ended(run)
    assert state is WorkflowState.CANCELLED
    assert "rejected: reject" in said


# -- children ----------------------------------------------------------------------------------

CHILD = json.dumps({"id": "child", "steps": [{"id": "ok", "type": "approval", "message": "ok?"}]})
CALL = {"id": "c", "type": "agent", "agent": "workflow:child"}
PART = {"id": "p", "type": "parallel", "steps": [CALL]}
CALLED = {"kind": "workflow", "id": "c", "workflow": "child"}

HANDLED = {
    "JSON, a step": (steps({**CALL, "on_error": "h"}, HANDLER), "handled"),
    "JSON, skip": (steps({**CALL, "on_error": "skip", "next": "h"}, HANDLER), "handled"),
    "JSON, retried, then skipped": (
        steps({**CALL, "on_error": "skip", "max_retries": 3, "next": "h"}, HANDLER),
        "handled",
    ),
    "JSON, of a parallel": (steps({**PART, "on_error": "h"}, HANDLER), "handled"),
    "JSON, a parallel that needs none": (steps({**PART, "min_success": 0, "next": "h"}, HANDLER), "handled"),
    "JSON, by a condition": (
        steps(
            {**CALL, "next": "if"},
            {
                "id": "if",
                "type": "condition",
                "condition": "context.c.success",
                "then": "deploy",
                "else": "h",
            },
            DEPLOY,
            HANDLER,
        ),
        "handled",
    ),
    "full, skip": (body(kind="sequence", steps=[{**CALLED, "on_error": "skip"}, INSTEAD]), "handled"),
    "full, a node": (body(kind="sequence", steps=[{**CALLED, "on_error": INSTEAD}]), "handled"),
}


@pytest.mark.parametrize("case", HANDLED.values(), ids=HANDLED)
async def test_the_caller_handles_a_rejected_child_as_a_step_that_failed(
    session: Session, case: tuple[str, Any]
) -> None:
    text, value = case
    session.load(CHILD)
    run = await session.start(session.load(text).id)
    assert await ended(run, "reject") == (WorkflowState.COMPLETED, value)


UNHANDLED = {
    "JSON": steps({**CALL, "next": "deploy"}, DEPLOY),
    "JSON, in a parallel": steps({**PART, "next": "deploy"}, DEPLOY),
    "JSON, retried": steps({**CALL, "max_retries": 3, "next": "deploy"}, DEPLOY),
    "full form": body(kind="sequence", steps=[CALLED, SHIP]),
}


@pytest.mark.parametrize("text", UNHANDLED.values(), ids=UNHANDLED)
async def test_a_rejected_child_that_nothing_handles_cancels_its_parent(session: Session, text: str) -> None:
    session.load(CHILD)
    run = await session.start(session.load(text).id)
    state, said = await ended(run, "reject")
    assert state is WorkflowState.CANCELLED
    assert "rejected: reject" in said


async def test_a_function_may_catch_the_rejection_of_a_child(session: Session) -> None:
    session.load(CHILD)

    async def careful(ctx: Any) -> str:
        try:
            await ctx.run_workflow("child")
        except Rejected as error:
            return f"no: {error.reason}"
        return "yes"

    async def careless(ctx: Any) -> str:
        await ctx.run_workflow("child")
        return "yes"

    Workflow("careful", session, careful)
    Workflow("careless", session, careless)
    state, said = await ended(await session.start("careful"), "reject")
    assert (state, said) == (WorkflowState.COMPLETED, "no: state 'ok' failed: rejected: reject")
    state, said = await ended(await session.start("careless"), "reject")
    assert state is WorkflowState.CANCELLED


# -- Python ------------------------------------------------------------------------------------


async def test_a_gate_node_that_rejects_cancels_a_graph(session: Session) -> None:
    graph = Graph("g", session)
    gate = GateNode("ok", session, "Deploy?", choices=["approve", "reject"], reject=["reject"])
    graph.add_step(gate, on_error="skip", retry=Retry(attempts=3, delay=0))
    graph.add_step(FunctionNode("deploy", session, lambda _: "DEPLOYED"), depends_on=["ok"])
    Workflow("w", session, body=graph)
    state, said = await ended(await session.start("w"), "reject")
    assert state is WorkflowState.CANCELLED
    assert "rejected: reject" in said
    assert await ended(await session.start("w"), "approve") == (WorkflowState.COMPLETED, "DEPLOYED")


async def test_a_function_is_cancelled_by_a_gate_node_that_rejects_unless_it_catches_that(
    session: Session,
) -> None:
    GateNode("ok", session, "Deploy?", choices=["approve", "reject"], reject=["reject"])

    async def careful(ctx: Any) -> str:
        try:
            await ctx.run("ok")
        except Rejected as error:
            return error.reason
        return "DEPLOYED"

    async def careless(ctx: Any) -> str:
        await ctx.run("ok", on_error="skip")
        return "DEPLOYED"

    Workflow("careful", session, careful)
    Workflow("careless", session, careless)
    assert await ended(await session.start("careful"), "reject") == (
        WorkflowState.COMPLETED,
        "rejected: reject",
    )
    state, said = await ended(await session.start("careless"), "reject")
    assert (state, said) == (WorkflowState.CANCELLED, "rejected: reject")
    assert await ended(await session.start("careless"), "approve") == (WorkflowState.COMPLETED, "DEPLOYED")


async def test_a_rejection_takes_precedence_over_a_failure(session: Session) -> None:
    def broken(_: Any) -> Any:
        raise RuntimeError("broken")

    gate = GateNode("ok", session, "Deploy?", choices=["approve", "reject"], reject=["reject"])
    both = {"bad": FunctionNode("bad", session, broken), "ok": gate}
    Workflow("w", session, body=ParallelNode("both", session, both))
    state, _ = await ended(await session.start("w"), "reject")
    assert state is WorkflowState.CANCELLED
    state, _ = await ended(await session.start("w"), "approve")
    assert state is WorkflowState.FAILED


@pytest.mark.parametrize(("reject", "said"), [("no", "list of strings"), (["no"], "not one of its choices")])
def test_a_gate_node_names_what_reject_may_be(session: Session, reject: Any, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        GateNode("ok", session, "Deploy?", choices=["approve", "reject"], reject=reject)


async def test_an_error_of_the_same_name_is_an_error(session: Session) -> None:
    class Rejected(Exception):
        """The answer of a bank, say."""

    def pay(_: Any) -> Any:
        raise Rejected("no money")

    FunctionNode("pay", session, pay)
    text = steps({"id": "p", "type": "agent", "agent": "pay", "on_error": "h"}, HANDLER)
    assert await ended(await session.start(session.load(text).id)) == (WorkflowState.COMPLETED, "handled")
