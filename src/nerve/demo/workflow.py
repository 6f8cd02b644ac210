"""The demo workflow: dev, coach and reviewer until both checks pass, then a gate."""

from __future__ import annotations

import asyncio
import shutil
import sys
from typing import Any

from nerve.core.nodes import BashNode, ExecutionContext
from nerve.core.workflow import Workflow, WorkflowContext
from nerve.demo.scratch_project import VERSIONS, ScratchProject
from nerve.session import Session

WORKFLOW_NAME = "dev_coach_review"
COACH_COMMAND = "python -B -m unittest"
REVIEWER_COMMAND = "python -W error -m py_compile"
MAX_ROUNDS = 5
CRASH_IN_VERSION = 3


async def dev_coach_review(ctx: WorkflowContext) -> dict[str, Any]:
    """Develop until the tests and the linter pass, then ask whether to merge."""
    version = 1
    await ctx.run("dev", {"version": version, "told": ctx.input})

    for outer in range(1, MAX_ROUNDS + 1):
        ctx.emit("outer_round", {"round": outer, "max": MAX_ROUNDS})
        coach = await ctx.run("coach")
        while not coach["success"] and version < len(VERSIONS):
            version += 1
            await ctx.run("dev", {"version": version, "told": coach.output})
            coach = await ctx.run("coach")

        review = await ctx.run("reviewer")
        if review["success"]:
            ctx.emit("reviewer_accepted", {"round": outer})
            answer = await ctx.gate("Reviewer approved. Merge?", choices=["approve", "reject"])
            if answer == "approve":
                await ctx.run("merge", effect="once")
            return {"success": answer == "approve", "rounds": outer}

        version = min(version + 1, len(VERSIONS))
        await ctx.run("dev", {"version": version, "told": review.output})

    return {"success": False, "reason": "max_rounds", "rounds": MAX_ROUNDS}


class CrashPoint:
    """The point at which the demo process is killed: the agent blocks halfway through a file."""

    def __init__(self) -> None:
        self.reached = asyncio.Event()

    async def reach(self) -> None:
        self.reached.set()
        await asyncio.Event().wait()


def register_demo(
    session: Session,
    project: ScratchProject,
    line_delay_s: float = 0.0,
    crash_point: CrashPoint | None = None,
) -> None:
    """Register the nodes and the workflow. The scripted agent takes `line_delay_s` seconds per line."""

    @session.node
    async def dev(context: ExecutionContext) -> str:
        project.log_effect("dev", context.idempotency_key)
        number = context.input["version"]
        what, text = VERSIONS[number - 1]
        lines = text.splitlines(keepends=True)
        with (project.work_folder / "slug.py").open("w") as file:
            for index, line in enumerate(lines):
                if crash_point is not None and number == CRASH_IN_VERSION and index == len(lines) // 2:
                    await crash_point.reach()
                file.write(line)
                file.flush()
                await asyncio.sleep(line_delay_s)
        return f"version {number}: {what}"

    @session.node
    async def merge(context: ExecutionContext) -> str:
        project.log_effect("merge", context.idempotency_key)
        shutil.copy(project.work_folder / "slug.py", project.merged_folder / "slug.py")
        return "slug.py copied into the project"

    for name, command in (
        ("coach", COACH_COMMAND),
        ("reviewer", f"{REVIEWER_COMMAND} slug.py && echo no warnings"),
    ):
        BashNode(
            name,
            session,
            logged_shell_command(name, command),
            cwd=project.work_folder,
            env={"EFFECTS": str(project.effects_log), "PYTHON": sys.executable},
        )
    Workflow(id=WORKFLOW_NAME, session=session, fn=dev_coach_review)


def logged_shell_command(name: str, command: str) -> str:
    """Return a shell command that records an effect and then runs with this Python interpreter."""
    command = command.replace("python", '"$PYTHON"', 1)
    return f'echo "{name} $NERVE_IDEMPOTENCY_KEY" >> "$EFFECTS"; {{ {command}; }} 2>&1'
