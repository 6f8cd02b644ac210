"""Which events of journals are sent to which channels, as the rules of the project say."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from nerve.core.gates import gate_names
from nerve.errors import JournalBroken
from nerve.journal.events import GateProgress, GateWaiting, RunStarted, decode_event
from nerve.journal.index import read_start
from nerve.notifications.event_kinds import GATE_TYPES, notified_event
from nerve.notifications.gate_people import find_asked_people, select_people
from nerve.notifications.messages import NotifiedEvent
from nerve.notifications.person_channel import ReadPeople, find_person_channel, name_person_channel
from nerve.project.notify_settings import PERSON_MARK, is_person_target
from nerve.store.port import StreamedEvent, WaitRow

if TYPE_CHECKING:
    from nerve.project.notify_settings import NotifyRule, NotifySettings
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
        settings: NotifySettings,
        redact: Callable[[str], str] | None,
        read_people: ReadPeople,
    ) -> None:
        """Without `redact`, no message has content, because the store is encoded."""
        self._store, self._session, self._settings, self._redact = store, session, settings, redact
        self._read_people = read_people

    def select(self, event: StreamedEvent) -> Iterator[tuple[str, NotifiedEvent]]:
        """Yield each channel that an event is sent to, with what is sent."""
        try:
            notified, content, workflows = self._read(event)
        except JournalBroken:
            return
        if notified is None:
            return
        allowed: dict[str, bool] = {}
        for rule in self._settings.rules:
            if notified.event in rule.events and self._matches(rule, notified.run, workflows):
                for channel in self._find_channels(rule.to, event):
                    allowed[channel] = allowed.get(channel, False) or rule.content
        for channel, has_content in allowed.items():
            if channel != BELL:
                yield channel, self._with_content(notified, content) if has_content else notified

    def _find_channels(self, to: Sequence[str], event: StreamedEvent) -> Iterator[str]:
        """Yield channels, in place of people and roles those that reach each of them who is asked."""
        yield from (name for name in to if not is_person_target(name))
        if not (names := [name.removeprefix(PERSON_MARK) for name in to if is_person_target(name)]):
            return
        people, decoded = self._read_people(), decode_event(event.row)
        if (wait := self._find_wait(event)) is not None:
            asked = find_asked_people(self._store, wait, decoded, people, names)
        else:
            asked = select_people(people, names)
        for person in asked:
            if (channel := find_person_channel(self._settings, person)) is not None:
                yield name_person_channel(channel, person.name)

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
        is_gate = isinstance(event, GateWaiting | GateProgress)
        # A message about a gate that was answered would only disturb.
        if not name or (is_gate and self._find_wait(streamed) is None):
            return None, "", ()
        notified = NotifiedEvent(name, streamed.run, row.seq, streamed.workflow, row.at, start.label)
        if isinstance(event, GateWaiting | GateProgress):
            gate_name = event.node_id or gate_names(event.gate_id, row.path, None)[-1]
            is_named = gate_name != UNNAMED_GATE
            notified = replace(notified, gate=event.gate_id, name=gate_name if is_named else None)
        return notified, text, [streamed.workflow, *self._enclosing_workflows(start)]

    def _find_wait(self, event: StreamedEvent) -> WaitRow | None:
        """Return the open gate that an event is about."""
        if event.row.type not in GATE_TYPES:
            return None
        waits = self._store.waits_of_run(event.run)
        return next((wait for wait in waits if wait.path == event.row.path), None)

    def _enclosing_workflows(self, start: RunStarted) -> Iterator[str]:
        while start.parent is not None:
            start = read_start(self._store, start.parent)
            yield start.workflow_id
