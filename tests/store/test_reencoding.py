"""A store is encoded again with a new key: complete, verified, and after a kill at any payload."""

import asyncio
import json
import os
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

import apsw
import psycopg
import pytest

from nerve import Session, WorkflowContext
from nerve.api import Api
from nerve.crypto import AesGcmCodec
from nerve.errors import JournalUnreadable, KeyMissing
from nerve.journal.events import compare_run_row
from nerve.store.encoded_store import EncodedStore, decode_event_row, stored_codecs
from nerve.store.inspection import StoreInspection
from nerve.store.postgres import PostgresStore
from nerve.store.reencoding import reencode_store
from nerve.store.sqlite import SqliteStore
from postgresql_server import PostgresqlServer

KEYS = {"first": bytes(32), "second": bytes([1] * 32)}
FIRST, BOTH = AesGcmCodec({"first": KEYS["first"]}), AesGcmCodec(KEYS)
SECOND = AesGcmCodec({"second": KEYS["second"]})
CANARY = "a canary"
LARGE = "large " * 60_000


class StorePlace(NamedTuple):
    """A store file, or a database."""

    address: str
    server: PostgresqlServer | None = None

    def open(self) -> SqliteStore | PostgresStore:
        """Open the store for writing."""
        return SqliteStore(self.address) if self.server is None else PostgresStore(self.address)

    def end_lease(self) -> None:
        """Let the time pass that the lease of a killed process has left."""
        if self.server is not None:
            with psycopg.connect(self.address) as db:
                db.execute("UPDATE leases SET renewed = 'epoch'")

    def read(self) -> SqliteStore | PostgresStore:
        return SqliteStore(self.address) if self.server is None else PostgresStore(self.address, None)

    def has_bytes(self, text: str) -> bool:
        """Whether the files of the store have a text."""
        if self.server is None:
            return text.encode() in Path(self.address).read_bytes()
        with psycopg.connect(self.address, autocommit=True) as db:
            db.execute("CHECKPOINT")
            query = "SELECT oid FROM pg_database WHERE datname = current_database()"
            [database] = db.execute(query).fetchone() or (0,)
        files = (self.server.folder / "data/base" / str(database)).iterdir()
        return any(text.encode() in file.read_bytes() for file in files)

    def find_damage(self, codec: AesGcmCodec) -> list[str]:
        if self.server is not None:
            # Reading it verifies the hash chains.
            contents(self, codec)
            return []
        inspection = StoreInspection(
            Path(self.address), compare_run_row, lambda run, event: decode_event_row(codec, run, event)
        )
        return [damage.message for damage in inspection.find_damage()]


async def use_store(place: StorePlace, codec: AesGcmCodec | None) -> None:
    """Write every kind of payload: runs, facts, messages, replies, waits, large and emptied data."""
    session = Session(store=place.open(), codec=codec)

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


def contents(place: StorePlace, codec: AesGcmCodec) -> dict[str, object]:
    """Everything that a session reads from a store."""
    with closing(EncodedStore(place.read(), codec)) as store:
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


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.cluster)])
async def used(request: pytest.FixtureRequest, tmp_path: Path) -> StorePlace:
    """A store with readable data from before, and data of a first key."""
    if request.param == "sqlite":
        place = StorePlace(str(tmp_path / "nerve.db"))
    else:
        server = request.getfixturevalue("postgresql_server")
        place = StorePlace(request.getfixturevalue("postgresql_url"), server)
    for codec in (None, FIRST):
        await use_store(place, codec)
    return place


async def test_everything_is_encoded_with_the_new_key_and_reads_as_before(used: StorePlace) -> None:
    before = contents(used, BOTH)
    assert used.has_bytes(CANARY), "written before the store was encrypted"
    with closing(used.open()) as store:
        changed = reencode_store(store, BOTH)
        assert (changed.events, changed.others) >= (16, 13)
        assert list(stored_codecs(store)) == ["aes-gcm:second"]
        assert reencode_store(store, BOTH) == (0, 0)
    assert contents(used, SECOND) == before
    assert used.find_damage(SECOND) == []
    assert not used.has_bytes(CANARY)
    assert not used.has_bytes('encoded":"aes-gcm:first')
    if used.server is None:
        with closing(apsw.Connection(used.address)) as db:
            assert db.execute("SELECT count(*) FROM blobs").get == 6, "those of the old key are gone"


async def test_an_open_run_continues_after_the_rotation(used: StorePlace) -> None:
    with closing(used.open()) as store:
        reencode_store(store, BOTH)
    session = Session(store=used.open(), codec=SECOND)

    @session.workflow
    async def ask(ctx: WorkflowContext, text: str) -> str:
        return str(await ctx.gate(text))

    async with session:
        await session.recover()
        run = session.runs(workflow="ask")[0]
        await run.next_gate()
        await run.answer("yes")
        assert await run.wait() == "yes"
    assert used.find_damage(SECOND) == []


async def test_a_missing_key_is_named_and_changes_nothing_that_it_encoded(used: StorePlace) -> None:
    with closing(used.open()) as store, pytest.raises((KeyMissing, JournalUnreadable), match="'first'"):
        reencode_store(store, SECOND)
    with closing(used.open()) as store:
        reencode_store(store, BOTH)
    assert used.find_damage(SECOND) == []


KILLED = """
import os, sys
from contextlib import closing
from nerve.crypto import AesGcmCodec
from nerve.store.reencoding import reencode_store
from nerve.store.postgres import PostgresStore
from nerve.store.sqlite import SqliteStore

class Killed(AesGcmCodec):
    left = int(sys.argv[2])
    def encode(self, data, place):
        Killed.left -= 1
        if Killed.left < 0:
            os._exit(9)
        return super().encode(data, place)

codec = Killed({"first": bytes(32), "second": bytes([1] * 32)})
open_store = PostgresStore if "://" in sys.argv[1] else SqliteStore
with closing(open_store(sys.argv[1])) as store:
    reencode_store(store, codec)
"""


@pytest.mark.parametrize(
    "left", [3, 20, *(pytest.param(left, marks=pytest.mark.full) for left in (1, 12, 28))]
)
async def test_a_rotation_that_is_killed_loses_nothing_and_continues(used: StorePlace, left: int) -> None:
    before = contents(used, BOTH)
    arguments = [sys.executable, "-c", KILLED, used.address, str(left)]
    assert (await asyncio.to_thread(subprocess.run, arguments, env=dict(os.environ))).returncode == 9
    used.end_lease()
    with closing(used.open()) as store:
        assert store.loss is None
    assert contents(used, BOTH) == before
    assert used.find_damage(BOTH) == []
    with closing(used.open()) as store:
        reencode_store(store, BOTH)
    assert json.dumps(str(contents(used, SECOND))) == json.dumps(str(before))
    assert used.find_damage(SECOND) == []
