"""A folder that came from elsewhere: nothing in it is executed, recovered or accepted until it is trusted."""

import asyncio
import json
import os
import shutil
import signal
import sqlite3
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from cli.terminal import Terminal
from nerve import Session
from nerve.client.server_address import find_server, read_server_info
from nerve.commander.project_server import ProjectServer, ServerNotStarted
from nerve.project.ownership import state_folder, write_private
from nerve.project.paths import ProjectPaths
from nerve.server.bind import UnsafeServerSetup, bind_unix
from nerve.server.tokens import load_tokens
from nerve_processes import Process, done

GIT = ["git", "-c", "user.email=a@b", "-c", "user.name=a", "-c", "init.defaultBranch=main"]
QUESTION = "Trust this folder?"
SECONDS = 60


def until(seen: Callable[[], object], seconds: float = SECONDS) -> None:
    end = time.monotonic() + seconds
    while not seen():
        assert time.monotonic() < end, "it did not come"
        time.sleep(0.02)


def end_server(folder: Path) -> None:
    about = read_server_info(ProjectPaths.of(folder))
    if about is not None:
        os.kill(about["pid"], signal.SIGKILL)
        until(lambda: find_server(folder) is None)


def workflow(folder: Path, command: str) -> Path:
    file = folder / ".nerve/workflows/tidy.yaml"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f'name: tidy\ndescription: Tidies up.\nnodes:\n  - {{id: a, bash: "{command}"}}\n')
    return file


@pytest.fixture
def canary(tmp_path: Path) -> Path:
    """A file that is written by everything which is executed."""
    return tmp_path / "CANARY"


