"""The conversations of a run: what each agent was asked, said and did, by thread."""

from __future__ import annotations

from dataclasses import field
from datetime import datetime

from nerve.core.events import STEP_START_EVENTS, WorkflowEvent
from nerve.core.step_names import step_label
from nerve.lazy_dataclass import dataclass
from nerve.ui.step_transcript import StepTranscript, TranscriptEntry


@dataclass(frozen=True, slots=True)
class AgentTurn:
    """One step that an agent executed."""

    run_id: str
    path: str
    """The path in the root run, below the calls of child runs."""
    name: str
    entries: list[TranscriptEntry]
    is_running: bool = False
    dropped_entries: int = 0
    """Older entries that are not kept."""


@dataclass(slots=True)
class AgentThread:
    """A conversation with an agent: its turns, oldest first."""

    id: str
    """The id that the provider gave it; the path of the step for a conversation without one."""
    provider: str = ""
    model: str = ""
    turns: list[AgentTurn] = field(default_factory=list)

    @property
    def started_at(self) -> datetime | None:
        return next((entry.at for turn in self.turns for entry in turn.entries), None)


class Conversation:
    """The transcripts of the agents of a run and its child runs; `apply_event` takes events in order."""

    def __init__(self) -> None:
        self._transcripts: dict[tuple[str, str], tuple[str, StepTranscript]] = {}
        """The run and the transcript of each step, by call path of the run and path of the step."""

    def apply_event(self, prefix: str, event: WorkflowEvent) -> None:
        """Add the next event of a run; `prefix` is the path of the call that started it, or empty."""
        key = prefix, event.path
        known = self._transcripts.get(key)
        if known is None or known[0] != event.run_id:
            if event.event_type not in STEP_START_EVENTS:
                return
            known = self._transcripts[key] = event.run_id, StepTranscript(event.path)
        known[1].apply_event(event)

    @property
    def threads(self) -> list[AgentThread]:
        """The conversations, in the order in which they began."""
        threads: dict[str, AgentThread] = {}
        for (prefix, path), (run_id, transcript) in self._transcripts.items():
            if not transcript.is_agent:
                continue
            thread_id = transcript.thread or prefix + path
            thread = threads.setdefault(thread_id, AgentThread(thread_id))
            thread.provider = transcript.provider or thread.provider
            thread.model = transcript.model or thread.model
            name = step_label(prefix + path)
            thread.turns.append(
                AgentTurn(
                    run_id,
                    prefix + path,
                    name,
                    transcript.entries,
                    transcript.is_running,
                    transcript.dropped_entries,
                )
            )
        return list(threads.values())
