"""Slack: threads are conversations, and buttons answer gates."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from chat.conftest import SOURCES, OpenChats, find_answer
from chat.stand_ins import SlackStandIn
from notifications.receiver import PlannedReply

if TYPE_CHECKING:
    import pytest


def settings(slack: SlackStandIn, **more: object) -> dict[str, object]:
    return {"kind": "slack", "bot": slack.bot, "url": slack.url, **SOURCES, **more}


async def test_a_mention_starts_a_workflow_and_the_thread_gets_the_result(
    open_chats: OpenChats, slack: SlackStandIn
) -> None:
    async with open_chats(team=settings(slack, content=True)) as server:
        event = await slack.say(server.client, "UADA", "<@U0BOT> %greet Bob")
        result = await slack.wait_for_text("completed")
        [row] = server.runs("greet")
        assert "Hello Bob!" in result["text"]
        assert f"https://nerve.example.com/runs/{row.run}" in result["text"]
        assert {post["thread_ts"] for post in slack.posts} == {event["ts"]}
        assert row.conversation == f"team:C1/{event['ts']}"
        assert len(slack.posts) == 2
        assert json.loads(row.summary or "{}")["started_by"] == "person:ada"


async def test_a_mention_that_is_delivered_as_two_events_and_again_starts_one_run(
    open_chats: OpenChats, slack: SlackStandIn
) -> None:
    async with open_chats(team=settings(slack)) as server:
        data = slack.make_event("UADA", "<@U0BOT> %greet Bob")
        body = json.dumps(data).encode()
        for retry in ({}, {"x-slack-retry-num": "1", "x-slack-retry-reason": "http_timeout"}):
            await slack.send(server.client, "/chat/team", body, **retry)
        await slack.wait_for_text("completed")
        mention = {**data, "event_id": "other", "event": {**data["event"], "type": "app_mention"}}
        response = await slack.send(server.client, "/chat/team", json.dumps(mention).encode())
        assert response.json() == {"accepted": 0}
        assert len(server.runs()) == 1
        assert len(slack.posts) == 2


async def test_the_address_is_verified_with_the_challenge(open_chats: OpenChats, slack: SlackStandIn) -> None:
    async with open_chats(team=settings(slack)) as server:
        body = json.dumps({"type": "url_verification", "challenge": "c-1"}).encode()
        response = await slack.send(server.client, "/chat/team", body)
        assert response.json() == {"challenge": "c-1"}


OTHER_EVENTS = (
    {"bot_id": "B1"},
    {"subtype": "bot_message"},
    {"subtype": "message_changed"},
    {"subtype": "message_deleted"},
    {"user": "U0BOT"},
    {"channel": "COTHER"},
    {"text": "%greet Bob"},
    {"type": "reaction_added"},
    {"text": 7, "ts": None, "user": {}},
)


async def test_what_does_not_address_nerve_or_is_not_written_by_a_person_gets_no_reply(
    open_chats: OpenChats, slack: SlackStandIn
) -> None:
    async with open_chats(team=settings(slack, channels=["C1"])) as server:
        for fields in OTHER_EVENTS:
            data = slack.make_event("UADA", "<@U0BOT> %greet Bob")
            data["event"] |= fields
            response = await slack.send(server.client, "/chat/team", json.dumps(data).encode())
            assert (response.status_code, response.json()) == (200, {"accepted": 0}), fields
        for body in (b"[]", b"7", b'{"event": []}', b'{"type": "event_callback"}'):
            assert (await slack.send(server.client, "/chat/team", body)).status_code == 200
        assert server.runs() == []


async def test_a_direct_message_and_the_prefix_address_nerve(
    open_chats: OpenChats, slack: SlackStandIn
) -> None:
    async with open_chats(team=settings(slack, prefix="!nerve")) as server:
        await slack.say(server.client, "UADA", "%greet Bob", channel="D1", channel_type="im")
        await slack.say(server.client, "UADA", "!nerve %greet Bob")
        await slack.say(server.client, "UADA", "!nervexyz %greet Bob")
        await slack.wait_for_posts(4)
        assert len(server.runs("greet")) == 2


async def test_a_wrong_signature_and_an_old_one_are_refused(
    open_chats: OpenChats, slack: SlackStandIn
) -> None:
    async with open_chats(team=settings(slack)) as server:
        body = json.dumps(slack.make_event("UADA", "<@U0BOT> %greet Bob")).encode()
        wrong = {"x-slack-signature": f"v0={'0' * 64}"}
        assert (await slack.send(server.client, "/chat/team", body, **wrong)).status_code == 401
        old = {"x-slack-request-timestamp": "1600000000"}
        assert (await slack.send(server.client, "/chat/team", body, **old)).status_code == 401
        assert (await slack.send(server.client, "/chat/other", body)).status_code == 404
        assert (await server.client.get("/chat/team")).status_code == 405
        assert server.runs() == []


async def test_a_button_answers_the_gate_and_the_journal_says_who_how_and_from_where(
    open_chats: OpenChats, slack: SlackStandIn
) -> None:
    async with open_chats(team=settings(slack, content=True)) as server:
        event = await slack.say(server.client, "UADA", "<@U0BOT> %deploy v2")
        question = await slack.wait_for_text("waits for an answer")
        assert "Deploy v2?" in question["text"]
        await slack.press(server.client, "UBOB", question, "ship it")
        await slack.wait_for_text("completed")
        assert (await slack.wait_for_text("Answered"))["text"] == "Answered: ship it"
        assert find_answer(server) == {
            "answer": "ship it",
            "by": "person:bob",
            "via": "slack",
            "address": f"UBOB in C1/{event['ts']}",
        }
        await slack.press(server.client, "UBOB", question, "wait")
        assert "not open any more" in (await slack.wait_for_text("not open"))["text"]


async def test_a_reply_with_the_exact_choice_answers_the_gate(
    open_chats: OpenChats, slack: SlackStandIn
) -> None:
    async with open_chats(team=settings(slack, content=True)) as server:
        event = await slack.say(server.client, "UADA", "<@U0BOT> %deploy v2")
        await slack.wait_for_text("waits for an answer")
        # Without a mention, it is said to others.
        await slack.say(server.client, "UADA", "ship it", thread_ts=event["ts"])
        await slack.say(server.client, "UADA", "<@U0BOT> wait", thread_ts="1.000001")
        await slack.wait_for_posts(3)
        assert server.runs("deploy")[0].state == "waiting"
        await slack.say(server.client, "UADA", "<@U0BOT> Ship it!", thread_ts=event["ts"])
        await slack.wait_for_text("completed")
        assert find_answer(server)["answer"] == "ship it"


async def test_with_answers_in_the_thread_no_mention_is_necessary(
    open_chats: OpenChats, slack: SlackStandIn
) -> None:
    async with open_chats(team=settings(slack, content=True, answers="thread")) as server:
        event = await slack.say(server.client, "UADA", "<@U0BOT> %deploy v2")
        await slack.wait_for_text("waits for an answer")
        await slack.say(server.client, "UADA", "ship it if you like", thread_ts=event["ts"])
        await slack.say(server.client, "UADA", "wait", thread_ts=event["ts"])
        await slack.wait_for_text("completed")
        assert find_answer(server)["answer"] == "wait"


async def test_without_content_a_thread_gets_names_only_and_cannot_answer(
    open_chats: OpenChats, slack: SlackStandIn
) -> None:
    async with open_chats(team=settings(slack)) as server:
        event = await slack.say(server.client, "UADA", "<@U0BOT> %deploy the secret plan")
        question = await slack.wait_for_text("waits for an answer")
        assert "blocks" not in question
        assert "https://nerve.example.com/inbox/" in question["text"]
        await slack.say(server.client, "UADA", "<@U0BOT> ship it", thread_ts=event["ts"])
        assert "Answer it in the page" in (await slack.wait_for_text("not shown here"))["text"]
        await slack.say(server.client, "UADA", "<@U0BOT> %explode secret")
        await slack.wait_for_text("failed")
        assert not any("secret" in post["text"] for post in slack.posts)
        assert server.runs("deploy")[0].state == "waiting"


async def test_values_of_secret_variables_do_not_reach_a_thread(
    open_chats: OpenChats, slack: SlackStandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DEPLOY_TOKEN", "hunter2-hunter2")
    async with open_chats(team=settings(slack, content=True)) as server:
        await slack.say(server.client, "UADA", "<@U0BOT> %deploy hunter2-hunter2")
        question = await slack.wait_for_text("waits for an answer")
        assert "Deploy [DEPLOY_TOKEN]?" in question["text"]
        # What is shown is not exactly what is asked, so it is not answered here.
        assert "blocks" not in question
        await slack.say(server.client, "UADA", "<@U0BOT> %explode hunter2-hunter2")
        assert "[DEPLOY_TOKEN]" in (await slack.wait_for_text("failed"))["text"]
        assert not any("hunter2" in post["text"] for post in slack.posts)


async def test_an_unknown_account_is_ignored_or_refused_as_configured(
    open_chats: OpenChats, slack: SlackStandIn
) -> None:
    async with open_chats(team=settings(slack)) as server:
        await slack.say(server.client, "UNOBODY", "<@U0BOT> %greet Bob")
        assert server.runs() == []
    async with open_chats(team=settings(slack, unknown="refuse")) as server:
        await slack.say(server.client, "UNOBODY", "<@U0BOT> %greet Bob")
        await slack.say(server.client, "UNOBODY", "not to you")
        refusal = await slack.wait_for_text("belongs to no person")
        assert "--contact slack=UNOBODY" in refusal["text"]
        assert server.runs() == []
        assert len(slack.posts) == 1


async def test_a_person_without_the_scope_can_neither_start_nor_answer(
    open_chats: OpenChats, slack: SlackStandIn
) -> None:
    async with open_chats(team=settings(slack, content=True)) as server:
        await slack.say(server.client, "UEVE", "<@U0BOT> %greet Bob")
        assert "eve has the scope 'read'" in (await slack.wait_for_text("eve"))["text"]
        event = await slack.say(server.client, "UADA", "<@U0BOT> %deploy v2")
        question = await slack.wait_for_text("waits for an answer")
        await slack.press(server.client, "UEVE", question, "ship it")
        await slack.say(server.client, "UEVE", "<@U0BOT> answer wait", thread_ts=event["ts"])
        await slack.wait_until(lambda posts: sum("eve has" in post["text"] for post in posts) == 3)
        assert [row.state for row in server.runs()] == ["waiting"]


async def test_a_quorum_counts_the_people_of_the_thread(open_chats: OpenChats, slack: SlackStandIn) -> None:
    async with open_chats(team=settings(slack, content=True)) as server:
        event = await slack.say(server.client, "UADA", "<@U0BOT> %publish v2")
        question = await slack.wait_for_text("waits for an answer")
        await slack.press(server.client, "UBOB", question, "yes")
        assert "still needs 1 person of" in (await slack.wait_for_text("Answered"))["text"]
        await slack.say(server.client, "UADA", "<@U0BOT> yes", thread_ts=event["ts"])
        # Who has started the run does not approve it.
        await slack.wait_for_text("started the run")
        assert server.runs("publish")[0].state == "waiting"
        await slack.say(server.client, "ULEA", "<@U0BOT> yes", thread_ts=event["ts"])
        await slack.wait_for_text("completed")


async def test_messages_wait_as_long_as_slack_says(open_chats: OpenChats, slack: SlackStandIn) -> None:
    slack.refusals = [
        PlannedReply(429, {"ok": False, "error": "ratelimited"}, {"retry-after": "1"}),
        PlannedReply(503),
        PlannedReply(200, {"ok": False, "error": "internal_error"}),
    ]
    async with open_chats(team=settings(slack)) as server:
        await slack.say(server.client, "UADA", "<@U0BOT> %greet Bob")
        await slack.wait_for_text("completed")
        assert len({post["id"] for post in slack.posts}) == len(slack.posts) == 2


async def test_a_message_that_slack_refuses_is_listed_with_the_reason(
    open_chats: OpenChats, slack: SlackStandIn
) -> None:
    async with open_chats(team=settings(slack)) as server:
        await slack.say(server.client, "UADA", "<@U0BOT> %greet Bob", channel="CGONE")
        await slack.say(server.client, "UADA", "<@U0BOT> %greet Bob")
        await slack.wait_for_posts(2)
        page = await server.wait_for_chats(lambda chat: chat.sent == 2)
        assert {failure.error for failure in page.failures} == {"Slack answered: channel_not_found"}
        assert page.failures[0].thread.startswith("CGONE/")
        [chat] = page.chats
        assert (chat.sent, chat.received, chat.problem) == (2, 0, None)
        assert (await server.api.notifications()).failures == []


async def test_a_long_result_is_split_into_messages_and_shortened(
    open_chats: OpenChats, slack: SlackStandIn
) -> None:
    async with open_chats(team=settings(slack, content=True)) as server:
        words = " ".join(f"word{number}" for number in range(2000))
        await slack.say(server.client, "UADA", f"<@U0BOT> %greet {words}")
        await slack.wait_for_text("shortened")
        texts = [post["text"] for post in slack.posts if "word" in post["text"]]
        assert len(texts) == 4
        assert "word0 word1" in texts[0]
        assert texts[1].split()[0] not in texts[0]
        assert "completed" in texts[0]


async def test_a_conversation_of_another_kind_is_not_sent_anywhere(
    open_chats: OpenChats, slack: SlackStandIn
) -> None:
    async with open_chats(team=settings(slack, channels=["C1"])) as server:
        for conversation in ("team:COTHER/1.2", "other:C1/1.2", "plain", None):
            run = await server.api.start(workflow="greet", input="x", conversation=conversation)
            await server.session.engine.run_handle(server.session.engine.store.run(run.run_id)).wait()
        await server.api.start(workflow="greet", input="x", conversation="team:C1/5.5")
        await slack.wait_for_text("completed")
        assert [post["thread_ts"] for post in slack.posts] == ["5.5"]


async def test_a_reloaded_session_replies_to_what_was_stored(
    open_chats: OpenChats, slack: SlackStandIn
) -> None:
    """A message that was accepted when the process ended gets its reply from the next one."""
    async with open_chats(team=settings(slack)) as server:
        notifier = server.session.notifier
        assert notifier is not None
        body = json.dumps(slack.make_event("UADA", "<@U0BOT> %greet Bob")).encode()
        notifier.has_received = type("Deaf", (), {"set": lambda self: None})()  # type: ignore[assignment]
        await slack.send(server.client, "/chat/team", body)
        assert len(await notifier.list_received()) == 1
    async with open_chats(team=settings(slack)) as server:
        await slack.wait_for_text("completed")
        assert len(server.runs("greet")) == 1
