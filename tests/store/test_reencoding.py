"""A store is encoded again with a new key: complete, verified, and after a kill at any payload."""

import asyncio
import json
import os
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import apsw
import pytest

from nerve import Session, WorkflowContext
from nerve.api import Api
from nerve.crypto import AesGcmCodec
from nerve.errors import JournalUnreadable, KeyMissing
from nerve.journal.events import compare_run_row
from nerve.store.encoded_store import EncodedStore, decode_event_row, stored_codecs
from nerve.store.inspection import StoreInspection
from nerve.store.reencoding import reencode_store
from nerve.store.sqlite import SqliteStore

KEYS = {"first": bytes(32), "second": bytes([1] * 32)}
FIRST, BOTH = AesGcmCodec({"first": KEYS["first"]}), AesGcmCodec(KEYS)
SECOND = AesGcmCodec({"second": KEYS["second"]})
CANARY = "a canary"
LARGE = "large " * 60_000


async def use_store(file: Path, codec: AesGcmCodec | None) -> None:
    """Write every kind of payload: runs, facts, messages, replies, waits, large and emptied data."""
    session = Session(store=file, codec=codec)

    @session.step
    async def echo(text: str) -> str:
        return text

    @session.workflow
    async def work(ctx: WorkflowContext, text: str) -> str:
        ctx.emit("output_chunk", {"stream": "partial", "text": text})
        await echo(text)
        return await echo(LARGE + text)

    @session.workflow
    async def ask(ctx: WorkflowContext, text: str) -> str:
        return str(await ctx.gate(text))

    async with session:
        run = await session.start(work, CANARY, key=f"work {codec and codec.name}")
        await run.wait()
        asked = await session.start(ask, CANARY)
        await asked.next_gate()
        await session.signal("note", value=CANARY)
        store = session.engine.store
        store.add_message("talk", "user", CANARY)
        await Api(session).signal(label="other", value=CANARY, key=f"k {codec and codec.name}")
        chunks = [event.seq for event in store.events(run.run_id) if event.type == "output_chunk"]
        store.empty_events(run.run_id, chunks)


def contents(file: Path, codec: AesGcmCodec) -> dict[str, object]:
    """Everything that a session reads from a store."""
    with closing(EncodedStore(SqliteStore(file), codec)) as store:
        runs = store.runs()
        return {
            "runs": runs,
            "events": [store.events(run.run) for run in runs],
            "definitions": [store.definition(run.definition or "") for run in runs],
            "waits": [store.waits_of_run(run.run) for run in runs],
            "facts": store.facts("default"),
            "messages": store.messages("talk"),
            "replies": [store.stored_reply("default", f"k {name}") for name in (None, FIRST.name)],
        }


def has_bytes(file: Path, text: str) -> bool:
    return text.encode() in file.read_bytes()


def find_damage(file: Path, codec: AesGcmCodec) -> list[str]:
    inspection = StoreInspection(
        file, compare_run_row, lambda run, event: decode_event_row(codec, run, event)
    )
    return [damage.message for damage in inspection.find_damage()]


@pytest.fixture
async def used(tmp_path: Path) -> Path:
    """A store with readable data from before, and data of a first key."""
    file = tmp_path / "nerve.db"
    await use_store(file, None)
    await use_store(file, FIRST)
    return file


async def test_everything_is_encoded_with_the_new_key_and_reads_as_before(used: Path) -> None:
    before = contents(used, BOTH)
    assert has_bytes(used, CANARY), "written before the store was encrypted"
    with closing(SqliteStore(used)) as store:
        changed = reencode_store(store, BOTH)
        assert (changed.events, changed.others) >= (16, 13)
        assert list(stored_codecs(store)) == ["aes-gcm:second"]
        assert reencode_store(store, BOTH) == (0, 0)
    assert contents(used, SECOND) == before
    assert find_damage(used, SECOND) == []
    assert not has_bytes(used, CANARY)
    assert not has_bytes(used, 'encoded":"aes-gcm:first')
    with closing(apsw.Connection(str(used))) as db:
        assert db.execute("SELECT count(*) FROM blobs").get == 6, "those of the old key are gone"


async def test_an_open_run_continues_after_the_rotation(used: Path) -> None:
    with closing(SqliteStore(used)) as store:
        reencode_store(store, BOTH)
    session = Session(store=used, codec=SECOND)

    @session.workflow
    async def ask(ctx: WorkflowContext, text: str) -> str:
        return str(await ctx.gate(text))

    async with session:
        await session.recover()
        run = session.runs(workflow="ask")[0]
        await run.next_gate()
        await run.answer("yes")
        assert await run.wait() == "yes"
    assert find_damage(used, SECOND) == []


async def test_a_missing_key_is_named_and_changes_nothing_that_it_encoded(used: Path) -> None:
    with closing(SqliteStore(used)) as store, pytest.raises((KeyMissing, JournalUnreadable), match="'first'"):
        reencode_store(store, SECOND)
    with closing(SqliteStore(used)) as store:
        reencode_store(store, BOTH)
    assert find_damage(used, SECOND) == []


KILLED = """
import os, sys
from contextlib import closing
from nerve.crypto import AesGcmCodec
from nerve.store.reencoding import reencode_store
from nerve.store.sqlite import SqliteStore

class Killed(AesGcmCodec):
    left = int(sys.argv[2])
    def encode(self, data, place):
        Killed.left -= 1
        if Killed.left < 0:
            os._exit(9)
        return super().encode(data, place)

codec = Killed({"first": bytes(32), "second": bytes([1] * 32)})
with closing(SqliteStore(sys.argv[1])) as store:
    reencode_store(store, codec)
"""


@pytest.mark.parametrize("left", [1, 3, 12, 20, 28])
async def test_a_rotation_that_is_killed_loses_nothing_and_continues(used: Path, left: int) -> None:
    before = contents(used, BOTH)
    arguments = [sys.executable, "-c", KILLED, str(used), str(left)]
    assert (await asyncio.to_thread(subprocess.run, arguments, env=dict(os.environ))).returncode == 9
    with closing(SqliteStore(used)) as store:
        assert store.loss is None
    assert contents(used, BOTH) == before
    assert find_damage(used, BOTH) == []
    with closing(SqliteStore(used)) as store:
        reencode_store(store, BOTH)
    assert json.dumps(str(contents(used, SECOND))) == json.dumps(str(before))
    assert find_damage(used, SECOND) == []
