"""A small ACP agent: it queries a Chat Completions API, has a shell, and stores its sessions in its home.

    python acp_agent.py BASE_URL [--load] [--rude]

With `--load` a session cannot be resumed but only loaded, which replays all of it. With `--rude` the agent
prints a banner on stdout first.
"""

from __future__ import annotations

import asyncio
import http.client
import itertools
import json
import os
import sys
import threading
import uuid
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlparse

PRICE = 0.0005
"""The cost of every API request."""
MODELS = ("heron", "stork")
SHELL = {
    "type": "function",
    "function": {
        "name": "shell",
        "parameters": {"type": "object", "properties": {"command": {"type": "string"}}},
    },
}


class Refused(Exception):
    """The API returned an error."""

    def __init__(self, status: int, body: str, headers: dict[str, str]) -> None:
        super().__init__(f"{status} {body}")
        self.status, self.headers = status, headers


class Rejected(Exception):
    """A request of the editor fails, with an error of JSON-RPC."""

    def __init__(self, code: int, message: str, data: dict[str, Any]) -> None:
        super().__init__(message)
        self.error = {"code": code, "message": message, "data": data}


class SmallAgent:
    def __init__(self, url: str, load: bool) -> None:
        self.url, self.load = url, load
        self.connection = Connection(self)
        self.home = Path.home() / ".small-agent"
        self.home.mkdir(exist_ok=True)
        self.turn: asyncio.Task[Any] | None = None

    async def initialize(self, params: dict[str, Any]) -> dict[str, Any]:
        resume = {} if self.load else {"resume": {}}
        can = {"loadSession": self.load, "sessionCapabilities": resume}
        return {"protocolVersion": 1, "agentCapabilities": can}

    async def new_session(self, params: dict[str, Any]) -> dict[str, Any]:
        session = str(uuid.uuid4())
        servers = {each["name"]: [each["command"], *each["args"]] for each in params["mcpServers"]}
        self.write(session, {"cwd": params["cwd"], "cost": 0.0, "messages": [], "servers": servers})
        option = {
            "id": "model",
            "name": "Model",
            "category": "model",
            "type": "select",
            "currentValue": "heron",
        }
        options = [
            {**option, "options": [{"value": "heron", "name": "Heron"}, {"value": "stork", "name": "Stork"}]}
        ]
        levels = [{"value": level, "name": level} for level in ("low", "high")]
        effort = {"id": "effort", "name": "Effort", "category": "thought_level", "type": "select"}
        options.append({**effort, "currentValue": "low", "options": levels})
        return {"sessionId": session, "configOptions": options}

    async def set_config_option(self, params: dict[str, Any]) -> dict[str, Any]:
        session_id, value = params["sessionId"], params["value"]
        if params["configId"] == "effort":
            self.write(session_id, {**self.read(session_id), "effort": value})
        elif value not in MODELS:
            raise Rejected(-32602, "Invalid params", {"details": f"there is no model {value}"})
        return {"configOptions": []}

    async def set_mode(self, params: dict[str, Any]) -> dict[str, Any]:
        session_id = params["sessionId"]
        self.write(session_id, {**self.read(session_id), "mode": params["modeId"]})
        return {}

    async def resume_session(self, params: dict[str, Any]) -> dict[str, Any]:
        self.read(params["sessionId"])
        return {}

    async def load_session(self, params: dict[str, Any]) -> dict[str, Any]:
        for message in self.read(params["sessionId"])["messages"]:
            self.say(params["sessionId"], str(message.get("content")))
        return {}

    async def cancel(self, params: dict[str, Any]) -> dict[str, Any]:
        if self.turn is not None:
            self.turn.cancel()
        return {}

    async def prompt(self, params: dict[str, Any]) -> dict[str, Any]:
        session_id = params["sessionId"]
        session = self.read(session_id)
        words = "\n".join(block["text"] for block in params["prompt"])
        session["messages"].append({"role": "user", "content": words})
        self.write(session_id, session)
        self.turn = asyncio.create_task(self.answer(session_id, session))
        try:
            return await self.turn
        except asyncio.CancelledError:
            return {"stopReason": "cancelled"}
        except Refused as error:
            after = error.headers.get("retry-after")
            details = f"the API said {error}" + (f"; retry-after: {after}" if after else "")
            raise Rejected(-32603, "Internal error", {"details": details}) from error

    async def answer(self, session_id: str, session: dict[str, Any]) -> dict[str, Any]:
        used = {"totalTokens": 0, "inputTokens": 0, "outputTokens": 0, "cachedReadTokens": 0}
        while True:
            message, usage = await self.ask(session_id, session["messages"])
            session["messages"].append(message)
            session["cost"] += PRICE
            for name, count in usage.items():
                used[name] += count
            if not message.get("tool_calls"):
                break
            for call in message["tool_calls"]:
                result = await self.use(session_id, session, call)
                session["messages"].append({"role": "tool", "tool_call_id": call["id"], "content": result})
            self.write(session_id, session)
        self.write(session_id, session)
        cost = {"amount": session["cost"], "currency": "USD"}
        self.tell(session_id, {"sessionUpdate": "usage_update", "used": 1, "size": 9, "cost": cost})
        return {"stopReason": "end_turn", "usage": used}

    async def ask(self, session_id: str, messages: list[Any]) -> tuple[dict[str, Any], dict[str, int]]:
        """Send one request, and forward the answer while it streams."""
        queue: asyncio.Queue[Any] = asyncio.Queue()
        loop = asyncio.get_running_loop()

        def stream() -> None:
            try:
                body = {"messages": messages, "tools": [SHELL], "stream": True, "user": session_id}
                for chunk in request(self.url, body):
                    loop.call_soon_threadsafe(queue.put_nowait, chunk)
                loop.call_soon_threadsafe(queue.put_nowait, None)
            except Exception as error:
                loop.call_soon_threadsafe(queue.put_nowait, error)

        # A thread that is never joined: a cancelled turn does not wait for the API.
        threading.Thread(target=stream, daemon=True).start()
        message: dict[str, Any] = {"role": "assistant", "content": ""}
        usage: dict[str, int] = {}
        while (chunk := await queue.get()) is not None:
            if isinstance(chunk, Exception):
                raise chunk
            if arguments := chunk.get("usage"):
                read = arguments["prompt_tokens_details"]["cached_tokens"]
                usage = {"totalTokens": arguments["total_tokens"], "inputTokens": arguments["prompt_tokens"]}
                usage |= {"outputTokens": arguments["completion_tokens"], "cachedReadTokens": read}
            for choice in chunk["choices"]:
                await self.take(session_id, choice["delta"], message)
        return message, usage

    async def take(self, session_id: str, delta: dict[str, Any], message: dict[str, Any]) -> None:
        if thought := delta.get("reasoning_content"):
            content = {"type": "text", "text": thought}
            self.tell(session_id, {"sessionUpdate": "agent_thought_chunk", "content": content})
        if text := delta.get("content"):
            message["content"] += text
            self.say(session_id, text)
        if calls := delta.get("tool_calls"):
            message["tool_calls"] = calls

    async def use(self, session_id: str, session: dict[str, Any], call: dict[str, Any]) -> str:
        arguments = json.loads(call["function"]["arguments"])
        if (name := call["function"]["name"]).startswith("mcp__"):
            return await self.use_server(session_id, session, call["id"], name, arguments)
        shown = {"toolCallId": call["id"], "title": f"`{arguments['command']}`", "kind": "execute"}
        meta = {"small": {"toolName": "shell"}}
        start = {"sessionUpdate": "tool_call", **shown, "status": "pending", "_meta": meta}
        self.tell(session_id, start)  # like other agents, before its input is known
        update = {"sessionUpdate": "tool_call_update", "toolCallId": call["id"]}
        self.tell(session_id, {**update, "rawInput": arguments})
        if session.get("mode") != "yolo" and not await self.allowed(
            session_id, {**shown, "rawInput": arguments}
        ):
            self.tell(session_id, {**update, "status": "failed"})
            return "the user said no"
        self.tell(session_id, {**update, "status": "in_progress"})
        code, output = await run(arguments["command"], session["cwd"])
        content = [{"type": "content", "content": {"type": "text", "text": output}}]
        status = "failed" if code else "completed"
        self.tell(session_id, {**update, "status": status, "content": content})
        return output

    async def use_server(
        self, session_id: str, session: dict[str, Any], id: str, name: str, arguments: dict[str, Any]
    ) -> str:
        """Call a tool of an MCP server, which is started for the call."""
        _, server, tool = name.split("__")
        shown = {"toolCallId": id, "title": name, "kind": "other", "rawInput": arguments}
        meta = {"small": {"toolName": name}}
        start = {"sessionUpdate": "tool_call", **shown, "status": "pending", "_meta": meta}
        self.tell(session_id, start)
        update = {"sessionUpdate": "tool_call_update", "toolCallId": id}
        if not await self.allowed(session_id, shown):
            self.tell(session_id, {**update, "status": "failed"})
            return "the user said no"
        result = await call_server(session["servers"][server], tool, arguments)
        self.tell(session_id, {**update, "status": "completed", "content": []})
        return str(result["content"][0]["text"])

    async def allowed(self, session_id: str, call: dict[str, Any]) -> bool:
        options = [
            {"optionId": "ever", "name": "Always", "kind": "allow_always"},
            {"optionId": "yes", "name": "Yes", "kind": "allow_once"},
            {"optionId": "no", "name": "No", "kind": "reject_once"},
        ]
        question = {"sessionId": session_id, "toolCall": call, "options": options}
        answer = await self.connection.request("session/request_permission", question)
        return answer["outcome"].get("optionId") == "yes"

    def say(self, session_id: str, text: str) -> None:
        content = {"type": "text", "text": text}
        self.tell(session_id, {"sessionUpdate": "agent_message_chunk", "content": content})

    def tell(self, session_id: str, update: dict[str, Any]) -> None:
        params = {"sessionId": session_id, "update": update}
        self.connection.send({"method": "session/update", "params": params})

    def read(self, session: str) -> dict[str, Any]:
        try:
            return dict(json.loads((self.home / f"{session}.json").read_text()))
        except OSError:
            raise Rejected(-32002, "Resource not found", {"uri": session}) from None

    def write(self, session: str, value: dict[str, Any]) -> None:
        part = self.home / f"{session}.part"
        part.write_text(json.dumps(value))
        part.replace(self.home / f"{session}.json")


