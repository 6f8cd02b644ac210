"""The verbs with a real server of the project, in another process."""

import asyncio
import json
import os
import re
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import unquote

import pytest

from cli.terminal import Terminal
from nerve.client import Client
from nerve.commander.project_server import ProjectServer
from nerve_processes import Process
from nerve_processes import done as finished


class Server:
    """`nerve serve` in the current folder."""

    def __init__(self, *options: str) -> None:
        self.process = Process("serve", "--port", "0", "--json", *options)
        line = self.process.stdout.readline()
        assert line, self.process.communicate()
        self.told = json.loads(line)

    def end(self, how: signal.Signals = signal.SIGTERM) -> tuple[int, str]:
        if self.process.poll() is None:
            self.process.send_signal(how)
        _, said = self.process.communicate(timeout=30)
        return self.process.wait(), said


@pytest.fixture
def server(project: Path) -> Iterator[Server]:
    server = Server("--with", "nodes.py")
    yield server
    server.end()


def watching(run: str) -> Process:
    """`nerve watch` in a pipe."""
    return Process("watch", run)


def seen(process: Process, text: str) -> None:
    """Return when the process has said this on standard error."""
    for line in process.stderr:
        if text in line:
            return
    raise AssertionError(process.communicate())


def test_a_run_is_started_watched_and_approved_from_different_commands(do: Callable, server: Server) -> None:
    done = do("start", "ship", "it", "--count=3", "--label", "v3")
    assert done.code == 0
    assert f"Started on the server. Follow it: nerve watch {done.out.strip()}\n" == done.err
    watch = watching("v3")
    seen(watch, "[gate] Ship it?")
    [gate] = do("gates", "--json").json
    assert (gate["name"], gate["run_id"]) == ("approve", done.out.strip())
    assert do("status", "--json").json["server"] is True
    assert do("approve", "v3").code == 0
    out, err = watch.communicate(timeout=30)
    assert watch.returncode == 0
    assert json.loads(out)["said"] == "told it"
    assert re.search(r"✓ run \S+ completed", err)
    assert do("watch", "v3", "--json").json["state"] == "completed"


def test_run_resume_and_runs_use_the_server(do: Callable, server: Server) -> None:
    done = do("run", "ship", "it", "--count=1", "--json")
    assert (done.code, done.json["state"]) == (4, "waiting")
    run = done.json["run_id"]
    done = do("resume", run[:18], "--answer", "approve=yes", "--json")
    assert (done.code, done.json["result"]["inputs"]["count"]) == (0, 1)
    assert do("run", "parent", "--answer", "colour=red").out == "child said red\n"
    assert [each["workflow"] for each in do("runs", "--json").json] == ["ship", "parent"]
    assert "✓ completed" in do("runs").out
    assert "is held" in do("run", "shot").err or "Did you mean 'shout'?" in do("run", "shot").err


def test_answer_returns_the_state_of_the_run_after_it(do: Callable, server: Server) -> None:
    do("start", "asking", "--label", "a", "--wait")
    told = do("answer", "a", "red", "--json").json
    assert told["gates"] == []
    assert told["state"] in ("running", "completed")
    do("start", "parent", "--label", "p", "--wait")
    assert do("answer", "p", "red", "--json").json["gates"] == []


def test_runs_have_the_same_json_format_with_and_without_a_server(do: Callable, project: Path) -> None:
    server = Server("--with", "nodes.py")
    do("start", "asking", "--label", "a", "--wait")
    do("start", "shout", "--wait")
    served = do("runs", "--json").json
    server.end()
    alone = do("runs", "--json").json
    assert [list(run) for run in alone] == [list(run) for run in served]
    assert list(alone[0]["gates"][0]) == list(served[0]["gates"][0])
    for name in ("run_id", "state", "label"):
        assert [run[name] for run in alone] == [run[name] for run in served]
    assert served[0]["label"] == "a"


def test_wait_returns_the_exit_code_of_the_run(do: Callable, server: Server) -> None:
    assert do("start", "shout", "--wait").out == "loud\n"
    assert do("start", "ship", "--count=1", "--label", "no", "--wait").code == 4
    assert do("reject", "no", "--wait").code == 3
    assert do("start", "asking", "--wait", "--json").code == 4


def test_a_file_is_defined_on_the_server_and_started(do: Callable, server: Server, project: Path) -> None:
    (project / "hi.lisp").write_text('(workflow hi (state start (action (log "hi"))))')
    assert do("workflow", "start", "hi.lisp", "--label", "h", "--wait").code == 0
    assert do("status", "h", "--json").json["workflow"] == "hi"
    assert do("workflow", "define", "hi.lisp", "--json").json["id"] == "hi"
    (project / "hi.lisp").unlink()
    assert do("show", "hi", "--json").json["name"] == "hi"
    assert do("check", "hi").code == 0
    assert do("workflow", "reload").code == 0