@pytest.fixture
def clone(tmp_path: Path, canary: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A fresh clone of a repository that has a store with an open run; the current folder.

    Whoever made it has another secret than the user who clones it.
    """
    attacker, victim = tmp_path / "attacker", tmp_path / "victim"
    file = workflow(attacker, f"id > {canary}; sleep 600")
    with monkeypatch.context() as there:
        there.chdir(attacker)
        there.setenv("XDG_STATE_HOME", str(tmp_path / "state of the attacker"))
        running = Process("run", "tidy", "x")
        until(canary.exists)
        running.kill_all()
        running.communicate()
    canary.unlink()
    file.unlink()
    (attacker / ".nerve/server.json").unlink()
    shutil.rmtree(attacker / ".nerve/private")
    with sqlite3.connect(attacker / ".nerve/nerve.db") as db:
        db.execute("pragma wal_checkpoint(truncate)")
    db.close()
    for arguments in (["init", "-q", "."], ["add", "-f", ".nerve"], ["commit", "-qm", "notes"]):
        subprocess.run([*GIT, *arguments], cwd=attacker, check=True)
    subprocess.run([*GIT, "clone", "-q", "attacker", "victim"], cwd=tmp_path, check=True)
    monkeypatch.chdir(victim)
    yield victim
    end_server(victim)


def test_a_clone_with_runs_executes_nothing_when_it_is_opened(clone: Path, canary: Path) -> None:
    with Terminal() as terminal:
        assert "This folder contains its own runs" in terminal.until(QUESTION)
        terminal.type("n")
        assert terminal.end() == 2
        assert "nerve trust" in terminal.shown
    assert not canary.exists()
    assert find_server(clone) is None


def test_a_clone_trusted_at_the_terminal_resumes_and_does_not_ask_again(clone: Path, canary: Path) -> None:
    with Terminal("commander", "--plain") as terminal:
        terminal.until(QUESTION)
        terminal.type("y")
        until(lambda: canary.exists() and find_server(clone))
    end_server(clone)
    assert done("runs", "--json").returncode == 0
    assert refusal("pause", run_of(clone)) is None


def refusal(*arguments: str) -> str | None:
    """Why a command without a terminal was refused, for lack of trust."""
    ended = done(*arguments)
    if "did not create on this machine" not in ended.stderr:
        return None
    assert ended.returncode == 2
    assert "nerve trust" in ended.stderr
    return str(ended.stderr)


def run_of(folder: Path) -> str:
    found: str = json.loads(done("runs", "--json").stdout)[0]["run_id"]
    return found


EXECUTING = [
    ["run", "tidy", "x"],
    ["start", "tidy", "x"],
    ["resume", "RUN"],
    ["resume", "RUN", "--store", ".nerve/nerve.db"],
    ["answer", "RUN", "yes"],
    ["approve", "RUN"],
    ["reject", "RUN"],
    ["pause", "RUN"],
    ["steer", "RUN", "faster"],
    ["stop", "RUN"],
    ["retry", "RUN"],
    ["skip", "RUN"],
    ["fork", "RUN"],
    ["signal", "go"],
    ["assert", '(go "now")'],
    ["retract", "(go _)"],
    ["route", "tidy up", "--start"],
    ["gc", "--yes"],
    ["workflow", "reload"],
    ["serve", "--port", "0"],
    ["commander"],
    ["commander", "--plain"],
]
LOOKING = [
    ["runs"],
    ["status"],
    ["status", "RUN"],
    ["events", "RUN"],
    ["logs", "RUN"],
    ["watch", "RUN"],
    ["gates"],
    ["facts"],
    ["workflow", "list"],
    ["check"],
    ["doctor", "--quiet"],
    ["show", "tidy"],
    ["run", "tidy", "x", "--dry-run"],
]


def test_without_a_terminal_every_command_that_executes_or_changes_something_is_refused(
    clone: Path, canary: Path
) -> None:
    run = run_of(clone)
    workflow(clone, f"id > {canary}")
    before = (clone / ".nerve/nerve.db").read_bytes()
    for arguments in EXECUTING:
        assert refusal(*(run if each == "RUN" else each for each in arguments)), arguments
    assert not canary.exists()
    assert (clone / ".nerve/nerve.db").read_bytes() == before
    assert find_server(clone) is None


def test_read_only_commands_on_a_clone_work_and_execute_nothing(clone: Path, canary: Path) -> None:
    run = run_of(clone)
    workflow(clone, f"id > {canary}")
    for arguments in LOOKING:
        ended = done(*(run if each == "RUN" else each for each in arguments))
        assert ended.returncode in (0, 4), (arguments, ended.stderr)
        assert "Traceback" not in ended.stderr
    assert not canary.exists()
    assert refusal("run", "tidy", "x"), "looking makes nothing one's own"


def test_the_doctor_reports_untrusted_state(clone: Path) -> None:
    assert "○ trust: This directory contains runs" in done("doctor").stdout
    done("trust")
    assert "trust:" not in done("doctor").stdout


def test_a_temporary_folder_of_another_user_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Any user of the machine can make a folder there first."""
    theirs = tmp_path / f"nerve-{os.getuid()}-state"
    theirs.mkdir()
    theirs.chmod(0o777)
    (theirs / "key").write_text("00" * 32)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "own"))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    assert state_folder() == tmp_path / "own/nerve"
    monkeypatch.setenv("XDG_STATE_HOME", "/proc/nowhere")
    with pytest.raises(OSError, match="/proc/nowhere"):
        state_folder()


def test_a_refusal_is_a_json_error(clone: Path) -> None:
    error = json.loads(done("serve", "--json").stdout)["error"]
    assert (error["code"], error["fix"]) == ("refused", "If you trust it, run: nerve trust")


@pytest.mark.parametrize("words", [[], ["--store", ".nerve/nerve.db"]])
def test_resuming_at_a_terminal_asks_first(clone: Path, canary: Path, words: list[str]) -> None:
    run = run_of(clone)
    with Terminal("resume", run, *words) as terminal:
        terminal.until("? [y/N]")
        terminal.press("\x04")
        assert terminal.end() == 2
    assert not canary.exists()


def test_input_typed_before_the_question_is_not_an_answer(clone: Path, canary: Path) -> None:
    with Terminal("resume", run_of(clone)) as terminal:
        terminal.type("y")
        terminal.until(QUESTION)
        terminal.type("")
        assert terminal.end() == 2
    assert not canary.exists()


def test_no_background_server_is_started_for_a_clone(clone: Path, canary: Path) -> None:
    async def ensure() -> None:
        with pytest.raises(ServerNotStarted, match="nerve trust"):
            await ProjectServer(clone).start_if_needed()

    asyncio.run(ensure())
    assert not canary.exists()