METHODS: dict[str, Callable[[SmallAgent, dict[str, Any]], Awaitable[dict[str, Any]]]] = {
    "initialize": SmallAgent.initialize,
    "session/new": SmallAgent.new_session,
    "session/resume": SmallAgent.resume_session,
    "session/load": SmallAgent.load_session,
    "session/set_config_option": SmallAgent.set_config_option,
    "session/set_mode": SmallAgent.set_mode,
    "session/prompt": SmallAgent.prompt,
    "session/cancel": SmallAgent.cancel,
}


class Connection:
    """JSON-RPC in lines, without the library of the protocol, which takes nearly a second to import.

    The client under test uses that library, which validates the messages of both sides.
    """

    def __init__(self, agent: SmallAgent) -> None:
        self.agent = agent
        self.requests: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self.numbers = itertools.count()

    async def serve(self) -> None:
        """Perform the requests of the editor until its end."""
        reader = asyncio.StreamReader(limit=1 << 26)
        protocol = asyncio.StreamReaderProtocol(reader)
        await asyncio.get_running_loop().connect_read_pipe(lambda: protocol, sys.stdin)
        tasks: set[asyncio.Task[None]] = set()
        while line := await reader.readline():
            message = json.loads(line)
            if "method" not in message:
                self.requests.pop(message["id"]).set_result(message["result"])
                continue
            tasks.add(task := asyncio.create_task(self.perform(message)))
            task.add_done_callback(tasks.discard)

    async def perform(self, message: dict[str, Any]) -> None:
        try:
            if (method := METHODS.get(message["method"])) is None:
                raise Rejected(-32601, "Method not found", {"method": message["method"]})
            reply = {"result": await method(self.agent, message["params"])}
        except Rejected as error:
            reply = {"error": error.error}
        except Exception as error:
            reply = {"error": {"code": -32603, "message": "Internal error", "data": {"details": repr(error)}}}
        if "id" in message:
            self.send({"id": message["id"], **reply})

    async def request(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        """Return what the editor answers."""
        number = next(self.numbers)
        self.requests[number] = asyncio.get_running_loop().create_future()
        self.send({"id": number, "method": method, "params": params})
        return await self.requests[number]

    def send(self, message: dict[str, Any]) -> None:
        print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)  # noqa: T201


