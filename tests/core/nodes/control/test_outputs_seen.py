"""Views of outputs: user functions get the output with the interface of its Result."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from core.nodes.support import execute_node, function_node, run_node
from nerve import Graph, MockNode, Session
from nerve.core.nodes import ControlNode, Node
from nerve.core.nodes.control import BranchNode, GateNode, LoopNode, SwitchNode, WhileNode
from nerve.core.output_views import unwrap_view, view_output
from nerve.core.result import Result

OUTPUTS = ["text", 5, 2.5, {"a": 1}, [1, 2], None, True, False]

See = Callable[[Any], Any]
ASKING: dict[str, Callable[[Session, See], ControlNode]] = {
    "while": lambda s, see: WhileNode("x", s, lambda state: see(state.current_value), MockNode("n", s)),
    "branch": lambda s, see: BranchNode("x", s, see, MockNode("n", s)),
    "switch": lambda s, see: SwitchNode("x", s, see, {"a": MockNode("n", s)}),
    "prompt": lambda s, see: GateNode("x", s, lambda inp: str(see(inp)), auto_answer="yes"),
    "input_fn": lambda s, see: Graph("x", s).add_step(MockNode("n", s), input_fn=lambda up: see(up["input"])),
}


def placed(session: Session, node: Node, output: Any, place: str) -> tuple[Node, Any]:
    """Return the node with the input, after a step that returns it, or in a graph after that step."""
    if place == "first":
        return node, output
    inner = node if place == "after a step" else Graph("inner", session).add_step(node)
    if place == "in a loop":
        inner = LoopNode("again", session, inner, times=1)
    return Graph("g", session).chain(MockNode("before", session, [{"output": output}]), inner), None


PLACES = ["first", "after a step", "in a graph after a step", "in a loop"]


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("make", ASKING.values(), ids=ASKING)
@pytest.mark.parametrize("output", OUTPUTS, ids=repr)
async def test_a_view_behaves_like_the_output(
    session: Session, make: Callable[[Session, See], ControlNode], place: str, output: Any
) -> None:
    seen: list[Any] = []
    node, given = placed(session, make(session, lambda value: seen.append(value) or False), output, place)
    assert (await execute_node(node, given)).success
    assert seen == [output]
    assert isinstance(seen[0], type(output))
    assert f"{seen[0]}" == f"{output}"
    assert json.dumps(seen[0]) == json.dumps(output)


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("make", ASKING.values(), ids=ASKING)
@pytest.mark.parametrize("output", OUTPUTS, ids=repr)
async def test_a_view_has_the_interface_of_the_result(
    session: Session, make: Callable[[Session, See], ControlNode], place: str, output: Any
) -> None:
    seen: list[Any] = []

    def see(value: Any) -> bool:
        seen.append([value.get("output"), value["success"], value.output, value.get("nothing", 7)])
        return False

    node, given = placed(session, make(session, see), output, place)
    assert (await execute_node(node, given)).success
    assert seen == [[output, True, output, 7]]
    assert seen[0][0] is None or type(seen[0][0]) is type(output)


async def test_every_iteration_gets_the_same_kind_of_value(session: Session) -> None:
    kinds: list[Any] = []
    body = Graph("body", session).add_step(
        function_node(session, "add", lambda n: n + 1),
        input_fn=lambda up: kinds.append(type(up["input"])) or up["input"] + 0,
    )
    loop = WhileNode(
        "w", session, lambda state: kinds.append(type(state.current_value)) or state.current_value < 3, body
    )
    run = await run_node(session, Graph("g", session).chain(MockNode("zero", session, [0]), loop))
    assert await run.wait() == 3
    assert len(set(kinds)) == 1
    assert issubclass(kinds[0], int)


def test_the_keys_of_a_dict_take_precedence_over_those_of_the_result() -> None:
    seen = view_output(Result.ok({"success": False, "output": "mine"}, {"cost": 1}))
    assert (seen["success"], seen.get("output"), seen["attributes"]) == (False, "mine", {"cost": 1})
    assert (seen.success, seen.output) == (True, {"success": False, "output": "mine"})
    with pytest.raises(KeyError):
        seen["missing"]


def test_a_condition_sees_a_failed_iteration_as_failed() -> None:
    seen = view_output(Result.failed("no", "Broken", "half"))
    assert (seen, seen["success"], seen["error"], seen.error_type) == ("half", False, "no", "Broken")


@pytest.mark.parametrize("output", OUTPUTS, ids=repr)
def test_unwrapping_a_view_returns_its_source(output: Any) -> None:
    result = Result.ok(output)
    assert unwrap_view(view_output(output)) == output
    if output is not None and not isinstance(output, bool):
        assert unwrap_view(view_output(result)) is result


def test_a_number_view_is_not_iterable() -> None:
    with pytest.raises(TypeError):
        list(view_output(5))


async def test_a_function_that_fails_on_none_raises_the_original_error(session: Session) -> None:
    node = BranchNode("x", session, lambda inp: inp.missing > 3, MockNode("n", session))
    with pytest.raises(
        AttributeError, match="raised on NoneType: 'NoneType' object has no attribute 'missing'"
    ):
        await execute_node(node, None)


async def test_a_prompt_formats_the_output(session: Session) -> None:
    gate = GateNode("ok", session, lambda found: f"Ship {found}?", auto_answer="yes")
    graph = Graph("g", session).chain(MockNode("a", session, ["bug"]), gate)
    run = await run_node(session, graph)
    [asked] = [event.data for event in run.events if event.event_type == "gate_waiting"]
    assert asked["prompt"] == "Ship bug?"
