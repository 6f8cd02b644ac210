"""The journals of an engine like Temporal: many processes write them, each row exactly once and in order."""

import threading
from collections.abc import Iterator
from contextlib import closing
from random import Random

import psycopg
import pytest

from nerve.errors import Conflict, OwnershipLost, StoreError, StoreInUse
from nerve.store.hash_chain import FIRST_HASH, hash_data, hash_row
from nerve.store.port import Append, EventRow, UsageRow
from nerve.store.postgres import PostgresStore
from nerve.store.postgres_projection import PostgresProjection, StepAttempt, assign_session
from nerve.testing.store_contract import append, run_row
from postgresql_server import PostgresqlServer

ENGINE = "temporal://127.0.0.1:7233/default"


@pytest.fixture
def projection(postgresql_url: str) -> Iterator[PostgresProjection]:
    with closing(PostgresProjection(postgresql_url, "default", ENGINE)) as projection:
        yield projection


def body_part(after: int, count: int = 1, run: str = "r", state: str = "running") -> Append:
    return append(run, after, count, run_row(run, state=state))


def chunk(seq: int, text: str) -> EventRow:
    return EventRow(seq, 5.0, "output_chunk", "/a", None, f'{{"text": "{text}"}}')


def read(url: str, run: str = "r") -> list[EventRow]:
    with closing(PostgresStore(url, None)) as store:
        return store.events(run)


def test_a_part_that_is_sent_again_is_written_once(
    projection: PostgresProjection, postgresql_url: str
) -> None:
    used = [UsageRow("default", "2025-11-15", "gpt", {"cost": 0.5})]
    first, second = body_part(0, 3)._replace(usage=used), body_part(3, 2)
    assert projection.append("r", [first]) == 3
    assert projection.append("r", [first, second]) == 5
    assert projection.append("r", [second]) == 5
    assert [row.seq for row in read(postgresql_url)] == [1, 2, 3, 4, 5]
    with closing(PostgresStore(postgresql_url, None)) as store:
        assert store.daily_usage("default", "2025-11-15", "2025-11-15") == used


def test_a_part_before_which_rows_are_missing_is_refused_until_they_are_sent(
    projection: PostgresProjection, postgresql_url: str
) -> None:
    first, second = body_part(0, 2), body_part(2, 2)
    with pytest.raises(Conflict, match="rows 1 to 2 are missing"):
        projection.append("r", [second])
    assert read(postgresql_url) == []
    projection.append("r", [first, second])
    assert len(read(postgresql_url)) == 4


def test_rows_of_steps_and_of_the_body_have_one_order_and_the_body_finds_its_own(
    projection: PostgresProjection, postgresql_url: str
) -> None:
    attempt = StepAttempt("/a", 2, 1)
    projection.append("r", [body_part(0, 2)])
    projection.begin_attempt("r", attempt)
    assert projection.append("r", [Append("r", 0, [chunk(1, "x"), chunk(2, "y")])], attempt) == 4
    assert projection.append("r", [Append("r", 0, [chunk(1, "x"), chunk(2, "y")])], attempt) == 4
    projection.append("r", [body_part(2, 1)])
    assert [(row.seq, row.type == "output_chunk") for row in read(postgresql_url)] == [
        (1, False), (2, False), (3, True), (4, True), (5, False),
    ]  # fmt: skip
    assert projection.body_rows("r") == [*body_part(0, 2).rows, *body_part(2, 1).rows]


def test_only_the_current_attempt_of_a_step_writes(
    projection: PostgresProjection, postgresql_url: str
) -> None:
    first, second, later = StepAttempt("/a", 2, 1), StepAttempt("/a", 2, 2), StepAttempt("/a", 4, 1)
    rows = [Append("r", 0, [chunk(1, "x")])]
    projection.append("r", [body_part(0, 2)])
    with pytest.raises(Conflict, match=r"attempt 2\.1 of /a is not the current one"):
        projection.append("r", rows, first)
    projection.begin_attempt("r", first)
    projection.begin_attempt("r", first)
    projection.append("r", rows, first)
    for newer, older in ((second, first), (later, second)):
        projection.begin_attempt("r", newer)
        with pytest.raises(Conflict):
            projection.append("r", [Append("r", 1, [chunk(2, "y")])], older)
        with pytest.raises(Conflict):
            projection.begin_attempt("r", older)
    projection.append("r", rows, later)
    settled = EventRow(3, 6.0, "node_completed", "/a", "/a", "{}")
    projection.append("r", [Append("r", 2, [settled])])
    with pytest.raises(Conflict):
        projection.append("r", [Append("r", 1, [chunk(2, "late")])], later)
    assert len(read(postgresql_url)) == 5


