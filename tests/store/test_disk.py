"""The store keeps its promises on disks that fail and lose power."""

import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random

import apsw
import pytest

from nerve.errors import StoreError, StoreFailed, StoreFull
from nerve.project.ownership import write_private
from nerve.store.port import Append
from nerve.store.sqlite import SqliteStore
from nerve.testing.store_contract import append, event, fact_row, retracted_fact_row, run_row
from store.vfs import Disk, VolatileDisk, io_error

pytestmark = pytest.mark.usefixtures("eager_checkpoints")


def batches(count: int, random: Random) -> Iterator[list[Append]]:
    """Groups of all kinds for journals r0 to r3; the first journal gets one event of each group."""
    lengths = [0] * 4
    for number in range(count):
        batch = []
        for n in {0, *random.sample(range(4), 2)}:
            data = "x" * random.choice((10, 500, 5000, 270_000 if number % 5 == 0 else 10))
            row = run_row(f"r{n}", str(number))
            facts = (
                [fact_row(f"id-{number % 3}", number + 1, number), retracted_fact_row("id-none", number + 1)]
                if n == 0
                else []
            )
            rows = [event(lengths[n] + 1, f"/{number}", data)]
            batch.append(Append(f"r{n}", lengths[n], rows, row, facts=facts))
            lengths[n] += 1
        yield batch


def check(file: Path, acknowledged: list[list[Append]], unknown: list[Append]) -> None:
    """All acknowledged groups exist, and the unacknowledged one completely or not at all."""
    store = SqliteStore(file)
    found = [store.events(f"r{n}") for n in range(4)]
    state = store.run("r0")
    facts, version = store.facts("default"), store.fact_version("default")
    store.close()
    raw = apsw.Connection(str(file))
    assert raw.pragma("integrity_check") == "ok"
    raw.close()
    certain = journals(acknowledged)
    possible = journals([*acknowledged, unknown])
    assert found in (certain, possible)
    assert (state is None) == (found[0] == [])
    assert state is None or state.state == str(len(found[0]) - 1)
    assert version == len(found[0])
    assert [row.version for row in facts] == [n for n in range(version - 2, version + 1) if n > 0]


def journals(groups: list[list[Append]]) -> list[list[object]]:
    kept: list[list[object]] = [[] for _ in range(4)]
    for group in groups:
        for part in group:
            kept[int(part.run[1])].extend(part.rows)
    return kept


@pytest.mark.parametrize("acks", [100, pytest.param(1000, marks=pytest.mark.full)])
def test_an_append_returns_only_after_its_writes_were_synced(disk: Disk, file: Path, acks: int) -> None:
    store = SqliteStore(file, vfs=disk.name)
    log = f"{file}-wal"
    for batch in batches(acks, Random(acks)):
        disk.operations.clear()
        assert not any(store.append(batch))
        written = [n for n, change in enumerate(disk.operations) if change == ("write", log)]
        synced = [n for n, change in enumerate(disk.operations) if change == ("sync", log)]
        assert written
        assert max(synced) > max(written)
    store.close()


@pytest.mark.parametrize("losses", [15, pytest.param(500, marks=pytest.mark.full)])
def test_no_acknowledged_append_is_lost_to_a_power_loss(tmp_path: Path, losses: int) -> None:
    for seed in range(losses):
        lose_power_once(tmp_path / str(seed), Random(seed))


def lose_power_once(directory: Path, random: Random) -> None:
    before, after = directory / "before", directory / "after"
    before.mkdir(parents=True)
    after.mkdir()
    disk, left = VolatileDisk(), random.randint(30, 400)

    def fail(operation: str, file: str) -> None:
        nonlocal left
        left -= 1
        if left <= 0:
            raise io_error(operation)

    disk.before = fail
    acknowledged: list[list[Append]] = []
    unknown: list[Append] = []
    store = None
    try:
        store = SqliteStore(before / "nerve.db", vfs=disk.name)
        for unknown in batches(100, random):
            assert not any(store.append(unknown))
            acknowledged.append(unknown)
    except StoreFailed:
        pass
    disk.lose_power(after, random)
    if store is not None:
        store.close()
    disk.unregister()
    check(after / "nerve.db", acknowledged, unknown)


def test_a_failed_sync_is_reported_and_the_store_continues_with_a_new_connection(
    connections: list[apsw.Connection], disk: Disk, file: Path
) -> None:
    store = SqliteStore(file, vfs=disk.name)
    store.append([append("r", 0, 2, run_row("r"))])
    used = connections[0]

    def fail_once(operation: str, name: str) -> None:
        if operation == "sync":
            disk.before = lambda operation, name: None
            raise io_error(operation)

    disk.before = fail_once
    with pytest.raises(StoreFailed, match=str(file)):
        store.append([append("r", 2, 1, run_row("r", "failed"))])
    assert len(store.events("r")) == 2
    assert store.run("r") == run_row("r")
    assert store.append([append("r", 2, 3)]) == [None]
    assert len(store.events("r")) == 5
    assert connections[-1] is not used
    with pytest.raises(apsw.ConnectionClosedError):
        used.execute("SELECT 1")
    store.close()


