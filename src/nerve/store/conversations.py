"""Find the run that a conversation is about."""

from __future__ import annotations

from nerve.store.port import RunRow, Store


def active_run(store: Store, conversation: str) -> RunRow | None:
    """Return the latest run of a conversation that has not ended."""
    open_runs = [row for row in store.runs(conversation=conversation) if row.ended is None]
    return open_runs[-1] if open_runs else None
