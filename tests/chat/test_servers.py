"""Several servers with one database: one of them replies; servers of a Temporal cluster refuse."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from chat.conftest import ACCOUNTS, SOURCES
from chat.stand_ins import SECRET, TOKEN
from server.processes import ServerProcess

if TYPE_CHECKING:
    from collections.abc import Iterator

    from chat.stand_ins import SlackStandIn, TelegramStandIn


def chat_config(slack: SlackStandIn, telegram: TelegramStandIn) -> dict[str, Any]:
    team = {"kind": "slack", "bot": slack.bot, "url": slack.url, "content": True, **SOURCES}
    phone = {"kind": "telegram", "bot": telegram.bot, "url": telegram.url, "token": SOURCES["token"]}
    return {"chat": {"team": team, "phone": phone}}


@pytest.fixture(autouse=True)
def secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CHAT_ACCESS", TOKEN)
    monkeypatch.setenv("CHAT_SIGNING", SECRET)


@pytest.fixture
def servers(
    tmp_path: Path, postgresql_url: str, slack: SlackStandIn, telegram: TelegramStandIn
) -> Iterator[list[ServerProcess]]:
    """The server that executes the runs, and one that waits to take over."""
    config, started = chat_config(slack, telegram), []
    try:
        for name in ("owner", "standby"):
            started.append(ServerProcess(tmp_path / name, postgresql_url, config=config))
            assert started[-1].wait_ready()["executes_runs"] == (name == "owner")
        yield started
    finally:
        for server in started:
            server.end()


async def test_any_server_takes_a_message_and_the_one_that_executes_the_runs_replies(
    servers: list[ServerProcess], slack: SlackStandIn, telegram: TelegramStandIn
) -> None:
    owner, standby = servers
    async with owner.client() as client:
        await client.add_person(person="ada", scope="member", contacts=ACCOUNTS)
    async with standby.http("read", "none") as client:
        event = await slack.say(client, "UADA", "<@U0BOT> %ask now")
    question = await slack.wait_for_text("Continue?")
    assert question["thread_ts"] == event["ts"]
    telegram.say(7, "%ask now")
    await telegram.wait_for_text("Started")
    assert polled_by_one(telegram)
    owner.process.kill()
    standby.wait_until_owner()
    async with standby.http("read", "none") as client:
        await slack.say(client, "UADA", "<@U0BOT> answer yes", thread_ts=event["ts"])
        await slack.wait_for_text("completed")
    telegram.say(7, "%ask again")
    await telegram.wait_until(lambda posts: sum("Started" in post["text"] for post in posts) == 2)
    assert polled_by_one(telegram)


def polled_by_one(telegram: TelegramStandIn) -> bool:
    """Whether no two requests for messages came at the same time."""
    return telegram.most_polls == 1


async def test_servers_of_a_temporal_cluster_refuse_messages_and_say_so(
    tmp_path: Path, postgresql_url: str, temporal_url: str, slack: SlackStandIn, telegram: TelegramStandIn
) -> None:
    server = ServerProcess(
        tmp_path / "server", postgresql_url, temporal_url, config=chat_config(slack, telegram)
    )
    try:
        server.wait_ready()
        server.wait_for_log("The chats of the project are not served")
        async with server.http("read", "none") as client:
            body = json.dumps(slack.make_event("UADA", "<@U0BOT> %ask now")).encode()
            response = await slack.send(client, "/chat/team", body)
        assert response.status_code == 422
        assert "not available for runs in" in response.json()["message"]
        assert telegram.most_polls == 0
    finally:
        server.end()