def test_a_message_that_could_not_be_synced_is_not_stored(disk: Disk, file: Path) -> None:
    store = SqliteStore(file, vfs=disk.name)
    store.add_message("c", "user", "one")

    def fail_once(operation: str, name: str) -> None:
        if operation == "sync":
            disk.before = lambda operation, name: None
            raise io_error(operation)

    disk.before = fail_once
    with pytest.raises(StoreFailed, match=str(file)):
        store.add_message("c", "user", "two")
    assert [row.text for row in store.messages("c")] == ["one"]
    assert store.add_message("c", "user", "three").seq == 2
    store.close()


def test_a_commit_whose_sync_failed_does_not_reappear_after_a_crash(disk: Disk, tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "nerve.db", vfs=disk.name)
    # The first append checkpoints the log, the second restarts it with a sync of its own.
    store.append([append("r", 0)])
    store.append([append("r", 1)])

    def fail_once(operation: str, name: str) -> None:
        if operation == "sync":
            disk.before = lambda operation, name: None
            raise io_error(operation)

    disk.before = fail_once
    with pytest.raises(StoreFailed):
        store.append([append("r", 2)])
    crashed = tmp_path / "crashed"
    crashed.mkdir()
    for name in ("nerve.db", "nerve.db-wal"):
        (crashed / name).write_bytes((tmp_path / name).read_bytes())
    store.close()
    again = SqliteStore(crashed / "nerve.db")
    assert len(again.events("r")) == 2
    again.close()


def test_the_store_fails_as_long_as_the_disk_does(disk: Disk, file: Path) -> None:
    store = SqliteStore(file, vfs=disk.name)
    store.append([append("r", 0)])

    def fail(operation: str, name: str) -> None:
        raise io_error(operation)

    disk.before = fail
    for _ in range(3):
        with pytest.raises(StoreFailed):
            store.append([append("r", 1)])
        assert len(store.events("r")) == 1
    disk.before = lambda operation, name: None
    assert store.append([append("r", 1)]) == [None]
    assert len(store.events("r")) == 2
    store.close()


@pytest.mark.parametrize("lasting", [False, True])
@pytest.mark.parametrize("step", [17, pytest.param(1, marks=pytest.mark.full)])
def test_any_operation_may_fail(tmp_path: Path, lasting: bool, step: int) -> None:
    number = 1
    while fail_at(tmp_path / str(number), number, lasting):
        number += step
    assert number > 100


def fail_at(directory: Path, number: int, lasting: bool) -> bool:
    """Whether the scenario was long enough to reach the failing operation."""
    directory.mkdir()
    disk, file, done = Disk(), directory / "nerve.db", 0

    def fail(operation: str, name: str) -> None:
        nonlocal done
        done += 1
        if done == number or (lasting and done > number):
            raise io_error(operation)

    disk.before = fail
    acknowledged, unknown = scenario(file, disk.name)
    disk.before = lambda operation, name: None
    disk.unregister()
    # A commit whose sync failed can only be undone if the disk works again before the crash.
    check(file, acknowledged, unknown if lasting else [])
    return done >= number


def scenario(file: Path, vfs: str) -> tuple[list[list[Append]], list[Append]]:
    """Append, twice if needed, until the disk fails for good; return the successful groups and the last."""
    acknowledged: list[list[Append]] = []
    batch: list[Append] = []
    try:
        store = SqliteStore(file, vfs=vfs)
    except StoreError:
        return acknowledged, batch
    for batch in batches(8, Random(1)):
        if not (try_append(store, batch) or try_append(store, batch)):
            break
        acknowledged.append(batch)
    store.close()
    return acknowledged, batch


def try_append(store: SqliteStore, batch: list[Append]) -> bool:
    before = [store.events(f"r{n}") for n in range(4)]
    try:
        assert not any(store.append(batch))
    except StoreFailed:
        assert [store.events(f"r{n}") for n in range(4)] == before
        return False
    return True


@contextmanager
def room_for(size: int) -> Iterator[None]:
    """No file can grow beyond this size, as if the disk were full."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_store_that_is_opened_on_a_full_disk_says_so(file: Path) -> None:
    store = SqliteStore(file)
    assert store.append([append("r", 0)]) == [None]
    store.close()
    with room_for(64), pytest.raises(StoreFull, match=r"cannot grow: the disk is full$"):
        SqliteStore(file)
    store = SqliteStore(file)
    assert len(store.events("r")) == 1
    store.close()


def test_a_private_file_that_cannot_be_written_leaves_no_part_of_it(tmp_path: Path) -> None:
    target = tmp_path / "server.json"
    write_private(target, "before")
    with room_for(4), pytest.raises(OSError, match="File too large"):
        write_private(target, "after it")
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("server.json", "before")]
