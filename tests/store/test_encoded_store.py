"""A store with a codec fulfils the contract, around every store."""

import json
import logging
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import apsw
import pytest

from nerve.codec import ENCODED_END, ENCODED_START, is_encoded
from nerve.crypto import KEY_BYTES, NONCE_BYTES, AesGcmCodec
from nerve.errors import JournalUnreadable, KeyMissing, PayloadUnreadable, StoreError
from nerve.store.encoded_store import EncodedStore, refuse_encoded
from nerve.store.memory import MemoryStore
from nerve.store.port import Append, Definition, ReplyRow, Store, TagRow
from nerve.store.sqlite import SqliteStore
from nerve.testing.store_contract import (
    StoreContract,
    append,
    append_facts,
    event,
    fact_row,
    run_row,
    wait_row,
)

OLD, NEW = {"old": os.urandom(KEY_BYTES)}, {"new": os.urandom(KEY_BYTES)}
CANARY = "canary-7f3a"


class EncodedContract(StoreContract):
    def stored_size(self, data: str) -> int:
        encrypted = NONCE_BYTES + len(data.encode()) + 16
        return len(f"{ENCODED_START}aes-gcm:old {ENCODED_END}") + (encrypted + 2) // 3 * 4


class TestEncodedSqliteStore(EncodedContract):
    @pytest.fixture
    def store(self, file: Path) -> Iterator[Store]:
        store = EncodedStore(SqliteStore(file), AesGcmCodec(OLD))
        yield store
        store.close()


class TestEncodedMemoryStore(EncodedContract):
    @pytest.fixture
    def store(self) -> Store:
        return EncodedStore(MemoryStore(), AesGcmCodec(OLD))


class Reverser:
    """A codec without keys, as a user may write one."""

    name = "reverse"

    def encode(self, data: bytes, place: bytes) -> bytes:
        return data[::-1]

    def decode(self, data: bytes, name: str, place: bytes) -> bytes:
        return data[::-1]


def test_an_error_of_a_codec_affects_one_run() -> None:
    class Failing(Reverser):
        def decode(self, data: bytes, name: str, place: bytes) -> bytes:
            if b"\0bad" in place:
                raise ZeroDivisionError("division by zero")
            return super().decode(data, name, place)

    store = EncodedStore(MemoryStore(), Failing())
    for run in ("bad", "good"):
        store.append([append(run, 0, 1, run_row(run)._replace(summary='{"step":"x"}'))])
        store.append([Append(run, 1, [event(2, data="[1]")])])
    with pytest.raises(JournalUnreadable, match="The codec failed with ZeroDivisionError"):
        store.events("bad")
    assert [(row.run, row.summary) for row in store.runs()] == [("bad", None), ("good", '{"step":"x"}')]


def test_a_codec_needs_no_keys() -> None:
    memory = MemoryStore()
    store = EncodedStore(memory, Reverser())
    part = whole_part("r")
    assert store.append([part]) == [None]
    assert store.events("r") == part.rows
    assert store.facts("default") == part.facts
    assert all(is_encoded(row.data) for row in memory.events("r"))


@pytest.fixture
def reopen(file: Path) -> Iterator[Callable[..., EncodedStore]]:
    """Return a function that opens the file with keys, after closing it if it was open."""
    opened: list[SqliteStore] = []

    def open_store(keys: dict[str, bytes]) -> EncodedStore:
        close()
        opened.append(SqliteStore(file))
        return EncodedStore(opened[0], AesGcmCodec(keys, "keys.txt"))

    def close() -> None:
        if opened:
            opened.pop().close()

    yield open_store
    close()


def whole_part(run: str) -> Append:
    """Return a part with the canary in every payload."""
    text = json.dumps({"text": CANARY})
    return Append(
        run,
        0,
        [event(1, data=text), event(2, data=json.dumps(CANARY * 40_000))],
        run_row(run)._replace(summary=text),
        Definition("h", "review", "yaml", f"prompt: {CANARY}", text),
        [fact_row("a", 1, "note", CANARY)],
        [ReplyRow("default", "k", 1.0, f"answer {CANARY}", text)],
        [wait_row(run)._replace(data=text)],
        tags=[TagRow("tag", "customer", "42", 1.0)],
    )


