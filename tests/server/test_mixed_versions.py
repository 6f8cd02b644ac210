"""Servers of two versions with one database, as during an upgrade: no run is lost, repeated or stuck."""

import asyncio
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import psycopg
import pytest

from nerve.client import Client
from nerve.store import postgres_migrations
from nerve.store.postgres import PostgresStore
from server.processes import ServerProcess, wait_for_result, wait_until

VERSION = len(postgres_migrations.MIGRATIONS)
MIGRATION = "CREATE TABLE notes (run text PRIMARY KEY); ALTER TABLE runs ADD COLUMN note text"
NEXT_VERSION = (
    "-c",
    f"""
import runpy
from nerve.store import postgres_migrations
postgres_migrations.MIGRATIONS.append({MIGRATION!r})
runpy.run_module("nerve", run_name="__main__")
""",
)
"""The command line of a later version, which has one more migration than this one."""

REFUSAL = f"has version {VERSION + 1}, but this Nerve supports up to {VERSION}. Update Nerve."


class Upgrade:
    """Servers of this version and of the next one."""

    def __init__(self, folder: Path, url: str) -> None:
        self.folder, self.url = folder, url
        self._stack = ExitStack()
        self._count = 0

    def start(self, *program: str) -> ServerProcess:
        self._count += 1
        server = ServerProcess(self.folder / f"server{self._count}", self.url, None, program)
        self._stack.callback(server.end)
        return server

    def end(self) -> None:
        self._stack.close()


@pytest.fixture
def upgrade(tmp_path: Path, postgresql_url: str) -> Iterator[Upgrade]:
    upgrade = Upgrade(tmp_path, postgresql_url)
    yield upgrade
    upgrade.end()


@pytest.mark.parametrize("runs", [12, pytest.param(300, marks=pytest.mark.full)])
async def test_an_owner_of_the_old_version_serves_the_new_one_until_that_takes_over(
    upgrade: Upgrade, runs: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = upgrade.start()
    assert old.wait_ready()["executes_runs"]
    async with old.client() as client:
        first = await client.start(workflow="ask", wait=True)
        new = upgrade.start(*NEXT_VERSION)
        assert not new.wait_ready()["executes_runs"]
        async with new.client() as other:
            assert (await other.run(run=first.run_id)).state == "waiting"
            await other.answer(run=first.run_id, answer="at the new version")
            assert await wait_for_result(client, first.run_id) == "at the new version"
            started = await start_everywhere([client, other], runs)
            answered, waiting = started[::2], started[1::2]
            for run, answering in zip(answered, [other, client] * runs, strict=False):
                await answering.answer(run=run, answer="before")
            old.process.kill()
            new.wait_until_owner()
            assert await start_everywhere([other], runs) == started, "each key has its run"
            for run in waiting:
                await other.answer(run=run, answer="after")
            results = [await wait_for_result(other, run) for run in started]
    assert results == ["before", "after"] * (runs // 2)
    executed = [path.read_text().splitlines() for path in upgrade.folder.glob("*/executed")]
    counts = Counter(line for lines in executed for line in lines)
    assert counts == dict.fromkeys(("/count", "/count[2]", "/count[3]"), runs + 1)
    monkeypatch.setattr(postgres_migrations, "MIGRATIONS", [*postgres_migrations.MIGRATIONS, MIGRATION])
    with closing(PostgresStore(upgrade.url, None)) as store:
        for run in (first.run_id, *started):
            events = store.events(run)  # which verifies the hash chain
            assert [row.seq for row in events] == list(range(1, len(events) + 1))
            assert [row.type for row in events].count("gate_answered") == 1


async def start_everywhere(clients: list[Client], runs: int) -> list[str]:
    """Start runs with the same keys, in turn with each client; return their ids."""
    starting = [
        clients[number % len(clients)].start(workflow="ask", key=f"key-{number}", wait=True)
        for number in range(runs)
    ]
    return [run.run_id for run in await asyncio.gather(*starting)]


async def test_servers_of_the_old_version_are_refused_after_the_migration(upgrade: Upgrade) -> None:
    owner = upgrade.start()
    assert owner.wait_ready()["executes_runs"]
    standby = upgrade.start()
    assert not standby.wait_ready()["executes_runs"]
    new = upgrade.start(*NEXT_VERSION)
    assert not new.wait_ready()["executes_runs"]
    # One that waits could not take over: it ends, so that nothing relies on it.
    assert standby.process.wait(60) != 0
    assert REFUSAL in standby.log.read_text()
    before = read_tables(upgrade.url)
    late = upgrade.start()
    assert late.process.wait(60) != 0
    assert REFUSAL in late.log.read_text()
    assert "Traceback" not in standby.log.read_text() + late.log.read_text()
    assert read_tables(upgrade.url) == before
    assert owner.process.poll() is None
    owner.process.terminate()
    assert owner.process.wait(30) == 0
    wait_until(lambda: "executes the runs now" in new.log.read_text(), new.log)


def read_tables(url: str) -> list[tuple[object, ...]]:
    with psycopg.connect(url) as db:
        return db.execute(
            "SELECT table_name, column_name FROM information_schema.columns WHERE table_schema = 'nerve'"
            " UNION ALL SELECT 'version', version::text FROM nerve.store_version ORDER BY 1, 2"
        ).fetchall()
