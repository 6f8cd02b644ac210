"""The verbs in an encrypted project: with its keys, without them, with a server, and after a kill."""

import json
import os
import re
import signal
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import apsw
import pytest

from nerve.store.port import Append
from nerve.store.postgres import PostgresStore
from nerve.store.sqlite import SqliteStore
from nerve_processes import Process

CANARY = "<a canary>"
CONFIG = {"encryption": {"key_file": "../shop.keys"}}


@pytest.fixture
def tmp_path(tmp_path: Path) -> Path:
    """The project is a folder in it, so that its keys can be outside."""
    folder = tmp_path / "shop"
    folder.mkdir()
    return folder


@pytest.fixture
def keys(do: Callable, project: Path) -> Path:
    """The key file of the project, which is encrypted."""
    (project / ".nerve/config.json").write_text(json.dumps(CONFIG))
    done = do("keygen", "first", "--json")
    assert done.code == 0
    assert done.json == {"id": "first", "ids": ["first"], "key_file": "../shop.keys"}
    return project.parent / "shop.keys"


def readable_files(folder: Path, text: str = CANARY) -> list[str]:
    return [file.name for file in folder.rglob("*") if file.is_file() and text.encode() in file.read_bytes()]


def change(store: Path, statement: str) -> None:
    with closing(apsw.Connection(str(store))) as db:
        db.execute(statement)


def findings(do: Callable, *options: str) -> dict[str, tuple[str, str]]:
    done = do("doctor", "--json", *options)
    return {each["name"]: (each["state"], each["told"]) for each in done.json["findings"]}


def test_every_verb_works_on_an_encrypted_project(do: Callable, project: Path, keys: Path) -> None:
    arguments = ("ship", CANARY, "--count=3", "--label", "v3", "--with", "nodes.py")
    assert do("run", *arguments).code == 4
    [run] = do("runs", "--json", "--search", CANARY).json
    assert run["state"] == "waiting"
    assert do("gates", "--json").json[0]["prompt"] == "Ship it?"
    assert CANARY in do("events", "v3", "--json").out
    assert do("status", "v3").code == do("logs", "v3").code == 0
    assert do("answer", "v3", "yes", "--reason", CANARY, "--with", "nodes.py").code == 0
    assert do("resume", "v3", "--with", "nodes.py").code == 0
    done = do("run", "ship", CANARY, "--count=1", "--answer", "approve=yes", "--with", "nodes.py")
    assert f"told {CANARY}" in done.out
    assert do("fork", "v3", "--at", "/tell", "--with", "nodes.py").code == 0
    assert do("signal", "note", json.dumps({"text": CANARY})).code == 0
    assert CANARY in do("facts", "--json").out
    assert do("gc", "--older-than", "1d").code == 0
    assert readable_files(project) == []
    assert (project / ".nerve/nerve.db").is_file()
    assert "Ship it?" not in (project / ".nerve/nerve.db").read_bytes().decode(errors="replace")


def test_a_key_is_never_printed(do: Callable, project: Path, keys: Path) -> None:
    do("run", "shout")
    commands = [("keygen", "second"), ("doctor",), ("doctor", "--json"), ("runs",), ("keygen", "second")]
    said = [do(*command) for command in commands]
    secrets = [line.split()[1] for line in keys.read_text().splitlines()]
    assert [secret for secret in secrets for each in said if secret in each.out + each.err] == []
    assert said[-1].code == 2
    assert "already has the key 'second'. Use another id." in said[-1].err


def test_the_doctor_names_the_keys(do: Callable, project: Path, keys: Path) -> None:
    do("run", "shout")
    assert findings(do)["encryption"] == ("ok", "new data is encrypted with key 'first' of ../shop.keys")
    do("keygen", "second")
    do("run", "shout")
    assert findings(do)["encryption"][1].endswith("'second' of ../shop.keys, old data readable with first")
    keys.write_text(keys.read_text().splitlines()[1])
    assert findings(do)["encryption"] == ("wrong", "the store has data of aes-gcm:first")
    keys.chmod(0o644)
    assert "other users can read" in findings(do)["encryption"][1]
    (project / ".nerve/config.json").unlink()
    told = "the store is encrypted (aes-gcm:first, aes-gcm:second)"
    assert findings(do)["encryption"] == ("wrong", told)


