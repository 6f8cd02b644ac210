"""One turn with Claude Code: lines of JSON both ways, with its questions answered on the way."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Mapping
from typing import Any

from nerve.agents.chunk_stream import EmitChunk
from nerve.agents.claude.mcp_tools import McpToolServer
from nerve.agents.claude.stream_json import ANSWER_TOOL, StreamJsonReader
from nerve.agents.provider import PermissionRequest, QueryOptions, Unavailable
from nerve.errors import NerveError
from nerve.process.line_process import LineProcess

INTERRUPT_TIMEOUT_S = 1.0
"""Seconds that the program has to stop by itself, before it is made to."""
MAX_STDERR_CHARS = 2_000
"""Characters of the error stream that a crash shows."""

PRE_TOOL_USE_HOOK = {"matcher": None, "hookCallbackIds": ["nerve"], "onFailure": "block"}
"""A hook of ours before every call of a tool, its own agents' too; if it fails, nothing is called."""
HOOKS_UNSUPPORTED = (
    "this Claude Code cannot keep to the permissions ({}): it has no hooks that block. Update it."
)


class ClaudeCrashed(NerveError):
    """Claude Code ended without saying how its turn ended; shows the last it said on the error stream."""


class ClaudeTurn:
    """What is said and heard in one turn."""

    def __init__(
        self,
        program: LineProcess,
        reader: StreamJsonReader,
        options: QueryOptions,
        tools: McpToolServer,
        emit: EmitChunk,
    ) -> None:
        self._program, self._reader, self._options, self._tools = program, reader, options, tools
        self._emit = emit
        self._has_hook = not options.permissions.restrictions
        self._cwd_by_call: dict[str, str] = {}
        """Where each call is to be made."""
        self._pending_line: asyncio.Task[bytes] | None = None
        self._pending_answers: dict[str, asyncio.Task[None]] = {}

    async def run(self, prompt: str, settings: Mapping[str, Any]) -> None:
        self._send({"type": "control_request", "request_id": "begin", "request": settings})
        # `client_composed`: the text is meant as it is, and `/word` or `@file` in it are no commands.
        message = {"role": "user", "content": prompt}
        user_message = {
            "type": "user",
            "message": message,
            "parent_tool_use_id": None,
            "client_composed": True,
        }
        try:
            while not self._has_hook:
                self._handle_message(await self._next_message())
            self._send(user_message)
            while self._reader.done is None:
                self._handle_message(await self._next_message())
        finally:
            await self._stop()

    def _send(self, message: Mapping[str, Any]) -> None:
        self._program.send(json.dumps(message).encode())

    async def _next_message(self) -> dict[str, Any]:
        """The next line, while questions are being answered; an answer that fails is our failure."""
        while (line := await self._read_line()) is None:
            self._collect_answers()
        if not line:
            raise await self._crash_error()
        return parse_stream_line(line)

    async def _read_line(self) -> bytes | None:
        """A line, empty at the end; None when a question is answered before there is one."""
        if self._pending_line is None:
            self._pending_line = asyncio.create_task(self._program.read_line())
        await asyncio.wait(
            {self._pending_line, *self._pending_answers.values()}, return_when=asyncio.FIRST_COMPLETED
        )
        if not self._pending_line.done():
            return None
        line, self._pending_line = self._pending_line.result(), None
        return line

    def _collect_answers(self) -> None:
        for id, task in list(self._pending_answers.items()):
            if task.done():
                del self._pending_answers[id]
                if not task.cancelled():
                    task.result()

    async def _crash_error(self) -> ClaudeCrashed:
        error_output = (await self._program.wait_for_stderr()).strip()[-MAX_STDERR_CHARS:]
        return ClaudeCrashed(f"claude ended in the middle of its turn: {error_output or 'it said nothing'}")

    def _handle_message(self, message: dict[str, Any]) -> None:
        match message:
            case {"type": "control_request", "request_id": str(id), "request": dict(request)}:
                self._pending_answers[id] = asyncio.create_task(self._answer_request(id, request))
            case {"type": "control_cancel_request", "request_id": str(id)} if id in self._pending_answers:
                self._pending_answers[id].cancel()
            case {"type": "control_response", "response": {"subtype": "error", "request_id": "begin"}}:
                raise ClaudeCrashed(f"claude does not take its settings: {message['response'].get('error')}")
            case {"type": "control_response", "response": {"request_id": "begin", **answer}}:
                self._has_hook = self._has_hook or self._check_hook_support(answer.get("response"))
            case _:
                for chunk in self._reader.read_message(message):
                    self._emit(chunk)

    def _check_hook_support(self, capabilities: Any) -> bool:
        match capabilities:
            case {"hook_on_failure_supported": True} if capabilities.get("hooks_applied") is not False:
                return True
        raise Unavailable(HOOKS_UNSUPPORTED.format(self._options.permissions.restrictions[0]))

    async def _answer_request(self, id: str, request: dict[str, Any]) -> None:
        match request:
            case {"subtype": "can_use_tool", "tool_name": str(tool), "input": dict(tool_input)}:
                answer = await self._decide_permission(tool, tool_input, request)
            case {
                "subtype": "hook_callback",
                "input": {"tool_name": str(tool), "tool_input": dict(tool_input)},
            }:
                answer = await self._pre_tool_use(tool, tool_input, request["input"])
            case {"subtype": "mcp_message", "message": dict(message)}:
                answer = {"mcp_response": await self._tools.handle_message(message)}
            case _:
                error = f"not known here: {request.get('subtype')}"
                self._respond({"subtype": "error", "request_id": id, "error": error})
                return
        self._respond({"subtype": "success", "request_id": id, "response": answer})

    def _respond(self, response: Mapping[str, Any]) -> None:
        self._send({"type": "control_response", "response": response})

    async def _pre_tool_use(
        self, tool: str, tool_input: dict[str, Any], call: dict[str, Any]
    ) -> dict[str, Any]:
        """What is certain of a call before it is made; whatever is to be asked, the program asks then."""
        if self._tools.owns_tool(tool) or tool == ANSWER_TOOL:
            return {}
        cwd = self._cwd_by_call[str(call.get("tool_use_id"))] = str(call.get("cwd") or "")
        permission = PermissionRequest(tool, tool_input, cwd=cwd)
        verdict = self._options.settled(permission)
        if verdict not in ("ask", "deny"):
            return {}
        output = {"hookEventName": "PreToolUse", "permissionDecision": verdict}
        if verdict == "deny":
            output["permissionDecisionReason"] = (await self._options.ask(permission)).message
        return {"hookSpecificOutput": output}

    async def _decide_permission(
        self, tool: str, tool_input: dict[str, Any], request: dict[str, Any]
    ) -> dict[str, Any]:
        if self._tools.owns_tool(tool):
            return {"behavior": "allow", "updatedInput": tool_input}
        permission = PermissionRequest(
            tool,
            tool_input,
            permission_reason(request),
            self._cwd_by_call.get(str(request.get("tool_use_id")), ""),
        )
        decision = await self._options.decide(permission)
        if decision.allow:
            return {"behavior": "allow", "updatedInput": tool_input}
        return {"behavior": "deny", "message": decision.message or "this is not allowed"}

    async def _stop(self) -> None:
        """Let the program stop by itself, so that its conversation is in order when it is gone on with."""
        await cancel_tasks(self._pending_answers.values())
        self._pending_answers.clear()
        try:
            if self._reader.done is None:
                await self._interrupt()
        finally:
            await cancel_tasks([self._pending_line] if self._pending_line else [])

    async def _interrupt(self) -> None:
        self._send({"type": "control_request", "request_id": "stop", "request": {"subtype": "interrupt"}})
        try:
            async with asyncio.timeout(INTERRUPT_TIMEOUT_S):
                while (line := await self._read_line()) and parse_stream_line(line).get("type") != "result":
                    pass
        except (TimeoutError, OSError):
            pass  # the end of its process tree follows in any case


def permission_reason(request: Mapping[str, Any]) -> str:
    """Why the program asks, unless it is because we made it."""
    stated_reason = "" if request.get("decision_reason_type") == "hook" else request.get("decision_reason")
    return str(stated_reason or request.get("description") or "")


async def cancel_tasks(tasks: Iterable[asyncio.Task[Any]]) -> None:
    """Cancel the tasks and wait for their ends."""
    for task in (tasks := list(tasks)):
        task.cancel()
    if tasks:
        await asyncio.wait(tasks)


def parse_stream_line(line: bytes) -> dict[str, Any]:
    """A line that is no JSON object is none of the protocol, and says nothing."""
    try:
        value = json.loads(line)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}
