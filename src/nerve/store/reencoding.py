"""Encode every payload of a store file again with the current key of its codec.

Each journal, and each page of another table, is rewritten in one transaction: a crash leaves rows of both
keys, which a codec with both reads, and the next attempt continues. The hash chain of a journal is that of
the encoded data, so it is verified before and computed again with the new data.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple, cast

from nerve.codec import CODECS_PROPERTY, ENCODED_START, Codec, decode_text, encode_text, is_encoded_with
from nerve.errors import JournalUnreadable, PayloadUnreadable
from nerve.store import hash_chain
from nerve.store.encoded_store import (
    fact_place,
    message_place,
    stored_codecs,
    verify_codec,
    wait_place,
)
from nerve.store.hash_chain import EMPTIED_MARK, FIRST_HASH
from nerve.store.port import EMPTIED_DATA, MAX_INLINE_BYTES, EventRow, FactRow, MessageRow, WaitRow
from nerve.store.sqlite import MAX_SEQ, SqliteStore
from nerve.store.sqlite_writer import Execute
from nerve.store.statements import SQL, statement_for_rows
from nerve.store.stored_rows import StoredRow, abbreviate_data

Recode = Callable[..., str]
"""Returns the new stored form of a payload, from its stored form and its place."""


class ReencodedRows(NamedTuple):
    """How many payloads were encoded again."""

    events: int = 0
    others: int = 0


def reencode_store(store: SqliteStore, codec: Codec) -> ReencodedRows:
    """Encode all payloads with the current key, verify them, and forget the other keys.

    PayloadUnreadable or JournalBroken for a payload that cannot be read; what was encoded before stays.
    """
    verify_codec(store, codec)
    store.delete_runs([])  # what is left of deleted runs is not encoded again
    changed = rewrite_payloads(store, partial(recode_payload, codec))
    rewrite_payloads(store, partial(verify_payload, codec))
    store.write_property(CODECS_PROPERTY, json.dumps({codec.name: stored_codecs(store)[codec.name]}))
    # Unused pages of the file have old rows.
    store.rebuild()
    return changed


def recode_payload(codec: Codec, stored: str, *place: object) -> str:
    if stored in ("", EMPTIED_DATA) or is_encoded_with(codec, stored):
        return stored
    return encode_text(codec, decode_text(codec, stored, *place), *place)


def verify_payload(codec: Codec, stored: str, *place: object) -> str:
    """Return the payload unchanged; PayloadUnreadable if the current key does not decode it."""
    if stored not in ("", EMPTIED_DATA):
        if not is_encoded_with(codec, stored):
            raise PayloadUnreadable(f"A payload at {place} was not encoded with '{codec.name}'.")
        decode_text(codec, stored, *place)
    return stored


def rewrite_payloads(store: SqliteStore, recode: Recode) -> ReencodedRows:
    """Replace the payloads that `recode` changes; return how many these are."""
    events = others = 0
    journal: tuple[int, str] | None = (0, "")
    while journal is not None:
        with store.rewrite() as execute:
            journal = cast(
                "tuple[int, str] | None",
                execute(SQL["select_next_named_journal"], (journal[0],)).fetchone(),
            )
            if journal is not None:
                events += rewrite_journal(execute, *journal, recode)
    for table in TABLES:
        after: Sequence[object] | None = table.first_key
        while after is not None:
            with store.rewrite() as execute:
                after, changed = table.rewrite_page(execute, after, recode)
                others += changed
    return ReencodedRows(events, others)


def rewrite_journal(execute: Execute, id: int, run: str, recode: Recode) -> int:
    """Rewrite the payloads of one journal and its hash chain; return how many changed."""
    stored = cast("list[StoredRow]", execute(SQL["select_events"], (id, 0, MAX_SEQ)).fetchall())
    verified = iter(
        hash_chain.verify_rows(run, 0, stored, lambda hash: execute(SQL["select_blob"], (hash,)).get)
    )
    changes: list[tuple[object, ...]] = []
    changed, previous = 0, FIRST_HASH
    old_blobs: list[bytes] = []
    for row in stored:
        seq, stored_data, first_data, is_joined = row[0], row[5], row[11], row[8] is not None
        if is_joined:
            event = next(verified)
            text, digest = recode_event(run, event, recode)
            changed += text != event.data
            first_data = abbreviate_data(event.type, text)
            previous = hash_chain.hash_row(previous, run, event, digest)
        event = next(verified)
        if isinstance(stored_data, bytes) and len(stored_data) == len(EMPTIED_MARK + FIRST_HASH):
            digest = stored_data[len(EMPTIED_MARK) :]
        else:
            text, digest = recode_event(run, event, recode)
            if text != event.data:
                changed += 1
                if isinstance(stored_data, bytes):
                    old_blobs.append(stored_data)
                is_large = len(data := text.encode()) > MAX_INLINE_BYTES
                if is_large:
                    execute(statement_for_rows("insert_blobs", 2, 1), (digest, data))
                stored_data = digest if is_large else abbreviate_data(event.type, text)
        previous = hash_chain.hash_row(previous, run, event, digest)
        changes.append((stored_data, first_data, previous, id, seq))
    if changed:
        for change in changes:
            execute(SQL["update_event_data"], change)
        for hash in old_blobs:
            execute(SQL["delete_blob"], (hash,))
    return changed


def recode_event(run: str, event: EventRow, recode: Recode) -> tuple[str, bytes]:
    """Return the new data of an event, and its digest."""
    try:
        text = recode(event.data, "event", run, event.seq, event.type, event.path)
    except PayloadUnreadable as error:
        raise JournalUnreadable(run, event.seq, str(error)) from None
    return text, hash_chain.hash_data(text.encode())


class PayloadTable(NamedTuple):
    """A table with payloads: its statements, the columns of its key, and how to recode a row of it."""

    name: str
    first_key: tuple[object, ...]
    """A key before all others."""
    recode_row: Callable[..., tuple[str, ...]]

    def rewrite_page(
        self, execute: Execute, after: Sequence[object], recode: Recode
    ) -> tuple[Sequence[object] | None, int]:
        """Rewrite some rows after a key; return the last key, None at the end, and how many changed."""
        rows = execute(SQL[f"select_{self.name}_payloads"], tuple(after)).fetchall()
        width, changed = len(self.first_key), 0
        for row in cast("list[tuple[Any, ...]]", rows):
            payloads = self.recode_row(recode, *row)
            if payloads != row[-len(payloads) :]:
                execute(SQL[f"update_{self.name}_payloads"], (*row[:width], *payloads))
                changed += 1
        return (rows[-1][:width] if rows else None), changed


def recode_summary(recode: Recode, id: int, run: str, summary: str) -> tuple[str, ...]:
    return (recode(summary, "summary", run),)


def recode_definition(recode: Recode, hash: str, source: str, canonical: str) -> tuple[str, ...]:
    return recode(source, "source", hash), recode(canonical, "canonical", hash)


def recode_fact(recode: Recode, session: str, id: str, version: int, record: str) -> tuple[str, ...]:
    fact = FactRow(session, id, version, 0.0, "", record)
    label, is_encoded, encoded = record[1:-1].partition(f",{ENCODED_START}")
    if not is_encoded:
        label = json.dumps(json.loads(record)[0], ensure_ascii=False)
    payload = f"{ENCODED_START}{encoded}" if is_encoded else record
    return (f"[{label},{recode(payload, *fact_place(fact, label))}]",)


def recode_message(
    recode: Recode, conversation: str, seq: int, at: float, role: str, run: str | None, text: str
) -> tuple[str, ...]:
    return (recode(text, *message_place(MessageRow(conversation, seq, at, role, text, run))),)


def recode_reply(recode: Recode, session: str, key: str, asked: str, reply: str) -> tuple[str, ...]:
    return recode(asked, "asked", session, key), recode(reply, "reply", session, key)


def recode_wait(recode: Recode, run: str, path: str, kind: str, data: str) -> tuple[str, ...]:
    return (recode(data, *wait_place(WaitRow("", run, path, kind, 0.0, data))),)


TABLES = (
    PayloadTable("summary", (0,), recode_summary),
    PayloadTable("definition", ("",), recode_definition),
    PayloadTable("fact", ("", ""), recode_fact),
    PayloadTable("message", ("", -1), recode_message),
    PayloadTable("reply", ("", ""), recode_reply),
    PayloadTable("wait", ("", ""), recode_wait),
)