def test_the_doctor_says_that_a_project_is_not_encrypted(do: Callable) -> None:
    do("run", "shout")
    assert findings(do)["encryption"] == ("missing", "payloads are stored readable")


def test_the_deep_check_works_with_and_without_the_keys(do: Callable, project: Path, keys: Path) -> None:
    do("run", "shout")
    do("run", "asking")
    state, told = findings(do, "--deep")["store (deep check)"]
    assert (state, told.endswith("events are intact")) == ("ok", True)
    text = keys.read_text()
    keys.unlink()
    state, told = findings(do, "--deep")["store (deep check)"]
    assert (state, told.endswith("events could not be decrypted")) == ("ok", True)
    change(project / ".nerve/nerve.db", "UPDATE events SET data = '{}' WHERE id = 2")
    assert "event 2 is not what was written" in do("doctor", "--deep").out
    keys.touch(0o600)
    keys.write_text(text)
    assert "event 2 is not what was written" in do("doctor", "--deep").out


def test_a_journal_under_the_id_of_another_run_is_found_with_the_keys(
    do: Callable, project: Path, keys: Path
) -> None:
    do("run", "asking")
    do("run", "asking")
    store = project / ".nerve/nerve.db"
    opened = SqliteStore(store)
    first, second = opened.runs()
    moved = opened.events(first.run)
    opened.delete_runs([second.run])
    assert opened.append([Append(second.run, 0, moved, second)]) == [None], "its hash chain is valid"
    opened.close()
    done = do("doctor", "--deep")
    assert done.code == 1
    assert f"run {second.run}: event 1 cannot be decoded" in done.out
    listed = {run["run_id"]: run["state"] for run in do("runs", "--json").json}
    assert listed == {first.run: "waiting", second.run: "held"}


@pytest.mark.parametrize("verb", [("runs",), ("run", "shout"), ("facts",), ("serve", "--port", "0")])
def test_without_the_right_key_a_verb_says_what_to_do(
    do: Callable, project: Path, keys: Path, verb: tuple[str, ...]
) -> None:
    do("run", "shout")
    right = keys.read_text()
    keys.write_text("")
    do("keygen", "other")
    done = do(*verb)
    assert done.code == 1
    assert re.search(r"Key 'first' is not among the keys \(other\). Add it to [^ ]*/shop.keys\.", done.err)
    keys.unlink()
    assert re.search(r"its key file [^ ]*/shop.keys does not exist", do(*verb).err)
    (project / ".nerve/config.json").unlink()
    assert "The store is encrypted (aes-gcm:first). Set `encryption` in .nerve/config.json" in do(*verb).err
    (project / ".nerve/config.json").write_text(json.dumps(CONFIG))
    keys.touch(0o600)
    keys.write_text(right)
    assert len(do("runs", "--json").json) == 1


