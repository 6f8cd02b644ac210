"""Runs and gates by the names that people see on the screen."""

import pytest

from commander.core.events import run_told
from nerve.api.models import GateTold, WorkflowTold
from nerve.commander.core.desk import Desk
from nerve.commander.core.naming import Unknown, names, run_named, startable


def desk(*runs: tuple[str, str, str]) -> Desk:
    made = Desk()
    made.list_runs([run_told(id, state, workflow=workflow) for id, workflow, state in runs])
    return made


def test_a_run_is_meant_by_the_name_of_its_workflow_if_it_is_the_only_open_one() -> None:
    at = desk(("r1", "ship", "completed"), ("r2", "ship", "running"), ("r3", "slow", "completed"))
    assert run_named(at, "ship") == "r2"
    assert run_named(at, "slow") == "r3"
    assert [each.name for each in names(at).runs] == ["slow", "ship", "r1"]


def test_of_several_none_is_guessed() -> None:
    at = desk(("r1", "ship", "running"), ("r2", "ship", "waiting"))
    with pytest.raises(Unknown, match=r"'ship' could be several runs: r2 \(waiting\), r1 \(running\)"):
        run_named(at, "ship")
    assert [each.name for each in names(at).runs] == ["r2", "r1"]


def test_a_run_is_meant_by_its_block() -> None:
    at = desk(("r1", "ship", "running"))
    block = at.follow("r1")
    assert run_named(at, f"::{block.number}") == "r1"
    at.say("note", "no run")
    with pytest.raises(Unknown, match="::2 is no run"):
        run_named(at, "::2")


def test_ids_and_labels_are_for_the_server_to_find() -> None:
    at = desk(("r1", "ship", "running"))
    at.runs["r1"].label = "slow"
    at.list_runs([run_told("r2", workflow="slow")])
    assert run_named(at, "slow") is None
    assert run_named(at, "r1") is None
    assert run_named(at, "never heard of") is None


def test_gates_of_the_same_name_are_offered_by_their_ids() -> None:
    at = desk(("r1", "ship", "waiting"), ("r2", "ship", "waiting"))
    gates = [GateTold(gate_id=f"g{n}", run_id=f"r{n}", path="/ok", prompt="Ship it?") for n in (1, 2)]
    at.list_gates([*gates, GateTold(gate_id="g3", run_id="r2", path="/no", prompt="Why?")])
    assert [each.name for each in names(at).gates] == ["g1", "g2", "no"]


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
    at = Desk()
    at.graphs, at.nodes = ["simple_pipeline"], ["reviewer"]
    at.workflows = [WorkflowTold(id="ship", kind="python")]
    with pytest.raises(Unknown) as raised:
        startable(at, kind, name)
    assert str(raised.value) == how


def test_a_graph_that_is_a_workflow_is_listed_once() -> None:
    at = Desk()
    at.graphs = ["review"]
    at.workflows = [WorkflowTold(id="review", kind="graph")]
    with pytest.raises(Unknown, match=r"There are: review\.$"):
        startable(at, "graph", "zzzzzz")
