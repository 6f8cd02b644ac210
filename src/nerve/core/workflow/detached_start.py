"""The leaf that starts a run which outlives the run that starts it."""

from __future__ import annotations

from typing import Any

from nerve.core.nodes.base import Node
from nerve.core.nodes.context import ExecutionContext
from nerve.core.result import Result
from nerve.core.workflow.run import WorkflowRun


class StartNode(Node):
    """Starts a run of a workflow, once; its output is the id of the run."""

    async def execute(self, context: ExecutionContext) -> Result:
        session: Any = context.session
        given = context.input
        workflow = session.get_workflow(given["workflow"])
        if workflow is None:
            raise ValueError(f"Workflow '{given['workflow']}' not found")
        about = given["about"] | ({"modules": list(session.modules)} if session.modules else {})
        # The id derives from the run and the path, so that a crash does not start a second run.
        run_id = context.leaf_runtime.derive_run_id()
        run = WorkflowRun(workflow, given["input"], given["params"], run_id=run_id, about=about)
        await session.engine.start_detached(run, {"run": context.run_id, "path": context.path})
        return Result.ok(run_id)
