"""Following a run and its child runs: what is new, what is running, and what is waited for."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from nerve.commander.core.waits import STARTS, needs_somebody, note_wait
from nerve.core.session import Session
from nerve.core.workflow import WorkflowEvent, WorkflowRun


@dataclass(slots=True)
class Followed:
    """One run: how far it was read, and its open waits by their paths."""

    run: WorkflowRun
    prefix: str = ""
    """The path of the call that started it."""
    seq: int = 0
    waits: dict[str, WorkflowEvent] = field(default_factory=dict)

    def apply(self, event: WorkflowEvent) -> None:
        self.seq = event.seq
        note_wait(self.waits, event)


class Following:
    """A run, and the runs it has started as they come."""

    def __init__(self, session: Session, run: WorkflowRun) -> None:
        self._session = session
        self.runs = [Followed(run)]

    async def news(self) -> list[tuple[Followed, WorkflowEvent]]:
        """What was written since the last look, each event with its run."""
        found: list[tuple[Followed, WorkflowEvent]] = []
        for followed in self._each():
            for event in await followed.run.history(after=followed.seq):
                followed.apply(event)
                found.append((followed, event))
                if event.event_type in STARTS and "child" in event.data:
                    self._take(followed, event)
        return sorted(found, key=lambda pair: pair[1].timestamp)

    def _each(self) -> Iterator[Followed]:
        """Also those that are added while going through."""
        n = 0
        while n < len(self.runs):
            yield self.runs[n]
            n += 1

    def _take(self, parent: Followed, event: WorkflowEvent) -> None:
        child = self._session.get_workflow_run(event.data["child"])
        if child is not None:
            self.runs.append(Followed(child, parent.prefix + event.path))

    @property
    def waits(self) -> list[WorkflowEvent]:
        """Everything that is waited for, in all the runs."""
        return [wait for followed in self.runs for wait in followed.waits.values()]

    @property
    def stands(self) -> bool:
        """Whether nothing goes on unless somebody answers, or asserts a fact."""
        waits = self.waits
        # The start of a leaf is written in the background, so the journal alone may be behind.
        running = [drive.calls.running for drive in self._session.engine.drives.values()]
        return (
            bool(waits)
            and not any(running)
            and all(wait.event_type == "gate_waiting" or needs_somebody(wait.data) for wait in waits)
        )
