"""Resolution of the names of runs and gates."""

import pytest

from commander.core.events import make_run
from nerve.api.models import GateResponse, WorkflowResponse
from nerve.commander.core.name_resolution import (
    CommanderInputError,
    collect_completion_names,
    find_run_by_name,
    resolve_startable_name,
)
from nerve.commander.core.state import CommanderState


def make_state(*runs: tuple[str, str, str]) -> CommanderState:
    result = CommanderState()
    result.merge_runs([make_run(id, state, workflow=workflow) for id, workflow, state in runs])
    return result


def test_a_workflow_name_identifies_its_only_open_run() -> None:
    at = make_state(("r1", "ship", "completed"), ("r2", "ship", "running"), ("r3", "slow", "completed"))
    assert find_run_by_name(at, "ship") == "r2"
    assert find_run_by_name(at, "slow") == "r3"
    assert [each.name for each in collect_completion_names(at).runs] == ["slow", "ship", "r1"]


def test_an_ambiguous_name_is_rejected() -> None:
    at = make_state(("r1", "ship", "running"), ("r2", "ship", "waiting"))
    with pytest.raises(
        CommanderInputError, match=r"Run name 'ship' is ambiguous: r2 \(waiting\), r1 \(running\)"
    ):
        find_run_by_name(at, "ship")
    assert [each.name for each in collect_completion_names(at).runs] == ["r2", "r1"]


def test_a_block_reference_identifies_its_run() -> None:
    at = make_state(("r1", "ship", "running"))
    block = at.show_run("r1")
    assert find_run_by_name(at, f"::{block.number}") == "r1"
    at.add_block("note", "no run")
    with pytest.raises(CommanderInputError, match="::2 is not a run"):
        find_run_by_name(at, "::2")


def test_ids_and_labels_are_resolved_by_the_server() -> None:
    at = make_state(("r1", "ship", "running"))
    at.runs["r1"].label = "slow"
    at.merge_runs([make_run("r2", workflow="slow")])
    assert find_run_by_name(at, "slow") is None
    assert find_run_by_name(at, "r1") is None
    assert find_run_by_name(at, "never heard of") is None


def test_gates_with_the_same_name_are_completed_by_id() -> None:
    at = make_state(("r1", "ship", "waiting"), ("r2", "ship", "waiting"))
    gates = [GateResponse(gate_id=f"g{n}", run_id=f"r{n}", path="/ok", prompt="Ship it?") for n in (1, 2)]
    at.replace_gates([*gates, GateResponse(gate_id="g3", run_id="r2", path="/no", prompt="Why?")])
    assert [each.name for each in collect_completion_names(at).gates] == ["g1", "g2", "no"]


@pytest.mark.parametrize(
    ("kind", "name", "how"),
    [
        (
            "workflow",
            "simple_pipeline",
            "'simple_pipeline' is a graph, not a workflow: type #simple_pipeline.",
        ),
        ("workflow", "reviewer", "'reviewer' is a node, not a workflow: type @reviewer."),
        ("graph", "ship", "'ship' is a workflow, not a graph: type %ship."),
    ],
)
def test_a_name_of_another_kind_suggests_its_prefix(kind: str, name: str, how: str) -> None:
    at = CommanderState()
    at.graphs, at.nodes = ["simple_pipeline"], ["reviewer"]
    at.workflows = [WorkflowResponse(id="ship", kind="python")]
    with pytest.raises(CommanderInputError) as raised:
        resolve_startable_name(at, kind, name)
    assert str(raised.value) == how


def test_a_graph_that_is_a_workflow_is_listed_once() -> None:
    at = CommanderState()
    at.graphs = ["review"]
    at.workflows = [WorkflowResponse(id="review", kind="graph")]
    with pytest.raises(CommanderInputError, match=r"Available: review\.$"):
        resolve_startable_name(at, "graph", "zzzzzz")
