"""The route `/mcp` of a server, used by the official client with the tokens of the API."""

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from mcp.client.client import Client as McpClient
from mcp.client.streamable_http import streamable_http_client

from nerve.client import Client
from server.conftest import Served, serving


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[Served]:
    async with serving(tmp_path) as served:
        yield served


def http(served: Served, scope: str, **headers: str) -> httpx2.AsyncClient:
    token = {"Authorization": f"Bearer {served.tokens[scope]}"} if scope else {}
    return httpx2.AsyncClient(headers=token | headers, timeout=60, trust_env=False)


@contextlib.asynccontextmanager
async def connect(served: Served, scope: str, mode: str) -> AsyncIterator[McpClient]:
    async with http(served, scope) as client:
        transport: Any = streamable_http_client(f"{served.url}/mcp", http_client=client)
        async with McpClient(transport, mode=mode) as host:
            yield host


async def call(host: McpClient, tool: str, **arguments: Any) -> Any:
    return (await host.call_tool(tool, arguments)).structured_content


@pytest.mark.parametrize("mode", ["legacy", "auto"])
async def test_a_workflow_is_run_over_http(mode: str, served: Served) -> None:
    async with connect(served, "run", mode) as host:
        run = await call(host, "start_run", workflow="ask", wait=30)
        assert run["state"] == "waiting"
        error = (await call(host, "answer_gate", gate=run["gates"][0]["gate"], answer="yes"))["error"]
        assert (error["code"], "must not approve its own work" in error["message"]) == ("forbidden", True)
        client = Client(served.url, token=served.tokens["admin"])
        async with client:
            stored = await client.run(run=run["run"])
        assert (stored.started_by, stored.started_via) == ("token:run", "http")


async def test_each_request_may_do_what_its_token_may(served: Served) -> None:
    async with connect(served, "read", "auto") as reader, connect(served, "run", "auto") as runner:
        refused = (await call(reader, "start_run", workflow="ask"))["error"]
        assert (refused["code"], refused["message"]) == ("forbidden", "A token for 'read' is not sufficient")
        assert (await call(runner, "start_run", workflow="ask"))["workflow"] == "ask"
        assert len((await call(reader, "list_runs"))["runs"]) == 1
        assert (await reader.list_resources()).resources


@pytest.mark.parametrize(
    ("scope", "headers", "status"),
    [
        ("", {}, 401),
        ("", {"Authorization": "Bearer wrong"}, 401),
        ("admin", {"Origin": "http://elsewhere.example"}, 403),
        ("admin", {"Host": "elsewhere.example"}, 421),
    ],
)
async def test_a_request_is_refused_as_by_all_routes(
    scope: str, headers: dict[str, str], status: int, served: Served
) -> None:
    ping = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
    accept = {"Accept": "application/json, text/event-stream"}
    async with http(served, scope, **accept, **headers) as client:
        reply = await client.post(f"{served.url}/mcp", json=ping)
    assert reply.status_code == status
    assert reply.json()["fix"]
