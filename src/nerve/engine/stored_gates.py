"""Open gates from their events and from their stored waits."""

from __future__ import annotations

from datetime import UTC, datetime

from nerve.core.workflow.state import GateInfo
from nerve.engine.run_summary import event_of_wait
from nerve.journal.events import GateWaiting
from nerve.store.port import WaitRow


def gate_info(path: str, event: GateWaiting, at: float) -> GateInfo:
    """Return an open gate from its event."""
    return GateInfo(
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


def gate_of_wait(wait: WaitRow) -> GateInfo:
    """Return an open gate from its stored wait."""
    event = event_of_wait(wait)
    assert isinstance(event, GateWaiting)
    return gate_info(wait.path, event, wait.since)