def test_starting_a_file_does_not_replace_a_workflow_of_the_project(
    do: Callable, server: Server, project: Path
) -> None:
    (project / "out").mkdir()
    own = (project / ".nerve/workflows/shout.yaml").read_text().replace("echo loud", "echo other")
    (project / "out/shout.yaml").write_text(own)
    for verb in ("start", "run"):
        assert do(verb, "out/shout.yaml", *(["--wait"] if verb == "start" else [])).out == "other\n"
        assert do("start", "shout", "--wait").out == "loud\n"
    done = do("workflow", "define", "out/shout.yaml")
    assert done.code == 2
    assert ".nerve/workflows/shout.yaml" in done.err
    assert do("start", "shout", "--wait").out == "loud\n"


def test_signals_and_facts_reach_the_runs_of_the_server(do: Callable, server: Server, project: Path) -> None:
    (project / ".nerve/workflows/late.yaml").write_text(
        "name: late\ndescription: Waits\nbody: {kind: wait, id: w, any: [{signal: go}]}\n"
    )
    do("workflow", "reload")
    do("start", "late", "--label", "l")
    done = do("signal", "go", "now")
    assert (done.code, done.err) == (0, "")
    assert do("watch", "l").out == "now\n"


def test_options_that_need_a_local_process_are_refused(do: Callable, server: Server) -> None:
    done = do("start", "shout", "--with", "nodes.py")
    assert (done.code, done.out) == (2, "")
    assert "a server is running for this project" in done.err
    for verb in ("start", "run"):
        done = do(verb, "flows.py:greet")
        assert (done.code, "The running project server cannot load Python files" in done.err) == (2, True)
        assert "nerve serve --with flows.py" in done.err
    for arguments in (("run", "shout"), ("resume", "gone")):
        assert "a server is running for this project" in do(*arguments, "--with", "nodes.py").err
    assert "[not_found]" in do("status", "gone").err


def test_the_doctor_sees_the_server(do: Callable, server: Server) -> None:
    found = {each["name"]: each["state"] for each in do("doctor", "--json").json["findings"]}
    assert found["server"] == "ok"


def test_a_server_prints_its_address_and_parks_runs_when_it_stops(do: Callable, project: Path) -> None:
    server = Server("--with", "nodes.py")
    assert server.told["url"].startswith("http://127.0.0.1:")
    do("start", "asking", "--label", "a")
    code, said = server.end()
    assert code == 0
    assert "Press Ctrl-C to stop." in said
    assert not Path(".nerve/server.json").exists()
    assert do("answer", "a", "red").out == "red\n"


def test_a_run_watched_while_its_server_is_killed_twice_ends_once_with_one_answer(
    do: Callable, project: Path
) -> None:
    server = Server("--with", "nodes.py")
    run = do("start", "ship", "it", "--count=1", "--label", "v").out.strip()
    watch = watching("v")
    seen(watch, "[gate] Ship it?")
    server.end(signal.SIGKILL)
    server = Server("--with", "nodes.py")
    [gate] = do("gates", "--json").json

    async def answer() -> None:
        client = Client.of_project()
        assert client is not None
        async with client:
            for _ in range(2):
                await client.answer(run=run, gate=gate["gate_id"], answer="yes", key="once")

    asyncio.run(answer())
    server.end(signal.SIGKILL)
    server = Server("--with", "nodes.py")
    out, err = watch.communicate(timeout=60)
    events = do("events", run, "--json").json
    server.end()
    assert watch.returncode == 0, err
    assert json.loads(out)["said"] == "told it"
    assert err.count("answered: yes") == 1
    kinds = [event["event_type"] for event in events]
    assert (kinds.count("gate_answered"), kinds.count("workflow_completed")) == (1, 1)
    assert (project / "effects").read_text() == "built\n"


def test_the_tree_is_drawn_and_the_gate_is_asked_in_a_terminal(do: Callable, server: Server) -> None:
    do("start", "ship", "it", "--count=1", "--label", "v")
    with Terminal("watch", "v") as terminal:
        terminal.until("1 to 2, or the answer:")
        for text in ("Workflow Progress", "✓ build", "⏸ approve", "○ tell", "Waiting for Input: approve"):
            assert text in terminal.shown
        terminal.type("maybe")
        terminal.until("Invalid choice 'maybe'")
        terminal.type("1")
        assert terminal.end() == 0
        assert "✓ approve" in terminal.shown


