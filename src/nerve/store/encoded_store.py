"""A store that passes every payload through a codec, around a store that keeps the rows."""

from __future__ import annotations

import json
import logging
import time
from binascii import a2b_base64, b2a_base64
from collections.abc import Collection, Sequence
from contextlib import suppress
from typing import Unpack

from nerve.codec import (
    CODECS_PROPERTY,
    ENCODED_START,
    Codec,
    check_codec,
    decode_data,
    decode_text,
    encode_text,
)
from nerve.errors import JournalUnreadable, KeyMissing, PayloadUnreadable, StoreError
from nerve.store import refusal_messages
from nerve.store.input_search import input_contains
from nerve.store.port import (
    EMPTIED_DATA,
    MAX_SEARCHED_RUNS,
    Append,
    Definition,
    EventRow,
    EventStream,
    FactRow,
    MessageRow,
    ReplyRow,
    RunQuery,
    RunRow,
    Store,
    StreamedEvent,
    WaitRow,
)

_log = logging.getLogger(__name__)

CHECK_TEXT, CHECK_PLACE = b"nerve", b"check"
MAX_PENDING_COMMANDS = 1000
MAX_DECODED_INPUTS = 1000
"""Number of runs whose inputs a search decodes: one takes some 0.3 ms, in the thread of the engine."""


