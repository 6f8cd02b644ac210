"""A real server on a free port of loopback, and what asks it."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
import pytest

from nerve import Session
from nerve.api import Api
from nerve.server.app import ServerApp, make_app
from nerve.server.auth import Auth
from nerve.server.bind import bind_tcp
from nerve.server.tokens import load_tokens
from nerve.server.uvicorn_server import GracefulServer, run_server


@dataclass
class Served:
    """A server under test."""

    api: Api
    auth: Auth
    tokens: dict[str, str]
    server: GracefulServer
    port: int

    @property
    def app(self) -> ServerApp:
        return self.server.app

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def client(self, scope: str | None = "admin", **options: Any) -> httpx2.AsyncClient:
        headers = {"authorization": f"Bearer {self.tokens[scope]}"} if scope else {}
        return httpx2.AsyncClient(base_url=self.url, headers=headers, timeout=30, trust_env=False, **options)


def session_of(folder: Path) -> Session:
    session = Session(store=folder / "nerve.db", project=folder)

    @session.workflow
    async def hello(context: Any) -> str:
        return f"hello {context.input}"

    @session.workflow
    async def ask(context: Any) -> str:
        return f"you said {await context.gate('Go on?', choices=['yes', 'no'])}"

    @session.workflow
    async def chatty(context: Any) -> int:
        for number in range(context.input):
            context.emit("said", {"number": number, "text": "x" * 100})
            if number % 50 == 0:
                await asyncio.sleep(0)
        return int(context.input)

    return session


async def until(seen: Callable[[], bool], seconds: float = 60) -> None:
    """Return when something is so."""
    async with asyncio.timeout(seconds):
        while not seen():  # noqa: ASYNC110 - what is looked at tells nobody
            await asyncio.sleep(0.01)


@asynccontextmanager
async def serving(folder: Path, **options: Any) -> AsyncIterator[Served]:
    """A server of a fresh project; `options` are those of the application."""
    made = load_tokens(folder / "private")
    async with session_of(folder) as session:
        api, auth = Api(session), Auth(made)
        bound = bind_tcp("127.0.0.1", 0)
        port = bound.getsockname()[1]
        async with run_server(make_app(api, auth, **options), [bound]) as server:
            yield Served(api, auth, dict(made), server, port)


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[Served]:
    async with serving(tmp_path) as found:
        yield found


@pytest.fixture
async def client(served: Served) -> AsyncIterator[httpx2.AsyncClient]:
    async with served.client() as found:
        yield found