def test_the_prompt_ends_when_another_client_answers_the_gate(do: Callable, server: Server) -> None:
    do("start", "ship", "it", "--count=1", "--label", "v")
    with Terminal("watch", "v") as terminal:
        terminal.until("1 to 2, or the answer:")
        do("approve", "v")
        terminal.until("The gate is closed")
        assert terminal.end() == 0


def test_all_runs_are_listed_across_pages(
    do: Callable, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    for label in "abcde":
        do("start", "shout", "--wait", "--label", label)
    monkeypatch.setattr("nerve.cli.runs.RUNS_PER_PAGE", 2)
    assert [run["label"] for run in do("runs", "--json").json] == list("abcde")


def test_a_waiting_run_on_the_server_resumes_with_changes(
    do: Callable, server: Server, project: Path
) -> None:
    do("start", "asking", "--label", "a")
    file = project / ".nerve/workflows/asking.yaml"
    file.write_text(file.read_text() + "    - {kind: transform, expression: \"'new ' + given\"}\n")
    do("workflow", "reload")
    assert do("resume", "a", "--with-changes", "--answer", "colour=red").out == "new red\n"


def test_ctrl_c_leaves_the_run_on_the_server(do: Callable, server: Server) -> None:
    do("start", "asking", "--label", "a")
    with Terminal("watch", "a") as terminal:
        terminal.until("Answer:")
        terminal.interrupt()
        assert terminal.end() == 130
        run = do("status", "a", "--json").json["run_id"]
        assert f"The run continues on the server. Follow it: nerve watch {run}" in terminal.shown
    assert do("answer", "a", "red", "--wait").out == "red\n"


@pytest.mark.parametrize("arguments", [("start", "asking", "--answer", "x=y"), ("watch", "a")])
def test_ctrl_c_with_json_prints_the_run(do: Callable, server: Server, arguments: tuple[str, ...]) -> None:
    do("start", "asking", "--label", "a")
    process = Process(*arguments, "--json")
    seen(process, "[gate]")
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=30)
    assert (process.wait(), json.loads(out)["workflow"]) == (130, "asking")
    assert "continues on the server" in err


def test_an_error_has_the_same_code_with_a_server(do: Callable, server: Server) -> None:
    codes = {
        "not_found": [
            ("run", "gone"),
            ("run", "shot"),
            ("start", "gone"),
            ("resume", "gone"),
            ("show", "gone"),
        ],
        "conflict": [("run", "sh"), ("start", "sh"), ("runs", "--workflow", "sh")],
    }
    do("start", "shout", "--wait")
    do("start", "ship", "--count=1", "--wait")
    for code, commands in codes.items():
        for each in commands:
            done = do(*each, "--json")
            assert (each, done.code, done.json["error"]["code"]) == (each, 2, code)


def test_a_second_server_is_refused(do: Callable, server: Server) -> None:
    done = finished("serve", "--port", "0")
    assert done.returncode == 1
    assert done.stderr.startswith("nerve: ")
    assert done.stderr.count("\n") == 1
    assert server.process.poll() is None
    assert os.getpid() != server.process.pid


def test_steer_sends_a_message_to_a_working_agent(do: Callable, project: Path) -> None:
    (project / "listens.py").write_text(LISTENS)
    text = "name: talk\ndescription: d\nprovider: listener\nnodes: [{id: dev, prompt: Begin}]\n"
    (project / ".nerve/workflows/talk.yaml").write_text(text)
    server = Server("--with", "nodes.py", "--with", "listens.py")
    try:
        do("start", "talk", "--label", "t")
        watch = watching("t")
        until((project / "begun").exists)
        assert do("steer", "t", "Use tabs.", "--json").json["path"] == "/dev"
        (project / "go").touch()
        out, _ = watch.communicate()
        assert out == "heard Use tabs.\n"
        assert "[" in do("steer", "t", "Too late.").err
    finally:
        server.end()


