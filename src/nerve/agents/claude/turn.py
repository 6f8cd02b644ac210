"""One turn with Claude Code: JSON lines in both directions, with requests answered on the way."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Any

from nerve.agents.chunk_stream import AnswerTasks, EmitChunk
from nerve.agents.claude.stream_json import ANSWER_TOOL, StreamJsonReader
from nerve.agents.mcp_tools import McpToolServer
from nerve.agents.provider import AgentEnded, PermissionRequest, QueryOptions, Unavailable
from nerve.process.line_process import LineProcess

INTERRUPT_TIMEOUT_S = 1.0
"""Seconds that the program has to stop before it is killed."""
MAX_STDERR_CHARS = 2_000
"""Characters of stderr that a crash message includes."""

OTHER_NAMES = {"Agent": ("Task",)}
"""Earlier names of tools, which agent files and permissions still use."""
PRE_TOOL_USE_HOOK = {"matcher": None, "hookCallbackIds": ["nerve"], "onFailure": "block"}
"""A hook before every tool call, including those of sub-agents; if it fails, the call is blocked."""
HOOKS_UNSUPPORTED = (
    "This version of Claude Code cannot enforce the permissions ({}): it has no blocking hooks. Update it."
)


class ClaudeCrashed(AgentEnded):
    """Claude Code ended before its turn did; the message includes the end of stderr."""


class ClaudeTurn:
    """The exchange of messages in one turn."""

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
        """The working directory of each call."""
        self._answers = AnswerTasks()

    async def run(self, prompt: str, settings: Mapping[str, Any]) -> None:
        """Send the prompt, and emit chunks until the turn ends."""
        try:
            await self._answers.run(self._exchange_messages(prompt, settings))
        finally:
            # The program stops by itself, so that its conversation is consistent when it is resumed.
            await self._answers.close()
            if self._reader.done is None:
                await self._interrupt()

    async def _exchange_messages(self, prompt: str, settings: Mapping[str, Any]) -> None:
        self._send({"type": "control_request", "request_id": "begin", "request": settings})
        while not self._has_hook:
            self._handle_message(await self._next_message())
        # `client_composed`: the text is literal, so `/word` or `@file` in it are not commands.
        message = {"role": "user", "content": prompt}
        self._send({"type": "user", "message": message, "parent_tool_use_id": None, "client_composed": True})
        while self._reader.done is None:
            self._handle_message(await self._next_message())

    def _send(self, message: Mapping[str, Any]) -> None:
        self._program.send(json.dumps(message).encode())

    async def _next_message(self) -> dict[str, Any]:
        if line := await self._program.read_line():
            return parse_stream_line(line)
        error_output = (await self._program.wait_for_stderr()).strip()[-MAX_STDERR_CHARS:]
        raise ClaudeCrashed("claude ended during its turn" + (f": {error_output}" if error_output else ""))

    def _handle_message(self, message: dict[str, Any]) -> None:
        match message:
            case {"type": "control_request", "request_id": str(id), "request": dict(request)}:
                self._answers.start(self._answer_request(id, request), id)
            case {"type": "control_cancel_request", "request_id": str(id)}:
                self._answers.cancel(id)
            case {"type": "control_response", "response": {"subtype": "error", "request_id": "begin"}}:
                raise ClaudeCrashed(f"claude rejected its settings: {message['response'].get('error')}")
            case {"type": "control_response", "response": {"request_id": "begin", **answer}}:
                self._has_hook = self._has_hook or self._check_hook_support(answer.get("response"))
            case _:
                for chunk in self._reader.read_message(message):
                    if not self._tools.is_recorded(chunk):
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
                error = f"unknown request: {request.get('subtype')}"
                self._respond({"subtype": "error", "request_id": id, "error": error})
                return
        self._respond({"subtype": "success", "request_id": id, "response": answer})

    def _respond(self, response: Mapping[str, Any]) -> None:
        self._send({"type": "control_response", "response": response})

    async def _pre_tool_use(
        self, tool: str, tool_input: dict[str, Any], call: dict[str, Any]
    ) -> dict[str, Any]:
        """Return the verdict known before the call; for all others the program sends a permission request."""
        if self._tools.owns_tool(tool) or tool == ANSWER_TOOL:
            return {}
        cwd = self._cwd_by_call[str(call.get("tool_use_id"))] = str(call.get("cwd") or "")
        permission = PermissionRequest(tool, tool_input, cwd=cwd, names=OTHER_NAMES.get(tool, ()))
        verdict = self._options.find_rule(permission).verdict
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
        stated_reason = (
            "" if request.get("decision_reason_type") == "hook" else request.get("decision_reason")
        )
        permission = PermissionRequest(
            tool,
            tool_input,
            str(stated_reason or request.get("description") or ""),
            self._cwd_by_call.get(str(request.get("tool_use_id")), ""),
            OTHER_NAMES.get(tool, ()),
            is_editable=True,
        )
        decision = await self._options.decide(permission)
        if decision.allow:
            edited = decision.edited_input
            return {"behavior": "allow", "updatedInput": tool_input if edited is None else dict(edited)}
        return {"behavior": "deny", "message": decision.message or "the permissions do not allow this call"}

    async def _interrupt(self) -> None:
        self._send({"type": "control_request", "request_id": "stop", "request": {"subtype": "interrupt"}})
        try:
            async with asyncio.timeout(INTERRUPT_TIMEOUT_S):
                while (line := await self._program.read_line()) and (
                    parse_stream_line(line).get("type") != "result"
                ):
                    pass
        except (TimeoutError, OSError):
            pass  # the process tree is killed in any case


def parse_stream_line(line: bytes) -> dict[str, Any]:
    """Return the JSON object of a line; empty for a line that is not part of the protocol."""
    try:
        value = json.loads(line)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}
