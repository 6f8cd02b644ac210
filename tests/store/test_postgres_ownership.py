"""A session in PostgreSQL has one owner; another process takes it over when the owner is gone."""

import os
import signal
import threading
import time
from collections.abc import Callable
from contextlib import closing

import psycopg
import pytest

from nerve.errors import OwnershipLost, StoreError, StoreInUse
from nerve.store import postgres_ownership
from nerve.store.postgres import PostgresStore
from nerve.testing.store_contract import append
from postgresql_server import PostgresqlServer
from store.processes import kill, news, start

OWNER = """
import sys
from nerve.errors import OwnershipLost
from nerve.store.postgres import PostgresStore
from nerve.testing.store_contract import append
store = PostgresStore(sys.argv[1])
store.watch_ownership(lambda error: print("lost", error, flush=True))
print("owner", flush=True)
for seq, _ in enumerate(sys.stdin):
    try:
        print("written", store.append([append("r", seq)]), flush=True)
    except OwnershipLost as error:
        print("refused", error, flush=True)
"""


def claim(url: str, seconds: float = 10.0) -> PostgresStore:
    """Return the store as soon as its session can be claimed."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            return PostgresStore(url)
        except StoreInUse:
            assert time.monotonic() < deadline, "no other process took the session over in time"
            time.sleep(0.1)


def wait_until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_a_session_has_one_owner(postgresql_url: str) -> None:
    with closing(PostgresStore(postgresql_url)):
        message = rf"Session 'default' in .* is in use by process {os.getpid()} on "
        with pytest.raises(StoreInUse, match=message) as failure:
            PostgresStore(postgresql_url)
        password = postgresql_url.split(":")[2].split("@")[0]
        assert password not in str(failure.value)
        PostgresStore(postgresql_url, "other").close()
    PostgresStore(postgresql_url).close()


def test_a_store_without_a_session_only_reads(postgresql_url: str) -> None:
    with (
        closing(PostgresStore(postgresql_url)) as owner,
        closing(PostgresStore(postgresql_url, None)) as reader,
    ):
        owner.append([append("r", 0)])
        assert len(reader.events("r")) == 1
        with pytest.raises(StoreError, match="opened for reading"):
            reader.append([append("r", 1)])
        with pytest.raises(StoreError, match="opened for reading"):
            reader.write_property("a", "b")


def test_the_session_of_a_killed_owner_is_taken_over_in_less_than_ten_seconds(postgresql_url: str) -> None:
    owner = start(OWNER, postgresql_url)
    assert news(owner).readline() == "owner\n"
    kill(owner)
    started = time.monotonic()
    with closing(claim(postgresql_url)) as store:
        assert time.monotonic() - started < 10
        assert store.append([append("r", 0)]) == [None]


def test_a_stopped_owner_that_continues_is_refused_and_told(
    postgresql_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner = start(OWNER, postgresql_url)
    assert owner.stdin is not None
    owner.stdin.write("\n")
    owner.stdin.flush()
    assert [news(owner).readline() for _ in range(2)] == ["owner\n", "written [None]\n"]
    owner.send_signal(signal.SIGSTOP)
    monkeypatch.setattr(postgres_ownership, "LEASE_S", 0.5)
    with closing(claim(postgresql_url)) as store:
        assert store.append([append("r", 1)]) == [None]
        owner.stdin.write("\n")
        owner.stdin.flush()
        owner.send_signal(signal.SIGCONT)
        lines = sorted(news(owner).readline() for _ in range(2))
        assert [line.split()[0] for line in lines] == ["lost", "refused"]
        assert all("Another process has taken over the session" in line for line in lines)
        assert [row.seq for row in store.events("r")] == [1, 2]
    kill(owner)


def test_every_write_checks_the_epoch_in_its_transaction(postgresql_url: str) -> None:
    with closing(PostgresStore(postgresql_url)) as store:
        store.append([append("r", 0)])
        replace_owner(postgresql_url)
        with pytest.raises(OwnershipLost):
            store.append([append("r", 1)])
        assert len(store.events("r")) == 1
    writes: list[Callable[[PostgresStore], object]] = [
        lambda store: store.add_message("c", "user", "hello"),
        lambda store: store.delete_runs(["r"]),
        lambda store: store.mark_resuming(["r"]),
        lambda store: store.forget_replies("default", 1.0),
        lambda store: store.write_property("a", "b"),
        lambda store: store.empty_events("r", [1]),
    ]
    for write in writes:
        with closing(claim(postgresql_url)) as store:
            replace_owner(postgresql_url)
            with pytest.raises(OwnershipLost):
                write(store)
    with closing(PostgresStore(postgresql_url, None)) as reader:
        assert (reader.messages("c"), len(reader.events("r")), reader.resume_counts()) == ([], 1, {})


def replace_owner(url: str) -> None:
    """Let another process take over the session and end at once."""
    with psycopg.connect(url) as db:
        db.execute("UPDATE nerve.owners SET epoch = epoch + 1")
        db.execute("UPDATE nerve.leases SET renewed = '-infinity'")


def test_of_two_stores_that_claim_an_expired_session_one_gets_it(
    postgresql_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    kill_owner = start(OWNER, postgresql_url)
    assert news(kill_owner).readline() == "owner\n"
    kill_owner.send_signal(signal.SIGSTOP)
    monkeypatch.setattr(postgres_ownership, "LEASE_S", 0.5)
    wait_until(lambda: lease_is_expired(postgresql_url))
    results: list[object] = []

    def try_to_claim() -> None:
        try:
            results.append(PostgresStore(postgresql_url))
        except StoreInUse as error:
            results.append(error)

    threads = [threading.Thread(target=try_to_claim) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    owners = [result for result in results if isinstance(result, PostgresStore)]
    assert len(owners) == 1
    assert owners[0].append([append("r", 0)]) == [None]
    owners[0].close()
    kill(kill_owner)


def lease_is_expired(url: str) -> bool:
    with psycopg.connect(url) as db:
        row = db.execute("SELECT renewed < clock_timestamp() - interval '0.6 s' FROM nerve.leases").fetchone()
    return row == (True,)


def test_an_owner_keeps_its_session_over_a_restart_of_the_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(postgres_ownership, "RENEWAL_INTERVAL_S", 0.05)
    with PostgresqlServer() as server:
        url = server.create_database()
        lost: list[OwnershipLost] = []
        with closing(PostgresStore(url)) as store:
            store.watch_ownership(lost.append)
            server.stop()
            server.start()
            assert store.append([append("r", 0)]) == [None]
            locked = "SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND granted"
            wait_until(lambda: select(url, locked))
            with pytest.raises(StoreInUse):
                PostgresStore(url)
        assert lost == []
        assert not select(url, locked)


def select(url: str, statement: str) -> list[tuple[object, ...]]:
    with psycopg.connect(url) as db:
        return db.execute(statement).fetchall()
