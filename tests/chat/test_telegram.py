"""Telegram: private chats, topics and replies are conversations, by a webhook and by asking."""

from __future__ import annotations

import asyncio
from typing import Any

from chat.conftest import SOURCES, OpenChats, find_answer
from chat.stand_ins import TelegramStandIn
from notifications.receiver import PlannedReply

GROUP = -1001


def settings(telegram: TelegramStandIn, **more: object) -> dict[str, object]:
    """Return the settings of a bot that is asked for messages."""
    token = SOURCES["token"]
    return {"kind": "telegram", "bot": telegram.bot, "url": telegram.url, "token": token, **more}


def webhook(telegram: TelegramStandIn, **more: object) -> dict[str, object]:
    return settings(telegram, secret=SOURCES["secret"], **more)


async def test_a_private_message_starts_a_workflow_without_a_webhook(
    open_chats: OpenChats, telegram: TelegramStandIn
) -> None:
    async with open_chats(phone=settings(telegram, content=True)) as server:
        telegram.say(7, "%greet Bob")
        result = await telegram.wait_for_text("completed")
        assert "Hello Bob!" in result["text"]
        assert {post["chat_id"] for post in telegram.posts} == {7}
        assert [row.conversation for row in server.runs()] == ["phone:7"]
        await wait_until_confirmed(telegram)


async def test_updates_that_are_not_confirmed_come_again_and_start_nothing_more(
    open_chats: OpenChats, telegram: TelegramStandIn
) -> None:
    async with open_chats(phone=settings(telegram)) as server:
        update = telegram.say(7, "%greet Bob")
        await telegram.wait_for_text("completed")
        await wait_until_confirmed(telegram)
    async with open_chats(phone=settings(telegram)) as server:
        telegram.updates.append(update)
        telegram.say(7, "%greet Eve")
        await telegram.wait_for_posts(4)
        assert len(server.runs()) == 2


async def test_a_webhook_delivers_updates_and_its_secret_is_verified(
    open_chats: OpenChats, telegram: TelegramStandIn
) -> None:
    telegram.has_webhook = True
    async with open_chats(phone=webhook(telegram)) as server:
        update = telegram.say(7, "%greet Bob")
        header = {"x-telegram-bot-api-secret-token": "wrong"}
        assert (await telegram.send(server.client, "/chat/phone", b"{}", **header)).status_code == 401
        for _ in range(2):
            await telegram.push(server.client, update)
        await telegram.wait_for_text("completed")
        assert len(server.runs()) == 1
        assert len(telegram.posts) == 2


async def test_a_topic_and_a_reply_are_conversations_of_their_own(
    open_chats: OpenChats, telegram: TelegramStandIn
) -> None:
    async with open_chats(phone=settings(telegram)) as server:
        topic = {"message_thread_id": 5, "is_topic_message": True}
        telegram.say(7, "@nerve_bot %greet Bob", GROUP, **topic)
        first = telegram.say(7, "@nerve_bot %greet Eve", GROUP)["message"]["message_id"]
        telegram.say(7, "%greet nobody", GROUP)
        own = {"message_id": 99, "from": {"id": 1, "is_bot": True, "username": telegram.bot}}
        telegram.say(7, "%greet Lea", GROUP, message_thread_id=first, reply_to_message=own)
        await telegram.wait_for_posts(6)
        conversations = sorted(row.conversation for row in server.runs())
        replies = f"phone:{GROUP}/r{first}"
        assert conversations == [f"phone:{GROUP}/5", replies, replies]
        in_topic = [post for post in telegram.posts if post.get("message_thread_id") == 5]
        assert len(in_topic) == 2
        roots = {post["reply_parameters"]["message_id"] for post in telegram.posts if post not in in_topic}
        assert roots == {first}


async def test_other_updates_get_no_reply(open_chats: OpenChats, telegram: TelegramStandIn) -> None:
    async with open_chats(phone=settings(telegram, chats=["7"])) as server:
        message = telegram.say(7, "%greet Bob")["message"]
        telegram.updates.clear()
        others: list[dict[str, Any]] = [
            {"edited_message": message},
            {"message": {**message, "from": {"id": 7, "is_bot": True}}},
            {"message": {**message, "via_bot": {"id": 3}}},
            {"message": {**message, "chat": {"id": 8, "type": "private"}}},
            {"message": {**message, "text": None}},
            {"message": []},
            {"callback_query": {"id": "1", "data": "made:by:others"}},
            {"callback_query": {"id": "2"}},
        ]
        for other in others:
            telegram.add_update(other)
        await wait_until_confirmed(telegram)
        assert server.runs() == []
        assert telegram.posts == []


async def test_a_button_answers_the_gate_and_is_acknowledged(
    open_chats: OpenChats, telegram: TelegramStandIn
) -> None:
    async with open_chats(phone=settings(telegram, content=True)) as server:
        telegram.say(7, "%deploy v2")
        question = await telegram.wait_for_text("waits for an answer")
        query = telegram.press(7, question, "ship it")["callback_query"]
        await telegram.wait_for_text("completed")
        assert find_answer(server) == {
            "answer": "ship it",
            "by": "person:ada",
            "via": "telegram",
            "address": "7 in 7",
        }
        assert telegram.answered_buttons == [query["id"]]


async def test_a_button_of_an_older_question_does_not_answer_the_next_one(
    open_chats: OpenChats, telegram: TelegramStandIn
) -> None:
    telegram.has_webhook = True
    async with open_chats(phone=webhook(telegram, content=True)) as server:
        await telegram.push(server.client, telegram.say(7, "%deploy v2"))
        question = await telegram.wait_for_text("waits for an answer")
        update = telegram.press(8, question, "ship it")
        gate, number, hash = update["callback_query"]["data"].split(":")
        update["callback_query"]["data"] = f"{gate}:{number}:{'0' * len(hash)}"
        await telegram.push(server.client, update)
        await telegram.wait_for_text("asks something else now")
        assert server.runs()[0].state == "waiting"
        assert len(telegram.answered_buttons) == 1


async def test_a_pause_that_telegram_asks_for_is_kept(
    open_chats: OpenChats, telegram: TelegramStandIn
) -> None:
    body = {"ok": False, "error_code": 429, "parameters": {"retry_after": 1}}
    telegram.refusals = [PlannedReply(429, body)]
    async with open_chats(phone=settings(telegram)):
        telegram.say(7, "%greet Bob")
        await telegram.wait_for_text("completed")
        assert len({post["id"] for post in telegram.posts}) == len(telegram.posts) == 2


async def test_a_conflict_with_a_webhook_is_named(open_chats: OpenChats, telegram: TelegramStandIn) -> None:
    telegram.has_webhook = True
    async with open_chats(phone=settings(telegram)) as server:
        [chat] = (await server.wait_for_chats(lambda chat: chat.problem is not None)).chats
        assert "Telegram answered 409. A webhook is set" in chat.problem
        assert chat.delivery == "polling"
        assert (await server.client.post("/chat/phone", json={})).status_code == 404


async def wait_until_confirmed(telegram: TelegramStandIn) -> None:
    while telegram.updates:  # noqa: ASYNC110 - another thread removes them
        await asyncio.sleep(0.01)
