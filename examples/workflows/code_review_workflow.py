"""A review that repeats until a person accepts or rejects it.

Run it with `python examples/workflows/code_review_workflow.py`. The reviewer and the editor are canned
answers, and so is the person: first some feedback, then "accept".
"""

from __future__ import annotations

import asyncio

from nerve import Session
from nerve.core.nodes import MockNode
from nerve.core.workflow import Workflow, WorkflowContext, WorkflowEvent


async def code_review(ctx: WorkflowContext) -> str:
    """Review code until approved."""
    code = ctx.input

    while True:
        # Get review from Claude
        review = await ctx.run("reviewer", f"Review this:\n{code}")
        ctx.emit("review_complete", {"review": review["output"]})

        # Wait for human decision
        decision = await ctx.gate("Accept, reject, or provide feedback:")

        if decision.lower() == "accept":
            return review["output"]
        elif decision.lower() == "reject":  # noqa: RET505
            return "Review rejected"
        else:
            # Incorporate feedback and loop
            code = await ctx.run("editor", f"Apply feedback: {decision}\n\nCode:\n{code}")
            code = code["output"]


def register(session: Session) -> None:
    Workflow(id="code_review", session=session, fn=code_review)


def mock_agents(session: Session) -> None:
    MockNode("reviewer", session, ["Found 1 issue: `area` ignores its unit.", "No issues found."])
    MockNode("editor", session, ["def area(radius_m): return 3.14159 * radius_m**2"])


async def main() -> None:
    session = Session()
    mock_agents(session)
    register(session)
    answers = iter(["name the unit", "accept"])

    def watch(event: WorkflowEvent) -> None:
        show(event)
        if event.event_type == "gate_waiting":
            run = session.get_workflow_run(event.run_id)
            assert run is not None
            run.answer_gate(next(answers))

    run = await session.start("code_review", "def area(r): return 3.14159 * r**2", event_sink=watch)
    result = await run.wait()
    print(f"[workflow] code_review completed: {result}")


def show(event: WorkflowEvent) -> None:
    match event.event_type:
        case "workflow_started":
            print(f"[workflow] {event.workflow_id} started")
        case "node_completed":
            print(f"[{event.data['node_id']}] {event.data['result']['output']}")
        case "review_complete":
            print(f"[review_complete] {event.data['review']}")
        case "gate_waiting":
            print(f"[gate] {event.data['prompt']} ", end="")
        case "gate_answered":
            print(event.data["answer"])


if __name__ == "__main__":
    asyncio.run(main())
