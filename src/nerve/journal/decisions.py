"""The decisions in a journal: what a person, a program or a rule has decided about a run, and who it was."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import field
from typing import Any

from nerve.core.events import JournalRow, WorkflowEventType
from nerve.core.gates import gate_hash
from nerve.journal.events import (
    Event,
    GateAnswered,
    GateClaimed,
    GateDelegated,
    GateEscalated,
    GateReleased,
    GateTimeout,
    GateVoted,
    GateWaiting,
    RunCancelled,
    RunChanged,
    RunPaused,
    RunResumed,
    RunStarted,
    RunStopping,
    Steered,
    decode_event,
)
from nerve.journal.gate_info import gate_info
from nerve.lazy_dataclass import dataclass

DECISION_TYPES = frozenset(
    {
        WorkflowEventType.STARTED,
        WorkflowEventType.GATE_WAITING,
        WorkflowEventType.GATE_ANSWERED,
        WorkflowEventType.GATE_VOTED,
        WorkflowEventType.GATE_DELEGATED,
        WorkflowEventType.GATE_CLAIMED,
        WorkflowEventType.GATE_RELEASED,
        WorkflowEventType.GATE_ESCALATED,
        WorkflowEventType.GATE_TIMEOUT,
        WorkflowEventType.PAUSED,
        WorkflowEventType.RESUMED,
        WorkflowEventType.CHANGED,
        WorkflowEventType.STOPPING,
        WorkflowEventType.CANCELLED,
        WorkflowEventType.STEERED,
    }
)
"""The types of events that decide something, and that of the gates that are decided."""
WHO_FIELDS = ("by", "via", "scope", "address", "pid")
"""The fields of an event that say who gave a command, by which way and from where."""


@dataclass(frozen=True, slots=True)
class Decision:
    """One decision about a run."""

    seq: int
    at: float
    action: str
    """What was decided, such as `answer`, `stop` or `raise`."""
    who: Mapping[str, Any] = field(default_factory=dict)
    """`by`, and if they are known `via`, `scope`, `address`, `pid` and the `person`."""
    gate: str | None = None
    path: str | None = None
    answer: Any = None
    hash: str | None = None
    """Stands for everything that the gate showed."""
    reason: str | None = None
    details: Mapping[str, Any] = field(default_factory=dict)


class DecisionReader:
    """Reads the decisions of one journal, whose rows come in order."""

    def __init__(self) -> None:
        self._copied_until = 0
        self._hashes: dict[str, str] = {}
        """What each open gate has asked, by its path."""
        self._voted: set[tuple[str, str]] = set()
        """The gates and people whose votes were read."""
        self._stopped_by: Any = None

    def read(self, rows: Iterable[JournalRow]) -> Iterator[Decision]:
        """Yield the decisions of the next rows; those that a fork has copied belong to its source."""
        for row in rows:
            if row.type not in DECISION_TYPES:
                continue
            event = decode_event(row)
            if isinstance(event, GateWaiting):
                self._hashes[row.path] = gate_hash(gate_info(row.path, event, row.at))
                self._voted = {key for key in self._voted if key[0] != row.path}
            if isinstance(event, RunStarted):
                self._copied_until = event.copied_events
                yield from read_start_decision(row, event)
            elif row.seq > self._copied_until:
                yield from self._read_event(row, event)

    def _read_event(self, row: JournalRow, event: Event) -> Iterator[Decision]:
        match event:
            case GateAnswered() | GateTimeout():
                yield from self._read_answer(row, event)
            case GateVoted():
                self._voted.add((row.path, event.person))
                yield Decision(
                    row.seq,
                    row.at,
                    "vote",
                    {**who_of(event.to_data()), "person": event.person},
                    event.gate_id,
                    row.path,
                    event.answer,
                    event.hash,
                    event.reason,
                    {"names": event.names},
                )
            case GateDelegated() | GateClaimed() | GateReleased() | GateEscalated():
                yield self._read_progress(row, event)
            case RunStopping() | RunCancelled():
                yield from self._read_stop(row, event)
            case _:
                yield from read_command(row, event)

    def _read_answer(self, row: JournalRow, event: GateAnswered | GateTimeout) -> Iterator[Decision]:
        """Yield the answer of a gate, before it the votes that came with it."""
        hash = self._hashes.get(row.path)
        if isinstance(event, GateTimeout):
            yield Decision(row.seq, row.at, "timeout", {}, event.gate_id, row.path, hash=hash)
            return
        for vote in event.votes or ():
            if (row.path, vote["person"]) not in self._voted:
                who = {**who_of(vote), "person": vote["person"]}
                answer, reason = vote.get("answer"), vote.get("reason")
                details = {"names": vote.get("names", [])}
                yield Decision(
                    row.seq,
                    row.at,
                    "vote",
                    who,
                    event.gate_id,
                    row.path,
                    answer,
                    vote.get("hash"),
                    reason,
                    details,
                )
        people = [vote["person"] for vote in event.votes or ()]
        yield Decision(
            row.seq,
            row.at,
            "answer",
            who_of(event.to_data()),
            event.gate_id,
            row.path,
            event.answer,
            hash,
            event.reason,
            {"people": people} if people else {},
        )

    def _read_progress(
        self, row: JournalRow, event: GateDelegated | GateClaimed | GateReleased | GateEscalated
    ) -> Decision:
        who: dict[str, Any] = who_of(event.to_data())
        if not isinstance(event, GateEscalated):
            who["person"] = event.person
        details = {"to": event.to} if isinstance(event, GateDelegated | GateEscalated) else {}
        action = str(event.type.value).removeprefix("gate_")
        verb = {"delegated": "delegate", "claimed": "claim", "released": "release"}.get(action, "escalate")
        hash = self._hashes.get(row.path)
        return Decision(row.seq, row.at, verb, who, event.gate_id, row.path, hash=hash, details=details)

    def _read_stop(self, row: JournalRow, event: RunStopping | RunCancelled) -> Iterator[Decision]:
        """Yield a stop once, though its cleanup and its end are two events.

        A limit that stops a run is not a decision, and neither is the stop of a run around it.
        """
        if isinstance(event, RunStopping) and event.error is not None:
            return
        if isinstance(event, RunCancelled) and event.moved_to is not None:
            yield Decision(row.seq, row.at, "move", details={"to": event.moved_to.get("engine")})
            return
        by = event.extra.get("by")
        is_rejection = isinstance(event, RunCancelled) and event.error_type is not None
        is_repeated = self._stopped_by is not None and by in (None, self._stopped_by)
        if event.stopped_with is None and not is_rejection and not is_repeated:
            self._stopped_by = by or ""
            yield Decision(row.seq, row.at, "stop", who_of(event.extra), reason=event.reason or None)


def read_start_decision(row: JournalRow, event: RunStarted) -> Iterator[Decision]:
    """Yield the start of a run, unless another run has called it or it continues one."""
    if event.parent is not None or event.previous_run is not None:
        return
    who = dict(event.caller or {})
    details: dict[str, Any] = {"workflow": event.workflow_id, "definition": event.definition}
    if event.forked_from is not None:
        details |= {"from": event.source_run, "at": event.forked_from.get("at")}
        details["overrides"] = sorted(event.overrides or ())
    elif event.started_by is not None:
        details["by_run"] = event.started_by.get("run")
    details = {name: value for name, value in details.items() if value}
    yield Decision(row.seq, row.at, "fork" if event.forked_from else "start", who, details=details)


def read_command(row: JournalRow, event: Event) -> Iterator[Decision]:
    """Yield what a command on a run has decided; a change that the engine makes has no caller."""
    match event:
        case RunPaused() if event.extra.get("by"):
            yield Decision(row.seq, row.at, "pause", who_of(event.extra))
        case RunResumed() if decision := event.extra.get("decision"):
            yield Decision(row.seq, row.at, str(decision), who_of(event.extra), path=event.extra.get("at"))
        case RunResumed() if event.extra.get("by") or event.limits or event.with_changes:
            action = "raise" if event.limits else "accept" if event.with_changes else "resume"
            details = {"limits": event.limits} if event.limits else {}
            yield Decision(row.seq, row.at, action, who_of(event.extra), details=details)
        case RunChanged(definition=definition):
            yield Decision(row.seq, row.at, "change", details={"definition": definition})
        case Steered():
            yield Decision(row.seq, row.at, "steer", {"by": event.by}, path=row.path)


def who_of(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields that say who gave a command."""
    return {name: data[name] for name in WHO_FIELDS if data.get(name) is not None}
