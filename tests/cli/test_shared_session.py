"""A command that drives runs serves the project meanwhile: real processes, as of several terminals."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from nerve.cli.context import CliContext, run_with_api
from nerve.cli.parameters import CommonOptions
from nerve.client import find_server
from nerve.client.server_address import find_server_pid
from nerve.project.paths import ProjectPaths
from nerve_processes import Process, done

SECONDS = 90
HOLD = """name: hold
description: Waits for a file.
nodes:
  - id: wait
    bash: |
      touch "at-$USER_MESSAGE"
      until test -e "go-$USER_MESSAGE"; do sleep 0.05; done
      echo "end $USER_MESSAGE"
"""
ASK = """name: ask
description: Asks somebody.
nodes:
  - id: go
    gate: {prompt: Go on?, choices: ["yes", "no"]}
  - {id: say, bash: echo gone, depends_on: [go]}
"""


@pytest.fixture
def shared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project with workflows that wait, which is the current folder."""
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / ".nerve/workflows"
    folder.mkdir(parents=True)
    (folder / "hold.yaml").write_text(HOLD)
    (folder / "ask.yaml").write_text(ASK)
    (tmp_path / "flow.py").write_text(
        "def register(session):\n    @session.workflow\n    async def flow(ctx):\n        return 'done'\n"
    )
    return tmp_path


@pytest.fixture
def start() -> Iterator[Callable[..., Process]]:
    """Start commands, which are killed at the end."""
    started: list[Process] = []

    def start(*arguments: str) -> Process:
        started.append(Process(*arguments))
        return started[-1]

    yield start
    for process in started:
        process.kill_all()
        process.stdout.close()
        process.stderr.close()


def until(is_true: Callable[[], object]) -> None:
    end = time.monotonic() + SECONDS
    while not is_true():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.02)


def runs() -> dict[str, str]:
    """The states of the runs by their labels."""
    return {run["label"]: run["state"] for run in json.loads(done("runs", "--json").stdout)}


def hold(start: Callable[..., Process], name: str, *options: str) -> Process:
    """Start a run that waits for a file, and return when its step executes."""
    process = start("run", "hold", name, "--label", name, *options)
    until(Path(f"at-{name}").exists)
    return process


def let_go(name: str) -> None:
    Path(f"go-{name}").touch()


def result_of(process: Process) -> tuple[int, str, str]:
    out, err = process.communicate(SECONDS)
    return process.wait(SECONDS), out, err


def test_other_commands_work_while_a_run_is_followed(shared: Path, start: Callable[..., Process]) -> None:
    first = hold(start, "A")
    assert runs() == {"A": "running"}
    assert "[workflow] hold started" in done("logs", "hold").stdout
    assert "server: running" in done("status").stdout
    assert f"process {first.pid}, by nerve run, until it ends" in done("server", "status").stdout
    url = json.loads(done("web", "--no-open", "--json").stdout)["url"]
    assert url.startswith("http://127.0.0.1:")
    run = json.loads(done("start", "ask", "B", "--label", "B", "--json").stdout)["run_id"]
    until(lambda: done("gates", "--json").stdout.count(run))
    assert done("answer", run, "yes", "--wait").returncode == 0
    assert runs() == {"A": "running", "B": "completed"}
    let_go("A")
    code, out, err = result_of(first)
    assert (code, out) == (0, "end A\n")
    assert "other commands" not in err
    assert find_server(shared) is None
    assert not ProjectPaths.of(shared).server.exists()


def test_a_run_of_another_command_survives_the_end_of_the_first(
    shared: Path, start: Callable[..., Process]
) -> None:
    first, second = hold(start, "A"), hold(start, "B")
    let_go("A")
    assert first.stdout.readline() == "end A\n"
    assert first.stderr.readline().startswith("[workflow] hold started")
    said = first.stderr.readline() + first.stderr.readline() + first.stderr.readline()
    assert "Runs of other commands continue in this process, which serves them until they end." in said
    assert (first.poll(), runs()) == (None, {"A": "completed", "B": "running"})
    let_go("B")
    assert result_of(second)[:2] == (0, "end B\n")
    assert first.wait(SECONDS) == 0


