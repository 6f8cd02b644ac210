"""`nerve run --dry-run`: a walk through a workflow with stub answers; nothing is executed or stored."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterable
from typing import Any

from nerve.cli.answers import Answers
from nerve.cli.exits import code_of
from nerve.cli.inputs import Given, params
from nerve.cli.project import Code, File, Project
from nerve.cli.providing import load
from nerve.cli.rehearse import Rehearsal, RehearsalSession, StubBuilder
from nerve.cli.run import check_answers
from nerve.cli.usage import UsageError
from nerve.commander.core.harmless import harmless, in_json
from nerve.core.workflow import WorkflowEvent, WorkflowRun
from nerve.spec.workflow import DefinedWorkflow
from nerve.testing.trace import trace


def walk_through(told: Given, answers: Iterable[str], as_json: bool, quiet: bool = False) -> int:
    """Walk, and print the trace: one line of JSON an entry, or one object with everything."""
    project = Project()
    target = project.target(told.target)
    if isinstance(target, Code):
        raise UsageError(f"{told.target} is Python, which would have to be executed: it has no dry run.")
    rehearsal = Rehearsal(Answers(answers))
    run, entries = asyncio.run(walked(project, target, told, rehearsal))
    state = run.state.value
    if as_json:
        walk = {"workflow": run.workflow_id, "state": state, "trace": entries, "notes": rehearsal.notes}
        print(in_json(walk))
    else:
        for entry in entries:
            print(in_json(entry))
    for note in [*([] if quiet else rehearsal.notes), *ending(run)]:
        print(harmless(f"dry run: {note}"), file=sys.stderr)
    return code_of(state)


async def walked(
    project: Project, target: File, told: Given, rehearsal: Rehearsal
) -> tuple[WorkflowRun, list[dict[str, Any]]]:
    """The run in memory, and its trace with those of its children in their places."""
    async with RehearsalSession(rehearsal, project.folder) as session:
        workflow = load(session, project, target)
        check_answers(session, workflow, rehearsal.answers)
        given = workflow.check_params(params(workflow, told.pairs))
        for each in session.workflows.values():
            if isinstance(each, DefinedWorkflow):
                each.builder, each.logged = StubBuilder, False
        run = WorkflowRun(workflow, told.input, given, run_id="dry-run")
        await run.start()
        await asyncio.wait([asyncio.ensure_future(run._ended())])

        def events_of(run_id: str) -> list[WorkflowEvent]:
            child = session.get_workflow_run(run_id)
            return child.events if child is not None else []

        return run, trace(run.events, events_of)


def ending(run: WorkflowRun) -> list[str]:
    """How the walk ended, if it did not get to the end."""
    info = run.to_info()
    if info.state.value == "completed":
        return []
    why = f": {info.error.splitlines()[0]}" if info.error else ""
    return [f"the walk ends as {info.state.value}{why}"]
