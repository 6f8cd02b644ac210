"""The PostgreSQL server of the tests starts on any machine, and what was committed survives its end."""

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from postgresql_server import NOT_FOUND, PROGRAMS_VARIABLE, PostgresqlServer, ServerMissing, find_programs


def test_each_test_has_an_empty_database(postgresql_server: PostgresqlServer, postgresql_url: str) -> None:
    other = postgresql_server.create_database()
    with psycopg.connect(other) as connection:
        connection.execute("CREATE TABLE t (i integer)")
    with psycopg.connect(postgresql_url) as connection:
        query = "SELECT count(*) FROM pg_tables WHERE schemaname = 'public'"
        assert connection.execute(query).fetchone() == (0,)
    postgresql_server.drop_database(other)


def test_a_connection_needs_the_password(postgresql_server: PostgresqlServer, postgresql_url: str) -> None:
    user, _, rest = postgresql_url.partition("@")
    without, _, password = user.rpartition(":")
    assert password
    with pytest.raises(psycopg.OperationalError, match="no password supplied"):
        psycopg.connect(f"{without}@{rest}", passfile="/dev/null")


def test_a_commit_survives_a_killed_server(postgresql_server: PostgresqlServer) -> None:
    with PostgresqlServer() as server:
        url = server.create_database()
        with psycopg.connect(url) as connection:
            connection.execute("CREATE TABLE t (i integer)")
            connection.execute("INSERT INTO t VALUES (42)")
        server.kill()
        with pytest.raises(psycopg.OperationalError):
            psycopg.connect(url)
        server.start()
        with psycopg.connect(url) as connection:
            assert connection.execute("SELECT i FROM t").fetchone() == (42,)
    assert not server.folder.exists()


def test_a_missing_server_has_a_clear_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(PROGRAMS_VARIABLE, str(tmp_path))
    with pytest.raises(ServerMissing) as raised:
        PostgresqlServer()
    assert str(raised.value) == NOT_FOUND


@pytest.fixture
def private_programs(postgresql_server: PostgresqlServer) -> Iterator[Path]:
    """The programs of the wheel below a folder that only its owner can read, such as /root."""
    package = find_programs().parent.parent
    libraries = package.with_name(f"{package.name}.libs")
    if not libraries.exists():
        pytest.skip("the programs are not those of the wheel")
    with tempfile.TemporaryDirectory() as folder:
        for part in (package, libraries):
            shutil.copytree(part, Path(folder, part.name), symlinks=True)
        yield Path(folder, package.name, "pginstall/bin")


def test_programs_that_only_their_owner_can_read_can_be_used(
    private_programs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert os.stat(private_programs.parents[2]).st_mode & 0o777 == 0o700
    monkeypatch.setenv(PROGRAMS_VARIABLE, str(private_programs))
    with PostgresqlServer() as server, psycopg.connect(server.create_database()) as connection:
        assert connection.execute("SELECT 1").fetchone() == (1,)


def test_a_server_ends_with_the_process_that_started_it(postgresql_server: PostgresqlServer) -> None:
    code = """
import sys
from postgresql_server import PostgresqlServer
with PostgresqlServer() as server:
    print(server.folder, flush=True)
    sys.stdin.read()
"""
    process = subprocess.Popen(
        [sys.executable, "-c", code],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parent,
    )
    assert process.stdout is not None
    folder = Path(process.stdout.readline().strip())
    assert (folder / "data/postmaster.pid").exists()
    process.kill()
    process.communicate()
    deadline = time.monotonic() + 30
    while (folder / "data/postmaster.pid").exists():
        assert time.monotonic() < deadline, "the server is still running"
        time.sleep(0.01)
    shutil.rmtree(folder)
