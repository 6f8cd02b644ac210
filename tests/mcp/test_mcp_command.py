"""`nerve mcp` as the process that a host starts, used by the official client."""

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pexpect
import pytest
from mcp.client.client import Client as McpClient
from mcp.client.stdio import StdioServerParameters

from nerve.client import Client

WORKFLOW = """
name: ask
body:
  kind: sequence
  steps:
    - {kind: bash, id: print, command: "echo printed"}
    - {kind: gate, id: well, prompt: "Well?", choices: ["yes", "no"]}
"""


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "project"
    nerve(tmp_path, "init", "project")
    (folder / ".nerve/workflows/ask.yaml").write_text(WORKFLOW)
    yield folder
    nerve(folder, "server", "stop")


def nerve(folder: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "nerve", *arguments]
    return subprocess.run(
        command, cwd=folder, capture_output=True, text=True, timeout=120, stdin=subprocess.DEVNULL
    )


@contextlib.asynccontextmanager
async def connect(folder: Path, *options: str) -> AsyncIterator[McpClient]:
    arguments = ["-m", "nerve", "mcp", *options]
    parameters = StdioServerParameters(command=sys.executable, args=arguments, cwd=folder, env={**os.environ})
    async with McpClient(parameters) as client:
        yield client


async def call(client: McpClient, tool: str, **arguments: Any) -> dict[str, Any]:
    result = await client.call_tool(tool, arguments)
    data: dict[str, Any] = result.structured_content
    return data


async def test_a_run_survives_the_host_that_started_it(project: Path) -> None:
    async with connect(project) as first:
        run = await call(first, "start_run", workflow="ask", wait=60)
        assert run["state"] == "waiting", run
    async with connect(project, "--allow-answers") as second:
        [gate] = (await call(second, "list_gates"))["gates"]
        assert (await call(second, "answer_gate", gate=gate["gate"], answer="yes"))["answer"] == "yes"
        assert (await call(second, "wait_for_run", run=run["run"], wait=60))["state"] == "completed"
    client = Client.of_project(project)
    assert client is not None
    async with client:
        stored = await client.run(run=run["run"])
        answers = [event async for event in client.history(run["run"]) if event.event_type == "gate_answered"]
    assert (stored.started_via, answers[0].data["via"]) == ("mcp", "mcp")


async def test_without_a_project_a_tool_says_how_to_create_one(tmp_path: Path) -> None:
    async with connect(tmp_path) as client:
        assert (await client.list_tools()).tools
        result = await client.call_tool("list_workflows", {})
        assert result.is_error
        assert "nerve init" in json.dumps(result.structured_content)
    assert os.listdir(tmp_path) == []


async def test_a_folder_from_elsewhere_is_refused_with_the_reason(project: Path) -> None:
    (project / ".nerve/private").mkdir(exist_ok=True)
    (project / ".nerve/nerve.db").write_text("from elsewhere")
    async with connect(project) as client:
        result = await client.call_tool("list_workflows", {})
        error = result.structured_content["error"]
        assert (error["code"], "nerve trust" in error["fix"]) == ("refused", True)


@pytest.mark.parametrize(
    "how", [signal.SIGINT, signal.SIGTERM, None], ids=["Ctrl-C", "SIGTERM", "end of input"]
)
def test_it_ends_cleanly_and_prints_only_protocol(how: signal.Signals | None, project: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "nerve", "mcp"],
        cwd=project,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    hello = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
    requests = [
        {"method": "initialize", "id": 1, "params": hello},
        {"method": "notifications/initialized"},
        {"method": "tools/call", "id": 2, "params": {"name": "list_workflows", "arguments": {}}},
    ]
    for request in requests:
        process.stdin.write(json.dumps({"jsonrpc": "2.0", **request}).encode() + b"\n")
    process.stdin.flush()
    replies = [json.loads(process.stdout.readline()) for _ in range(2)]
    assert [reply["id"] for reply in replies] == [1, 2]
    if how is None:
        process.stdin.close()
        process.stdin = None
    else:
        process.send_signal(how)
    out, err = process.communicate(timeout=30)
    assert (out, err) == (b"", b"")
    assert process.returncode == {None: 0, signal.SIGINT: 130}.get(how, -signal.SIGTERM)


@pytest.mark.parametrize("protocol", ["mcp", "acp"])
def test_at_a_terminal_it_says_what_it_waits_for(protocol: str, tmp_path: Path) -> None:
    terminal = pexpect.spawn(sys.executable, ["-m", "nerve", protocol], cwd=str(tmp_path), timeout=60)
    terminal.expect_exact(f"Waiting for {protocol.upper()} messages on standard input.")
    terminal.expect_exact("Ctrl-C ends the command.")
    # The interrupt may come before the event loop handles it, so it is repeated.
    while terminal.isalive():
        terminal.sendintr()
        with contextlib.suppress(pexpect.TIMEOUT):
            terminal.expect(pexpect.EOF, timeout=1)
    assert terminal.exitstatus == 130


INTERRUPTED_START = """
import signal, sys
from nerve.cli import main

set_handler = signal.signal


def set_handler_and_interrupt(number, handler):
    before = set_handler(number, handler)
    if "_on_sigint" in repr(handler):  # asyncio.run handles Ctrl-C from here on
        signal.raise_signal(signal.SIGINT)
    return before


signal.signal = set_handler_and_interrupt
main(sys.argv[1:])
"""


@pytest.mark.parametrize("protocol", ["mcp", "acp"])
def test_an_interrupt_as_the_event_loop_starts_ends_it_like_a_later_one(
    protocol: str, tmp_path: Path
) -> None:
    command = [sys.executable, "-c", INTERRUPTED_START, protocol]
    ended = subprocess.run(command, cwd=tmp_path, input="", capture_output=True, text=True, timeout=60)
    assert (ended.returncode, ended.stdout, ended.stderr) == (130, "", "")


def test_wrong_options_are_refused(tmp_path: Path) -> None:
    refused = nerve(tmp_path, "mcp", "--server", "localhost:7433")
    assert (refused.returncode, refused.stdout) == (2, "")
    assert "--server must be an http or https URL" in refused.stderr
    assert "File not found: gone.py." in nerve(tmp_path, "mcp", "--with", "gone.py").stderr


def test_without_the_library_the_message_says_how_to_install_it(tmp_path: Path) -> None:
    code = "sys.modules['mcp_types'] = sys.modules['mcp'] = None; from nerve.cli import main; main(['mcp'])"
    command = [sys.executable, "-c", f"import sys; {code}"]
    refused = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert refused.returncode == 2
    assert "pip install '.[mcp]'" in refused.stderr
    assert "Traceback" not in refused.stderr


async def test_two_hosts_use_one_project_at_the_same_time(project: Path) -> None:
    async with connect(project) as first, connect(project) as second:
        runs = await asyncio.gather(
            *(call(host, "start_run", workflow="ask", key="same", wait=60) for host in (first, second))
        )
        assert len({run["run"] for run in runs}) == 1
