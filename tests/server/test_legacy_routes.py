"""The seeds' commands and the conversation to test with, over HTTP."""

import httpx2
import pytest

from nerve.api import conversation
from server.conftest import Served, until


@pytest.mark.requirement("S0-61")
async def test_a_command_works_in_either_vocabulary(client: httpx2.AsyncClient) -> None:
    given = {"type": "EXECUTE_WORKFLOW", "params": {"workflow_id": "hello", "input": "you", "wait": True}}
    reply = await client.post("/api/command", json=given)
    assert reply.json()["data"]["result"] == "hello you"
    begun = await client.post(
        "/api/command", json={"type": "start_workflow", "params": {"workflow_id": "ask"}}
    )
    assert begun.json()["data"]["status"] == "started"


async def test_a_failed_command_has_the_http_status_of_its_error(client: httpx2.AsyncClient) -> None:
    given = {"type": "GET_WORKFLOW_RUN", "params": {"run_id": "nobody"}}
    reply = await client.post("/api/command", json=given)
    assert reply.status_code == 404
    assert reply.json()["error"] == "Workflow run 'nobody' not found"


@pytest.mark.parametrize(
    ("scope", "kind", "allowed"),
    [
        ("read", "LIST_WORKFLOWS", True),
        ("read", "EXECUTE_WORKFLOW", False),
        ("read", "ANSWER_GATE", False),
        ("answer", "workflow_input", True),
        ("answer", "stop_workflow", False),
        ("run", "start_workflow", True),
        ("run", "ANSWER_GATE", False),
        ("read", "execute_WORKFLOW", False),
    ],
)
async def test_an_http_command_requires_the_scope_of_its_operation(
    served: Served, scope: str, kind: str, allowed: bool
) -> None:
    async with served.client(scope) as client:
        reply = await client.post("/api/command", json={"type": kind})
        assert (reply.status_code != 403) is allowed


@pytest.mark.requirement("S3-30")
async def test_a_conversation_works_over_http(client: httpx2.AsyncClient) -> None:
    sent = await client.post("/test/message", json={"conversationId": "a/b", "message": "/help"})
    assert [each["role"] for each in sent.json()["messages"]] == ["user", "assistant"]
    for mode in ("batch", "stream"):
        told = await client.get("/test/messages/a%2Fb", params={"mode": mode})
        assert told.json() == sent.json()
    assert (await client.get("/test/messages/x", params={"mode": "loud"})).status_code == 400
    assert (await client.post("/test/message", json={"message": "/help"})).status_code == 400


@pytest.mark.parametrize("text", [" /workflow  reload ", " /answer  yes"])
async def test_a_message_requires_the_scope_of_its_command(served: Served, text: str) -> None:
    given = {"conversationId": "c", "message": text}
    for scope, status in (("run", 403), ("admin", 200)):
        async with served.client(scope) as client:
            assert (await client.post("/test/message", json=given)).status_code == status


KEY = {"Idempotency-Key": "once"}


@pytest.mark.parametrize("params", [{}, {"key": "once"}])
async def test_the_key_of_a_command_may_be_a_header(
    served: Served, client: httpx2.AsyncClient, params: dict[str, str]
) -> None:
    given = {"type": "EXECUTE_WORKFLOW", "params": {"workflow_id": "hello", **params}}
    replies = [(await client.post("/api/command", json=given, headers=KEY)).json() for _ in range(2)]
    assert len({each["data"]["run_id"] for each in replies}) == 1
    assert len(served.api.session.list_workflow_runs()) == 1
    other = await client.post("/api/command", json=given, headers={"Idempotency-Key": "twice"})
    assert (other.status_code == 400) is bool(params)
    for kind, status in (("LIST_WORKFLOWS", 200), ("nothing", 400)):
        assert (await client.post("/api/command", json={"type": kind}, headers=KEY)).status_code == status


@pytest.mark.parametrize("way", ["header", "body"])
async def test_a_message_with_a_key_is_handled_once(
    served: Served, client: httpx2.AsyncClient, way: str
) -> None:
    async def say(text: str) -> httpx2.Response:
        given = {"conversationId": "c", "message": text} | ({"key": "once"} if way == "body" else {})
        return await client.post("/test/message", json=given, headers=KEY if way == "header" else {})

    first, again = await say("hello you"), await say("hello you")
    assert first.status_code == 200
    assert again.json() == first.json()
    assert len(served.api.session.list_workflow_runs()) == 1
    assert (await say("hello me")).status_code == 409


async def test_an_answer_in_a_conversation_with_a_key_counts_once(
    served: Served, client: httpx2.AsyncClient
) -> None:
    await client.post("/test/message", json={"conversationId": "c", "message": "ask"})
    await until(lambda: bool(conversation.conversation_gates(served.api, "c")))
    given = {"conversationId": "c", "message": "/answer yes"}
    first, again = [await client.post("/test/message", json=given, headers=KEY) for _ in range(2)]
    assert first.json()["messages"][-1]["text"] == "Answered: yes"
    assert again.json() == first.json()
