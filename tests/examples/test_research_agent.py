"""The research agent, as a function and as a graph."""

import pytest

from nerve.core.nodes import ExecutionContext, MockNode
from nerve.core.nodes.control import GateNode
from nerve.session import Session

ANSWER = "Summary: return Result, pass errors on with `?`, panic only for bugs."


@pytest.fixture
def agent(example) -> Session:
    session = Session()
    module = example("research_agent")
    module.mock_agents(session)
    module.register(session)
    return session


@pytest.mark.requirement("S1-15")
async def test_it_searches_until_it_knows_enough(agent, person) -> None:
    reader = person(agent, "Approve")
    value = await reader.sees("research_agent", "errors in Rust")
    assert value == {"success": True, "answer": ANSWER, "iterations": 2}
    assert reader.told("phase", "iteration") == [
        ("phase", {"name": "research", "query": "errors in Rust"}),
        ("iteration", {"current": 1, "max": 5}),
        ("iteration", {"current": 2, "max": 5}),
        ("phase", {"name": "sufficient", "iterations": 2}),
        ("phase", {"name": "synthesize"}),
    ]
    assert agent.nodes["searcher"].calls[1] == "Search for: Rust error handling Result"


@pytest.mark.requirement("S1-15")
async def test_its_iterations_are_a_parameter(agent, person) -> None:
    agent.nodes["evaluator"] = MockNode(responses=["too thin"])
    reader = person(agent, "approve")
    value = await reader.sees("research_agent", "errors", {"max_iterations": 3})
    assert value == {"success": True, "answer": ANSWER, "iterations": 3}
    assert ("iteration", {"current": 3, "max": 3}) in reader.told("iteration")


@pytest.mark.requirement("S1-15")
async def test_a_rejection_is_told_with_its_feedback(agent, person) -> None:
    value = await person(agent, "more on panics").sees("research_agent", "errors")
    assert value == {"success": False, "reason": "rejected", "feedback": "more on panics"}


@pytest.mark.requirement("S1-45")
async def test_the_graph_with_mocks_and_a_gate_that_answers_itself(example) -> None:
    session = Session()
    session.nodes["searcher"] = MockNode(responses=["Found: X, Y, Z"])
    session.nodes["evaluator"] = MockNode(responses=["SUFFICIENT"])
    session.nodes["writer"] = MockNode(responses=["Summary: ..."])
    workflow = example("research_agent").build_research_workflow(session)
    for step in workflow._steps.values():
        if isinstance(step.node, GateNode):
            step.node._auto_approve = True
    result = await workflow.execute(ExecutionContext(session=session, input="What is X?"))
    assert result["success"] is True
    assert "Summary" in result["output"]["answer"]


@pytest.mark.requirement("S1-45")
async def test_the_graph_runs_as_a_workflow(example, person) -> None:
    session = Session()
    module = example("research_agent")
    module.mock_agents(session)
    module.build_research_workflow(session)
    reader = person(session, "approve")
    value = await reader.sees("research_graph", "errors in Rust")
    assert value == {"answer": ANSWER, "approval": "approve"}
    assert len(reader.told("loop_iteration")) == 3
