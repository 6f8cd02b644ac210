"""`nerve move`: open runs go to a Temporal cluster, and it says what is missing."""

import json
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from nerve.store.postgres import PostgresStore
from nerve.store.sqlite import SqliteStore

CLUSTER = ("--store", "postgresql://h/d", "--engine", "temporal://h")


def test_a_run_is_moved_by_a_prefix_of_its_id(
    do: Callable[..., Any],
    project: Path,
    temporal_url: str,
    postgresql_url: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ids = [do("run", "asking", "--json").json["run_id"] for _ in range(2)]
    monkeypatch.setenv("NERVE_STORE", postgresql_url)
    monkeypatch.setenv("NERVE_ENGINE", temporal_url)
    assert do("move", ids[0], "--json").json == {"moved": [{"run_id": ids[0], "workflow": "asking"}]}
    assert do("move", "--all").out.startswith("Moved 1 run to temporal://")
    monkeypatch.setenv("NERVE_STORE", postgresql_url + "?schema=other")
    ended = do("move", ids[0], "--from", ".nerve/nerve.db")
    assert ended.code != 0
    assert "has ended" in ended.err
    with closing(PostgresStore(postgresql_url, None)) as store:
        assert {row.run for row in store.runs()} == set(ids)
    with closing(SqliteStore(project / ".nerve/nerve.db")) as local:
        ends = [json.loads(local.events(id)[-1].data) for id in ids]
    assert [end["moved_to"]["state"] for end in ends] == ["waiting", "waiting"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "Name the runs to move, or write --all."),
        (["r", "--all"], "Name the runs to move, or write --all."),
        (["--all"], "The runs need a database: --store postgresql://USER@HOST/DATABASE, or NERVE_STORE."),
        (["--all", *CLUSTER[:2]], "The engine is missing: --engine temporal://HOST:7233/NAMESPACE"),
        (["--all", *CLUSTER], "No store to move runs from: .nerve/nerve.db does not exist."),
        (["r", *CLUSTER, "--from", CLUSTER[1]], "In one database, all runs move together. Write --all."),
    ],
)
def test_wrong_usage_says_how_to_write_it(
    do: Callable[..., Any], project: Path, arguments: list[str], message: str
) -> None:
    told = do("move", *arguments)
    assert told.code == 2
    assert message in told.err
