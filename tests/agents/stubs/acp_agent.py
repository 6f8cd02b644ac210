"""A small ACP agent: it queries a Chat Completions API, has a shell, and stores its sessions in its home.

    python acp_agent.py BASE_URL [--load] [--rude]

With `--load` a session cannot be resumed but only loaded, which replays all of it. With `--rude` the agent
prints a banner on stdout first.
"""

from __future__ import annotations

import asyncio
import http.client
import json
import os
import sys
import threading
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlparse

import acp
from acp import schema

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


class SmallAgent(acp.Agent):
    def __init__(self, url: str, load: bool) -> None:
        self.url, self.load = url, load
        self.connection: Any = None
        self.home = Path.home() / ".small-agent"
        self.home.mkdir(exist_ok=True)
        self.turn: asyncio.Task[Any] | None = None

    def on_connect(self, conn: Any) -> None:
        self.connection = conn

    async def initialize(self, protocol_version: int, **_: Any) -> Any:
        resume = {} if self.load else {"resume": {}}
        can = {"loadSession": self.load, "sessionCapabilities": resume}
        return schema.InitializeResponse.model_validate({"protocolVersion": 1, "agentCapabilities": can})

    async def new_session(self, cwd: str, mcp_servers: list[Any] | None = None, **_: Any) -> Any:
        session = str(uuid.uuid4())
        servers = {server.name: [server.command, *server.args] for server in mcp_servers or ()}
        self.write(session, {"cwd": cwd, "cost": 0.0, "messages": [], "servers": servers})
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
        return schema.NewSessionResponse.model_validate({"sessionId": session, "configOptions": options})

    async def set_config_option(self, config_id: str, session_id: str, value: Any, **_: Any) -> Any:
        if config_id == "effort":
            self.write(session_id, {**self.read(session_id), "effort": value})
        elif value not in MODELS:
            raise acp.RequestError.invalid_params({"details": f"there is no model {value}"})
        return schema.SetSessionConfigOptionResponse.model_validate({"configOptions": []})

    async def set_session_mode(self, mode_id: str, session_id: str, **_: Any) -> Any:
        self.write(session_id, {**self.read(session_id), "mode": mode_id})

    async def resume_session(self, cwd: str, session_id: str, **_: Any) -> Any:
        self.read(session_id)
        return schema.ResumeSessionResponse()

    async def load_session(self, cwd: str, session_id: str, **_: Any) -> Any:
        for message in self.read(session_id)["messages"]:
            await self.say(session_id, str(message.get("content")))
        return schema.LoadSessionResponse()

    async def cancel(self, session_id: str, **_: Any) -> None:
        if self.turn is not None:
            self.turn.cancel()

    async def prompt(self, session_id: str, prompt: list[Any], **_: Any) -> Any:
        session = self.read(session_id)
        session["messages"].append({"role": "user", "content": "\n".join(block.text for block in prompt)})
        self.write(session_id, session)
        self.turn = asyncio.create_task(self.answer(session_id, session))
        try:
            return schema.PromptResponse.model_validate(await self.turn)
        except asyncio.CancelledError:
            return schema.PromptResponse(stop_reason="cancelled")
        except Refused as error:
            after = error.headers.get("retry-after")
            details = f"the API said {error}" + (f"; retry-after: {after}" if after else "")
            raise acp.RequestError.internal_error({"details": details}) from error

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
        await self.tell(session_id, {"sessionUpdate": "usage_update", "used": 1, "size": 9, "cost": cost})
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
            await self.tell(session_id, {"sessionUpdate": "agent_thought_chunk", "content": content})
        if text := delta.get("content"):
            message["content"] += text
            await self.say(session_id, text)
        if calls := delta.get("tool_calls"):
            message["tool_calls"] = calls

    async def use(self, session_id: str, session: dict[str, Any], call: dict[str, Any]) -> str:
        arguments = json.loads(call["function"]["arguments"])
        if (name := call["function"]["name"]).startswith("mcp__"):
            return await self.use_server(session_id, session, call["id"], name, arguments)
        shown = {"toolCallId": call["id"], "title": f"`{arguments['command']}`", "kind": "execute"}
        meta = {"small": {"toolName": "shell"}}
        start = {"sessionUpdate": "tool_call", **shown, "status": "pending", "_meta": meta}
        await self.tell(session_id, start)  # like other agents, before its input is known
        update = {"sessionUpdate": "tool_call_update", "toolCallId": call["id"]}
        await self.tell(session_id, {**update, "rawInput": arguments})
        if session.get("mode") != "yolo" and not await self.allowed(
            session_id, {**shown, "rawInput": arguments}
        ):
            await self.tell(session_id, {**update, "status": "failed"})
            return "the user said no"
        await self.tell(session_id, {**update, "status": "in_progress"})
        code, output = await run(arguments["command"], session["cwd"])
        content = [{"type": "content", "content": {"type": "text", "text": output}}]
        status = "failed" if code else "completed"
        await self.tell(session_id, {**update, "status": status, "content": content})
        return output

    async def use_server(
        self, session_id: str, session: dict[str, Any], id: str, name: str, arguments: dict[str, Any]
    ) -> str:
        """Call a tool of an MCP server, which is started for the call."""
        _, server, tool = name.split("__")
        shown = {"toolCallId": id, "title": name, "kind": "other", "rawInput": arguments}
        meta = {"small": {"toolName": name}}
        start = {"sessionUpdate": "tool_call", **shown, "status": "pending", "_meta": meta}
        await self.tell(session_id, start)
        update = {"sessionUpdate": "tool_call_update", "toolCallId": id}
        if not await self.allowed(session_id, shown):
            await self.tell(session_id, {**update, "status": "failed"})
            return "the user said no"
        result = await call_server(session["servers"][server], tool, arguments)
        await self.tell(session_id, {**update, "status": "completed", "content": []})
        return str(result["content"][0]["text"])

    async def allowed(self, session_id: str, call: dict[str, Any]) -> bool:
        options = [
            schema.PermissionOption(option_id="ever", name="Always", kind="allow_always"),
            schema.PermissionOption(option_id="yes", name="Yes", kind="allow_once"),
            schema.PermissionOption(option_id="no", name="No", kind="reject_once"),
        ]
        tool_call = schema.ToolCallUpdate.model_validate(call)
        answer = await self.connection.request_permission(
            session_id=session_id, tool_call=tool_call, options=options
        )
        return getattr(answer.outcome, "option_id", "") == "yes"

    async def say(self, session_id: str, text: str) -> None:
        content = {"type": "text", "text": text}
        await self.tell(session_id, {"sessionUpdate": "agent_message_chunk", "content": content})

    async def tell(self, session_id: str, update: dict[str, Any]) -> None:
        note = schema.SessionNotification.model_validate({"sessionId": session_id, "update": update})
        await self.connection.session_update(session_id=session_id, update=note.update)

    def read(self, session: str) -> dict[str, Any]:
        try:
            return dict(json.loads((self.home / f"{session}.json").read_text()))
        except OSError:
            raise acp.RequestError.resource_not_found(session) from None

    def write(self, session: str, value: dict[str, Any]) -> None:
        part = self.home / f"{session}.part"
        part.write_text(json.dumps(value))
        part.replace(self.home / f"{session}.json")


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
    agent = SmallAgent(sys.argv[1], "--load" in sys.argv)
    asyncio.run(acp.run_agent(agent, use_unstable_protocol=True))
    os._exit(0)  # a blocked API request must not block the exit
