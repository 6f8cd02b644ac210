"""A file has the layout of one version or of the next, never something between."""

from pathlib import Path

import apsw
import pytest

from nerve.errors import StoreError, StoreFailed
from nerve.store import migrations
from nerve.store.sqlite import SqliteStore
from nerve.testing.store_contract import append


def layout(file: Path) -> tuple[int, list[tuple[object, ...]]]:
    db = apsw.Connection(str(file))
    schema = db.execute("SELECT name, sql FROM sqlite_schema ORDER BY name").fetchall()
    version = db.pragma("user_version")
    db.close()
    return version, schema


def statements(sql: str) -> list[str]:
    """The script cut after each of its statements."""
    db = apsw.Connection(":memory:")
    found: list[str] = []
    db.set_exec_trace(lambda cursor, statement, bindings: found.append(statement) or True)
    db.execute(sql)
    db.close()
    return found


def test_a_newer_file_is_refused_and_left_alone(file: Path) -> None:
    SqliteStore(file).close()
    db = apsw.Connection(str(file))
    db.pragma("user_version", 99)
    db.close()
    before = file.read_bytes()
    with pytest.raises(StoreError, match=r"nerve.db has version 99.*Update Nerve"):
        SqliteStore(file)
    assert file.read_bytes() == before


@pytest.mark.parametrize("number", range(len(statements(migrations.MIGRATIONS[0])) + 1))
def test_a_migration_that_dies_between_statements_leaves_the_old_version(
    monkeypatch: pytest.MonkeyPatch, file: Path, number: int
) -> None:
    script = statements(migrations.MIGRATIONS[0])
    broken = ";\n".join([*script[:number], "SELECT * FROM nowhere"])
    with monkeypatch.context() as patched:
        patched.setattr(migrations, "MIGRATIONS", [broken])
        with pytest.raises(StoreFailed):
            SqliteStore(file)
    assert layout(file) == (0, [])
    store = SqliteStore(file)
    assert store.append([append("r", 0)]) == [None]
    store.close()
    assert layout(file)[0] == 1


def test_a_later_migration_keeps_what_is_there(monkeypatch: pytest.MonkeyPatch, file: Path) -> None:
    store = SqliteStore(file)
    store.append([append("r", 0, 3)])
    store.close()
    old = layout(file)
    second = "CREATE TABLE facts (label TEXT) STRICT; CREATE TABLE messages (text TEXT) STRICT"
    monkeypatch.setattr(
        migrations, "MIGRATIONS", [*migrations.MIGRATIONS, f"{second}; SELECT * FROM nowhere"]
    )
    with pytest.raises(StoreFailed):
        SqliteStore(file)
    assert layout(file) == old
    migrations.MIGRATIONS[1] = second
    store = SqliteStore(file)
    assert store.events("r") == append("r", 0, 3).rows
    store.close()
    assert layout(file)[0] == 2
