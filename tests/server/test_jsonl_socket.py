"""The seeds' commands as lines of JSON over the Unix socket."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from nerve.server import jsonl_socket
from nerve.server.bind import bind_unix
from nerve.server.uvicorn_server import run_server
from server.conftest import Served, until


class Line:
    """A client that speaks lines."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    def say(self, *messages: Any) -> None:
        for each in messages:
            self.writer.write(json.dumps(each).encode() + b"\n")

    async def hear(self) -> Any:
        async with asyncio.timeout(20):
            return json.loads(await self.reader.readline())

    async def ask(self, message: Any) -> Any:
        self.say(message)
        return await self.hear()


@pytest.fixture
async def line(served: Served, tmp_path: Path) -> AsyncIterator[Line]:
    path = tmp_path / "private" / "socket"
    async with run_server(served.app, [bind_unix(path)]):
        reader, writer = await asyncio.open_unix_connection(path)
        yield Line(reader, writer)
        writer.close()


@pytest.mark.requirement("S1-38")
async def test_commands_and_replies_are_json_lines(served: Served, line: Line) -> None:
    assert await line.ask({"token": served.tokens["admin"]}) == {"success": True}
    given = {"type": "EXECUTE_WORKFLOW", "params": {"workflow_id": "hello", "input": "you", "wait": True}}
    told = await line.ask(given | {"request_id": 7})
    assert (told["request_id"], told["data"]["result"]) == (7, "hello you")
    wrong = await line.ask({"type": "nothing"})
    assert (wrong["success"], wrong["code"]) == (False, "bad_request")


@pytest.mark.requirement("S1-36")
async def test_a_run_is_subscribed_to_and_answered_on_one_connection(served: Served, line: Line) -> None:
    await line.ask({"token": served.tokens["admin"]})
    run = (await line.ask({"type": "start_workflow", "params": {"workflow_id": "ask"}}))["data"]["run_id"]
    line.say({"type": "subscribe_workflow", "params": {"run_id": run}, "request_id": "s"})
    kinds = []
    while True:
        told = await line.hear()
        if told.get("request_id") != "s":
            continue
        if "event" not in told:
            break
        kinds.append(told["event"]["event_type"])
        if kinds[-1] == "gate_waiting":
            gate = told["event"]["data"]["gate_id"]
            line.say({"type": "workflow_input", "params": {"run_id": run, "gate_id": gate, "input": "yes"}})
    assert kinds[-1] == "workflow_completed"


@pytest.mark.parametrize(
    "first", [{"token": "wrong"}, {"token": None}, {"type": "LIST_WORKFLOWS"}, {"type": "x", "token": 1}]
)
async def test_nothing_is_executed_before_the_token(line: Line, first: Any) -> None:
    assert (await line.ask(first))["code"] == "unauthorized"
    assert await line.reader.read() == b""


async def test_a_line_requires_the_scope_of_its_command(served: Served, line: Line) -> None:
    await line.ask({"token": served.tokens["read"]})
    assert (await line.ask({"type": "LIST_WORKFLOWS"}))["success"]
    told = await line.ask({"type": "EXECUTE_WORKFLOW", "params": {"workflow_id": "ask"}})
    assert told["code"] == "forbidden"


@pytest.mark.parametrize(
    ("sent", "code"),
    [
        (b"{no json\n", "bad_request"),
        (b"[]\n", "bad_request"),
        (b'{"x": "' + b"x" * 1_048_576 + b'"}\n', "too_large"),
        (b'{"x": "' + b"x" * 3_000_000 + b'"}\n', "too_large"),
    ],
)
async def test_an_invalid_line_is_an_error_and_the_connection_stays_open(
    served: Served, line: Line, sent: bytes, code: str
) -> None:
    await line.ask({"token": served.tokens["admin"]})
    line.say(WAITS)
    line.writer.write(sent)
    assert (await line.hear())["code"] == code
    await until(lambda: len(served.api.session.list_workflow_runs()) == 1)
    [run] = served.api.session.list_workflow_runs()
    told = await line.ask({"type": "stop_workflow", "params": {"run_id": run.run_id}, "request_id": 2})
    again = await line.hear()
    assert {told["request_id"], again["request_id"]} == {1, 2}
    assert told["success"]
    assert again["success"]


WAITS = {"type": "EXECUTE_WORKFLOW", "params": {"workflow_id": "slow", "wait": True}, "request_id": 1}


@pytest.fixture(autouse=True)
def slow(served: Served) -> asyncio.Event:
    """Lets the workflow `slow` go on."""
    go = asyncio.Event()

    @served.api.session.workflow
    async def slow(context: Any) -> str:
        await go.wait()
        return "at last"

    return go


