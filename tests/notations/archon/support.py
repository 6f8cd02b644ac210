"""What the tests of Archon's notation share: a project with one workflow, and a run of it."""

import asyncio
from pathlib import Path
from typing import Any

from nerve import Session
from nerve.core.result import Result, was_skipped
from nerve.notations import open_document
from nerve.spec.builder import NodeBuilder
from nerve.spec.checker import check_document
from nerve.spec.scope import Scope
from nerve.testing import ScriptedProvider
from nerve.text.source import Document, InvalidDefinition, Problem

HEAD = "name: flow\ndescription: A workflow of Archon.\n"


def put_workflow(project: Path, text: str, name: str = "flow", **commands: str) -> Path:
    """Write a workflow and its commands into the folder of Archon."""
    for command, prompt in commands.items():
        path = project / f".archon/commands/defaults/{command}.md"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(prompt)
    path = project / f".archon/workflows/{name}.yaml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text if text.startswith(("name:", "{")) else HEAD + text)
    return path


def read(path: Path) -> Document:
    return open_document(path, path.parents[2])[0]


def problems_of(path: Path) -> list[Problem]:
    try:
        document = read(path)
    except InvalidDefinition as error:
        return error.problems
    return check_document(document).problems


def errors_of(path: Path) -> list[str]:
    return [problem.message for problem in problems_of(path) if problem.severity == "error"]


def nodes_of(data: Any) -> list[Any]:
    """Return the nodes of a spec."""
    body = data["body"]
    return list(body["steps"][0]["steps"] if body["kind"] == "sequence" else body["steps"])


class Outcome:
    """A run that has ended: the state and output of each step, and the prompts."""

    def __init__(self, state: str, output: Any, error: str, results: dict[str, Result], calls: list[Any]):
        self.run_id = ""
        self.state, self.output, self.error = state, output, error
        self.results, self.calls = results, calls

    @property
    def prompts(self) -> list[str]:
        return [call.prompt for call in self.calls]

    def state_of(self, id: str) -> str:
        result = self.results.get(id)
        if result is None or was_skipped(result):
            return "skipped"
        return "completed" if result.success else "failed"

    def text_of(self, id: str) -> str:
        return str(self.results[id].output).removesuffix("\n")


async def run_workflow(
    path: Path, answers: Any = None, input: Any = "the message", gates: tuple[str, ...] = (), **params: Any
) -> Outcome:
    """Run a workflow of a project with a scripted agent, answering its gates in order."""
    scopes: list[Scope] = []

    class ScopeRecorder(NodeBuilder):
        def __init__(self, scope: Scope, names: Any) -> None:
            super().__init__(scope, names)
            scopes.append(scope)

    provider = ScriptedProvider(answers or (lambda call: "fine"), "claude")
    session = Session(project=path.parents[2], providers={"claude": provider})
    workflow = None
    for other in sorted(path.parent.glob("*.yaml")):
        loaded = session.load(other)
        if other == path:
            workflow = loaded
    assert workflow is not None
    workflow.builder_class = ScopeRecorder
    run = await session.start(workflow.name, input, params)
    for answer in gates:
        await run.next_gate()
        await run.answer(answer)
    try:
        output, error = await run.wait(), ""
    except (Exception, asyncio.CancelledError) as failure:
        output, error = None, str(failure)
    await session.close()
    outcome = Outcome(run.state.value, output, error, dict(scopes[0].results), provider.calls)
    outcome.run_id = run.run_id
    return outcome
