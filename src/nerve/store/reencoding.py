"""Encode every payload of a store again with the current key of its codec.

Each journal, and each page of another table, is rewritten in one transaction: a crash leaves rows of both
keys, which a codec with both reads, and the next attempt continues. The hash chain of a journal is that of
the encoded data, so it is verified before and computed again with the new data.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import Any, ClassVar, NamedTuple, Protocol

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
from nerve.store.port import EMPTIED_DATA, EventRow, FactRow, MessageRow, Store, WaitRow

Recode = Callable[..., str]
"""Returns the new stored form of a payload, from its stored form and its place."""


class ReencodedRows(NamedTuple):
    """How many payloads were encoded again."""

    events: int = 0
    others: int = 0


class PayloadRewriter(Protocol):
    """Reads and changes stored payloads in one transaction."""

    tables: ClassVar[Sequence[PayloadTable]]

    def next_journal(self, after: Any) -> tuple[Any, str] | None:
        """Return the key and the run of the journal after a key, or of the first one after None."""

    def rewrite_journal(self, key: Any, run: str, recode: Recode) -> int:
        """Rewrite the payloads of a journal and its hash chain; return how many changed."""

    def select_payloads(self, table: str, after: Sequence[object] | None) -> list[tuple[Any, ...]]:
        """Return some rows after a key, or from the first one on: their keys, other columns, payloads."""

    def update_payloads(self, table: str, values: Sequence[object]) -> None:
        """Replace the payloads of a row: the values are its key and the new payloads."""


class RewritableStore(Store, Protocol):
    """A store whose payloads can be changed, because this process owns it."""

    def rewrite(self) -> AbstractContextManager[PayloadRewriter]:
        """Return the transaction of a change to stored payloads."""

    def rebuild(self) -> None:
        """Remove what was deleted or replaced from the files of the store."""


def reencode_store(store: RewritableStore, codec: Codec) -> ReencodedRows:
    """Encode all payloads with the current key, verify them, and forget the other keys.

    PayloadUnreadable or JournalBroken for a payload that cannot be read; what was encoded before stays.
    """
    verify_codec(store, codec)
    store.delete_runs([])  # what is left of deleted runs is not encoded again
    changed = rewrite_payloads(store, partial(recode_payload, codec))
    rewrite_payloads(store, partial(verify_payload, codec))
    store.write_property(CODECS_PROPERTY, json.dumps({codec.name: stored_codecs(store)[codec.name]}))
    # Unused pages have old rows.
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


def rewrite_payloads(store: RewritableStore, recode: Recode) -> ReencodedRows:
    """Replace the payloads that `recode` changes; return how many these are."""
    events = others = 0
    journal: tuple[Any, str] | None = None
    while True:
        with store.rewrite() as rewriter:
            journal = rewriter.next_journal(None if journal is None else journal[0])
            if journal is None:
                break
            events += rewriter.rewrite_journal(*journal, recode)
    for table in rewriter.tables:
        after: Sequence[object] | None = None
        while True:
            with store.rewrite() as rewriter:
                after, changed = table.rewrite_page(rewriter, after, recode)
                others += changed
            if after is None:
                break
    return ReencodedRows(events, others)


def recode_event(run: str, event: EventRow, recode: Recode) -> tuple[str, bytes]:
    """Return the new data of an event, and its digest."""
    try:
        text = recode(event.data, "event", run, event.seq, event.type, event.path)
    except PayloadUnreadable as error:
        raise JournalUnreadable(run, event.seq, str(error)) from None
    return text, hash_chain.hash_data(text.encode())


class PayloadTable(NamedTuple):
    """A table with payloads: how wide its key is, and how to recode a row of it."""

    name: str
    key_width: int
    recode_row: Callable[..., tuple[str, ...]]

    def rewrite_page(
        self, rewriter: PayloadRewriter, after: Sequence[object] | None, recode: Recode
    ) -> tuple[Sequence[object] | None, int]:
        """Rewrite some rows after a key; return the last key, None at the end, and how many changed."""
        rows, changed = rewriter.select_payloads(self.name, after), 0
        for row in rows:
            payloads = self.recode_row(recode, *row)
            if payloads != row[-len(payloads) :]:
                rewriter.update_payloads(self.name, (*row[: self.key_width], *payloads))
                changed += 1
        return (rows[-1][: self.key_width] if rows else None), changed


def recode_summary(recode: Recode, key: object, run: str, summary: str) -> tuple[str, ...]:
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
    PayloadTable("summary", 1, recode_summary),
    PayloadTable("definition", 1, recode_definition),
    PayloadTable("fact", 2, recode_fact),
    PayloadTable("message", 2, recode_message),
    PayloadTable("reply", 2, recode_reply),
    PayloadTable("wait", 2, recode_wait),
)
