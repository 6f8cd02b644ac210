"""What is given wrongly is refused where it is given, in a sentence that names it and what to give."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from core.workflow.support import within
from nerve import FunctionNode, Graph, MockNode, Retry, Session, WorkflowContext
from nerve.core.nodes.control import (
    BranchNode,
    LoopNode,
    MachineNode,
    MapNode,
    ParallelNode,
    ReduceNode,
    State,
    SwitchNode,
    WhileNode,
)
from nerve.errors import StoreLocked

Make = Callable[[Session, Any], Any]


def always(_: Any) -> bool:
    return True


CONSTRUCTED: dict[str, tuple[Make, str]] = {
    "retry 2.5": (lambda s, n: Retry(attempts=2.5), "Retry.attempts.* whole number, not 2.5"),
    "retry text": (lambda s, n: Retry(attempts="3"), "Retry.attempts.* whole number, not '3' of type str"),
    "retry none": (lambda s, n: Retry(attempts=0), "Retry.attempts.* at least 1, got 0"),
    "delay nan": (lambda s, n: Retry(delay=math.nan), "Retry.delay is a number .* got nan"),
    "delay text": (lambda s, n: Retry(delay="1"), "Retry.delay is a number .* got '1'"),
    "timeout nan": (
        lambda s, n: MockNode("x", s, timeout=math.nan),
        "timeout is a number of seconds .* got nan",
    ),
    "timeout true": (
        lambda s, n: MockNode("x", s, timeout=True),
        "timeout is a number of seconds .* got True",
    ),
    "timeout list": (
        lambda s, n: MockNode("x", s, timeout=[]),
        r"timeout is a number of seconds .* got \[\]",
    ),
    "fn": (lambda s, n: FunctionNode("x", s, None), "fn of 'x' is a function, not None"),
    "map body": (lambda s, n: MapNode("x", s, "n"), r"body of 'x' is a node, not 'n' .*session\.find\('n'\)"),
    "map class": (lambda s, n: MapNode("x", s, MockNode), "body of 'x' is a node, not <class"),
    "map text": (lambda s, n: MapNode("x", s, n, max_parallel="3"), "max_parallel of 'x' is a whole number"),
    "map require": (lambda s, n: MapNode("x", s, n, require="x"), "require of 'x' is a whole number"),
    "while body": (lambda s, n: WhileNode("x", s, always, None), "body of 'x' is a node, not None"),
    "while condition": (lambda s, n: WhileNode("x", s, "y", n), "condition of 'x' is a function, not 'y'"),
    "on_max": (
        lambda s, n: WhileNode("x", s, always, n, on_max="retrun"),
        r"on_max of 'x' is 'fail' or 'return', not 'retrun' .*Did you mean 'return'\?",
    ),
    "on_body_failure": (
        lambda s, n: LoopNode("x", s, n, times=2, on_body_failure="contnue"),
        r"on_body_failure of 'x' is 'stop' or 'continue', not 'contnue' .*Did you mean 'continue'\?",
    ),
    "times": (lambda s, n: LoopNode("x", s, n, times=2.5), "times of 'x' is a whole number, not 2.5"),
    "until": (lambda s, n: LoopNode("x", s, n, until=5), "until of 'x' is a function, not 5"),
    "then": (lambda s, n: BranchNode("x", s, always, None), "then_branch of 'x' is a node, not None"),
    "else": (lambda s, n: BranchNode("x", s, always, n, "n"), "else_branch of 'x' is a node, not 'n'"),
    "cases": (lambda s, n: SwitchNode("x", s, always, [n]), "cases of 'x' is a dict"),
    "case": (lambda s, n: SwitchNode("x", s, always, {"a": 1}), "case 'a' of 'x' is a node, not 1"),
    "branches": (lambda s, n: ParallelNode("x", s, [n]), "branches of 'x' is a dict"),
    "branch name": (lambda s, n: ParallelNode("x", s, {1: n}), "a part of 'x' is text, not 1 of type int"),
    "branch": (lambda s, n: ParallelNode("x", s, {"a": "n"}), "'a' of 'x' is a node, not 'n'"),
    "branch half": (lambda s, n: ParallelNode("x", s, {"\ud800": n}), "half of a surrogate pair"),
    "state": (lambda s, n: MachineNode("x", s, {"a": n}), r"state 'a' of 'x' is a State\(body, next\), not"),
    "state body": (
        lambda s, n: MachineNode("x", s, {"a": State(None)}),
        "body of state 'a' of 'x' is a node",
    ),
    "reduce": (lambda s, n: ReduceNode("x", s, "sum"), "fn of 'x' is a function, not 'sum'"),
    "step": (lambda s, n: Graph("x", s).add_step(None, "q"), "step 'q' of graph 'x' is a node, not None"),
    "step by name": (lambda s, n: Graph("x", s).add_step("n"), r"say add_step_ref\('n'\)"),
    "step id": (lambda s, n: Graph("x", s).add_step(n, 5), "a step of graph 'x' is text, not 5 of type int"),
    "no step id": (lambda s, n: Graph("x", s).add_step(MockNode()), "a step of graph 'x' needs a step_id"),
    "input_fn": (lambda s, n: Graph("x", s).add_step(n, "q", input_fn="y"), "input_fn of step 'q'.*function"),
    "workflow": (
        lambda s, n: s.register_workflow("x"),
        "what is registered as a workflow is a node, not 'x'",
    ),
}


@pytest.mark.parametrize(("make", "said"), CONSTRUCTED.values(), ids=CONSTRUCTED)
def test_it_is_refused_by_what_takes_it_and_nothing_is_registered(
    session: Session, make: Make, said: str
) -> None:
    node = MockNode("n", session)
    with pytest.raises(ValueError, match=said):
        make(session, node)
    assert list(session.nodes) == ["n"]


@pytest.mark.parametrize(
    ("use", "said"),
    [
        (lambda ctx, n: ctx.run(n), r"takes the name of a node, not MockNode.*; say ctx\.run\('n'\)"),
        (lambda ctx, n: ctx.run(None), "takes the name of a node, not None"),
        (lambda ctx, n: ctx.run([1]), r"takes the name of a node, not \[1\]"),
        (
            lambda ctx, n: ctx.run("other"),
            r"'other' not found.* is a workflow: say ctx\.run_workflow\('other'\)",
        ),
        (lambda ctx, n: ctx.run_workflow("n"), r"'n' not found.* is a node: say ctx\.run\('n'\)"),
        (lambda ctx, n: ctx.run_workflow("other", 1, [1]), r"params of 'other' is a dict, not \[1\]"),
        (lambda ctx, n: ctx.run_parallel(["n"]), r"takes pairs \(name of a node, input\), not 'n'"),
        (lambda ctx, n: ctx.run("n", timeout=math.nan), "timeout is a number of seconds .* got nan"),
    ],
)
async def test_a_context_refuses_it_in_the_call(
    session: Session, use: Callable[[WorkflowContext, MockNode], Any], said: str
) -> None:
    node = MockNode("n", session)

    @session.workflow
    async def other(ctx: WorkflowContext) -> Any:
        return ctx.input

    @session.workflow
    async def w(ctx: WorkflowContext) -> str:
        with pytest.raises(ValueError, match=said):
            use(ctx, node)
        return "refused"

    assert await within((await session.start("w")).wait()) == "refused"


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"params": [1]}, r"params is a dict, not \[1\]"),
        ({"event_sink": 5}, "event_sink is a function of an event, or has an emit, not 5"),
        ({"label": 5}, "the name of a label is text, not 5"),
    ],
)
async def test_a_run_is_not_started_with_it(session: Session, given: dict[str, Any], said: str) -> None:
    MockNode("n", session)
    with pytest.raises(ValueError, match=said):
        await session.start("n", **given)
    assert session.list_workflow_runs() == []


def test_the_input_of_a_graph_is_not_hidden_by_a_step_of_that_name(session: Session) -> None:
    graph = Graph("g", session).add_step(MockNode("n", session), "input")
    graph.add_step(MockNode("m", session), "plain", depends_on=["input"])
    with pytest.raises(ValueError, match="cannot tell the step 'input' from the graph's own input"):
        graph.add_step(MockNode("o", session), "o", depends_on=["input"], input_fn=lambda up: up["input"])


async def test_a_second_session_on_a_file_in_one_process_is_not_told_to_stop_itself(file: Path) -> None:
    async with Session(store=file):
        with pytest.raises(StoreLocked, match="in use by this process: close the session that has it"):
            async with Session(store=file):
                pass