def test_many_processes_that_send_everything_twice_leave_dense_journals_and_ids_in_the_order_of_commits(
    postgresql_url: str,
) -> None:
    runs = ["r0", "r1", "r2"]
    errors: list[BaseException] = []
    seen: list[int] = []
    done = threading.Event()

    def write(number: int) -> None:
        random = Random(number)
        try:
            with closing(PostgresProjection(postgresql_url, "default", ENGINE)) as projection:
                attempt = StepAttempt(f"/{number}", 1, 1)
                for run in runs:
                    projection.begin_attempt(run, attempt)
                for seq in range(12):
                    for run in random.sample(runs, 3):
                        rows = [chunk(seq + 1, f"{number}")._replace(path=attempt.path)]
                        for _ in range(random.choice((1, 2))):
                            projection.append(run, [Append(run, seq, rows)], attempt)
        except BaseException as error:
            errors.append(error)

    def follow() -> None:
        with psycopg.connect(postgresql_url, autocommit=True) as db:
            last = 0
            while not done.is_set():
                for (id,) in db.execute("SELECT id FROM nerve.events WHERE id > %s ORDER BY id", (last,)):
                    seen.append(id)
                    last = id

    with closing(PostgresProjection(postgresql_url, "default", ENGINE)) as projection:
        for run in runs:
            projection.append(run, [body_part(0, run=run)])
    follower = threading.Thread(target=follow)
    follower.start()
    threads = [threading.Thread(target=write, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    with psycopg.connect(postgresql_url) as db:
        ids = [id for (id,) in db.execute("SELECT id FROM nerve.events ORDER BY id")]
    done.set()
    follower.join()
    assert set(seen) <= set(ids)
    assert seen == ids[: len(seen)], "a follower skipped an id that was committed later"
    for run in runs:
        rows = read(postgresql_url, run)  # verifies the hash chain
        assert [row.seq for row in rows] == list(range(1, 50))
        for number in range(4):
            assert sum(row.path == f"/{number}" for row in rows) == 12


def test_the_chain_is_the_one_of_the_local_engine(
    projection: PostgresProjection, postgresql_url: str
) -> None:
    projection.append("r", [body_part(0, 2), body_part(2, 1)])
    hash = FIRST_HASH
    for row in read(postgresql_url):
        hash = hash_row(hash, "r", row, hash_data(row.data.encode()))
    with psycopg.connect(postgresql_url) as db:
        assert db.execute("SELECT hash FROM nerve.events ORDER BY seq DESC LIMIT 1").fetchone() == (hash,)


def test_an_assigned_session_has_no_owner_and_an_owned_one_cannot_be_assigned(postgresql_url: str) -> None:
    with closing(PostgresStore(postgresql_url)), pytest.raises(StoreInUse, match="process"):
        assign_session(postgresql_url, "default", ENGINE)
    with closing(PostgresProjection(postgresql_url, "default", ENGINE)) as projection:
        with pytest.raises(StoreInUse, match=ENGINE):
            PostgresStore(postgresql_url)
        with pytest.raises(StoreInUse, match=ENGINE):
            assign_session(postgresql_url, "default", "temporal://other/default")
        PostgresStore(postgresql_url, "local").close()
        with psycopg.connect(postgresql_url) as db:
            db.execute("UPDATE nerve.owners SET owner = 'another'")
        with pytest.raises(OwnershipLost, match="not assigned"):
            projection.append("r", [body_part(0)])
    assert read(postgresql_url) == []


def test_a_session_with_open_runs_of_the_local_engine_is_not_assigned(postgresql_url: str) -> None:
    with closing(PostgresStore(postgresql_url)) as store:
        store.append([append("r", 0, 1, run_row("r", state="running"))])
    with pytest.raises(StoreError, match="has 1 open runs of the local engine"):
        assign_session(postgresql_url, "default", ENGINE)
    PostgresStore(postgresql_url).close()


def test_a_large_value_is_deleted_with_the_last_run_that_uses_it(
    projection: PostgresProjection, postgresql_url: str
) -> None:
    data = bytes(range(256)) * 1000
    for run in ("r", "s"):
        projection.append(run, [body_part(0, run=run)])
        hash = projection.put_payload(run, data)
    own = projection.put_payload("r", b"own")
    assert (projection.read_payload(hash), projection.read_payload(own)) == (data, b"own")
    with psycopg.connect(postgresql_url) as db:
        db.execute("UPDATE nerve.leases SET renewed = '-infinity'")
    with closing(PostgresStore(postgresql_url)) as store:
        store.delete_runs(["r"])
        assert projection.read_payload(hash) == data
        with pytest.raises(StoreError, match="deleted with its runs"):
            projection.read_payload(own)
        store.delete_runs(["s"])
    with psycopg.connect(postgresql_url) as db:
        for table in ("payloads", "payload_uses", "event_sources", "step_attempts"):
            assert db.execute(f"SELECT count(*) FROM nerve.{table}").fetchone() == (0,)


def test_a_projection_reconnects_after_a_restart_of_the_server() -> None:
    with PostgresqlServer() as server:
        url = server.create_database()
        with closing(PostgresProjection(url, "default", ENGINE)) as projection:
            projection.append("r", [body_part(0, 2)])
            server.kill()
            server.start()
            assert projection.append("r", [body_part(0, 2), body_part(2)]) == 3