def test_keys_come_from_a_variable(
    do: Callable, project: Path, keys: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    do("run", "shout")
    (project / ".nerve/config.json").write_text('{"encryption": {"key_env": "SHOP_KEYS"}}')
    assert "the environment variable SHOP_KEYS is not set" in do("runs").err
    monkeypatch.setenv("SHOP_KEYS", keys.read_text())
    assert len(do("runs", "--json").json) == 1
    assert do("keygen", "second").code == 2


def test_keygen_needs_a_key_file_in_the_configuration(do: Callable, project: Path) -> None:
    done = do("keygen")
    assert done.code == 2
    assert 'This project is not encrypted. Set "encryption": {"key_file": "PATH"}' in done.err


def test_a_server_that_is_killed_twice_continues_an_encrypted_run(
    do: Callable, project: Path, keys: Path
) -> None:
    def serve() -> Process:
        process = Process("serve", "--port", "0", "--json", "--with", "nodes.py")
        assert process.stdout.readline(), process.communicate()
        return process

    server = serve()
    assert do("start", "ship", CANARY, "--count=3", "--label", "v3", "--wait").code == 4
    for _ in range(2):
        server.send_signal(signal.SIGKILL)
        server.communicate(timeout=30)
        assert readable_files(project) == []
        server = serve()
    try:
        assert do("answer", "v3", "yes").code == 0
        assert do("watch", "v3").code == 0
        assert CANARY in do("logs", "v3").out + do("events", "v3", "--json").out
    finally:
        server.send_signal(signal.SIGTERM)
        server.communicate(timeout=30)
    assert (project / "effects").read_text() == "built\n"
    assert readable_files(project) == []
    assert os.listdir(project / ".nerve/logs")


def test_a_plain_project_has_no_readable_rows_after_gc_and_vacuum(
    do: Callable, project: Path, request: pytest.FixtureRequest
) -> None:
    assert do("run", "ship", CANARY, "--count=1", "--answer", "approve=yes", "--with", "nodes.py").code == 0
    store = project / ".nerve/nerve.db"
    assert len(readable_files(project)) == 2, "the store and the log of the run"
    request.getfixturevalue("keys")
    assert do("run", "ship", CANARY, "--count=1", "--answer", "approve=yes", "--with", "nodes.py").code == 0
    change(store, "UPDATE runs SET started = 1, ended = 2 WHERE id = 1")
    assert do("gc", "--yes").code == 0
    change(store, "VACUUM")
    assert readable_files(project) == []
    assert len(do("runs", "--json").json) == 1
    assert do("doctor", "--deep", "--quiet").out == "No problems found.\n"


def test_everything_is_encrypted_again_with_a_new_key(do: Callable, project: Path, keys: Path) -> None:
    arguments = ("ship", CANARY, "--count=3", "--label", "v3", "--with", "nodes.py")
    assert do("run", *arguments).code == 4
    threads = project / ".nerve/threads"
    threads.mkdir(parents=True)
    (threads / "t1.json").write_text(json.dumps([CANARY]))
    assert do("keygen", "second", "--quiet").code == 0
    done = do("rekey")
    assert done.code == 0
    assert re.fullmatch(
        r"Encrypted \d+ payloads with key 'second'\. Everything that is stored was verified\.\n"
        r"Not needed any more, except for backups: 'first' in \S+\.\n",
        done.out,
    )
    assert do("rekey", "--json").json == {
        "key": "second",
        "unused_keys": ["first"],
        "events": 0,
        "rows": 0,
        "threads": 0,
    }
    keys.write_text(keys.read_text().split("\n", 1)[1])
    assert findings(do, "--deep")["encryption"][0] == "ok"
    assert readable_files(project) == []
    assert do("answer", "v3", "yes", "--with", "nodes.py").code == 0
    assert do("resume", "v3", "--with", "nodes.py").code == 0


def test_a_database_is_encrypted_again_unless_a_process_uses_it(
    do: Callable, project: Path, keys: Path, postgresql_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NERVE_STORE", postgresql_url)
    assert do("run", "ship", CANARY, "--count=3", "--label", "v3", "--with", "nodes.py").code == 4
    assert do("keygen", "second", "--quiet").code == 0
    with closing(PostgresStore(postgresql_url, "other")):
        refused = do("rekey")
    assert refused.code == 2
    assert "session 'other'" in refused.err
    done = do("rekey", "--json").json
    assert done["unused_keys"] == ["first"]
    assert min(done["events"], done["rows"]) > 0
    keys.write_text(keys.read_text().split("\n", 1)[1])
    assert do("answer", "v3", "yes", "--with", "nodes.py").code == 0


def test_a_project_without_keys_cannot_be_encrypted_again(do: Callable, project: Path) -> None:
    assert "This project is not encrypted." in do("rekey").err
