"""Which events of journals are sent to which channels, as the rules of the project say."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from nerve.core.gates import gate_names
from nerve.errors import JournalBroken
from nerve.journal.events import Event, GateProgress, GateWaiting, RunStarted, decode_event
from nerve.journal.index import read_start
from nerve.notifications.event_kinds import GATE_TYPES, notified_event
from nerve.notifications.gate_people import find_asked_people, select_people
from nerve.notifications.messages import NotifiedEvent
from nerve.notifications.person_channel import ReadPeople, find_person_channel, name_person_channel
from nerve.project.notify_settings import PERSON_MARK, is_person_target
from nerve.store.port import StreamedEvent, WaitRow
from nerve.text import clip_text

if TYPE_CHECKING:
    from nerve.project.notify_settings import NotifyRule, NotifySettings
    from nerve.store.port import Store

MAX_CONTENT_CHARS = 500
UNNAMED_GATE = "gate"
"""The last part of the path of a question that the code of a workflow asks."""
BELL = "bell"
"""The channel of the terminals that follow runs; it is not sent by the process that executes them."""


class Selection(NamedTuple):
    """An event that is sent to a channel, perhaps in a thread of it."""

    channel: str
    event: NotifiedEvent
    thread: str | None = None


class ReportedEvent(NamedTuple):
    """An event of a run that can be reported."""

    notified: NotifiedEvent
    event: Event
    text: str
    """Its free text, such as the question of a gate."""
    workflows: Sequence[str]
    """The workflow of the run, and those around it."""
    outermost_run: str
    conversation: str | None
    """The conversation of the outermost run."""


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

    def select(self, event: StreamedEvent) -> Iterator[Selection]:
        """Yield each channel that an event is sent to, with what is sent."""
        reported = read_event(self._store, event)
        if reported is None:
            return
        notified, content, workflows = reported.notified, reported.text, reported.workflows
        allowed: dict[str, bool] = {}
        for rule in self._settings.rules:
            if notified.event in rule.events and self._matches(rule, notified.run, workflows):
                for channel in self._find_channels(rule.to, event):
                    allowed[channel] = allowed.get(channel, False) or rule.content
        for channel, has_content in allowed.items():
            if channel != BELL:
                yield Selection(channel, self._with_content(notified, content) if has_content else notified)

    def _find_channels(self, to: Sequence[str], event: StreamedEvent) -> Iterator[str]:
        """Yield channels, in place of people and roles those that reach each of them who is asked."""
        yield from (name for name in to if not is_person_target(name))
        if not (names := [name.removeprefix(PERSON_MARK) for name in to if is_person_target(name)]):
            return
        people, decoded = self._read_people(), decode_event(event.row)
        if (wait := find_open_wait(self._store, event)) is not None:
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
        return replace(event, content=clip_text(self._redact(content.strip()), MAX_CONTENT_CHARS))


def read_event(store: Store, streamed: StreamedEvent) -> ReportedEvent | None:
    """Return what happened; None if it is not reported. A journal that cannot be read reports nothing."""
    try:
        return _read_event(store, streamed)
    except JournalBroken:
        return None


def _read_event(store: Store, streamed: StreamedEvent) -> ReportedEvent | None:
    row, start = streamed.row, read_start(store, streamed.run)
    if row.seq <= start.copied_events:
        return None
    event = decode_event(row)
    name, text = notified_event(event, start.parent is not None)
    is_gate = isinstance(event, GateWaiting | GateProgress)
    # A message about a gate that was answered would only disturb.
    if not name or (is_gate and find_open_wait(store, streamed) is None):
        return None
    notified = NotifiedEvent(name, streamed.run, row.seq, streamed.workflow, row.at, start.label)
    if isinstance(event, GateWaiting | GateProgress):
        gate_name = event.node_id or gate_names(event.gate_id, row.path, None)[-1]
        is_named = gate_name != UNNAMED_GATE
        notified = replace(notified, gate=event.gate_id, name=gate_name if is_named else None)
    enclosing = list(enclosing_runs(store, start))
    workflows = (streamed.workflow, *(outer.workflow_id for _, outer in enclosing))
    first, outermost = enclosing[-1] if enclosing else (streamed.run, start)
    return ReportedEvent(notified, event, text, workflows, first, outermost.conversation)


def find_open_wait(store: Store, event: StreamedEvent) -> WaitRow | None:
    """Return the open gate that an event is about."""
    if event.row.type not in GATE_TYPES:
        return None
    return next((wait for wait in store.waits_of_run(event.run) if wait.path == event.row.path), None)


def enclosing_runs(store: Store, start: RunStarted) -> Iterator[tuple[str, RunStarted]]:
    """Yield the runs around a run with their starts, the outermost one last."""
    while start.parent is not None:
        run = start.parent
        start = read_start(store, run)
        yield run, start