def test_trust_is_granted_listed_and_revoked(clone: Path, canary: Path) -> None:
    run = run_of(clone)
    given = json.loads(done("trust", "--json").stdout)
    assert given == {"path": str(clone), "trusted": True, "brought": ["runs"]}
    assert refusal("pause", run) is None
    assert str(clone) in done("trust", "--list").stdout
    assert json.loads(done("trust", str(clone), "--revoke", "--json").stdout)["was_trusted"]
    assert refusal("pause", run)
    assert "Not trusted before" in done("trust", "--revoke").stdout
    assert str(clone) not in done("trust", "--list").stdout
    assert done("trust", "nowhere").returncode == 2
    assert done("trust", ".nerve/nerve.db").returncode == 0
    assert refusal("stop", run, "--store", ".nerve/nerve.db") is None
    assert not canary.exists()


def test_a_replaced_trusted_store_requires_trust_again(clone: Path, tmp_path: Path) -> None:
    """As a pull does with files that git ignores."""
    done("trust")
    store = clone / ".nerve/nerve.db"
    shutil.copy(store, tmp_path / "other.db")
    store.unlink()
    shutil.move(tmp_path / "other.db", store)
    assert refusal("resume", "x")


@pytest.mark.parametrize("mode", [0o644, 0o600])
@pytest.mark.parametrize("end", ["-wal", "-journal"])
def test_a_sqlite_log_from_a_checkout_is_not_merged_into_the_users_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, end: str, mode: int
) -> None:
    """A checkout under the umask 077 gives it the mode of the store."""
    own_project(tmp_path, monkeypatch)
    assert done("run", "tidy").returncode == 0
    log = tmp_path / f".nerve/nerve.db{end}"
    log.write_bytes(b"\x37\x7f\x06\x82" * 100)
    log.chmod(mode)
    assert refusal("run", "tidy")
    done("trust")
    assert refusal("resume", "x") is None


def test_reading_the_users_store_does_not_trust_a_foreign_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own_project(tmp_path, monkeypatch)
    assert done("run", "tidy").returncode == 0
    write_private(tmp_path / ".nerve/nerve.db-wal", "of another run")
    assert done("runs").returncode == 0
    assert refusal("resume", "x")
    done("trust")
    assert refusal("resume", "x") is None


def test_the_log_of_a_killed_process_is_trusted_and_a_replaced_log_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, canary: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    workflow(tmp_path, f"id > {canary}; sleep 600")
    running = Process("run", "tidy", "x")
    until(canary.exists)
    running.kill_all()
    running.communicate()
    log = tmp_path / ".nerve/nerve.db-wal"
    kept = tmp_path / "kept"
    log.rename(kept)
    write_private(log, "of another run")
    assert refusal("resume", "x")
    kept.replace(log)
    assert log.stat().st_size
    assert refusal("resume", "x") is None


def test_tokens_from_a_clone_are_rejected_and_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    private = tmp_path / ".nerve/private"
    private.mkdir(parents=True, mode=0o700)
    for scope in ("read", "answer", "run", "admin"):
        (private / f"{scope}.token").write_text("A" * 43 + "\n")
        (private / f"{scope}.token").chmod(0o600)
    monkeypatch.chdir(tmp_path)
    assert refusal("serve", "--port", "0")
    with pytest.raises(UnsafeServerSetup, match="was not created by this user"):
        load_tokens(private)
    assert json.loads(done("trust", "--json").stdout)["brought"] == ["tokens"]
    assert "A" * 43 not in load_tokens(private).values()
    assert refusal("runs") is None


def test_a_token_is_valid_for_one_project_only(tmp_path: Path) -> None:
    first, second = (tmp_path / name for name in ("first", "second"))
    load_tokens(first)
    shutil.copytree(first, second)
    with pytest.raises(UnsafeServerSetup, match="was not created by this user"):
        load_tokens(second)


def test_a_forged_server_file_is_ignored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, canary: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    places = ProjectPaths.of(tmp_path)
    load_tokens(places.private)
    module = tmp_path / "evil.py"
    module.write_text(f"open({str(canary)!r}, 'w')\ndef register(session): pass\n")
    about = {"url": "http://127.0.0.1:9", "pid": os.getpid(), "modules": [str(module)]}
    write_private(places.server, json.dumps(about))
    with bind_unix(places.socket):
        assert read_server_info(places) is None
        assert find_server(tmp_path) is None
    assert refusal("serve", "--port", "0")
    assert refusal("commander")
    assert not canary.exists()


def own_project(folder: Path, monkeypatch: pytest.MonkeyPatch, command: str = "echo done") -> None:
    monkeypatch.chdir(folder)
    workflow(folder, command)


