"""The page of the promises: every promise has a row for each place, and every test that it names exists."""

import os
import re
import subprocess
import sys

from docs.pages import ROOT, page

TEXT = page("docs/guides/promises.md")
PLACES = ["one machine", "PostgreSQL", "Temporal"]
PROMISES = 11
TEST = re.compile(r"`(tests/[\w/]+\.py::\w+)`")


def read_rows(promise: str) -> list[list[str]]:
    rows = [line.strip("| ").split(" | ") for line in promise.splitlines() if line.startswith("| ")]
    return rows[1:]


def test_every_promise_has_a_row_for_each_place_with_a_test() -> None:
    *promises, excluded = re.split(r"^## ", TEXT, flags=re.MULTILINE)[1:]
    assert len(promises) == PROMISES
    assert excluded.startswith("What is not promised")
    for promise in promises:
        rows = read_rows(promise)
        assert [row[0] for row in rows] == PLACES, promise
        for _, meaning, keeper, tests in rows:
            assert meaning
            assert keeper
            assert TEST.findall(tests), promise


def test_every_test_that_is_named_is_collected() -> None:
    named = set(TEST.findall(TEXT))
    files = sorted({name.partition("::")[0] for name in named})
    collected = subprocess.run(
        [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider", *files],
        cwd=ROOT,
        env={**os.environ, "PYTEST_ADDOPTS": ""},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert collected.returncode == 0, collected.stdout + collected.stderr
    found = {line.partition("[")[0] for line in collected.stdout.splitlines()}
    assert named - found == set()