def test_no_payload_is_readable_in_the_file_or_its_log(
    reopen: Callable[..., EncodedStore], file: Path
) -> None:
    store = reopen(OLD)
    assert store.append([whole_part("r")]) == [None]
    store.add_message("c", "user", CANARY)
    files = [path for path in file.parent.iterdir() if path.is_file()]
    assert file.with_name("nerve.db-wal") in files
    assert not any(CANARY.encode() in path.read_bytes() for path in files)
    store.delete_runs(["r"])
    store.close()
    assert not any(CANARY.encode() in path.read_bytes() for path in file.parent.iterdir() if path.is_file())


def test_metadata_stays_readable(reopen: Callable[..., EncodedStore], file: Path) -> None:
    reopen(OLD).append([whole_part("r")])
    with apsw.Connection(str(file)) as db:
        assert list(db.execute("SELECT run, seq, type, path FROM journal")) == [
            ("r", 1, "happened", "/main/1"),
            ("r", 2, "happened", "/main/2"),
        ]
        assert db.execute("SELECT record ->> '$[0]' FROM facts").get == "note"
        view = "SELECT id, workflow_name, user_message FROM remote_agent_workflow_runs"
        assert list(db.execute(view)) == [("r", "review", None)], "the view for other programs still works"
    db.close()


def test_rows_that_were_written_without_a_codec_stay_readable(
    file: Path, reopen: Callable[..., EncodedStore]
) -> None:
    plain = SqliteStore(file)
    part = whole_part("plain")
    plain.append([part])
    plain.add_message("c", "user", CANARY)
    expected = plain.run("plain"), plain.events("plain"), plain.facts("default"), plain.waits_of_run("plain")
    plain.close()
    store = reopen(OLD)
    found = store.run("plain"), store.events("plain"), store.facts("default"), store.waits_of_run("plain")
    assert found == expected
    assert store.definition("h") == part.definition
    assert store.stored_reply("default", "k") == part.replies[0]
    store.append([append("plain", 2), append("new", 0, 1, run_row("new"))])
    store.add_message("c", "user", "second")
    assert [row.text for row in store.messages("c")] == [CANARY, "second"]
    assert [row.seq for row in store.events("plain")] == [1, 2, 3]
    assert [row.run for row in store.runs(search=CANARY)] == []
    assert [row.run for row in store.runs(search="42")] == ["plain"]


def test_new_data_is_encrypted_with_the_newest_key_and_old_data_stays_readable(
    reopen: Callable[..., EncodedStore], file: Path
) -> None:
    parts = whole_part("a"), whole_part("b")._replace(facts=[fact_row("b", 2, "note")])
    reopen(OLD).append([parts[0]])
    store = reopen(OLD | NEW)
    store.append([parts[1]])
    assert [store.events(run) for run in "ab"] == [list(part.rows) for part in parts]
    raw = SqliteStore.events(store._store, "b") if isinstance(store._store, SqliteStore) else []
    assert all(row.data.startswith(f"{ENCODED_START}aes-gcm:new ") for row in raw)
    store = reopen(NEW)
    assert store.events("b") == parts[1].rows
    assert store.definition("h") == parts[1].definition, "a start stores the definition with the newest key"
    with pytest.raises(JournalUnreadable, match=r"Run a: event 1 .*'old' is not among the keys \(new\)"):
        store.events("a")


def test_a_missing_key_does_not_affect_lists_of_other_runs(
    reopen: Callable[..., EncodedStore], caplog: pytest.LogCaptureFixture
) -> None:
    reopen(OLD).append([whole_part("a")])
    reopen(OLD | NEW).append([append("b", 0, 1, run_row("b")._replace(summary='{"step":"x"}'))])
    with caplog.at_level(logging.WARNING):
        store = reopen(NEW)
    assert "Key 'old' is not among the keys (new). Add it to keys.txt." in caplog.text
    assert [(row.run, row.summary) for row in store.runs()] == [("a", None), ("b", '{"step":"x"}')]
    assert [(wait.run, wait.data) for wait in store.open_waits("default", "gate")] == [("a", "{}")]
    assert [row.run for row in store.runs(search="review")] == ["a", "b"]
    with pytest.raises(JournalUnreadable, match=r"Run a"):
        store.waits_of_run("a")
    with pytest.raises(KeyMissing, match=r"Add it to keys.txt"):
        store.stored_reply("default", "k")
    with pytest.raises(PayloadUnreadable, match=r"Fact a of session default cannot be decoded. Key 'old'"):
        store.facts("default")


def test_a_store_is_not_opened_with_none_of_its_keys(reopen: Callable[..., EncodedStore]) -> None:
    reopen(OLD).append([whole_part("a")])
    with pytest.raises(KeyMissing, match=r"Key 'old' is not among the keys \(new\). Add it to keys.txt."):
        reopen(NEW)
    assert reopen(OLD).events("a") == whole_part("a").rows


