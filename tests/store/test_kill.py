"""A writer killed at any moment loses nothing it has acknowledged."""

from pathlib import Path
from random import Random

import apsw
import pytest

from nerve.store.sqlite import SqliteStore
from store.processes import kill, news, start

WRITER = """
import sys
from nerve.store.sqlite import SqliteStore
from nerve.testing.store_contract import append, run_row
store = SqliteStore(sys.argv[1])
seq = len(store.events("r0"))
while True:
    assert not any(store.append([append(f"r{n}", seq, 1, run_row(f"r{n}", str(seq))) for n in range(5)]))
    seq += 1
    print(seq, flush=True)
"""


@pytest.mark.parametrize("kills", [5, pytest.param(100, marks=pytest.mark.full)])
def test_no_acknowledged_append_is_lost_to_kill_9(file: Path, kills: int) -> None:
    random, acknowledged = Random(kills), 0
    for _ in range(kills):
        writer = start(WRITER, file)
        for _ in range(random.randint(1, 200)):
            acknowledged = int(news(writer).readline())
        lines = [line for line in kill(writer) if line]
        acknowledged = int(lines[-1]) if lines else acknowledged
        acknowledged = check(file, acknowledged)


def check(file: Path, acknowledged: int) -> int:
    store = SqliteStore(file)
    counts = {len(store.events(f"r{n}")) for n in range(5)}
    states = {row.state for row in store.runs()}
    store.close()
    raw = apsw.Connection(str(file))
    assert raw.pragma("integrity_check") == "ok"
    raw.close()
    [count] = counts
    assert count >= acknowledged
    assert states == {str(count - 1)}
    return count
