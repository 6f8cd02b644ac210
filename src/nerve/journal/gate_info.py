"""Open gates from their events."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from nerve.core.gates import gate_hash
from nerve.core.workflow.state import GateInfo
from nerve.journal.events import GateWaiting


def gate_info(path: str, event: GateWaiting, at: float) -> GateInfo:
    """Return an open gate from its event."""
    gate = GateInfo(
        event.gate_id,
        event.prompt,
        event.choices,
        created_at=datetime.fromtimestamp(at, UTC),
        path=path,
        node_id=event.node_id,
        options=event.options,
        note=event.note,
        input_preview=event.input_preview,
        deadline=event.deadline,
        action=event.action,
        form=event.form,
    )
    if event.policy is not None:
        # Imported here: few gates have a policy.
        from nerve.core.gate_policy import EMPTY_TALLY, GatePolicy, GateTally

        gate.policy = GatePolicy.from_data(event.policy)
        gate.tally = EMPTY_TALLY if event.progress is None else GateTally.from_data(event.progress)
    return gate


def shown_gate_fields(path: str, event: GateWaiting, at: datetime) -> dict[str, Any]:
    """Return what a screen shows of an open gate, with the hash that binds its answer to that."""
    # The event has another hash: that of the request, for the replay.
    shown_hash = gate_hash(gate_info(path, event, at.timestamp()))
    return {**event.to_data(), "path": path, "created_at": at.isoformat(), "hash": shown_hash}
