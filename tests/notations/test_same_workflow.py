"""The same workflow does the same in every notation: one folder a workflow, one expected trace for all."""

import asyncio
import json
from collections.abc import Callable, Iterable
from pathlib import Path
from runpy import run_path
from shutil import copytree
from typing import Any

import pytest

from nerve import Session, Workflow, WorkflowContext
from nerve.core.events import WorkflowEvent
from nerve.core.nodes import MockNode
from nerve.core.workflow import WorkflowRun
from nerve.errors import NerveError
from nerve.notations import NOTATIONS, SUFFIXES
from nerve.testing.trace import trace
from restored_leaves import restore_leaves

HERE = Path(__file__).parent
FOLDERS = sorted(path.parent for path in HERE.glob("*/expected.json"))
FILES = [
    file
    for folder in FOLDERS
    for file in sorted(folder.iterdir())
    if file.suffix in (".py", *SUFFIXES) and file.name not in ("scene.json", "expected.json")
]


def told(file: Path) -> str:
    return f"{file.parent.name}/{file.name}"


@pytest.mark.parametrize("file", FILES, ids=told)
async def test_a_workflow_leaves_the_same_trace_in_every_notation(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert restore_leaves(monkeypatch) == []
    assert await played(file) == json.loads((file.parent / "expected.json").read_text())


@pytest.mark.parametrize("file", [file for file in FILES if file.suffix != ".py"], ids=told)
@pytest.mark.parametrize("notation", NOTATIONS)
async def test_a_converted_workflow_leaves_the_same_trace(file: Path, notation: str, tmp_path: Path) -> None:
    converted = convert(file, notation, tmp_path)
    assert await played(converted, file.parent) == json.loads((file.parent / "expected.json").read_text())


def convert(file: Path, notation: str, folder: Path) -> Path:
    """The workflow in the full form of a notation, with its prompts beside it."""
    data = SUFFIXES[file.suffix].read(file.read_text(), str(file)).data
    converted = folder / f"converted{NOTATIONS[notation].suffixes[0]}"
    converted.write_text(NOTATIONS[notation].write(data))
    if (prompts := file.parent / "steps").is_dir():
        copytree(prompts, folder / "steps")
    return converted


def test_every_folder_has_every_notation() -> None:
    for folder in FOLDERS:
        kinds = {file.suffix for file in FILES if file.parent == folder}
        assert kinds == {".py", ".json", ".yaml", ".lisp"}, folder.name


async def played(file: Path, folder: Path | None = None) -> dict[str, Any]:
    """How a run ended, with which value, and what it did; the nodes answer what the scene says."""
    folder = folder or file.parent
    scene = json.loads((folder / "scene.json").read_text())
    async with Session(project=file.parent) as session:
        for name, answers in scene["answers"].items():
            MockNode(name, session, scripted(answers))
            Workflow(f"ask-{name}", session, asking(name))
        if file.suffix == ".py":
            run_path(str(file))["register"](session)
        else:
            session.load(file)
        run = await session.start(folder.name, scene["input"], event_sink=Person(session, scene["gates"]))
        try:
            value = await run.wait()
        except (NerveError, asyncio.CancelledError):
            value = None
        return {
            "state": run.state.value,
            "value": value,
            "trace": trace(run.events, lambda id: events_of(session, id)),
        }


def scripted(answers: Any) -> list[Any]:
    """Answers in turn, or by what is asked."""
    if isinstance(answers, dict):
        return [answers.__getitem__]
    return [
        failing(answer) if isinstance(answer, dict) and "error" in answer else answer for answer in answers
    ]


def failing(answer: dict[str, str]) -> Exception:
    return RuntimeError(answer["error"])


def asking(name: str) -> Callable[[WorkflowContext], Any]:
    """A workflow that hands its input to a node, for a notation whose agents are given more than that."""

    async def ask(ctx: WorkflowContext) -> Any:
        return (await ctx.run(name, ctx.input)).output

    return ask


def events_of(session: Session, id: str) -> list[WorkflowEvent]:
    run = session.get_workflow_run(id)
    return run.events if run else []


class Person:
    """Answers the gates in turn."""

    def __init__(self, session: Session, answers: Iterable[str]) -> None:
        self.session, self.answers = session, iter(answers)

    def emit(self, event: WorkflowEvent) -> None:
        if event.event_type == "gate_waiting":
            run = self.session.get_workflow_run(event.run_id)
            assert isinstance(run, WorkflowRun)
            run.answer_gate(next(self.answers))