async def call_server(argv: list[str], tool: str, arguments: dict[str, Any]) -> dict[str, Any]:
    pipe = asyncio.subprocess.PIPE
    server = await asyncio.create_subprocess_exec(*argv, stdin=pipe, stdout=pipe)
    assert server.stdin is not None
    assert server.stdout is not None
    params = {"protocolVersion": "2025-06-18", "capabilities": {}, "name": tool, "arguments": arguments}
    answer: dict[str, Any] = {}
    for number, method in enumerate(("initialize", "tools/call")):
        message = {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
        server.stdin.write(json.dumps(message).encode() + b"\n")
        answer = json.loads(await server.stdout.readline())
    server.terminate()
    await server.wait()
    return dict(answer["result"])


async def run(command: str, cwd: str) -> tuple[int, str]:
    pipe = asyncio.subprocess.PIPE
    shell = await asyncio.create_subprocess_exec(
        "bash", "-c", command, cwd=cwd, stdin=asyncio.subprocess.DEVNULL, stdout=pipe, stderr=pipe
    )
    out, err = await shell.communicate()
    return shell.returncode or 0, (out + err).decode()


def request(url: str, body: dict[str, Any]) -> Iterator[dict[str, Any]]:
    where = urlparse(url)
    connection = http.client.HTTPConnection(where.hostname or "", where.port)
    connection.request("POST", f"{where.path}/chat/completions", json.dumps(body).encode())
    response = connection.getresponse()
    if response.status != 200:
        headers = {name.lower(): value for name, value in response.getheaders()}
        raise Refused(response.status, response.read().decode(), headers)
    for line in response:
        data = line.decode().removeprefix("data: ").strip()
        if data and data != "[DONE]":
            yield json.loads(data)


if __name__ == "__main__":
    if "--rude" in sys.argv:
        print("Welcome!", flush=True)  # noqa: T201
        print("a warning", file=sys.stderr, flush=True)  # noqa: T201
    asyncio.run(SmallAgent(sys.argv[1], "--load" in sys.argv).connection.serve())
    os._exit(0)  # a blocked API request must not block the exit
