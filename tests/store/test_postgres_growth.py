"""In PostgreSQL, too, what is finished costs nothing: no list reads more of the tables than it shows."""

from contextlib import closing

import psycopg
import pytest

from nerve.store.port import Append
from nerve.store.postgres import PostgresStore
from nerve.testing.store_contract import event, run_row, wait_row
from postgresql_server import PostgresqlServer
from store.test_growth import LISTS, finished_runs

CALLS = 12
"""More than it takes until the server plans a statement for all of its parameters at once."""
MORE_BLOCKS = 10
"""The height of an index grows with its size."""
SKIP_SCAN_VERSION = 180000
"""Since this version, PostgreSQL uses the index of states also for the runs of all sessions."""
OF_ALL_SESSIONS = {"open runs"}
GROWING = {"a page of a workflow": "no index has the workflow", "labels": "the prefix is compared"}


class ReadBlocks:
    """Counts the blocks of tables and indexes that the lists of a store read."""

    def __init__(self, store: PostgresStore, db: psycopg.Connection[tuple[int]]) -> None:
        self._store, self._db = store, db

    def count(self, name: str) -> float:
        """Return the blocks that a list reads, when it has been read a few times."""
        for _ in range(CALLS):
            LISTS[name](self._store)  # type: ignore[arg-type]
        before = self._read()
        for _ in range(CALLS):
            LISTS[name](self._store)  # type: ignore[arg-type]
        return (self._read() - before) / CALLS

    def _read(self) -> int:
        self._store._select("SELECT pg_stat_force_next_flush()")
        row = self._db.execute(
            "SELECT sum(heap_blks_read + heap_blks_hit + idx_blks_read + idx_blks_hit)::bigint"
            " FROM pg_statio_user_tables WHERE schemaname = 'nerve'"
        ).fetchone()
        assert row is not None
        return row[0]


@pytest.fixture(scope="module")
def growth(postgresql_server: PostgresqlServer) -> dict[str, tuple[float, float]]:
    """For each list, the blocks that it reads beside 200 finished runs, and beside 5,000."""
    url = postgresql_server.create_database()
    with closing(PostgresStore(url)) as store, psycopg.connect(url, autocommit=True) as db:
        blocks = ReadBlocks(store, db)
        left_out = OF_ALL_SESSIONS if db.info.server_version < SKIP_SCAN_VERSION else set()
        store.append([Append("r", 0, [event(1)], run_row("r"), waits=[wait_row("r")])])
        store.append(list(finished_runs(0, 200)))
        db.execute("VACUUM ANALYZE")
        before = {name: blocks.count(name) for name in LISTS}
        store.append(list(finished_runs(200, 4800)))
        db.execute("VACUUM ANALYZE")
        after = {name: blocks.count(name) for name in LISTS}
    postgresql_server.drop_database(url)
    return {name: (before[name], after[name]) for name in LISTS if name not in left_out}


@pytest.mark.parametrize("name", [name for name in LISTS if name not in GROWING])
def test_the_cost_of_a_list_does_not_depend_on_finished_runs(
    growth: dict[str, tuple[float, float]], name: str
) -> None:
    if name not in growth:
        pytest.skip("this version of PostgreSQL reads the whole index for the runs of all sessions")
    before, after = growth[name]
    assert after <= before + MORE_BLOCKS
