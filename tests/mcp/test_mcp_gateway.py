"""`nerve mcp --http` as a process beside the project server, used by the official client."""

from __future__ import annotations

import contextlib
import re
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from mcp.client.client import Client as McpClient
from mcp.client.streamable_http import streamable_http_client

from nerve.client import Client
from nerve.project.paths import ProjectPaths
from nerve.server.tokens import token_file

WORKFLOW = """
name: ask
body: {kind: gate, id: well, prompt: "Well?", choices: ["yes", "no"]}
"""


class Gateway:
    """A project, and `nerve mcp --http` in it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / ".nerve/workflows").mkdir(parents=True)
        (folder / ".nerve/workflows/ask.yaml").write_text(WORKFLOW)
        self._process: subprocess.Popen[str] | None = None
        self.url = ""

    def start(self, *options: str) -> None:
        command = [sys.executable, "-m", "nerve", "mcp", "--http", "127.0.0.1:0", *options]
        self._process = subprocess.Popen(
            command, cwd=self.folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        assert self._process.stdout is not None
        found = re.match(r"MCP is served at (http://127\.0\.0\.1:\d+/mcp)\.", self._process.stdout.readline())
        assert found is not None
        self.url = found[1]

    def stop(self) -> tuple[int, str]:
        """Press Ctrl-C; return the exit code and what the command has printed since it was ready."""
        process, self._process = self._process, None
        if process is None:
            return 0, ""
        process.send_signal(signal.SIGINT)
        return process.wait(60), process.communicate()[0]

    def token(self, scope: str) -> str:
        return token_file(ProjectPaths.of(self.folder).private, scope).read_text().strip()  # type: ignore[arg-type]

    @contextlib.asynccontextmanager
    async def connect(self, scope: str) -> AsyncIterator[McpClient]:
        headers = {"Authorization": f"Bearer {self.token(scope)}"}
        async with (
            httpx2.AsyncClient(headers=headers, timeout=60, trust_env=False) as client,
            McpClient(streamable_http_client(self.url, http_client=client)) as host,
        ):
            yield host

    async def post(self, **headers: str) -> httpx2.Response:
        ping = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
        accept = {"Accept": "application/json, text/event-stream"}
        async with httpx2.AsyncClient(headers=accept | headers, timeout=60, trust_env=False) as client:
            return await client.post(self.url, json=ping)


@pytest.fixture
def gateway(tmp_path: Path) -> Iterator[Gateway]:
    gateway = Gateway(tmp_path)
    yield gateway
    gateway.stop()
    subprocess.run(
        [sys.executable, "-m", "nerve", "server", "stop"], cwd=tmp_path, capture_output=True, timeout=60
    )


async def call(host: McpClient, tool: str, **arguments: Any) -> Any:
    return (await host.call_tool(tool, arguments)).structured_content


async def test_each_call_does_what_its_token_may_and_is_recorded_with_it(gateway: Gateway) -> None:
    gateway.start("--allow-answers", "--workflow-tools")
    refused = await gateway.post()
    assert (refused.status_code, refused.headers["www-authenticate"]) == (401, "Bearer")
    # The first request with a token starts the project server.
    assert (await gateway.post(Authorization="Bearer wrong")).status_code == 401
    async with gateway.connect("run") as agent, gateway.connect("answer") as person:
        assert "run_workflow_ask" in {tool.name for tool in (await agent.list_tools()).tools}
        run = await call(agent, "start_run", workflow="ask", wait=60)
        gate = run["gates"][0]["gate"]
        assert (await call(agent, "answer_gate", gate=gate, answer="yes"))["error"]["code"] == "forbidden"
        given = await call(person, "answer_gate", gate=gate, answer="yes")
        assert (given["answer"], given["by"]) == ("yes", "token:answer")
    client = Client.of_project(gateway.folder)
    assert client is not None
    async with client:
        stored = await client.run(run=run["run"])
    assert (stored.state, stored.started_by) == ("completed", "token:run")
    assert gateway.stop() == (0, "")


async def test_pages_of_other_origins_and_other_host_names_are_refused(gateway: Gateway) -> None:
    gateway.start()
    assert (await gateway.post(Origin="http://elsewhere.example")).status_code == 403
    assert (await gateway.post(Host="elsewhere.example")).status_code == 421


@pytest.mark.parametrize(
    ("address", "problem"),
    [
        ("8080", "--http must be HOST:PORT, got '8080'."),
        ("127.0.0.1:99999", "Invalid port 99999. Use another address with --http."),
        ("0.0.0.0:8080", "For others, `nerve serve --wide` offers the same at /mcp."),
    ],
)
def test_an_address_that_cannot_be_used_is_refused(address: str, problem: str, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "nerve", "mcp", "--http", address]
    refused = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert (refused.returncode, refused.stdout) == (2, "")
    assert problem in refused.stderr
