"""A flipped bit or a truncated file is detected or harmless; no journal reads as something else."""

from pathlib import Path
from random import Random

import pytest

from nerve.errors import StoreError
from nerve.store.port import Append
from nerve.store.sqlite import SqliteStore
from nerve.testing.store_contract import append, event, run_row

RUNS = [f"run-{n}" for n in range(20)]


@pytest.fixture
def content(file: Path) -> bytes:
    store = SqliteStore(file)
    store.append([append(run, 0, 10, run_row(run)) for run in RUNS])
    store.append([Append("large", 0, [event(1, data="x" * 300_000)], run_row("large"))])
    store.close()
    return file.read_bytes()


def read(file: Path, run: str) -> list[object] | None:
    """Return the journal, or None if it is reported as broken."""
    try:
        store = SqliteStore(file)
    except StoreError:
        return None
    try:
        return list(store.events(run))
    except StoreError:
        return None
    finally:
        store.close()


@pytest.mark.parametrize("flips", [20, pytest.param(200, marks=pytest.mark.full)])
def test_a_flipped_bit_never_changes_what_is_read(file: Path, content: bytes, flips: int) -> None:
    random, written = Random(flips), append("", 0, 10).rows
    for _ in range(flips):
        changed = bytearray(content)
        changed[random.randrange(len(content))] ^= 1 << random.randrange(8)
        for run in RUNS:
            file.write_bytes(changed)
            assert read(file, run) in (None, written)
        file.write_bytes(changed)
        assert read(file, "large") in (None, [event(1, data="x" * 300_000)])


@pytest.mark.parametrize("cuts", [10, pytest.param(200, marks=pytest.mark.full)])
def test_a_truncated_file_never_reads_as_something_else(file: Path, content: bytes, cuts: int) -> None:
    random, written = Random(cuts), append("", 0, 10).rows
    for _ in range(cuts):
        file.write_bytes(content[: random.randrange(1, len(content))])
        assert read(file, random.choice(RUNS)) in (None, written)
