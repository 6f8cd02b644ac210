"""What a step costs beside its own work, and where the parts of the notation are."""

import json
from importlib import import_module

import pytest

from nerve import FunctionNode, Session

STEPS = 20


@pytest.mark.requirement("S2-26")
async def test_a_step_costs_far_less_than_fifty_milliseconds_beside_its_own_work() -> None:
    session = Session()
    FunctionNode("echo", session, lambda context: context.input["input"])
    steps = [{"id": f"s{n}", "type": "agent", "agent": "echo", "next": f"s{n + 1}"} for n in range(STEPS)]
    del steps[-1]["next"]
    session.load(json.dumps({"id": "chain", "steps": steps}))
    run = await session.start("chain", "x")
    await run.wait()
    work = sum(event.data["duration_ms"] for event in run.events if event.event_type == "node_completed")
    whole = (run.events[-1].timestamp - run.events[0].timestamp).total_seconds() * 1000
    assert (whole - work) / STEPS < 50


@pytest.mark.requirement("S2-28")
def test_types_schema_context_reader_and_loader_are_where_they_are_looked_for() -> None:
    steps = import_module("nerve.notations.json_steps")
    assert all(
        hasattr(steps, name)
        for name in ("read_document", "write_document", "create_context", "WorkflowContext", "StepResult")
    )
    assert hasattr(import_module("nerve.project.config"), "read_config")
    assert hasattr(import_module("nerve.notations.json_schemas"), "steps_schema")
    assert hasattr(import_module("nerve.notations.workflow_files"), "discover")
