"""An agent that searches until it knows enough, writes a summary and asks for approval.

Run it with `python examples/workflows/research_agent.py`. The same workflow is there twice: as a function
and as a graph. Searcher, evaluator and writer are canned answers.
"""

from __future__ import annotations

import asyncio
from typing import Any

from nerve import Session
from nerve.core.nodes import FunctionNode, Graph, MockNode
from nerve.core.nodes.control import GateNode, WhileNode
from nerve.core.workflow import Workflow, WorkflowContext, WorkflowEvent


async def research_workflow(ctx: WorkflowContext) -> dict:
    """Research agent - searches until sufficient info, then synthesizes."""

    query = ctx.input
    max_iterations = ctx.params.get("max_iterations", 5)

    ctx.emit("phase", {"name": "research", "query": query})

    findings = []
    iteration = 0

    # Plain Python while loop!
    while iteration < max_iterations:
        iteration += 1
        ctx.emit("iteration", {"current": iteration, "max": max_iterations})

        # Search
        search_result = await ctx.run("searcher", f"Search for: {query}")
        findings.append(search_result["output"])

        # Evaluate
        eval_result = await ctx.run("evaluator", f"Is this sufficient?\n{findings[-1]}")

        # Plain Python if statement!
        if "SUFFICIENT" in eval_result["output"]:
            ctx.emit("phase", {"name": "sufficient", "iterations": iteration})
            break

        # Refine query
        refine_result = await ctx.run("evaluator", f"Suggest better query for: {query}")
        query = refine_result["output"]

    # Synthesize
    ctx.emit("phase", {"name": "synthesize"})
    all_findings = "\n---\n".join(findings)
    synthesis = await ctx.run("writer", f"Synthesize:\n{all_findings}")

    # Gate - wait for human approval
    approval = await ctx.gate(f"Research complete. Approve?\n\nPreview:\n{synthesis['output'][:500]}...")

    if approval.lower() != "approve":
        return {"success": False, "reason": "rejected", "feedback": approval}

    return {
        "success": True,
        "answer": synthesis["output"],
        "iterations": iteration,
    }


# Registration
def register(session: Session) -> None:
    Workflow(
        id="research_agent",
        session=session,
        fn=research_workflow,
        description="Research and synthesize information",
    )


def build_research_workflow(session: Session) -> Graph:
    """The same as a graph of control nodes."""
    search = Graph(id="_search", session=session)
    search.add_step_ref("searcher", "search")
    search.add_step_ref("evaluator", "evaluate", depends_on=["search"])

    workflow = Graph(id="research_graph", session=session)
    workflow.add_step(
        WhileNode(
            id="search_loop",
            session=session,
            condition=lambda s: "SUFFICIENT" not in str(s.current_value),
            body=search,
            max_iterations=5,
        ),
        "research",
    )
    workflow.add_step_ref("writer", "synthesize", depends_on=["research"])
    workflow.add_step(
        GateNode(id="research_approval", session=session, prompt="Research complete. Approve to finalize?"),
        "approve",
        depends_on=["synthesize"],
    )
    workflow.add_step(
        FunctionNode(id="_answer", session=session, fn=lambda context: context.input),
        "answer",
        depends_on=["synthesize", "approve"],
        input_fn=lambda up: {"answer": up["synthesize"]["output"], "approval": up["approve"]["output"]},
    )
    session.register_workflow(workflow)
    return workflow


def mock_agents(session: Session) -> None:
    MockNode("searcher", session, ["Found: exceptions and codes", "Found: Result, the ? operator, thiserror"])
    MockNode("evaluator", session, ["too thin", "Rust error handling Result", "SUFFICIENT"])
    MockNode("writer", session, ["Summary: return Result, pass errors on with `?`, panic only for bugs."])


async def main() -> None:
    session = Session()
    mock_agents(session)
    register(session)

    def watch(event: WorkflowEvent) -> None:
        if event.event_type in ("phase", "iteration"):
            print(f"[{event.event_type}] {event.data}")
        elif event.event_type == "gate_waiting":
            print(f"[gate] {event.data['prompt']}\n> approve")
            run = session.get_workflow_run(event.run_id)
            assert run is not None
            run.answer_gate("approve")

    question = "What are Rust error handling best practices?"
    run = await session.start("research_agent", question, {"max_iterations": 3}, event_sink=watch)
    result: dict[str, Any] = await run.wait()
    print(result)


if __name__ == "__main__":
    asyncio.run(main())