def test_a_store_is_not_opened_with_another_key_of_the_same_id(reopen: Callable[..., EncodedStore]) -> None:
    reopen(OLD).append([whole_part("a")])
    with pytest.raises(PayloadUnreadable, match=r"Restore key 'old' in keys.txt"):
        reopen({"old": os.urandom(KEY_BYTES)})
    assert reopen(OLD).events("a") == whole_part("a").rows


def test_an_encrypted_store_is_not_opened_without_a_codec(
    reopen: Callable[..., EncodedStore], file: Path
) -> None:
    store = reopen(OLD)
    with pytest.raises(StoreError, match=r"encrypted \(aes-gcm:old\). Set `encryption`"):
        refuse_encoded(store)
    refuse_encoded(MemoryStore())


def test_an_event_that_is_moved_to_another_run_is_detected() -> None:
    memory = MemoryStore()
    store = EncodedStore(memory, AesGcmCodec(OLD))
    rows = [event(1, data='{"input":"a"}'), event(2, data='{"input":"b"}')]
    store.append([Append(run, 0, rows, run_row(run)._replace(summary='{"step":"x"}')) for run in "ab"])
    stolen = memory.events("a")
    memory._journals["b"] = stolen
    memory._journals["a"] = [stolen[0]._replace(data=stolen[1].data), stolen[1]]
    memory._runs["b"] = memory._runs["a"]._replace(run="b")
    for run in "ab":
        with pytest.raises(JournalUnreadable, match=r"the data was changed or moved"):
            store.events(run)
    assert [row.summary for row in store.runs()] == ['{"step":"x"}', None]


def test_facts_waits_messages_and_replies_are_bound_to_their_place() -> None:
    memory = MemoryStore()
    store = EncodedStore(memory, AesGcmCodec(OLD))
    store.append([append_facts(fact_row("a", 1, "note", "x")), Append("r", 0, [], waits=[wait_row("r")])])
    store.append([Append("", 0, (), replies=[ReplyRow("default", "k", 1.0, "start", '{"a":1}')])])
    store.add_message("c", "user", "hello")
    facts = memory._facts["default"]
    facts["b"] = facts["a"]._replace(id="b")
    memory._waits["s", "/gate"] = memory._waits["r", "/gate"]._replace(run="s")
    memory._replies["default", "l"] = memory._replies["default", "k"]._replace(key="l")
    memory._messages["d"] = [memory._messages["c"][0]._replace(conversation="d")]
    reads: list[Callable[[], object]] = [
        lambda: store.facts("default"),
        lambda: store.waits_of_run("s"),
        lambda: store.stored_reply("default", "l"),
        lambda: store.messages("d"),
    ]
    for read in reads:
        with pytest.raises(StoreError, match=r"changed or moved"):
            read()
    facts["b"] = facts.pop("a")._replace(record=(facts["b"].record or "").replace("note", "other"))
    with pytest.raises(PayloadUnreadable, match=r"changed or moved"):
        store.facts("default", "other")


def test_damaged_data_is_reported() -> None:
    memory = MemoryStore()
    store = EncodedStore(memory, AesGcmCodec(OLD))
    store.append([Append("r", 0, [event(1, data="[1]")])])
    [row] = memory.events("r")
    for data in (
        row.data.replace(" ", " !"),
        row.data[:60] + ENCODED_END,
        f"{ENCODED_START}other x{ENCODED_END}",
    ):
        memory._journals["r"] = [row._replace(data=data)]
        with pytest.raises(JournalUnreadable, match=r"Run r: event 1 cannot be decoded"):
            store.events("r")


def test_a_reply_is_completed_although_the_command_is_encrypted() -> None:
    memory = MemoryStore()
    store = EncodedStore(memory, AesGcmCodec(OLD))
    pending = ReplyRow("default", "k", 1.0, "answer 5f2c", "")
    store.append([Append("", 0, (), replies=[pending])])
    assert is_encoded(memory._replies["default", "k"].asked)
    store.append([Append("", 0, (), replies=[pending._replace(reply="{}")])])
    assert store.stored_reply("default", "k") == pending._replace(reply="{}")


@pytest.mark.parametrize("codec", [object(), type("Nameless", (Reverser,), {"name": "a b"})()])
def test_an_invalid_codec_is_refused(codec: object) -> None:
    with pytest.raises(ValueError, match=r"codec must have|name of a codec must be"):
        EncodedStore(MemoryStore(), codec)  # type: ignore[arg-type]
