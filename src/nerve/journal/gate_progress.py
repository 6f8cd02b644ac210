"""What people have done at an open gate with a policy, computed from its events."""

from __future__ import annotations

from dataclasses import replace

from nerve.core.gate_policy import EMPTY_TALLY, Delegation, GateTally, Vote
from nerve.journal.events import (
    Event,
    GateClaimed,
    GateDelegated,
    GateEscalated,
    GateProgress,
    GateReleased,
    GateReminded,
    GateVoted,
)
from nerve.journal.events.waits import GateWaiting


def with_progress(opened: Event, progress: GateProgress) -> Event:
    """Return the event of an open gate with what has happened at it."""
    if not isinstance(opened, GateWaiting) or opened.policy is None or progress.gate_id != opened.gate_id:
        return opened
    tally = EMPTY_TALLY if opened.progress is None else GateTally.from_data(opened.progress)
    return replace(opened, progress=add_to_tally(tally, progress).to_data())


def add_to_tally(tally: GateTally, progress: GateProgress) -> GateTally:
    """Return the tally after an event."""
    match progress:
        case GateVoted():
            return tally.with_vote(Vote.from_data(progress.to_data()))
        case GateDelegated(person=person, to=to, names=names):
            return tally.with_delegation(Delegation(person, to, tuple(names)))
        case GateClaimed(person=person):
            return replace(tally, claimed_by=person)
        case GateReleased():
            return replace(tally, claimed_by=None)
        case GateReminded():
            return replace(tally, reminders=tally.reminders + 1)
        case GateEscalated():
            return replace(tally, escalations=tally.escalations + 1)
    return tally