def test_a_command_whose_server_ends_before_its_first_request_executes_itself(
    shared: Path, start: Callable[..., Process]
) -> None:
    first = hold(start, "A")
    had_session: list[bool] = []

    async def list_runs(context: CliContext) -> int:
        had_session.append(context.session is not None)
        if context.session is None:
            let_go("A")
            assert result_of(first)[0] == 0
        return [run.state for run in (await context.client.runs()).runs] != ["completed"]

    assert run_with_api(CommonOptions(), list_runs) == 0
    assert had_session == [False, True]


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_other_commands_take_over_their_runs_when_the_first_is_ended(
    how: int, shared: Path, start: Callable[..., Process]
) -> None:
    first = hold(start, "A")
    others = {name: hold(start, name) for name in ("B", "C")}
    for name in others:
        Path(f"at-{name}").unlink()
    first.send_signal(how)
    first.wait(SECONDS)
    for name in others:  # the steps execute again, in a process of the others
        until(Path(f"at-{name}").exists)
    assert find_server_pid(shared) in [process.pid for process in others.values()]
    assert runs() == {"A": "parked", "B": "running", "C": "running"}
    for name in others:  # the one that serves the project ends after the other one
        let_go(name)
    for name, process in others.items():
        code, out, err = result_of(process)
        assert (code, out) == (0, f"end {name}\n"), err
        assert f"Process {first.pid} (nerve run) has ended. The run continues in " in err
    assert runs() == {"A": "parked", "B": "completed", "C": "completed"}


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_a_run_continues_in_the_first_command_when_the_one_that_started_it_is_ended(
    how: int, shared: Path, start: Callable[..., Process]
) -> None:
    first, second = hold(start, "A"), hold(start, "B")
    second.send_signal(how)
    said = result_of(second)[2]
    if how == signal.SIGINT:
        assert f"Interrupted. The run continues in process {first.pid} (nerve run)." in said
    let_go("A")
    assert first.stdout.readline() == "end A\n"
    assert runs() == {"A": "completed", "B": "running"}
    let_go("B")
    assert first.wait(SECONDS) == 0
    assert runs() == {"A": "completed", "B": "completed"}


def test_ctrl_c_after_the_result_hands_over_the_runs_of_others(
    shared: Path, start: Callable[..., Process]
) -> None:
    first, second = hold(start, "A", "--json"), hold(start, "B")
    let_go("A")
    result = json.loads(first.stdout.readline())
    assert (result["state"], result["result"]) == ("completed", "end A\n")
    first.send_signal(signal.SIGINT)
    code, rest, _ = result_of(first)
    assert (code, rest) == (130, "")
    let_go("B")
    assert result_of(second)[:2] == (0, "end B\n")


def test_a_parked_run_is_resumed_through_the_command_that_has_the_store(
    shared: Path, start: Callable[..., Process]
) -> None:
    parked = hold(start, "A")
    parked.kill_all()
    first = hold(start, "B")
    assert runs() == {"A": "parked", "B": "running"}
    Path("at-A").unlink()
    [run] = [run["run_id"] for run in json.loads(done("runs", "--state", "parked", "--json").stdout)]
    resumed = start("resume", run)
    until(Path("at-A").exists)
    let_go("A")
    let_go("B")
    assert result_of(resumed)[:2] == (0, "end A\n")
    assert result_of(first)[:2] == (0, "end B\n")


def test_what_the_command_cannot_do_for_others_is_refused(
    shared: Path, start: Callable[..., Process]
) -> None:
    first = hold(start, "A")
    name = f"process {first.pid} (nerve run)"
    for arguments in (["run", "flow.py"], ["run", "hold", "x", "--with", "flow.py"]):
        refused = done(*arguments)
        assert refused.returncode == 2
        assert f"{name} serves this project until it ends, and cannot load Python files" in refused.stderr
    refused = done("server", "stop")
    assert (refused.returncode, name in refused.stderr) == (2, True)
    refused = done("serve", "--port", "0")
    assert (refused.returncode, name in refused.stderr.lower()) == (2, True)
    assert runs() == {"A": "running"}
    let_go("A")
    assert result_of(first)[:2] == (0, "end A\n")


def test_a_command_that_nobody_connects_to_loads_no_server(shared: Path) -> None:
    code = (
        "import sys; from nerve.cli import execute_command_line as execute;"
        "code = execute(['run', 'hold', 'A', '--quiet']);"
        "print(code, [name for name in ('uvicorn', 'starlette', 'watchfiles') if name in sys.modules])"
    )
    let_go("A")
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ended.stdout == "end A\n0 []\n"


def test_the_store_of_another_file_is_not_shared(shared: Path, start: Callable[..., Process]) -> None:
    first = hold(start, "A", "--store", "other.db")
    assert find_server(shared) is None
    assert done("runs", "--json").stdout == "[]\n"
    let_go("A")
    assert result_of(first)[:2] == (0, "end A\n")


def test_a_folder_that_others_can_read_is_not_served(shared: Path, start: Callable[..., Process]) -> None:
    private = shared / ".nerve/private"
    private.mkdir()
    os.chmod(private, 0o755)
    first = hold(start, "A")
    assert find_server(shared) is None
    let_go("A")
    result: Any = result_of(first)
    assert result[:2] == (0, "end A\n")
