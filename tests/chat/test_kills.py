"""A server with chats is killed at random points: no message is lost, none starts two runs."""

from __future__ import annotations

import asyncio
import os
import random
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx2
import pytest

from chat.conftest import SOURCES
from chat.stand_ins import SECRET, TOKEN, GithubStandIn, SlackStandIn, StandIn, TelegramStandIn
from nerve.project.paths import ProjectPaths
from nerve.store.sqlite import SqliteStore
from notifications.receiver import PlannedReply, write_config
from triggers.served_triggers import TriggerServer

CODE = """
def register(session):
    @session.workflow
    async def greet(ctx, name):
        await ctx.sleep(0.02)
        return name
"""
PATIENCE_S = 90.0


class ServerClient:
    """Sends to the address that the server has at the time."""

    def __init__(self, server: TriggerServer) -> None:
        self._server = server
        self._client = httpx2.AsyncClient(timeout=10, trust_env=False)

    async def post(self, path: str, **options: Any) -> httpx2.Response:
        return await self._client.post(f"{self._server.url}{path}", **options)

    async def close(self) -> None:
        await self._client.aclose()


class People:
    """People who write in all chats, one after the other, until told to end."""

    def __init__(
        self, client: Any, github: GithubStandIn, slack: SlackStandIn, phone: TelegramStandIn
    ) -> None:
        self._client, self._github, self._slack, self._phone = client, github, slack, phone
        self.sent = 0
        self.is_ended = False

    async def write_all(self) -> None:
        while not self.is_ended:
            number = self.sent
            await self._slack.say(self._client, "UADA", f"<@U0BOT> %greet s{number}")
            data = await self._github.comment(
                self._client, "ada", f"@nerve-bot %greet g{number}", issue=number + 1
            )
            if number % 3 == 0:
                await self._github.redeliver(self._client, "issue_comment", data)
            self._phone.say(7, f"%greet t{number}")
            self.sent = number + 1
            await asyncio.sleep(0.5)


def write_project(folder: Path, github: StandIn, slack: StandIn, phone: StandIn) -> None:
    (folder / "code.py").write_text(CODE)
    token = {"token": SOURCES["token"], "content": True}
    code = {"kind": "github", "bot": "nerve-bot", "repositories": ["ada/tools"], "url": github.url}
    team = {"kind": "slack", "bot": "U0BOT", "url": slack.url}
    telegram = {"kind": "telegram", "bot": "nerve_bot", "url": phone.url}
    chats = {"code": {**code, **SOURCES, **token}, "team": {**team, **SOURCES, **token}}
    write_config(folder, chat={**chats, "phone": {**telegram, **token}})


async def add_person(server: TriggerServer) -> None:
    contacts = {"github": "ada", "slack": "UADA", "telegram": "7"}
    body = {"person": "ada", "scope": "member", "contacts": contacts}
    async with httpx2.AsyncClient(trust_env=False) as client:
        response = await client.post(f"{server.url}/api/people", json=body, headers=server.headers)
        assert response.status_code == 200, response.text


@pytest.mark.parametrize("kills", [3, pytest.param(60, marks=pytest.mark.full)])
async def test_no_message_is_lost_and_none_starts_two_runs_when_the_server_is_killed(
    tmp_path: Path,
    github: GithubStandIn,
    slack: SlackStandIn,
    telegram: TelegramStandIn,
    kills: int,
    monkeypatch: pytest.MonkeyPatch,
    record_property: Callable[[str, object], None],
) -> None:
    chance = random.Random(kills)
    monkeypatch.setenv("CHAT_ACCESS", TOKEN)
    monkeypatch.setenv("CHAT_SIGNING", SECRET)
    write_project(tmp_path, github, slack, telegram)
    server = TriggerServer(tmp_path)
    server.start()
    await server.wait_ready()
    await add_person(server)
    client = ServerClient(server)
    people = People(client, github, slack, telegram)
    writing = asyncio.create_task(people.write_all())
    refused_at: dict[StandIn, int] = {}
    try:
        for _ in range(kills):
            if chance.random() < 0.8:
                await wait_for_delivery(writing, github, slack)
            await asyncio.sleep(chance.uniform(0.0, 1.0))
            for service in (github, slack, telegram):
                # At most one for each message: every further one doubles the pause before it is sent again.
                if len(service.posts) > refused_at.get(service, 0) and chance.randrange(2):
                    service.refusals.append(PlannedReply(503, delay_s=0.05))
                    refused_at[service] = len(service.posts)
            server.kill()
            server.start()
            await server.wait_ready()
            assert not writing.done()
        people.is_ended = True
        await writing
        await wait_until_replied(people.sent, github, slack, telegram)
    finally:
        writing.cancel()
        await client.close()
        server.stop()
    starts = read_starts(tmp_path)
    expected = {f"{kind}{number}" for kind in "sgt" for number in range(people.sent)}
    assert set(starts) == expected
    assert {len(runs) for runs in starts.values()} == {1}
    for service in (github, slack, telegram):
        check_ids(service, people.sent)
    posts = sum(len(service.posts) for service in (github, slack, telegram))
    record_property("messages", f"{3 * people.sent} messages, {posts} posts, {os.getloadavg()[0]:.0f} load")


async def wait_for_delivery(writing: asyncio.Task[None], *services: StandIn) -> None:
    """Return when the server has answered a delivery: on a busy machine, it needs some time."""
    answered = sum(len(service.statuses) for service in services)
    while sum(len(service.statuses) for service in services) == answered and not writing.done():  # noqa: ASYNC110
        await asyncio.sleep(0.01)


def message_id(post: dict[str, Any]) -> str:
    """Return the id of a message, which a comment of GitHub has in its mark."""
    _, marker, id = str(post["text"]).rpartition("<!-- nerve-message: ")
    return id.removesuffix(" -->") if marker else str(post["id"])


def check_ids(service: StandIn, sent: int) -> None:
    """Each message has got two messages, which keep their ids and texts when they are repeated."""
    texts: dict[str, set[str]] = defaultdict(set)
    for post in service.posts:
        texts[message_id(post)].add(post["text"])
    assert len(texts) == 2 * sent
    assert all(len(each) == 1 for each in texts.values())


async def wait_until_replied(sent: int, *services: StandIn) -> None:
    deadline = asyncio.get_running_loop().time() + PATIENCE_S
    for service in services:
        while len({message_id(post) for post in service.posts}) < 2 * sent:
            assert asyncio.get_running_loop().time() < deadline, (type(service), sent, len(service.posts))
            await asyncio.sleep(0.05)


def read_starts(folder: Path) -> dict[str, list[str]]:
    """Return the runs by their input."""
    store = SqliteStore(ProjectPaths.of(folder).store)
    try:
        starts: dict[str, list[str]] = defaultdict(list)
        for row in store.runs(session="default", workflow="greet"):
            data = store.events(row.run, 0, 1)[0].data
            name = data.partition('"input":"')[2].partition('"')[0]
            starts[name].append(row.run)
        return starts
    finally:
        store.close()
