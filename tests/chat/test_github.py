"""GitHub: issues, pull requests and threads of reviews are conversations."""

from __future__ import annotations

import json
import time

from chat.conftest import SOURCES, OpenChats, find_answer
from chat.stand_ins import GithubStandIn
from notifications.receiver import PlannedReply


def settings(github: GithubStandIn, **more: object) -> dict[str, object]:
    base = {"kind": "github", "bot": "nerve-bot", "repositories": ["ada/tools"], "url": github.url}
    return {**base, **SOURCES, **more}


async def test_a_comment_starts_a_workflow_and_comments_of_the_bot_start_none(
    open_chats: OpenChats, github: GithubStandIn
) -> None:
    async with open_chats(code=settings(github, content=True)) as server:
        await github.comment(server.client, "Ada", "@nerve-bot %greet Bob")
        result = await github.wait_for_text("completed")
        assert "Hello Bob!" in result["text"]
        assert {post["path"] for post in github.posts} == {"/repos/ada/tools/issues/12/comments"}
        assert [row.conversation for row in server.runs()] == ["code:ada/tools#12"]
        # GitHub delivers the comments of the bot, too, also when they are those of a person's account.
        for event, data in github.own_deliveries:
            await github.redeliver(server.client, event, data)
            own = json.loads(data)
            own["comment"]["user"]["login"] = "ada"
            own["comment"]["body"] = f"@nerve-bot %greet Bob {own['comment']['body']}"
            await github.redeliver(server.client, event, json.dumps(own).encode())
        assert len(server.runs()) == 1


async def test_a_comment_that_is_delivered_again_starts_one_run(
    open_chats: OpenChats, github: GithubStandIn
) -> None:
    async with open_chats(code=settings(github)) as server:
        data = await github.comment(server.client, "ada", "@nerve-bot %greet Bob")
        await github.redeliver(server.client, "issue_comment", data)
        await github.wait_for_text("completed")
        await github.redeliver(server.client, "issue_comment", data)
        assert len(server.runs()) == 1
        assert len(github.posts) == 2


async def test_what_is_edited_quoted_or_written_by_bots_or_elsewhere_gets_no_reply(
    open_chats: OpenChats, github: GithubStandIn
) -> None:
    async with open_chats(code=settings(github)) as server:
        text = "@nerve-bot %greet Bob"
        await github.comment(server.client, "ada", text, action="edited")
        await github.comment(server.client, "ada", text, kind="Bot")
        await github.comment(server.client, "nerve-bot[bot]", text)
        await github.comment(server.client, "ada", text, repository="eve/tools")
        await github.comment(server.client, "ada", f"> {text}\n\nWhat did it do?")
        await github.comment(server.client, "ada", f"```\n{text}\n```\nWrite this: `{text}`")
        await github.comment(server.client, "ada", "ask @nerve-bot-2 or me@nerve-bot.example")
        await github.comment(server.client, "mallory", text)
        await github.redeliver(server.client, "ping", b'{"zen": "Keep it simple."}')
        assert server.runs() == []
        assert github.posts == []
        assert set(github.statuses) == {200}


async def test_an_issue_and_a_review_are_conversations_of_their_own(
    open_chats: OpenChats, github: GithubStandIn
) -> None:
    async with open_chats(code=settings(github)) as server:
        issue = {"number": 7, "id": 70, "title": "%greet", "body": "@nerve-bot", "user": {"login": "ada"}}
        opened = {"action": "opened", "issue": issue, "repository": {"full_name": "ada/tools"}}
        await github.redeliver(server.client, "issues", json.dumps(opened).encode())
        await github.comment(server.client, "ada", "@nerve-bot %greet", pull_request=9, id=55)
        await github.comment(
            server.client, "ada", "@nerve-bot %greet Eve", pull_request=9, id=56, in_reply_to=55
        )
        await github.wait_for_posts(6)
        assert {row.conversation for row in server.runs()} == {"code:ada/tools#7", "code:ada/tools#9:55"}
        assert {post["path"] for post in github.posts} == {
            "/repos/ada/tools/issues/7/comments",
            "/repos/ada/tools/pulls/9/comments/55/replies",
        }


async def test_a_comment_answers_the_gate_and_the_journal_says_who_how_and_from_where(
    open_chats: OpenChats, github: GithubStandIn
) -> None:
    async with open_chats(code=settings(github, content=True)) as server:
        await github.comment(server.client, "ada", "@nerve-bot %deploy v2")
        question = await github.wait_for_text("waits for an answer")
        assert "Answer with: @nerve-bot ship it" in question["text"]
        await github.comment(server.client, "bob", "> waits for an answer\n\n@nerve-bot ship it")
        await github.wait_for_text("completed")
        assert find_answer(server) == {
            "answer": "ship it",
            "by": "person:bob",
            "via": "github",
            "address": "bob in ada/tools#12",
        }


async def test_texts_mention_nobody_outside_of_code(open_chats: OpenChats, github: GithubStandIn) -> None:
    async with open_chats(code=settings(github, content=True)) as server:
        await github.comment(server.client, "ada", "@nerve-bot %greet @everyone `@pytest.fixture`")
        text = (await github.wait_for_text("completed"))["text"]
        assert "@everyone" not in text
        assert "`@pytest.fixture`" in text


async def test_refusals_for_too_many_requests_are_waited_for(
    open_chats: OpenChats, github: GithubStandIn
) -> None:
    reset = {"x-ratelimit-remaining": "0", "x-ratelimit-reset": str(int(time.time()))}
    github.refusals = [
        PlannedReply(403, {"message": "You have exceeded a secondary rate limit"}, {"retry-after": "1"}),
        PlannedReply(403, {"message": "API rate limit exceeded"}, reset),
        PlannedReply(502),
    ]
    async with open_chats(code=settings(github)) as server:
        await github.comment(server.client, "ada", "@nerve-bot %greet Bob")
        await github.wait_for_text("completed")
        assert len(github.posts) == 2
        markers = [post["text"].rpartition("<!-- nerve-message: ")[2] for post in github.posts]
        assert len(set(markers)) == 2


async def test_a_comment_that_github_refuses_is_listed(open_chats: OpenChats, github: GithubStandIn) -> None:
    github.refusals = [PlannedReply(403, {"message": "Resource not accessible by integration"})]
    async with open_chats(code=settings(github)) as server:
        await github.comment(server.client, "ada", "@nerve-bot %greet Bob")
        await github.wait_for_text("completed")
        [failure] = (await server.api.chats()).failures
        assert (failure.thread, failure.error) == ("ada/tools#12", "GitHub answered 403")