def test_the_users_project_opens_without_a_question_even_after_kill_9(
    tmp_path: Path, canary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own_project(tmp_path, monkeypatch, f"echo x >> {canary}; sleep 600")
    running = Process("run", "tidy", "x")
    until(canary.exists)
    running.kill_all()
    running.communicate()
    try:
        with Terminal("commander", "--plain") as terminal:
            until(lambda: len(canary.read_text().splitlines()) == 2 and find_server(tmp_path))
        end_server(tmp_path)
        with Terminal("commander", "--plain") as again:
            until(lambda: len(canary.read_text().splitlines()) == 3 and find_server(tmp_path))
        assert "its own" not in terminal.shown + again.shown
        assert done("stop", run_of(tmp_path)).returncode == 0
    finally:
        end_server(tmp_path)


def test_a_store_created_in_python_belongs_to_the_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own_project(tmp_path, monkeypatch)

    async def make() -> None:
        async with Session(store=".nerve/nerve.db") as session:
            await session.signal("go")

    asyncio.run(make())
    assert "completed" in done("run", "tidy").stderr


def test_python_code_opens_a_store_without_a_question(clone: Path, canary: Path) -> None:
    async def look() -> int:
        async with Session(store=clone / ".nerve/nerve.db") as session:
            return len(session.engine.store.runs(session="default"))

    assert asyncio.run(look()) == 1
    assert not canary.exists()


def test_a_copied_or_moved_project_asks_once_and_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second, third = (tmp_path / name for name in ("first", "second", "third"))
    first.mkdir()
    own_project(first, monkeypatch)
    assert done("run", "tidy").returncode == 0
    shutil.copytree(first, second)
    monkeypatch.chdir(second)
    second.rename(third)
    monkeypatch.chdir(third)
    assert refusal("run", "tidy")
    with Terminal("run", "tidy") as terminal:
        terminal.until(QUESTION)
        terminal.type("yes")
        assert terminal.end() == 0
    assert done("run", "tidy").returncode == 0
    assert len(json.loads(done("runs", "--json").stdout)) == 3


CONFIG = '{"providers": {"helper": {"kind": "command", "argv": ["touch", "%s"]}}, "router": "helper"}'


def test_a_configuration_that_names_programs_requires_trust_when_a_clone_is_opened(
    tmp_path: Path, canary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own_project(tmp_path, monkeypatch)
    (tmp_path / ".nerve/config.json").write_text(CONFIG % canary)
    assert refusal("commander", "--plain")
    with Terminal() as terminal:
        assert "contains its own configuration" in terminal.until(QUESTION)
        terminal.type("no")
        assert terminal.end() == 2
    assert not canary.exists()
    assert done("run", "tidy").returncode == 0, "running is an explicit act"
    assert refusal("commander", "--plain")
    assert done("trust").returncode == 0
    assert refusal("commander", "--plain") is None
    end_server(tmp_path)


def test_a_configuration_written_by_init_belongs_to_the_user(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert done("init").returncode == 0
    with Terminal("run", "greet", "Ann", "--answer", "well=yes") as terminal:
        assert terminal.end() == 0
        assert "its own" not in terminal.shown


def test_projects_work_without_a_writable_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    project, temporary = tmp_path / "project", tmp_path / "temporary"
    project.mkdir()
    temporary.mkdir()
    own_project(project, monkeypatch)
    for name, value in {"HOME": "/proc/nowhere", "TMPDIR": str(temporary)}.items():
        monkeypatch.setenv(name, value)
    for name in ("XDG_STATE_HOME", "XDG_RUNTIME_DIR"):
        monkeypatch.delenv(name, raising=False)
    assert [done("run", "tidy").returncode for _ in range(2)] == [0, 0]
    assert [file.name for file in temporary.iterdir()] == [f"nerve-{os.getuid()}-state"]
    monkeypatch.setenv("TMPDIR", "/proc/nowhere")
    monkeypatch.setenv("XDG_RUNTIME_DIR", "/proc/nowhere")
    ended = done("trust")
    assert ended.returncode == 2
    assert "XDG_STATE_HOME" in ended.stderr


def test_a_secret_that_others_can_read_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own_project(tmp_path, monkeypatch)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    assert done("run", "tidy").returncode == 0
    (tmp_path / "state/nerve/key").chmod(0o644)
    assert refusal("run", "tidy")
    assert "other users can read or change" in done("trust").stderr
