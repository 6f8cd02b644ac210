"""A developer, a coach and a reviewer, then a person: as a function and as a graph.

Run it with `python examples/workflows/dev_coach_review.py`. The three agents are canned answers;
`nerve demo` shows the same loop with real tests and a real linter.
"""

from __future__ import annotations

import asyncio
from typing import Any

from nerve import Session
from nerve.core.nodes import FunctionNode, Graph, MockNode
from nerve.core.nodes.control import BranchNode, GateNode, WhileNode
from nerve.core.workflow import Workflow, WorkflowContext, WorkflowEvent


async def dev_coach_review_workflow(ctx: WorkflowContext) -> dict:
    """Dev + Coach + Reviewer collaboration."""

    task = ctx.input
    max_outer = ctx.params.get("max_outer", 10)
    max_inner = ctx.params.get("max_inner", 30)

    # Initial dev work
    ctx.emit("phase", {"name": "initial_dev"})
    dev_result = await ctx.run("dev", f"Implement: {task}")
    dev_response = dev_result["output"]

    outer_round = 0
    reviewer_accepted = False

    # Outer loop: Reviewer iterations
    while outer_round < max_outer and not reviewer_accepted:
        outer_round += 1
        ctx.emit("outer_round", {"round": outer_round, "max": max_outer})

        # Inner loop: Dev <-> Coach
        inner_round = 0
        coach_accepted = False

        while inner_round < max_inner and not coach_accepted:
            inner_round += 1
            ctx.emit(
                "inner_round",
                {
                    "outer": outer_round,
                    "inner": inner_round,
                    "max": max_inner,
                },
            )

            # Coach reviews
            coach_result = await ctx.run("coach", f"Review:\n{dev_response}")

            if "ACCEPTED" in coach_result["output"]:
                coach_accepted = True
                ctx.emit("coach_accepted", {"round": inner_round})
                break

            # Dev addresses feedback
            dev_result = await ctx.run("dev", f"Address:\n{coach_result['output']}")
            dev_response = dev_result["output"]

        # Reviewer check
        ctx.emit("phase", {"name": "reviewer", "outer": outer_round})
        reviewer_result = await ctx.run("reviewer", "Final review")

        if "APPROVED" in reviewer_result["output"]:
            reviewer_accepted = True
            ctx.emit("reviewer_accepted", {"round": outer_round})

    # Final gate
    if reviewer_accepted:
        approval = await ctx.gate("Reviewer approved. Merge?")
        return {"success": approval.lower() == "approve", "rounds": outer_round}

    return {"success": False, "reason": "max_rounds", "rounds": outer_round}


def register(session: Session) -> None:
    Workflow(
        id="dev_coach_review",
        session=session,
        fn=dev_coach_review_workflow,
        description="Dev + Coach + Reviewer collaboration",
    )


def build_dev_coach_review(session: Session) -> Graph:
    """Dev + Coach + Reviewer collaboration workflow."""

    # Inner loop body: Coach review -> Dev respond
    inner_body = Graph(id="_inner", session=session)
    inner_body.add_step_ref("coach", "review", input_fn=lambda up: up["input"])
    inner_body.add_step(
        BranchNode(
            id="_check_coach",
            session=session,
            condition=lambda inp: "ACCEPTED" not in inp.get("output", ""),
            then_branch=session.get_node("dev"),
        ),
        step_id="respond",
        depends_on=["review"],
    )

    # Inner loop
    inner_loop = WhileNode(
        id="coach_loop",
        session=session,
        condition=lambda s: "ACCEPTED" not in str(s.current_value),
        body=inner_body,
        max_iterations=30,
    )

    # Outer loop body: Inner loop -> Reviewer
    outer_body = Graph(id="_outer", session=session)
    outer_body.add_step(inner_loop, "dev_coach")
    outer_body.add_step_ref("reviewer", "review", depends_on=["dev_coach"])
    outer_body.add_step(
        BranchNode(
            id="_check_reviewer",
            session=session,
            condition=lambda inp: "APPROVED" in inp.get("output", ""),
            then_branch=FunctionNode(id="_done", session=session, fn=lambda c: {"done": True}),
            else_branch=session.get_node("coach"),  # Process feedback
        ),
        step_id="decide",
        depends_on=["review"],
    )

    # Main workflow
    workflow = Graph(id="dev_coach_review", session=session)
    workflow.add_step_ref("dev", "initial", input_fn=lambda up: up.get("input"))
    workflow.add_step(
        WhileNode(
            id="outer_loop",
            session=session,
            condition=lambda s: not s.current_value.get("done"),
            body=outer_body,
            max_iterations=10,
        ),
        step_id="collaboration",
        depends_on=["initial"],
    )
    workflow.add_step(
        GateNode(
            id="final_approval",
            session=session,
            prompt="Workflow complete. Approve to merge?",
        ),
        step_id="approve",
        depends_on=["collaboration"],
    )

    session.register_workflow(workflow)
    return workflow


def mock_agents(session: Session) -> None:
    MockNode("dev", session, ["first draft", "second draft, with tests", "third draft, with better names"])
    MockNode("coach", session, ["It has no tests.", "ACCEPTED", "Use better names.", "ACCEPTED"])
    MockNode("reviewer", session, ["The names say nothing.", "APPROVED"])


async def run_once(session: Session) -> Any:
    """Start the workflow that is registered, say what happens, and answer its gate."""

    def watch(event: WorkflowEvent) -> None:
        if event.event_type in ("outer_round", "inner_round", "loop_iteration"):
            print(f"[{event.event_type}] {event.data}")
        elif event.event_type == "gate_waiting":
            print(f"[gate] {event.data['prompt']} approve")
            run = session.get_workflow_run(event.run_id)
            assert run is not None
            run.answer_gate("approve")

    run = await session.start("dev_coach_review", "a stack with push and pop", event_sink=watch)
    return await run.wait()


async def main() -> None:
    for title, add_workflow in (("function", register), ("graph", build_dev_coach_review)):
        session = Session()
        mock_agents(session)
        add_workflow(session)
        print(f"as a {title}:")
        print(await run_once(session))


if __name__ == "__main__":
    asyncio.run(main())
