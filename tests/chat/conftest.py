"""The stand-ins, and a session of a project with a chat at each of them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
import pytest

from chat import stand_ins
from nerve import Session
from nerve.api import Api
from nerve.api.chat_runner import run_chats
from nerve.api.models import ChatPage, ChatResponse
from nerve.core.workflow.context import WorkflowContext
from nerve.server.app import make_app
from nerve.server.auth import Auth
from notifications.receiver import write_config

ADMIN_TOKEN = "t" * 40
SOURCES = {"token": {"env": "CHAT_ACCESS"}, "secret": {"env": "CHAT_SIGNING"}}
ACCOUNTS = {"github": "ada", "slack": "UADA", "telegram": "7"}


@dataclass
class ChatServer:
    """A session with its chats, and a client that delivers to it."""

    session: Session
    client: httpx2.AsyncClient
    api: Api

    async def wait_for_chats(self, is_enough: Callable[[ChatResponse], bool]) -> ChatPage:
        """Return what `nerve chat` lists as soon as the first chat is in some state."""
        while not is_enough((page := await self.api.chats()).chats[0]):  # noqa: ASYNC110 - the row is read
            await asyncio.sleep(0.01)
        return page

    def runs(self, workflow: str | None = None) -> list[Any]:
        rows = self.session.engine.store.runs(session=self.session.name)
        return [row for row in rows if workflow in (None, row.workflow)]


def find_answer(server: ChatServer, workflow: str = "deploy") -> dict[str, Any]:
    """Return what the journal has of the answer to the gate of the only run of a workflow."""
    [row] = server.runs(workflow)
    events = server.session.engine.store.events(row.run)
    [data] = [json.loads(event.data) for event in events if event.type == "gate_answered"]
    return {name: data.get(name) for name in ("answer", "by", "via", "address")}


OpenChats = Callable[..., AbstractAsyncContextManager[ChatServer]]


@pytest.fixture
def github() -> Iterator[stand_ins.GithubStandIn]:
    with stand_ins.github() as service:
        yield service


@pytest.fixture
def slack() -> Iterator[stand_ins.SlackStandIn]:
    with stand_ins.slack() as service:
        yield service


@pytest.fixture
def telegram() -> Iterator[stand_ins.TelegramStandIn]:
    with stand_ins.telegram() as service:
        yield service


@pytest.fixture
def open_chats(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> OpenChats:
    """Open a project with some chats; `ada` and `bob` are people of it."""
    monkeypatch.setenv("CHAT_ACCESS", stand_ins.TOKEN)
    monkeypatch.setenv("CHAT_SIGNING", stand_ins.SECRET)

    @asynccontextmanager
    async def open_project(config: dict[str, Any] | None = None, **chats: Any) -> AsyncIterator[ChatServer]:
        write_config(tmp_path, public_url="https://nerve.example.com", chat=chats, **(config or {}))
        async with Session(store=tmp_path / "nerve.db", project=tmp_path) as session:
            define_workflows(session)
            api = Api(session)
            await add_people(api)
            await session.recover()
            transport = httpx2.ASGITransport(make_app(api, Auth({"admin": ADMIN_TOKEN}, ["nerve.test"])))
            async with (
                run_chats(session),
                httpx2.AsyncClient(transport=transport, base_url="http://nerve.test") as client,
            ):
                yield ChatServer(session, client, api)

    return open_project


def define_workflows(session: Session) -> None:
    @session.workflow
    async def greet(ctx: WorkflowContext, name: str) -> str:
        """Greet."""
        return f"Hello {name}!"

    @session.workflow
    async def deploy(ctx: WorkflowContext, what: str) -> str:
        """Deploy."""
        return await ctx.gate(f"Deploy {what}?", choices=["ship it", "wait"])

    @session.workflow
    async def publish(ctx: WorkflowContext, what: str) -> str:
        """Publish."""
        return await ctx.gate(
            f"Publish {what}?", choices=["yes", "no"], approvers=["ada", "bob", "lea"], quorum=2
        )

    @session.workflow
    async def explode(ctx: WorkflowContext, what: str) -> str:
        """Explode."""
        raise ValueError(f"broken {what}")


async def add_people(api: Api) -> None:
    if (await api.people()).people:
        return
    await api.add_person(person="ada", scope="member", contacts=ACCOUNTS)
    await api.add_person(
        person="bob", scope="member", contacts={"github": "bob", "slack": "UBOB", "telegram": "8"}
    )
    await api.add_person(person="lea", scope="member", contacts={"slack": "ULEA"})
    await api.add_person(
        person="eve", scope="read", contacts={"github": "eve", "slack": "UEVE", "telegram": "9"}
    )
