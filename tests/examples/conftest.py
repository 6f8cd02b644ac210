"""What the tests of the examples share."""

from collections.abc import Callable, Iterable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from both_engines import parametrize_engine
from nerve.core.workflow import WorkflowEvent, WorkflowRun
from nerve.session import Session
from restored_leaves import restore_leaves

EXAMPLES = Path(__file__).parents[2] / "examples/workflows"


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run the examples with both engines."""
    parametrize_engine(metafunc)


@pytest.fixture(autouse=True)
def _restored_leaves(engine: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every leaf of an example can be executed by another process, which is so in Temporal."""
    if engine == "local":
        restore_leaves(monkeypatch)


@pytest.fixture
def example() -> Callable[[str], ModuleType]:
    """An example as a module, by its file name."""

    def load(name: str) -> ModuleType:
        module = ModuleType(name)
        source = EXAMPLES / f"{name}.py"
        exec(compile(source.read_text(), str(source), "exec"), module.__dict__)  # noqa: S102
        return module

    return load


class Person:
    """Answers every gate as it opens, and remembers all events."""

    def __init__(self, session: Session, answers: Iterable[str]) -> None:
        self.session, self.answers = session, iter(answers)
        self.events: list[WorkflowEvent] = []

    def emit(self, event: WorkflowEvent) -> None:
        self.events.append(event)
        if event.event_type == "gate_waiting":
            run = self.session.get_workflow_run(event.run_id)
            assert isinstance(run, WorkflowRun)
            run.answer_gate(next(self.answers))

    async def sees(self, workflow: str, *given: Any) -> Any:
        """The value of a run that this person looks after."""
        run = await self.session.start(workflow, *given, event_sink=self)
        value = await run.wait()
        self.events = run.events
        return value

    def told(self, *types: str) -> list[tuple[str, dict[str, Any]]]:
        return [(str(e.event_type), e.data) for e in self.events if e.event_type in types]


@pytest.fixture
def person() -> Callable[..., Person]:
    return lambda session, *answers: Person(session, answers)
