"""The bell of a terminal that follows runs: it rings as the rules of the project say."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from nerve.core.events import WorkflowEvent, WorkflowEventType
from nerve.journal.events import event_from_data
from nerve.notifications.event_filter import BELL
from nerve.notifications.event_kinds import NOTIFIED_TYPES, notified_event

if TYPE_CHECKING:
    from nerve.project.notify_settings import NotifyRule

MAX_AGE_S = 5.0
"""Seconds after which an event is history, which rings no bell."""


class TerminalBell:
    """Decides which events ring; the screen makes the sound."""

    def __init__(self, rules: Sequence[NotifyRule]) -> None:
        self._rules = rules
        self._tags: dict[str, dict[str, str]] = {}
        self._children: set[str] = set()

    def rings_for(self, event: WorkflowEvent) -> bool:
        """Return whether an event rings. The events of a run are given in their order."""
        if event.event_type == WorkflowEventType.STARTED:
            self._tags[event.run_id] = event.data.get("tags") or {}
            if event.data.get("parent") is not None:
                self._children.add(event.run_id)
        if event.event_type not in NOTIFIED_TYPES or event.timestamp.timestamp() < time.time() - MAX_AGE_S:
            return False
        decoded = event_from_data(event.event_type, event.data)
        name, _ = notified_event(decoded, event.run_id in self._children)
        tags = self._tags.get(event.run_id, {}).items()
        return any(
            name in rule.events
            and (rule.workflows is None or event.workflow_id in rule.workflows)
            and rule.tags.items() <= tags
            for rule in self._rules
        )


def open_bell(project: Path) -> TerminalBell | None:
    """Return the bell of a project; None if its configuration has no rule for it, or is not valid."""
    if not (project / ".nerve" / "config.json").is_file():
        return None
    from nerve.project.config import project_config
    from nerve.text.source import InvalidDefinition

    try:
        settings = project_config(project).notify
    except InvalidDefinition:
        return None  # reported by the process that executes the runs
    rules = [] if settings is None else [rule for rule in settings.rules if BELL in rule.to]
    return TerminalBell(rules) if rules else None
