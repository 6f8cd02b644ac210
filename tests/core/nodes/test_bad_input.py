"""Invalid arguments are rejected in the call; the message names the argument and the expected type."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from core.workflow.support import within
from nerve import BashNode, FunctionNode, Graph, Limits, MockNode, Retry, Session, Workflow, WorkflowContext
from nerve.core.nodes.control import (
    BranchNode,
    GateNode,
    LoopNode,
    MachineNode,
    MapNode,
    ParallelNode,
    ReduceNode,
    State,
    SwitchNode,
    WhileNode,
)
from nerve.errors import StoreInUse

Make = Callable[[Session, Any], Any]


def always(_: Any) -> bool:
    return True


async def later(_: Any) -> bool:
    return False


class Later:
    async def __call__(self, _: Any) -> bool:
        return False


class Mute:
    def __repr__(self) -> str:
        raise RuntimeError("nothing to say")


CONSTRUCTED: dict[str, tuple[Make, str]] = {
    "retry 2.5": (lambda s, n: Retry(attempts=2.5), "Retry.attempts must be an integer, got 2.5"),
    "retry text": (
        lambda s, n: Retry(attempts="3"),
        "Retry.attempts must be an integer, got '3' of type str",
    ),
    "retry none": (lambda s, n: Retry(attempts=0), "Retry.attempts.* at least 1, got 0"),
    "delay nan": (lambda s, n: Retry(delay=math.nan), "Retry.delay must be a non-negative number, got nan"),
    "delay text": (lambda s, n: Retry(delay="1"), "Retry.delay must be a non-negative number, got '1'"),
    "timeout nan": (
        lambda s, n: MockNode("x", s, timeout=math.nan),
        "timeout must be a non-negative number of seconds, got nan",
    ),
    "timeout true": (
        lambda s, n: MockNode("x", s, timeout=True),
        "timeout must be a non-negative number of seconds, got True",
    ),
    "timeout list": (
        lambda s, n: MockNode("x", s, timeout=[]),
        r"timeout must be a non-negative number of seconds, got \[\]",
    ),
    "timeout inf": (
        lambda s, n: MockNode("x", s, timeout=math.inf),
        "timeout must be a finite number of seconds, got inf",
    ),
    "retry on": (lambda s, n: Retry(on=5), "Retry.on must be a tuple of names .* got 5"),
    "step limits": (
        lambda s, n: MockNode("x", s, limits=5),
        r"limits must be Limits\(…\) or a dict .* got 5",
    ),
    "command": (lambda s, n: BashNode("x", s, 5), "command of 'x' must be a string, got 5 of type int"),
    "command list": (
        lambda s, n: BashNode("x", s, ["ls"]),
        r"command of 'x' must be a string, got \['ls'\] of type list",
    ),
    "cwd": (
        lambda s, n: BashNode("x", s, "ls", cwd=5),
        "cwd of 'x' must be the path of a directory, got 5 of type int",
    ),
    "env": (lambda s, n: BashNode("x", s, "ls", env=["A=1"]), r"env of 'x' must be a dict, got \['A=1'\]"),
    "env value": (
        lambda s, n: BashNode("x", s, "ls", env={"A": 1}),
        "'A' in env of 'x' must be a string, got 1 of type",
    ),
    "env name": (
        lambda s, n: BashNode("x", s, "ls", env={1: "A"}),
        "a name in env of 'x' must be a string, got 1 of",
    ),
    "env no name": (
        lambda s, n: BashNode("x", s, "ls", env={"": "A"}),
        "a name in env of 'x' must not be empty",
    ),
    "env equals": (lambda s, n: BashNode("x", s, "ls", env={"A=B": "A"}), "in env of 'x' .* got 'A=B'"),
    "responses": (
        lambda s, n: MockNode("x", s, 5),
        "responses of 'x' must be a list of outputs, got 5 of type int",
    ),
    "response": (
        lambda s, n: MockNode("x", s, "yes"),
        "responses of 'x' must be a list of outputs, got 'yes' of type str",
    ),
    "prompt": (
        lambda s, n: GateNode("x", s, 5),
        "prompt of 'x' must be a string or a function of the input, got 5 of type int",
    ),
    "no prompt": (
        lambda s, n: GateNode("x", s, None),
        "prompt of 'x' must be a string or a function of the input, got None",
    ),
    "options": (
        lambda s, n: GateNode("x", s, "?", 5),
        "options of 'x' must be a list of strings, got 5 of type int",
    ),
    "options text": (
        lambda s, n: GateNode("x", s, "?", "yes"),
        "options of 'x' must be a list of strings, got 'yes'",
    ),
    "option": (
        lambda s, n: GateNode("x", s, "?", ["a", 5]),
        "options of 'x' must be a list of strings, but contains 5",
    ),
    "choices": (
        lambda s, n: GateNode("x", s, "?", choices=5),
        "choices of 'x' must be a list of strings, got 5",
    ),
    "form": (lambda s, n: GateNode("x", s, "?", form=5), "form of 'x' must be a dict, got 5"),
    "gate timeout": (
        lambda s, n: GateNode("x", s, "?", timeout="3"),
        "timeout of 'x' must be a non-negative number of seconds, got '3'",
    ),
    "gate negative": (
        lambda s, n: GateNode("x", s, "?", timeout=-1),
        "timeout of 'x' must be a non-negative number of seconds, got -1",
    ),
    "validator": (
        lambda s, n: GateNode("x", s, "?", validator=5),
        "validator of 'x' must be a function, got 5",
    ),
    "workflow fn": (lambda s, n: s.workflow(5, id="x"), "fn of workflow 'x' must be a function, got 5"),
    "workflow body": (lambda s, n: Workflow("x", s, body=5), "body of workflow 'x' must be a node, got 5"),
    "workflow limits": (
        lambda s, n: s.workflow(always, limits=5),
        r"limits must be Limits\(…\) or a dict .* got 5",
    ),
    "limit text": (
        lambda s, n: Limits(steps="3"),
        "The limit steps must be a non-negative number.* got '3' of type str",
    ),
    "limit list": (
        lambda s, n: Limits(steps=[3]),
        r"The limit steps must be a non-negative number.* got \[3\] of type list",
    ),
    "limit true": (
        lambda s, n: Limits(errors=True),
        "The limit errors must be a non-negative number.* got True of type",
    ),
    "limit nan": (
        lambda s, n: Limits(wall_time=math.nan),
        "The limit wall_time must be a non-negative number.* got nan",
    ),
    "limit inf": (
        lambda s, n: Limits(cost=math.inf),
        "The limit cost must be a non-negative number, or None for unlimited, got inf",
    ),
    "limit negative": (
        lambda s, n: Limits(wall_time=-1),
        "The limit wall_time must be a non-negative number.* got -1",
    ),
    "limit half": (lambda s, n: Limits(steps=2.5), "The limit steps must be an integer, got 2.5"),
    "limit depth": (
        lambda s, n: Limits(depth=None),
        "The limit depth must be a non-negative number.* got None",
    ),
    "budget": (lambda s, n: Session(budget=5), r"limits must be Limits\(…\) or a dict .* got 5"),
    "name": (lambda s, n: Session(5), "The name of a session must be a string, got 5"),
    "store": (
        lambda s, n: Session(store=5),
        "store must be the path of a file, a URL, a store, or None, got 5",
    ),
    "project": (lambda s, n: Session(project=5), "project must be the path of a directory, got 5"),
    "providers": (lambda s, n: Session(providers=["x"]), r"providers must be a dict, got \['x'\]"),
    "slots": (lambda s, n: Session(slots=5), "slots must be a dict, got 5"),
    "fn": (lambda s, n: FunctionNode("x", s, None), "fn of 'x' must be a function, got None"),
    "map body": (
        lambda s, n: MapNode("x", s, "n"),
        r"body of 'x' must be a node, got 'n' .*session\.find\('n'\)",
    ),
    "map class": (lambda s, n: MapNode("x", s, MockNode), "body of 'x' must be a node, got <class"),
    "mute": (lambda s, n: MapNode("x", s, Mute()), "body of 'x' must be a node, got a value of type Mute"),
    "map text": (lambda s, n: MapNode("x", s, n, max_parallel="3"), "max_parallel of 'x' must be an integer"),
    "map require": (lambda s, n: MapNode("x", s, n, require="x"), "require of 'x' must be an integer"),
    "while body": (lambda s, n: WhileNode("x", s, always, None), "body of 'x' must be a node, got None"),
    "while condition": (
        lambda s, n: WhileNode("x", s, "y", n),
        "condition of 'x' must be a function, got 'y'",
    ),
    "on_max": (
        lambda s, n: WhileNode("x", s, always, n, on_max="retrun"),
        r"on_max of 'x' must be 'fail' or 'return', got 'retrun' .*Did you mean 'return'\?",
    ),
    "on_body_failure": (
        lambda s, n: LoopNode("x", s, n, times=2, on_body_failure="contnue"),
        r"on_body_failure of 'x' must be 'stop' or 'continue', got 'contnue' .*Did you mean 'continue'\?",
    ),
    "times": (lambda s, n: LoopNode("x", s, n, times=2.5), "times of 'x' must be an integer, got 2.5"),
    "until": (lambda s, n: LoopNode("x", s, n, until=5), "until of 'x' must be a function, got 5"),
    "then": (lambda s, n: BranchNode("x", s, always, None), "then_branch of 'x' must be a node, got None"),
    "else": (lambda s, n: BranchNode("x", s, always, n, "n"), "else_branch of 'x' must be a node, got 'n'"),
    "cases": (lambda s, n: SwitchNode("x", s, always, [n]), "cases of 'x' must be a dict"),
    "case": (lambda s, n: SwitchNode("x", s, always, {"a": 1}), "case 'a' of 'x' must be a node, got 1"),
    "branches": (lambda s, n: ParallelNode("x", s, [n]), "branches of 'x' must be a dict"),
    "branch name": (
        lambda s, n: ParallelNode("x", s, {1: n}),
        "a part of 'x' must be a string, got 1 of type int",
    ),
    "branch": (lambda s, n: ParallelNode("x", s, {"a": "n"}), "'a' of 'x' must be a node, got 'n'"),
    "branch half": (lambda s, n: ParallelNode("x", s, {"\ud800": n}), "an unpaired surrogate"),
    "state": (
        lambda s, n: MachineNode("x", s, {"a": n}),
        r"State 'a' of 'x' must be a State\(body, next\), got",
    ),
    "state body": (
        lambda s, n: MachineNode("x", s, {"a": State(None)}),
        "body of state 'a' of 'x' must be a node",
    ),
    "next": (
        lambda s, n: MachineNode("x", s, {"a": State(n, 5)}),
        "next of state 'a' of 'x' must be the name of a state, a function .* got 5 of type int",
    ),
    "async next": (
        lambda s, n: MachineNode("x", s, {"a": State(n, later)}),
        "next of state 'a' of 'x' must be a sync function, not an async one; await .* in an earlier node",
    ),
    "async condition": (
        lambda s, n: WhileNode("x", s, later, n),
        "condition of 'x' must be a sync function, not an async one",
    ),
    "async until": (lambda s, n: LoopNode("x", s, n, until=Later()), "until of 'x' must be a sync function"),
    "async branch": (lambda s, n: BranchNode("x", s, later, n), "condition of 'x' must be a sync function"),
    "async key": (lambda s, n: SwitchNode("x", s, later, {"a": n}), "key of 'x' must be a sync function"),
    "async fn": (lambda s, n: ReduceNode("x", s, later), "fn of 'x' must be a sync function"),
    "async prompt": (lambda s, n: GateNode("x", s, later), "prompt of 'x' must be a sync function"),
    "async validator": (
        lambda s, n: GateNode("x", s, "?", validator=later),
        "validator of 'x' must be a sync function",
    ),
    "async input_fn": (
        lambda s, n: Graph("x", s).add_step(n, "q", input_fn=later),
        "input_fn of step 'q' must be a sync function",
    ),
    "async retry": (lambda s, n: Retry(on=later), "Retry.on must be a sync function, not an async one"),
    "reduce": (lambda s, n: ReduceNode("x", s, "sum"), "fn of 'x' must be a function, got 'sum'"),
    "step": (
        lambda s, n: Graph("x", s).add_step(None, "q"),
        "step 'q' of graph 'x' must be a node, got None",
    ),
    "step by name": (lambda s, n: Graph("x", s).add_step("n"), r"use add_step_ref\('n'\)"),
    "step id": (
        lambda s, n: Graph("x", s).add_step(n, 5),
        "a step of graph 'x' must be a string, got 5 of type int",
    ),
    "no step id": (lambda s, n: Graph("x", s).add_step(MockNode()), "A step of graph 'x' needs a step_id"),
    "input_fn": (lambda s, n: Graph("x", s).add_step(n, "q", input_fn="y"), "input_fn of step 'q'.*function"),
    "no list before": (
        lambda s, n: Graph("x", s).add_step(n, "q", None),
        "depends_on of step 'q' .* got None",
    ),
    "count before": (
        lambda s, n: Graph("x", s).add_step(n, "q", 5),
        "depends_on of step 'q' .* got 5 of type",
    ),
    "list before": (
        lambda s, n: Graph("x", s).add_step(n, "q", [["a"]]),
        r"a step in depends_on of step 'q' must be a string, got \['a'\]",
    ),
    "reference": (
        lambda s, n: Graph("x", s).add_step_ref(5, "q"),
        "a node in graph 'x' must be a string, got 5",
    ),
    "setting": (
        lambda s, n: Graph("x", s).add_step(n, "q", retri=Retry()),
        r"Unknown setting 'retri' of step 'q' of graph 'x'\. Did you mean 'retry'\?",
    ),
    "step timeout": (
        lambda s, n: Graph("x", s).add_step(n, "q", timeout="5"),
        "step 'q' of graph 'x': timeout must be a non-negative number of seconds, got '5'",
    ),
    "node retry": (lambda s, n: MockNode("x", s, retry=3), r"'x': retry must be a Retry, such as .* got 3"),
    "fallback class": (
        lambda s, n: MockNode("x", s, on_error=MockNode),
        "'x': on_error must be .* got <class",
    ),
    "jitter inf": (lambda s, n: Retry(jitter=math.inf), "Retry.jitter must be finite, got inf"),
    "workflow": (
        lambda s, n: s.register_workflow("x"),
        "a workflow to register must be a node, got 'x'",
    ),
}


@pytest.mark.parametrize(("make", "said"), CONSTRUCTED.values(), ids=CONSTRUCTED)
def test_invalid_arguments_are_rejected_and_nothing_is_registered(
    session: Session, make: Make, said: str
) -> None:
    node = MockNode("n", session)
    with pytest.raises(ValueError, match=said):
        make(session, node)
    assert list(session.nodes) == ["n"]


@pytest.mark.parametrize(
    ("use", "said"),
    [
        (lambda ctx, n: ctx.run(n), r"needs the name of a node, got MockNode.*; use ctx\.run\('n'\)"),
        (lambda ctx, n: ctx.run(None), "needs the name of a node, got None"),
        (lambda ctx, n: ctx.run([1]), r"needs the name of a node, got \[1\]"),
        (lambda ctx, n: ctx.run(ctx.session.get_workflow("other")), r"; use ctx\.run_workflow\('other'\)"),
        (
            lambda ctx, n: ctx.run_graph(n),
            r"ctx\.run_graph needs the name of a graph, got .*; use ctx\.run\('n'\)",
        ),
        (lambda ctx, n: ctx.run_workflow(None), r"ctx\.run_workflow needs the name of a workflow, got None"),
        (
            lambda ctx, n: ctx.run("other"),
            r"'other' not found.* is a workflow: use ctx\.run_workflow\('other'\)",
        ),
        (lambda ctx, n: ctx.run_workflow("n"), r"'n' not found.* is a node: use ctx\.run\('n'\)"),
        (lambda ctx, n: ctx.run_workflow("other", 1, [1]), r"params of 'other' must be a dict, got \[1\]"),
        (lambda ctx, n: ctx.run_parallel(["n"]), r"needs pairs \(name of a node, input\), got 'n'"),
        (
            lambda ctx, n: ctx.run("n", timeout=math.nan),
            "timeout must be a non-negative number of seconds, got nan",
        ),
        (
            lambda ctx, n: ctx.sleep("3"),
            "seconds of a sleep must be a non-negative number of seconds, got '3'",
        ),
        (
            lambda ctx, n: ctx.sleep(math.nan),
            "seconds of a sleep must be a non-negative number of seconds, got nan",
        ),
        (
            lambda ctx, n: ctx.sleep(math.inf),
            "seconds of a sleep must be a finite number of seconds, got inf",
        ),
        (lambda ctx, n: ctx.sleep(-1), "seconds of a sleep must be a non-negative number of seconds, got -1"),
        (
            lambda ctx, n: ctx.sleep(True),
            "seconds of a sleep must be a non-negative number of seconds, got True",
        ),
        (lambda ctx, n: ctx.gate(5), "prompt of a gate must be a string, got 5 of type int"),
        (
            lambda ctx, n: ctx.gate("?", "3"),
            "timeout of a gate must be a non-negative number of seconds, got '3'",
        ),
        (lambda ctx, n: ctx.gate("?", choices=5), "choices of a gate must be a list of strings, got 5"),
        (
            lambda ctx, n: ctx.gate("?", options="yes"),
            "options of a gate must be a list of strings, got 'yes'",
        ),
        (lambda ctx, n: ctx.gate("?", form=[1]), r"form of a gate must be a dict, got \[1\]"),
        (
            lambda ctx, n: ctx.wait_signal("s", timeout="3"),
            "timeout of a signal must be a non-negative number of seconds, got '3'",
        ),
        (
            lambda ctx, n: ctx.timeout("3"),
            "seconds of a timeout must be a non-negative number of seconds, got '3'",
        ),
    ],
)
async def test_a_context_rejects_invalid_arguments_in_the_call(
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
        ({"params": [1]}, r"params must be a dict, got \[1\]"),
        ({"event_sink": 5}, "event_sink must be callable or have an emit method, got 5"),
        ({"label": 5}, "The name of a label must be a string, got 5"),
        ({"key": 5}, "The name of a key must be a string, got 5"),
        ({"limits": 5}, r"limits must be Limits\(…\) or a dict such as .* got 5 of type int"),
        ({"limits": {"steps": "3"}}, "The limit steps must be a non-negative number.* got '3' of type str"),
        ({"limits": {1: 3}}, "Unknown limit '1'"),
        ({"workflow_id": 5}, "The name of a workflow must be a string, got 5"),
    ],
)
async def test_a_run_is_not_started_with_invalid_arguments(
    session: Session, given: dict[str, Any], said: str
) -> None:
    MockNode("n", session)
    with pytest.raises(ValueError, match=said):
        await session.start(**{"workflow_id": "n", **given})
    assert session.list_workflow_runs() == []


async def test_a_run_is_not_started_with_an_input_that_is_not_json(session: Session) -> None:
    MockNode("n", session)
    with pytest.raises(TypeError, match="input"):
        await session.start("n", {"when": object()})
    assert session.list_workflow_runs() == []


@pytest.mark.parametrize("limits", [5, [1], "steps=3"])
async def test_a_run_is_not_forked_or_resumed_with_invalid_limits(session: Session, limits: Any) -> None:
    MockNode("n", session)
    run = await session.start("n")
    await within(run.wait())
    for done in (lambda: session.fork(run.run_id, limits=limits), lambda: run.resume(limits=limits)):
        with pytest.raises(ValueError, match=r"limits must be Limits\(…\) or a dict such as"):
            await done()


def test_a_step_named_input_does_not_hide_the_input_of_the_graph(session: Session) -> None:
    graph = Graph("g", session).add_step(MockNode("n", session), "input")
    graph.add_step(MockNode("m", session), "plain", depends_on=["input"])
    with pytest.raises(ValueError, match="cannot distinguish the step 'input' from the input of the graph"):
        graph.add_step(MockNode("o", session), "o", depends_on=["input"], input_fn=lambda up: up["input"])


async def test_a_second_session_on_a_file_in_one_process_names_the_first_session(file: Path) -> None:
    async with Session(store=file):
        with pytest.raises(StoreInUse, match=r"in use by this process\. Close the session that opened it"):
            async with Session(store=file):
                pass
