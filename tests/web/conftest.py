"""The pages in this process: a session with runs of several kinds, and browsers that are signed in."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2
import pytest

from nerve import Session
from nerve.api import Api
from nerve.server.app import ServerApp, make_app
from nerve.server.auth import Auth
from nerve.server.tokens import load_tokens
from web.flows import register

ADDRESS = ("127.0.0.1", 7433)
ORIGIN = "http://127.0.0.1:7433"


@dataclass
class WebServer:
    """The application of one project."""

    api: Api
    app: ServerApp
    auth: Auth
    tokens: dict[str, str]

    @contextlib.asynccontextmanager
    async def browser(self, scope: str | None = "admin", **headers: str) -> AsyncIterator[httpx2.AsyncClient]:
        """A browser that is signed in; with None, one that is not."""
        sent = {"accept": "text/html", "origin": ORIGIN} | headers
        transport = httpx2.ASGITransport(self.app, client=ADDRESS)
        async with httpx2.AsyncClient(transport=transport, base_url=ORIGIN, headers=sent) as client:
            if scope is not None:
                body = {"code": self.auth.create_launch_code(scope)}
                reply = await client.post("/api/sign-in", json=body, headers={"x-nerve": "1"})
                client.cookies.update(reply.cookies)
            yield client

    async def start(self, workflow: str, **given: Any) -> Any:
        return await self.api.start(workflow=workflow, wait=workflow != "steady", **given)

    @contextlib.asynccontextmanager
    async def stream(self, path: str, scope: str = "admin", last_id: str = "") -> AsyncIterator[LiveReader]:
        """The messages of a live page."""
        reader = LiveReader()
        headers = [(b"host", b"127.0.0.1:7433"), (b"authorization", f"Bearer {self.tokens[scope]}".encode())]
        if last_id:
            headers.append((b"last-event-id", last_id.encode()))
        raw_path, _, query = path.partition("?")
        request = {
            "type": "http", "method": "GET", "scheme": "http", "server": ADDRESS, "headers": headers,
            "state": {}, "path": raw_path, "raw_path": raw_path.encode(), "query_string": query.encode(),
            "root_path": "",
        }  # fmt: skip
        task = asyncio.create_task(self.app(request, reader.wait_for_end, reader.receive))
        try:
            yield reader
        finally:
            reader.ended.set()
            await asyncio.wait_for(task, 10)


@dataclass
class LiveReader:
    """Collects what a stream sends."""

    text: str = ""
    status: int = 0
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    arrived: asyncio.Condition = field(default_factory=asyncio.Condition)

    async def wait_for_end(self) -> dict[str, Any]:
        await self.ended.wait()
        return {"type": "http.disconnect"}

    async def receive(self, message: Any) -> None:
        async with self.arrived:
            self.status = message.get("status", self.status)
            self.text += message.get("body", b"").decode()
            self.arrived.notify_all()

    async def until(self, is_there: Callable[[str], Any], seconds: float = 20) -> str:
        """Return what was sent so far, when it is what the test waits for."""
        async with asyncio.timeout(seconds), self.arrived:
            await self.arrived.wait_for(lambda: is_there(self.text))
        return self.text

    @property
    def last_id(self) -> str:
        return [line for line in self.text.splitlines() if line.startswith("id: ")][-1][4:]

    @property
    def messages(self) -> list[str]:
        return [part for part in self.text.split("\n\n") if "data: " in part]


@pytest.fixture
async def web(tmp_path: Path) -> AsyncGenerator[WebServer]:
    async with serve_web(tmp_path) as server:
        yield server


@contextlib.asynccontextmanager
async def serve_web(folder: Path, **options: Any) -> AsyncIterator[WebServer]:
    tokens = load_tokens(folder / "private")
    async with Session(store=folder / "nerve.db", project=folder) as session:
        register(session)
        api, auth = Api(session), Auth(tokens)
        app = make_app(api, auth, **options)
        try:
            yield WebServer(api, app, auth, dict(tokens))
        finally:
            app.closing.set()


@pytest.fixture
async def browser(web: WebServer) -> AsyncGenerator[httpx2.AsyncClient]:
    async with web.browser() as client:
        yield client