class EncodedStore:
    """Encodes what a session stores, and decodes what it reads; the other store sees metadata only.

    Rows that were written without a codec stay readable. The names that rows are found by stay readable in
    the store: see the guide on encryption.
    """

    def __init__(self, store: Store, codec: Codec) -> None:
        self.codec = check_codec(codec)
        self._store = store
        verify_codec(store, codec)
        self._stored_definitions: dict[str, int] = {}
        """The definitions that are stored under the current name of the codec, by their hash."""
        self._pending_commands: dict[tuple[str, str, str], str] = {}
        """Commands that were stored without a reply, and their stored form, which completes them."""
        self.watch_ownership = store.watch_ownership
        self.last_written_runs = store.last_written_runs
        self.count_runs = store.count_runs
        self.count_definitions = store.count_definitions
        self.sessions = store.sessions
        self.labels = store.labels
        self.tag_names = store.tag_names
        self.count_waits = store.count_waits
        self.daily_usage = store.daily_usage
        self.daily_step_usage = store.daily_step_usage
        self.fact_version = store.fact_version
        self.forget_replies = store.forget_replies
        self.journal_size = store.journal_size
        self.old_events = store.old_events
        self.delete_runs = store.delete_runs
        self.empty_events = store.empty_events
        self.mark_resuming = store.mark_resuming
        self.clear_resuming = store.clear_resuming
        self.resume_counts = store.resume_counts
        self.people_changes = store.people_changes
        self.add_people_change = store.add_people_change
        self.read_property = store.read_property
        self.write_property = store.write_property
        self.close = store.close

    @property
    def durable(self) -> bool:
        return self._store.durable

    @property
    def read_only(self) -> bool:
        return self._store.read_only

    @property
    def stream(self) -> EventStream | None:
        stream = self._store.stream
        return None if stream is None else DecodedStream(stream, self.codec)

    @property
    def loss(self) -> str | None:
        return self._store.loss

    @property
    def summarized_since(self) -> float:
        return self._store.summarized_since

    # -- writing -------------------------------------------------------------------------------

    def append(self, batch: Sequence[Append], patience: float = 30.0) -> list[StoreError | None]:
        outcomes = self._store.append([self._encode_part(part) for part in batch], patience)
        for part, outcome in zip(batch, outcomes, strict=True):
            if part.definition is not None and outcome is None:
                self._stored_definitions[part.definition.hash] = hash(part.definition)
        return outcomes

    def _encode_part(self, part: Append) -> Append:
        row, definition = part.row, part.definition
        if row is not None and row.summary is not None:
            row = row._replace(summary=self._encode(row.summary, "summary", row.run))
        if definition is not None:
            is_stored = self._stored_definitions.get(definition.hash) == hash(definition)
            definition = None if is_stored else self._encode_definition(definition)
        return part._replace(
            rows=[self._encode_event(part.run, event) for event in part.rows],
            row=row,
            definition=definition,
            facts=[self._encode_fact(fact) for fact in part.facts],
            replies=[self._encode_reply(reply) for reply in part.replies],
            waits=[self._encode_wait(wait) for wait in part.waits],
        )

    def _encode(self, text: str, *place: object) -> str:
        # An empty object says nothing, and is what remains of emptied events.
        return text if text == EMPTIED_DATA else encode_text(self.codec, text, *place)

    def _encode_event(self, run: str, event: EventRow) -> EventRow:
        seq, at, type, path, settles, data = event
        refusal_messages.check_value_size(data, "event", seq, "of run", run)
        return EventRow(seq, at, type, path, settles, self._encode(data, "event", run, seq, type, path))

    def _encode_definition(self, definition: Definition) -> Definition:
        hash, workflow, notation, source, canonical = definition
        source = self._encode(source, "source", hash)
        return Definition(hash, workflow, notation, source, self._encode(canonical, "canonical", hash))

    def _encode_fact(self, fact: FactRow) -> FactRow:
        if fact.record is None:
            return fact
        refusal_messages.check_value_size(fact.record, "fact", fact.id)
        # Stores find facts by their label.
        label = json.dumps(json.loads(fact.record)[0], ensure_ascii=False)
        encoded = encode_text(self.codec, fact.record, *fact_place(fact, label))
        return fact._replace(record=f"[{label},{encoded}]")

    def _encode_reply(self, reply: ReplyRow) -> ReplyRow:
        session, key, at, asked, text = reply
        refusal_messages.check_value_size(text, "the reply to", key)
        command = session, key, asked
        encoded_asked = self._pending_commands.get(command)
        if encoded_asked is None:
            # Encoded too: it contains a hash, by which short answers could be guessed.
            encoded_asked = self._encode(asked, "asked", session, key)
        if text == "":
            while len(self._pending_commands) >= MAX_PENDING_COMMANDS:
                self._pending_commands.pop(next(iter(self._pending_commands)), None)
            self._pending_commands[command] = encoded_asked
        else:
            text = self._encode(text, "reply", session, key)
        return ReplyRow(session, key, at, encoded_asked, text)

    def _encode_wait(self, wait: WaitRow) -> WaitRow:
        if wait.data is None:
            return wait
        refusal_messages.check_value_size(wait.data, "the wait at", wait.path, "of run", wait.run)
        return wait._replace(data=self._encode(wait.data, *wait_place(wait)))

    def add_message(
        self, conversation: str, role: str, text: str, run: str | None = None, at: float | None = None
    ) -> MessageRow:
        refusal_messages.check_value_size(text, "a message in", conversation)
        at = time.time() if at is None else at
        place = message_place(MessageRow(conversation, 0, at, role, text, run))
        encoded = encode_text(self.codec, text, *place)
        return self._store.add_message(conversation, role, encoded, run, at)._replace(text=text)

    # -- reading -------------------------------------------------------------------------------

    def events(self, run: str, after: int = 0, limit: int | None = None) -> list[EventRow]:
        return [decode_event_row(self.codec, run, row) for row in self._store.events(run, after, limit)]

    def last_event(self, run: str, type: str | None = None) -> EventRow | None:
        row = self._store.last_event(run, type)
        return None if row is None else decode_event_row(self.codec, run, row)

    def run(self, run: str) -> RunRow | None:
        row = self._store.run(run)
        return None if row is None else self._decode_run(row)

    def run_by_key(self, session: str, key: str) -> RunRow | None:
        row = self._store.run_by_key(session, key)
        return None if row is None else self._decode_run(row)

    def _decode_run(self, row: RunRow) -> RunRow:
        if row.summary is None:
            return row
        try:
            return row._replace(summary=decode_text(self.codec, row.summary, "summary", row.run))
        except PayloadUnreadable:
            # Lists then read the journal, which says why it is not readable; other runs are listed.
            return row._replace(summary=None)

    def runs(self, **query: Unpack[RunQuery]) -> list[RunRow]:
        if (search := query.pop("search", None)) is not None:
            return self._search_runs(search, query)
        return [self._decode_run(row) for row in self._store.runs(**query)]

    def _search_runs(self, search: str, query: RunQuery) -> list[RunRow]:
        """Search the metadata in the store, and the newest inputs by decoding them, newest run first."""
        newest = query.pop("newest", None)
        by_metadata: RunQuery = {**query, "search": search}
        newest_runs: RunQuery = {**query, "newest": MAX_SEARCHED_RUNS}
        found_by_metadata = {row.run for row in self._store.runs(**by_metadata)}
        found: list[RunRow] = []
        for number, row in enumerate(reversed(self._store.runs(**newest_runs))):
            if newest is not None and len(found) >= newest:
                break
            is_found = row.run in found_by_metadata
            if is_found or (number < MAX_DECODED_INPUTS and self._has_input(row.run, search)):
                found.append(self._decode_run(row))
        return found[::-1]

    def _has_input(self, run: str, search: str) -> bool:
        with suppress(JournalUnreadable):
            return any(input_contains(event.data, search) for event in self.events(run, limit=1))
        return False

    def open_waits(
        self, session: str, kind: str, after: WaitRow | None = None, limit: int | None = None
    ) -> list[WaitRow]:
        waits = []
        for wait in self._store.open_waits(session, kind, after, limit):
            try:
                waits.append(self._decode_wait(wait))
            except JournalUnreadable:
                # The list of other waits is complete; the run itself is reported as unreadable.
                waits.append(wait._replace(data=EMPTIED_DATA))
        return waits

    def waits_of_run(self, run: str) -> list[WaitRow]:
        return [self._decode_wait(wait) for wait in self._store.waits_of_run(run)]

    def _decode_wait(self, wait: WaitRow) -> WaitRow:
        try:
            return wait._replace(data=decode_text(self.codec, wait.data or "", *wait_place(wait)))
        except PayloadUnreadable as error:
            raise JournalUnreadable(wait.run, 1, str(error)) from None

    def definition(self, hash: str) -> Definition | None:
        row = self._store.definition(hash)
        if row is None:
            return None
        try:
            return row._replace(
                source=decode_text(self.codec, row.source, "source", hash),
                canonical=decode_text(self.codec, row.canonical, "canonical", hash),
            )
        except PayloadUnreadable as error:
            _log.error("definition %s of workflow %s is not readable: %s", hash, row.workflow, error)
            return None

    def facts(self, session: str, label: str | None = None) -> list[FactRow]:
        return [self._decode_fact(fact) for fact in self._store.facts(session, label)]

    def _decode_fact(self, fact: FactRow) -> FactRow:
        stored = fact.record or ""
        label, _, encoded = stored[1:-1].partition(f",{ENCODED_START}")
        if not encoded or not stored.startswith("["):
            return fact
        try:
            record = decode_text(self.codec, ENCODED_START + encoded, *fact_place(fact, label))
        except PayloadUnreadable as error:
            # A session without one of its facts would decide differently.
            raise PayloadUnreadable(
                f"Fact {fact.id} of session {fact.session} cannot be decoded. {error}"
            ) from None
        return fact._replace(record=record)

    def stored_reply(self, session: str, key: str) -> ReplyRow | None:
        row = self._store.stored_reply(session, key)
        if row is None:
            return None
        return row._replace(
            asked=decode_text(self.codec, row.asked, "asked", session, key),
            reply=decode_text(self.codec, row.reply, "reply", session, key),
        )

    def messages(self, conversation: str, after: int = 0) -> list[MessageRow]:
        return [
            row._replace(text=decode_text(self.codec, row.text, *message_place(row)))
            for row in self._store.messages(conversation, after)
        ]


