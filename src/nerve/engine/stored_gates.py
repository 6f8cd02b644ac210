"""Open gates from their stored waits."""

from __future__ import annotations

from nerve.core.workflow.state import GateInfo
from nerve.engine.run_summary import event_of_wait
from nerve.journal.events import GateWaiting
from nerve.journal.gate_info import gate_info
from nerve.store.port import WaitRow


def gate_of_wait(wait: WaitRow) -> GateInfo:
    """Return an open gate from its stored wait."""
    event = event_of_wait(wait)
    assert isinstance(event, GateWaiting)
    return gate_info(wait.path, event, wait.since)
