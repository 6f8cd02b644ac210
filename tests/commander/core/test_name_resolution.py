"""Runs and gates by the names that people see on the screen."""

import pytest

from commander.core.events import run_told
from nerve.api.models import GateResponse, WorkflowResponse
from nerve.commander.core.name_resolution import (
    CommanderInputError,
    collect_completion_names,
    find_run_by_name,
    resolve_startable_name,
)
from nerve.commander.core.state import CommanderState


def desk(*runs: tuple[str, str, str]) -> CommanderState:
    made = CommanderState()
    made.merge_runs([run_told(id, state, workflow=workflow) for id, workflow, state in runs])
    return made


def test_a_run_is_meant_by_the_name_of_its_workflow_if_it_is_the_only_open_one() -> None:
    at = desk(("r1", "ship", "completed"), ("r2", "ship", "running"), ("r3", "slow", "completed"))
    assert find_run_by_name(at, "ship") == "r2"
    assert find_run_by_name(at, "slow") == "r3"
    assert [each.name for each in collect_completion_names(at).runs] == ["slow", "ship", "r1"]


def test_of_several_none_is_guessed() -> None:
    at = desk(("r1", "ship", "running"), ("r2", "ship", "waiting"))
    with pytest.raises(
        CommanderInputError, match=r"Run name 'ship' is ambiguous: r2 \(waiting\), r1 \(running\)"
    ):
        find_run_by_name(at, "ship")
    assert [each.name for each in collect_completion_names(at).runs] == ["r2", "r1"]


def test_a_run_is_meant_by_its_block() -> None:
    at = desk(("r1", "ship", "running"))
    block = at.show_run("r1")
    assert find_run_by_name(at, f"::{block.number}") == "r1"
    at.add_block("note", "no run")
    with pytest.raises(CommanderInputError, match="::2 is not a run"):
        find_run_by_name(at, "::2")


def test_ids_and_labels_are_for_the_server_to_find() -> None:
    at = desk(("r1", "ship", "running"))
    at.runs["r1"].label = "slow"
    at.merge_runs([run_told("r2", workflow="slow")])
    assert find_run_by_name(at, "slow") is None
    assert find_run_by_name(at, "r1") is None
    assert find_run_by_name(at, "never heard of") is None


def test_gates_of_the_same_name_are_offered_by_their_ids() -> None:
    at = desk(("r1", "ship", "waiting"), ("r2", "ship", "waiting"))
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
def test_a_name_of_another_kind_says_how_it_is_typed(kind: str, name: str, how: str) -> None:
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