def until(seen: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not seen():
        assert time.monotonic() < deadline
        time.sleep(0.01)


LISTENS = """
import asyncio
from pathlib import Path
from nerve.testing import ScriptedProvider

async def answer(call):
    if call.prompt != "Begin":
        return f"heard {call.prompt}"
    Path("begun").touch()
    while not Path("go").exists():
        await asyncio.sleep(0.01)
    return "alone"

def register(session):
    session.providers["listener"] = ScriptedProvider(answer)
"""


def test_reload_lists_the_python_files_it_does_not_reload(do: Callable, server: Server) -> None:
    done = do("workflow", "reload")
    assert (done.code, done.out) == (0, "Reloaded 4 workflow(s).\n")
    assert "Not reloaded" in done.err
    assert "nodes.py" in done.err
    assert do("workflow", "reload", "--json").json["python_files"] == ["nodes.py"]


def test_server_commands_report_that_no_server_is_running(do: Callable, project: Path) -> None:
    assert (done := do("server", "status")).code == 1
    assert done.out == "No server is running for this project. Start one: nerve serve\n"
    assert do("server", "status", "--json").json == {"running": False}
    assert (done := do("server", "stop")).code == 0
    assert done.out == "No server is running for this project.\n"
    assert do("server", "stop", "--json").json == {"stopped": False, "pid": None}
    assert (done := do("server", "sign-in", "--json")).code == 1
    assert done.json["error"]["fix"] == "Start one: nerve serve"
    assert do("server", "restart", "--with", "nowhere.py").code == 2


def test_server_status_sign_in_and_stop_keep_the_runs(do: Callable, project: Path) -> None:
    server = Server("--with", "nodes.py")
    told = do("server", "status", "--json").json
    assert (told["running"], told["pid"], told["url"]) == (True, server.process.pid, server.told["url"])
    assert told["modules"] == [str(project / "nodes.py")]
    run = do("start", "ship", "it", "--count=3").out.strip()
    assert re.fullmatch(rf"{server.told['url']}/#code=\S+\n", do("server", "sign-in").out)
    refused = do("server", "restart")
    assert refused.code == 2
    assert "nerve server stop" in refused.err
    stopped = do("server", "stop", "--json").json
    assert stopped == {"stopped": True, "pid": server.process.pid}
    _, said = server.process.communicate()
    assert server.process.wait() == 0
    assert "code=" not in said, "what it says may be kept as a log"
    assert "nerve web" in said
    assert run in do("runs", "--json").out


def test_a_server_prints_its_launch_code_only_at_a_terminal(project: Path) -> None:
    with Terminal("serve", "--port", "0") as terminal:
        assert "#code=" in terminal.until("Token for programs")
        terminal.interrupt()
        assert terminal.end() == 0


def test_a_background_server_restarts_with_its_files_or_with_others(do: Callable, project: Path) -> None:
    try:
        first = do("server", "restart", "--with", "nodes.py", "--json").json
        assert first["running"]
        again = do("server", "restart", "--json").json
        assert again["pid"] != first["pid"]
        assert again["modules"] == [str(project / "nodes.py")]
        same = finished("commander", "--plain", "--with", "nodes.py")
        assert same.returncode == 0, same.stderr
        other = finished("commander", "--plain", "--with", "flows.py")
        assert other.returncode == 2
        assert "nerve server restart --with flows.py" in other.stderr
        now = do("server", "restart", "--with", "flows.py", "--json").json
        assert now["modules"] == [str(project / "flows.py")]
        assert "greet" in do("workflow", "list").out
    finally:
        assert do("server", "stop").code == 0
    assert do("server", "status").code == 1


def test_an_open_commander_does_not_interfere_with_a_server_restart(do: Callable, project: Path) -> None:
    closed = threading.Event()

    async def stay_connected() -> None:
        """Start the server again whenever it is gone, as a Commander does."""
        home = ProjectServer(project)
        while not closed.is_set():
            await home.start_if_needed()
            home.modules = []
            await asyncio.sleep(0.01)

    assert do("server", "restart", "--json").json["modules"] == []
    commander = threading.Thread(target=asyncio.run, args=[stay_connected()])
    commander.start()
    try:
        now = do("server", "restart", "--with", "flows.py", "--json").json
        assert now["modules"] == [str(project / "flows.py")]
    finally:
        closed.set()
        commander.join()
        do("server", "stop")


def test_web_starts_a_server_and_opens_a_browser_that_is_signed_in(
    do: Callable, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[str] = []
    monkeypatch.setattr("webbrowser.open", lambda url: opened.append(url) or len(opened) == 1)
    try:
        shown = do("web", "--json").json
        # The code is in a file: other users of the machine can see the arguments of a browser.
        path = Path(unquote(opened[0].removeprefix("file://")))
        assert path == project / ".nerve" / "private" / "sign-in.html"
        assert path.stat().st_mode & 0o777 == 0o600
        assert re.search(rf'url={shown["url"]}/#code=[\w-]+"', path.read_text())
        assert do("server", "status", "--json").json["url"] == shown["url"]
        assert re.fullmatch(rf"{shown['url']}/#code=\S+\n", do("web").out), "it could not be opened"
        assert len(opened) == 2
        assert re.fullmatch(rf"{shown['url']}/#code=\S+\n", do("web", "--no-open", "--quiet").out)
        assert len(opened) == 2
    finally:
        assert do("server", "stop").code == 0
