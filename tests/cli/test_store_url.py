"""`--store URL` and NERVE_STORE: commands use a database in PostgreSQL, and never show its password."""

import json
import re
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import psycopg
import pytest

from cli.conftest import Said
from nerve.api import shared_session
from nerve.store.postgres import PostgresStore
from nerve.store.postgres_migrations import MIGRATIONS
from nerve.testing.store_contract import append, run_row
from server.processes import ServerProcess, wait_until

Do = Callable[..., Said]


@pytest.fixture
def store_variable(postgresql_url: str, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("NERVE_STORE", postgresql_url)
    return postgresql_url


def password_of(url: str) -> str:
    return url.split(":")[2].split("@")[0]


@pytest.mark.usefixtures("store_variable")
def test_runs_are_listed_from_the_database(do: Do, project: Path) -> None:
    (project / ".nerve/workflows/ask.yaml").write_text(
        "name: ask\nbody: {kind: gate, id: approve, prompt: 'Continue?'}\n"
    )
    started = do("run", "ask", "--json")
    assert started.json["state"] == "waiting", started
    run_id = started.json["run_id"]
    assert [run["run_id"] for run in do("runs", "--json").json] == [run_id]
    assert do("answer", run_id, "yes", "--quiet").code == 0
    assert do("runs", "--json").json[0]["state"] == "completed"
    assert not (project / ".nerve/nerve.db").exists()


def test_a_command_says_that_the_owner_does_not_take_it(
    do: Do, store_variable: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared_session, "COMMAND_PATIENCE_S", 0.5)
    with closing(PostgresStore(store_variable)):
        assert do("runs", "--json").json == []
        refused = do("run", "ship", "--count=6", "--input", "label=x")
        with_file = do("run", "ship", "--count=6", "--with", "steps.py")
    assert refused.code != 0
    message = r"process \d+ on .* executes the runs, but has not taken .*was not executed"
    assert re.search(message, refused.err), refused.err
    assert "--with cannot be used while another process executes the runs" in with_file.err
    assert password_of(store_variable) not in refused.err + with_file.err
    with psycopg.connect(store_variable) as db:
        assert db.execute("SELECT count(*) FROM nerve.commands").fetchone() == (0,)


def test_commands_use_the_process_that_executes_the_runs(
    do: Do, project: Path, store_variable: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    server = ServerProcess(tmp_path_factory.mktemp("elsewhere") / "project", store_variable)
    try:
        server.wait_ready()
        (project / "greet.yaml").write_text(
            "name: greet\nbody: {kind: bash, id: hello, command: echo hello}\n"
        )
        greeted = do("run", "greet.yaml", "--quiet")
        assert (greeted.code, greeted.out) == (0, "hello\n"), greeted
        started = do("start", "ask", "--json")
        run_id = started.json["run_id"]
        assert (project / ".nerve/nerve.db").exists() is False
        assert {run["state"] for run in do("runs", "--json").json} == {"waiting", "completed"}
        assert do("answer", run_id, "yes", "--quiet").code == 0
        assert do("watch", run_id, "--quiet").code == 0
        status = do("status", "--quiet")
        assert "executes the runs" in status.out, status
        assert do("status", run_id, "--json").json["state"] == "completed"
    finally:
        server.end()


def test_a_command_is_executed_by_another_command_that_owns_the_session(
    do: Do, project: Path, store_variable: str
) -> None:
    """`nerve run` owns the session while it follows a run."""
    command = "touch running; until test -e done; do sleep 0.1; done"
    (project / "slow.yaml").write_text(f"name: slow\nbody: {{kind: bash, id: wait, command: '{command}'}}\n")
    arguments = [sys.executable, "-m", "nerve", "run", "slow.yaml", "--json"]
    with subprocess.Popen(arguments, cwd=project, stdout=subprocess.PIPE, text=True) as running:
        wait_until(lambda: (project / "running").exists())
        [run] = do("runs", "--json").json
        stopped = do("stop", run["run_id"], "--json")
        assert stopped.code == 0, stopped
        assert json.loads(running.communicate()[0])["state"] == "cancelled"


@pytest.mark.parametrize("url", ["postgresql://me:secret@h/db", "postgresql://me@h/db?password=secret"])
@pytest.mark.parametrize("command", [["runs"], ["serve"], ["run", "ship"]])
def test_a_password_in_an_argument_is_refused(do: Do, url: str, command: list[str]) -> None:
    refused = do(*command, "--store", url)
    assert refused.code == 2
    assert "--store must not have a password" in refused.err
    assert "NERVE_STORE" in refused.err
    assert "secret" not in refused.err


def test_the_variable_must_have_a_url(do: Do, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NERVE_STORE", "runs.db")
    refused = do("runs")
    assert (refused.code, "NERVE_STORE must be a URL" in refused.err) == (2, True)


def test_a_command_on_a_file_refuses_a_url(do: Do) -> None:
    refused = do("serve", "--store", "runs.db")
    assert (refused.code, "--store must be a URL" in refused.err) == (2, True)


def test_doctor_reports_the_database(do: Do, store_variable: str) -> None:
    def find_stores() -> list[dict[str, str]]:
        findings = json.loads(do("doctor", "--json").out)
        rows = findings["findings"] if isinstance(findings, dict) else findings
        return [row for row in rows if row["name"] == "store"]

    missing, unsafe = find_stores()
    assert "no runs yet" in str(missing)
    assert "fsync is off" in str(unsafe), "as the server of the tests is"
    with psycopg.connect(store_variable) as db:
        assert db.execute("SELECT 1 FROM pg_namespace WHERE nspname = 'nerve'").fetchall() == []
    PostgresStore(store_variable).close()
    found, _ = find_stores()
    assert f"version {len(MIGRATIONS)} of {len(MIGRATIONS)}, PostgreSQL 1" in str(found)
    assert "synchronous_commit is on" in str(found)
    assert password_of(store_variable) not in str(find_stores())


def test_doctor_names_the_owner_of_each_session(do: Do, store_variable: str) -> None:
    with closing(PostgresStore(store_variable)):
        assert "✓ store owner: session 'default' by process " in do("doctor").out
    assert "○ store owner: no process owns a session" in do("doctor").out


def test_doctor_checks_every_journal_of_the_database(do: Do, store_variable: str) -> None:
    with closing(PostgresStore(store_variable)) as store:
        store.append([append(f"r{number}", 0, 3, run_row(f"r{number}")) for number in range(5)])
    assert "✓ store (deep check): 5 runs with 15 events are intact" in do("doctor", "--deep").out
    with psycopg.connect(store_variable) as db:
        db.execute("UPDATE nerve.events SET data = '[]' WHERE run IN ('r1', 'r3') AND seq = 2")
        db.execute("DELETE FROM nerve.events WHERE run = 'r4'")
    checked = do("doctor", "--deep", "--quiet")
    assert checked.code == 1
    damaged = [line for line in checked.out.splitlines() if line.startswith("✗ run")]
    assert [line.partition(" is not")[0] for line in damaged] == [
        "✗ run r1: event 2",
        "✗ run r3: event 2",
        "✗ run r4: event 1",
    ]


def test_doctor_reports_that_the_database_is_encrypted(do: Do, store_variable: str) -> None:
    with closing(PostgresStore(store_variable)) as store:
        store.write_property("codecs", '{"aes:2026": "abc"}')
    assert "the store is encrypted (aes:2026)" in do("doctor").out


def test_a_server_that_cannot_be_reached_is_reported_without_the_password(
    do: Do, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NERVE_STORE", "postgresql://me:secret@127.0.0.1:9/data")
    for command in (["runs"], ["serve"], ["doctor"]):
        failed = do(*command)
        assert failed.code == 1
        assert "postgresql://me@127.0.0.1:9/data cannot be reached" in failed.out + failed.err
        assert "secret" not in failed.out + failed.err
