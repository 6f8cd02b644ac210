"""Who answered is known from the connection and the token, and from nothing that was said."""

import json
import os
from collections.abc import AsyncIterator
from pathlib import Path

import httpx2
import pytest
from websockets.asyncio.client import connect, unix_connect

from nerve.api import Api
from nerve.api.callers import current_user_name
from nerve.client import Client
from nerve.server.app import make_app
from nerve.server.auth import Auth
from nerve.server.bind import bind_unix
from nerve.server.tokens import load_tokens
from nerve.server.uvicorn_server import run_server
from server.conftest import Served, session_of

FORGED = {"x-nerve-client": "cli"}


async def waiting(api: Api) -> str:
    return str((await api.start(workflow="ask", wait=True)).run_id)


@pytest.mark.parametrize("scope", ["answer", "admin"])
async def test_a_caller_is_identified_by_token_scope(served: Served, scope: str) -> None:
    async with served.client(scope) as client:
        client.headers |= FORGED
        run = await waiting(served.api)
        told = (await client.post("/api/answers", json={"run": run, "answer": "yes"})).json()
        assert (told["by"], told["via"], told["scope"]) == (f"token:{scope}", "http", scope)
        run = await waiting(served.api)
        command = {"type": "ANSWER_GATE", "params": {"run_id": run, "answer": "yes", "reason": "so"}}
        assert (await client.post("/api/command", json=command)).json()["success"]
        [event] = [e for e in (await served.api.events(run=run)).events if e.event_type == "gate_answered"]
        assert (event.data["by"], event.data["reason"]) == (f"token:{scope}", "so")


async def test_a_client_cannot_claim_an_identity(served: Served) -> None:
    async with served.client("answer") as client:
        run = await waiting(served.api)
        for name in ("by", "via", "scope", "_caller"):
            answer = {"run": run, "answer": "yes", name: "token:admin"}
            assert (await client.post("/api/answers", json=answer)).status_code == 400


async def test_a_websocket_and_a_browser_are_distinguished(served: Served) -> None:
    headers = {"authorization": f"Bearer {served.tokens['answer']}"}
    async with connect(f"ws://127.0.0.1:{served.port}/ws", additional_headers=headers, proxy=None) as socket:
        args = {"run": await waiting(served.api), "answer": "yes"}
        await socket.send(json.dumps({"id": 1, "op": "answer", "args": args}))
        told = json.loads(await socket.recv())["result"]
        assert (told["by"], told["via"]) == ("token:answer", "ws")
    async with served.client(None) as browser:
        browser.headers["x-nerve"] = "1"
        await browser.post("/api/sign-in", json={"code": served.auth.create_launch_code("answer")})
        args = {"run": await waiting(served.api), "answer": "yes"}
        told = (await browser.post("/api/answers", json=args)).json()
        assert (told["by"], told["via"]) == ("browser:answer", "http")


@pytest.fixture
async def beside(tmp_path: Path) -> AsyncIterator[tuple[Api, dict[str, str], str]]:
    """A server on a Unix socket."""
    made = load_tokens(tmp_path / "private")
    path = tmp_path / "private" / "socket"
    async with session_of(tmp_path) as session:
        api = Api(session)
        async with run_server(make_app(api, Auth(made)), [bind_unix(path)]):
            yield api, dict(made), str(path)


async def test_the_user_is_identified_at_the_unix_socket(beside: tuple[Api, dict[str, str], str]) -> None:
    api, made, path = beside
    seen = {}
    for scope in ("answer", "admin"):
        for via in (None, "cli", "commander", "root"):
            async with Client("http://localhost", token=made[scope], socket=path, via=via) as client:
                run = await waiting(api)
                told = await client.answer(run=run, answer="yes")
                [event] = [e for e in (await api.events(run=run)).events if e.event_type == "gate_answered"]
                assert (told.by, told.via, told.pid) == tuple(
                    event.data[name] for name in ("by", "via", "pid")
                )
                seen[scope, via] = told.by, told.via, told.pid
    ours = f"unix:{current_user_name()}"
    doors = {None: "unix socket", "root": "unix socket", "cli": "cli", "commander": "commander"}
    assert seen == {(scope, via): (ours, doors[via], os.getpid()) for scope, via in seen}


def test_the_user_name_does_not_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    before = current_user_name()
    for name in ("LOGNAME", "USER", "LNAME", "USERNAME"):
        monkeypatch.setenv(name, "somebody-else")
    assert current_user_name() == before


@pytest.mark.requirement("S1-38")
async def test_a_websocket_on_the_unix_socket_acts_for_the_user(
    beside: tuple[Api, dict[str, str], str],
) -> None:
    api, made, path = beside
    run = await waiting(api)
    async with unix_connect(path, "ws://localhost/ws") as socket:
        for message in {"token": made["answer"]}, {"op": "answer", "args": {"run": run, "answer": "yes"}}:
            await socket.send(json.dumps(message))
            assert "result" in json.loads(await socket.recv())
    [event] = [e for e in (await api.events(run=run)).events if e.event_type == "gate_answered"]
    assert (event.data["by"], event.data["scope"]) == (f"unix:{current_user_name()}", "answer")
    assert event.data["pid"] == os.getpid()


async def test_the_key_of_a_request_is_not_the_key_of_a_signal(client: httpx2.AsyncClient) -> None:
    sent = {"label": "go", "key": "v3", "value": 1}
    headers = {"idempotency-key": "once"}
    assert (await client.post("/api/signals", json=sent, headers=headers)).json() == {"done": True}
    await client.post("/api/signals", json=sent | {"value": 2})
    assert (await client.post("/api/signals", json=sent, headers=headers)).json() == {"done": True}
    [fact] = (await client.get("/api/facts", params={"pattern": "(signal go)"})).json()["facts"]
    assert fact["record"][-1] == {"key": "v3", "value": 2}
    other = await client.post("/api/signals", json=sent | {"label": "stop"}, headers=headers)
    assert other.json()["code"] == "conflict"