@pytest.mark.parametrize("end", [b"", b"\n"])
async def test_a_half_closed_client_still_receives_every_reply(
    served: Served, line: Line, slow: asyncio.Event, end: bytes
) -> None:
    await line.ask({"token": served.tokens["admin"]})
    line.say(WAITS, {"type": "subscribe_workflow", "params": {"run_id": "nobody"}, "request_id": 2})
    line.writer.write(json.dumps({"type": "LIST_WORKFLOWS", "request_id": 3}).encode() + end)
    line.writer.write_eof()
    told = {each["request_id"]: each for each in (await line.hear(), await line.hear())}
    assert (told[2]["code"], told[3]["success"]) == ("not_found", True)
    slow.set()
    assert (await line.hear())["data"]["result"] == "at last"
    assert await line.reader.read() == b""


async def test_a_half_closed_client_receives_events_until_the_run_ends(served: Served, line: Line) -> None:
    await line.ask({"token": served.tokens["admin"]})
    run = await served.api.start(workflow="ask", wait=True)
    line.say({"type": "subscribe_workflow", "params": {"run_id": run.run_id}})
    line.writer.write_eof()
    assert (await line.hear())["event"]["event_type"] == "workflow_started"
    await served.api.answer(run=run.run_id, answer="yes")
    last = json.loads((await line.reader.read()).splitlines()[-1])
    assert last == {"success": True, "data": {"status": "ended"}}


async def test_commands_of_a_disconnected_client_are_executed(served: Served, line: Line) -> None:
    await line.ask({"token": served.tokens["admin"]})
    line.say({"type": "start_workflow", "params": {"workflow_id": "ask"}})
    await line.writer.drain()
    line.writer.close()
    await until(lambda: len(served.api.session.list_workflow_runs()) == 1)


async def test_subscriptions_of_a_busy_disconnected_client_are_removed(
    served: Served, line: Line, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jsonl_socket, "MAX_CONCURRENT_COMMANDS", 2)
    await line.ask({"token": served.tokens["admin"]})
    run = await served.api.start(workflow="ask", wait=True)
    for _ in range(4):
        line.say({"type": "subscribe_workflow", "params": {"run_id": run.run_id}})
    await line.hear()
    line.writer.close()
    await until(lambda: not served.api.hub._subscriptions)


@pytest.mark.parametrize(
    "params", [{"run_id": ["x"]}, {"run_id": "x", "after": "abc"}, {"run_id": "x", "after": -1}]
)
async def test_an_invalid_command_has_one_reply(served: Served, line: Line, params: dict[str, Any]) -> None:
    await line.ask({"token": served.tokens["admin"]})
    told = await line.ask({"type": "subscribe_workflow", "params": params, "request_id": [1]})
    assert (told["code"], told["request_id"]) == ("bad_request", [1])
    assert (await line.ask({"type": "LIST_WORKFLOWS"}))["success"]


async def test_a_stopping_server_replies_to_waiting_clients(
    served: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jsonl_socket, "STOP_GRACE_S", 0.2)
    path = tmp_path / "private" / "socket"
    run = await served.api.start(workflow="ask", wait=True)
    async with run_server(served.app, [bind_unix(path)]):
        line = Line(*await asyncio.open_unix_connection(path))
        await line.ask({"token": served.tokens["admin"]})
        line.say({"type": "subscribe_workflow", "params": {"run_id": run.run_id}, "request_id": 2})
        assert (await line.hear())["event"]["event_type"] == "workflow_started"
        line.say(WAITS)
        await until(lambda: len(served.api.session.list_workflow_runs()) == 2)
    rest = [json.loads(each) for each in (await line.reader.read()).splitlines()]
    assert {each["request_id"]: each["code"] for each in rest if "code" in each} == {1: "busy", 2: "busy"}
    line.writer.close()


async def test_a_client_that_sends_no_full_line_is_disconnected(
    served: Served, line: Line, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jsonl_socket, "TOKEN_TIMEOUT_S", 0.05)
    line.writer.write(b"{")
    assert (await line.hear())["code"] == "bad_request"


async def test_subscriptions_of_a_disconnected_client_are_removed(served: Served, line: Line) -> None:
    await line.ask({"token": served.tokens["admin"]})
    run = (await line.ask({"type": "start_workflow", "params": {"workflow_id": "ask"}}))["data"]["run_id"]
    line.say({"type": "subscribe_workflow", "params": {"run_id": run}})
    await line.hear()
    line.writer.close()
    await until(lambda: not served.api.hub._subscriptions)


async def test_json_lines_are_not_accepted_over_tcp(served: Served) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
    writer.write(json.dumps({"token": served.tokens["admin"]}).encode() + b"\r\n\r\n")
    assert b"400" in await reader.readline()
    writer.close()
