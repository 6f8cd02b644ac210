"""Parameters of a run in graphs and control nodes."""

from typing import Any

import pytest

from core.nodes.support import function_node, until
from nerve import ExecutionContext, FunctionNode, Graph, MockNode, Session
from nerve.core.nodes import Node
from nerve.core.nodes.control import (
    BranchNode,
    GateNode,
    LoopNode,
    MachineNode,
    ReduceNode,
    State,
    SwitchNode,
    WhileNode,
)


async def value_of(session: Session, node: Node, input: Any, params: dict[str, Any]) -> Any:
    session.register_workflow(node)
    return await (await session.start(str(node.id), input, params)).wait()


@pytest.mark.requirement("S1-35")
async def test_a_leaf_at_any_depth_has_the_params_in_its_context(session: Session) -> None:
    leaf = FunctionNode("see", session, lambda context: context.params)
    inner = Graph("inner", session).add_step(LoopNode("l", session, leaf, times=1))
    assert await value_of(session, Graph("g", session).add_step(inner), "x", {"max_rounds": 5}) == {
        "max_rounds": 5
    }


@pytest.mark.requirement("S1-35")
@pytest.mark.parametrize("kind", ["while", "until", "branch", "switch", "reduce", "machine", "input_fn"])
async def test_a_function_with_an_argument_params_receives_them(session: Session, kind: str) -> None:
    add = function_node(session, "add", lambda n: n + 1)
    n = MockNode("n", session)
    nodes: dict[str, Any] = {
        "while": lambda: WhileNode("x", session, lambda s, params: s.current_value < params["most"], add),
        "until": lambda: LoopNode(
            "x", session, add, until=lambda s, params: s.result["output"] >= params["most"]
        ),
        "branch": lambda: BranchNode(
            "x", session, lambda inp, params: inp < params["most"], MockNode("b", session, [3]), n
        ),
        "switch": lambda: SwitchNode(
            "x", session, lambda inp, *, params: str(params["most"]), {"3": MockNode("b", session, [3])}
        ),
        "reduce": lambda: ReduceNode("x", session, lambda acc, item, params: params["most"]),
        "machine": lambda: MachineNode(
            "x",
            session,
            {
                "a": State(n, lambda result, params: f"to{params['most']}"),
                "to3": State(MockNode("b", session, [3])),
            },
        ),
        "input_fn": lambda: Graph("x", session).add_step(n, input_fn=lambda up, params: params["most"]),
    }
    assert await value_of(session, nodes[kind](), 0, {"most": 3}) == 3


async def test_a_prompt_and_a_validator_receive_params(session: Session) -> None:
    gate = GateNode(
        "ask",
        session,
        lambda inp, params: f"{inp} {params['n']}?",
        validator=lambda a, params: a == params["n"],
    )
    session.register_workflow(gate)
    run = await session.start("ask", "Ship", {"n": "two"})
    await until(lambda: run.pending_gate)
    assert run.pending_gate is not None
    assert run.pending_gate.prompt == "Ship two?"
    run.answer_gate("two")
    assert await run.wait() == "two"


@pytest.mark.parametrize("fn", [lambda params: params > 0, lambda inp, most=1: inp < most + 1, bool])
async def test_functions_without_params_are_called_without_them(session: Session, fn: Any) -> None:
    node = BranchNode("b", session, fn, MockNode("yes", session, ["yes"]), MockNode("no", session, ["no"]))
    assert await value_of(session, node, 1, {"most": 3}) == "yes"


@pytest.mark.requirement("S1-35")
async def test_an_undeclared_parameter_is_rejected_and_defaults_are_filled_in(
    session: Session,
) -> None:
    leaf = FunctionNode("see", session, lambda context: context.params)
    session.register_workflow(Graph("g", session).add_step(leaf), params={"max_rounds": 3})
    assert await (await session.start("g")).wait() == {"max_rounds": 3}
    assert await (await session.start("g", params={"max_rounds": 5})).wait() == {"max_rounds": 5}
    with pytest.raises(ValueError, match=r"Unknown parameter 'max_round' of workflow 'g'.*max_rounds"):
        await session.start("g", params={"max_round": 5})


async def test_a_workflow_without_a_run_has_params_too(session: Session) -> None:
    leaf = FunctionNode("see", session, lambda context: context.params)
    workflow = session.register_workflow(Graph("g", session).add_step(leaf))
    assert await workflow.execute("x", {"a": 1}) == {"a": 1}
    assert ExecutionContext().params == {}
