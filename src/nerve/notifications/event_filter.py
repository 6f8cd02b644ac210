"""Which events of journals are sent to which channels, as the rules of the project say."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from nerve.core.gates import gate_names
from nerve.errors import JournalBroken
from nerve.journal.events import GateWaiting, RunStarted, decode_event
from nerve.journal.index import read_start
from nerve.notifications.event_kinds import notified_event
from nerve.notifications.messages import NotifiedEvent
from nerve.store.port import StreamedEvent

if TYPE_CHECKING:
    from nerve.project.notify_settings import NotifyRule
    from nerve.store.port import Store

MAX_CONTENT_CHARS = 500
UNNAMED_GATE = "gate"
"""The last part of the path of a question that the code of a workflow asks."""
BELL = "bell"
"""The channel of the terminals that follow runs; it is not sent by the process that executes them."""


class EventFilter:
    """Selects the events of one session that its rules name, and the channels they are sent to."""

    def __init__(
        self,
        store: Store,
        session: str,
        rules: Sequence[NotifyRule],
        redact: Callable[[str], str] | None,
    ) -> None:
        """Without `redact`, no message has content, because the store is encoded."""
        self._store, self._session, self._rules, self._redact = store, session, rules, redact

    def select(self, event: StreamedEvent) -> Iterator[tuple[str, NotifiedEvent]]:
        """Yield each channel that an event is sent to, with what is sent."""
        try:
            notified, content, workflows = self._read(event)
        except JournalBroken:
            return
        if notified is None:
            return
        allowed: dict[str, bool] = {}
        for rule in self._rules:
            if notified.event in rule.events and self._matches(rule, notified.run, workflows):
                for channel in rule.to:
                    allowed[channel] = allowed.get(channel, False) or rule.content
        for channel, has_content in allowed.items():
            if channel != BELL:
                yield channel, self._with_content(notified, content) if has_content else notified

    def _matches(self, rule: NotifyRule, run: str, workflows: Sequence[str]) -> bool:
        if rule.workflows is not None and not set(rule.workflows) & set(workflows):
            return False
        return not rule.tags or bool(
            self._store.runs(session=self._session, prefix=run, tags=dict(rule.tags), newest=1)
        )

    def _with_content(self, event: NotifiedEvent, content: str) -> NotifiedEvent:
        if self._redact is None or not content.strip():
            return event
        text = self._redact(content.strip())
        short = text if len(text) <= MAX_CONTENT_CHARS else text[: MAX_CONTENT_CHARS - 1] + "…"
        return replace(event, content=short)

    def _read(self, streamed: StreamedEvent) -> tuple[NotifiedEvent | None, str, Sequence[str]]:
        """Return what happened, its text, and the workflows around it; None if it is not reported."""
        row = streamed.row
        start = read_start(self._store, streamed.run)
        if row.seq <= start.copied_events:
            return None, "", ()
        event = decode_event(row)
        name, text = notified_event(event, start.parent is not None)
        is_gate = isinstance(event, GateWaiting)
        if not name or (is_gate and not self._is_open(streamed)):
            return None, "", ()
        notified = NotifiedEvent(name, streamed.run, row.seq, streamed.workflow, row.at, start.label)
        if isinstance(event, GateWaiting):
            gate_name = event.node_id or gate_names(event.gate_id, row.path, None)[-1]
            is_named = gate_name != UNNAMED_GATE
            notified = replace(notified, gate=event.gate_id, name=gate_name if is_named else None)
        return notified, text, [streamed.workflow, *self._enclosing_workflows(start)]

    def _is_open(self, event: StreamedEvent) -> bool:
        """Return whether a gate still waits: a message about one that was answered would only disturb."""
        return any(wait.path == event.row.path for wait in self._store.waits_of_run(event.run))

    def _enclosing_workflows(self, start: RunStarted) -> Iterator[str]:
        while start.parent is not None:
            start = read_start(self._store, start.parent)
            yield start.workflow_id
