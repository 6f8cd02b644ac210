"""Developer, coach and reviewer, as a function and as the graph of the appendix."""

import pytest

from nerve.core.nodes import MockNode
from nerve.session import Session


@pytest.fixture
def team(example) -> Session:
    session = Session()
    module = example("dev_coach_review")
    module.mock_agents(session)
    module.register(session)
    return session


@pytest.mark.requirement("S1-15")
async def test_it_ends_with_a_merge(team, person) -> None:
    reader = person(team, "APPROVE")
    assert await reader.sees("dev_coach_review", "a stack") == {"success": True, "rounds": 2}
    told = reader.told("phase", "outer_round", "inner_round", "coach_accepted", "reviewer_accepted")
    assert told == [
        ("phase", {"name": "initial_dev"}),
        ("outer_round", {"round": 1, "max": 10}),
        ("inner_round", {"outer": 1, "inner": 1, "max": 30}),
        ("inner_round", {"outer": 1, "inner": 2, "max": 30}),
        ("coach_accepted", {"round": 2}),
        ("phase", {"name": "reviewer", "outer": 1}),
        ("outer_round", {"round": 2, "max": 10}),
        ("inner_round", {"outer": 2, "inner": 1, "max": 30}),
        ("inner_round", {"outer": 2, "inner": 2, "max": 30}),
        ("coach_accepted", {"round": 2}),
        ("phase", {"name": "reviewer", "outer": 2}),
        ("reviewer_accepted", {"round": 2}),
    ]
    assert team.nodes["dev"].calls == [
        "Implement: a stack",
        "Address:\nIt has no tests.",
        "Address:\nUse better names.",
    ]


@pytest.mark.requirement("S1-15")
async def test_no_merge_without_approval(team, person) -> None:
    assert await person(team, "not today").sees("dev_coach_review", "x") == {"success": False, "rounds": 2}


@pytest.mark.requirement("S1-15")
async def test_its_rounds_are_bounded_by_parameters(team, person) -> None:
    team.nodes["reviewer"] = MockNode(responses=["once more"])
    team.nodes["coach"] = MockNode(responses=["no"])
    reader = person(team)
    value = await reader.sees("dev_coach_review", "x", {"max_outer": 2, "max_inner": 3})
    assert value == {"success": False, "reason": "max_rounds", "rounds": 2}
    assert len(reader.told("inner_round")) == 6


@pytest.mark.requirement("S1-48")
async def test_the_graph_builds_and_runs(example, person) -> None:
    session = Session()
    module = example("dev_coach_review")
    module.mock_agents(session)
    graph = module.build_dev_coach_review(session)
    assert graph.steps == ["initial", "collaboration", "approve"]
    reader = person(session, "approve")
    assert await reader.sees("dev_coach_review", "a stack") == "approve"
    loops = [(data["loop_id"], data["max"]) for _, data in reader.told("loop_iteration")]
    coach = ("coach_loop", 30)
    assert loops == [("outer_loop", 10), coach, coach, ("outer_loop", 10), coach]
    assert len(session.nodes["dev"].calls) == 2


@pytest.mark.requirement("S1-48")
async def test_the_graph_asks_at_its_end(example, person) -> None:
    session = Session()
    module = example("dev_coach_review")
    module.mock_agents(session)
    module.build_dev_coach_review(session)
    reader = person(session, "approve")
    await reader.sees("dev_coach_review", "a stack")
    [(_, gate)] = reader.told("gate_waiting")
    assert (gate["node_id"], gate["prompt"]) == ("final_approval", "Workflow complete. Approve to merge?")
    assert session.list_workflows() == ["dev_coach_review"]