class DecodedStream:
    """The decoded events of a stream."""

    def __init__(self, stream: EventStream, codec: Codec) -> None:
        self._stream, self._codec = stream, codec
        self.last_streamed = stream.last_streamed

    @property
    def stream_id(self) -> str:
        return self._stream.stream_id

    def streamed_events(
        self, session: str, after: int, limit: int, types: Collection[str] | None = None
    ) -> list[StreamedEvent]:
        return [
            event._replace(row=decode_event_row(self._codec, event.run, event.row))
            for event in self._stream.streamed_events(session, after, limit, types)
        ]


def decode_event_row(codec: Codec, run: str, row: EventRow) -> EventRow:
    """Return an event with its decoded data; JournalUnreadable says why that cannot be."""
    seq, at, type, path, settles, data = row
    try:
        return EventRow(seq, at, type, path, settles, decode_text(codec, data, "event", run, seq, type, path))
    except PayloadUnreadable as error:
        raise JournalUnreadable(run, seq, str(error)) from None


def stored_codecs(store: Store) -> dict[str, str]:
    """Return the names under which the store has encoded data, with a short encoded text of each."""
    stored: dict[str, str] = json.loads(store.read_property(CODECS_PROPERTY) or "{}")
    return stored


def refuse_encoded(store: Store) -> None:
    """Raise StoreError for a store with encoded data: without its codec, new data would be readable."""
    if names := stored_codecs(store):
        raise StoreError(
            f"The store is encrypted ({', '.join(names)}). Set `encryption` in .nerve/config.json, or open it"
            " with Session(codec=…)."
        )


def verify_codec(store: Store, codec: Codec) -> None:
    """Raise PayloadUnreadable if a codec has another key than the store; note the name of a new one."""
    checks = stored_codecs(store)
    missing: list[KeyMissing] = []
    for name, check in checks.items():
        try:
            decode_data(codec, a2b_base64(check), name, CHECK_PLACE)
        except KeyMissing as error:
            missing.append(error)
    # With none of its keys, all data would be unreadable: that is a mistake, not a rotation.
    if missing and len(missing) == len(checks):
        raise missing[-1]
    for each in missing:
        _log.warning("data of the store may be unreadable: %s", each)
    if codec.name not in checks and not store.read_only:
        encoded = b2a_base64(codec.encode(CHECK_TEXT, CHECK_PLACE), newline=False).decode("ascii")
        store.write_property(CODECS_PROPERTY, json.dumps({**checks, codec.name: encoded}))


def fact_place(fact: FactRow, label: str) -> tuple[object, ...]:
    return "fact", fact.session, fact.id, fact.version, label


def wait_place(wait: WaitRow) -> tuple[object, ...]:
    return "wait", wait.run, wait.path, wait.kind


def message_place(message: MessageRow) -> tuple[object, ...]:
    return "message", message.conversation, message.at + 0.0, message.role, message.run or ""
