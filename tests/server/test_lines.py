"""The seeds' commands as lines of JSON over the Unix socket."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from nerve.server import lines
from nerve.server.listening import bind_unix
from nerve.server.running import running
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
    async with running(served.app, [bind_unix(path)]):
        reader, writer = await asyncio.open_unix_connection(path)
        yield Line(reader, writer)
        writer.close()


@pytest.mark.requirement("S1-38")
async def test_commands_are_given_and_answered_as_lines(served: Served, line: Line) -> None:
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
async def test_nothing_is_done_before_the_token(line: Line, first: Any) -> None:
    assert (await line.ask(first))["code"] == "unauthorized"
    assert await line.reader.read() == b""


async def test_a_line_needs_the_scope_of_what_it_does(served: Served, line: Line) -> None:
    await line.ask({"token": served.tokens["read"]})
    assert (await line.ask({"type": "LIST_WORKFLOWS"}))["success"]
    told = await line.ask({"type": "EXECUTE_WORKFLOW", "params": {"workflow_id": "ask"}})
    assert told["code"] == "forbidden"


@pytest.mark.parametrize("sent", [b"{no json\n", b"[]\n", b'{"x": "' + b"x" * 3_000_000 + b'"}\n'])
async def test_what_is_no_line_ends_the_talk(served: Served, line: Line, sent: bytes) -> None:
    await line.ask({"token": served.tokens["admin"]})
    line.writer.write(sent)
    assert (await line.hear())["code"] == "bad_request"


async def test_who_says_nothing_more_is_sent_away(
    served: Served, line: Line, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lines, "FIRST_SECONDS", 0.05)
    line.writer.write(b"{")
    assert (await line.hear())["code"] == "bad_request"


async def test_who_leaves_is_forgotten(served: Served, line: Line) -> None:
    await line.ask({"token": served.tokens["admin"]})
    run = (await line.ask({"type": "start_workflow", "params": {"workflow_id": "ask"}}))["data"]["run_id"]
    line.say({"type": "subscribe_workflow", "params": {"run_id": run}})
    await line.hear()
    line.writer.close()
    await until(lambda: not served.api.hub._watchers)


async def test_lines_are_not_taken_over_tcp(served: Served) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
    writer.write(json.dumps({"token": served.tokens["admin"]}).encode() + b"\r\n\r\n")
    assert b"400" in await reader.readline()
    writer.close()
