"""One turn with Claude Code: lines of JSON both ways, with its questions answered on the way."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Mapping
from typing import Any

from nerve.agents.claude.host_tools import HostTools
from nerve.agents.claude.lines import ANSWER_TOOL, Lines
from nerve.agents.port import Options, Permission, Unavailable
from nerve.agents.stream import Tell
from nerve.errors import NerveError
from nerve.process.talk import Talk

INTERRUPT = 1.0
"""Seconds that the program has to stop by itself, before it is made to."""
SHOWN = 2_000
"""Characters of the error stream that a crash shows."""

GUARD = {"matcher": None, "hookCallbackIds": ["nerve"], "onFailure": "block"}
"""A hook of ours before every call of a tool, its own agents' too; if it fails, nothing is called."""
UNGUARDED = "this Claude Code cannot keep to the permissions ({}): it has no hooks that block. Update it."


class ClaudeCrashed(NerveError):
    """Claude Code ended without saying how its turn ended; shows the last it said on the error stream."""


class Turn:
    """What is said and heard in one turn."""

    def __init__(self, program: Talk, lines: Lines, options: Options, tools: HostTools, tell: Tell) -> None:
        self._program, self._lines, self._options, self._tools = program, lines, options, tools
        self._tell = tell
        self._guarded = not options.permissions.restricts
        self._folders: dict[str, str] = {}
        """Where each call is to be made."""
        self._reading: asyncio.Task[bytes] | None = None
        self._questions: dict[str, asyncio.Task[None]] = {}

    async def run(self, prompt: str, settings: Mapping[str, Any]) -> None:
        self._send({"type": "control_request", "request_id": "begin", "request": settings})
        # `client_composed`: the text is meant as it is, and `/word` or `@file` in it are no commands.
        message = {"role": "user", "content": prompt}
        asked = {"type": "user", "message": message, "parent_tool_use_id": None, "client_composed": True}
        try:
            while not self._guarded:
                self._heed(await self._line())
            self._send(asked)
            while self._lines.done is None:
                self._heed(await self._line())
        finally:
            await self._stop()

    def _send(self, message: Mapping[str, Any]) -> None:
        self._program.send(json.dumps(message).encode())

    async def _line(self) -> dict[str, Any]:
        """The next line, while questions are being answered; an answer that fails is our failure."""
        while (line := await self._read()) is None:
            self._collect()
        if not line:
            raise await self._crashed()
        return parsed(line)

    async def _read(self) -> bytes | None:
        """A line, empty at the end; None when a question is answered before there is one."""
        if self._reading is None:
            self._reading = asyncio.create_task(self._program.line())
        await asyncio.wait({self._reading, *self._questions.values()}, return_when=asyncio.FIRST_COMPLETED)
        if not self._reading.done():
            return None
        line, self._reading = self._reading.result(), None
        return line

    def _collect(self) -> None:
        for id, question in list(self._questions.items()):
            if question.done():
                del self._questions[id]
                if not question.cancelled():
                    question.result()

    async def _crashed(self) -> ClaudeCrashed:
        said = (await self._program.ended()).strip()[-SHOWN:]
        return ClaudeCrashed(f"claude ended in the middle of its turn: {said or 'it said nothing'}")

    def _heed(self, line: dict[str, Any]) -> None:
        match line:
            case {"type": "control_request", "request_id": str(id), "request": dict(request)}:
                self._questions[id] = asyncio.create_task(self._answer(id, request))
            case {"type": "control_cancel_request", "request_id": str(id)} if id in self._questions:
                self._questions[id].cancel()
            case {"type": "control_response", "response": {"subtype": "error", "request_id": "begin"}}:
                raise ClaudeCrashed(f"claude does not take its settings: {line['response'].get('error')}")
            case {"type": "control_response", "response": {"request_id": "begin", **answer}}:
                self._guarded = self._guarded or self._is_guarded(answer.get("response"))
            case _:
                for chunk in self._lines.take(line):
                    self._tell(chunk)

    def _is_guarded(self, can: Any) -> bool:
        match can:
            case {"hook_on_failure_supported": True} if can.get("hooks_applied") is not False:
                return True
        raise Unavailable(UNGUARDED.format(self._options.permissions.restricts[0]))

    async def _answer(self, id: str, request: dict[str, Any]) -> None:
        match request:
            case {"subtype": "can_use_tool", "tool_name": str(tool), "input": dict(given)}:
                answer = await self._permission(tool, given, request)
            case {"subtype": "hook_callback", "input": {"tool_name": str(tool), "tool_input": dict(given)}}:
                answer = await self._before(tool, given, request["input"])
            case {"subtype": "mcp_message", "message": dict(message)}:
                answer = {"mcp_response": await self._tools.answer(message)}
            case _:
                error = f"not known here: {request.get('subtype')}"
                self._respond({"subtype": "error", "request_id": id, "error": error})
                return
        self._respond({"subtype": "success", "request_id": id, "response": answer})

    def _respond(self, response: Mapping[str, Any]) -> None:
        self._send({"type": "control_response", "response": response})

    async def _before(self, tool: str, given: dict[str, Any], call: dict[str, Any]) -> dict[str, Any]:
        """What is certain of a call before it is made; whatever is to be asked, the program asks then."""
        if self._tools.is_ours(tool) or tool == ANSWER_TOOL:
            return {}
        cwd = self._folders[str(call.get("tool_use_id"))] = str(call.get("cwd") or "")
        wanted = Permission(tool, given, cwd=cwd)
        verdict = self._options.settled(wanted)
        if verdict not in ("ask", "deny"):
            return {}
        told = {"hookEventName": "PreToolUse", "permissionDecision": verdict}
        if verdict == "deny":
            told["permissionDecisionReason"] = (await self._options.ask(wanted)).message
        return {"hookSpecificOutput": told}

    async def _permission(self, tool: str, given: dict[str, Any], request: dict[str, Any]) -> dict[str, Any]:
        if self._tools.is_ours(tool):
            return {"behavior": "allow", "updatedInput": given}
        wanted = Permission(
            tool, given, reason(request), self._folders.get(str(request.get("tool_use_id")), "")
        )
        decision = await self._options.decide(wanted)
        if decision.allow:
            return {"behavior": "allow", "updatedInput": given}
        return {"behavior": "deny", "message": decision.message or "this is not allowed"}

    async def _stop(self) -> None:
        """Let the program stop by itself, so that its conversation is in order when it is gone on with."""
        await ended(self._questions.values())
        self._questions.clear()
        try:
            if self._lines.done is None:
                await self._interrupt()
        finally:
            await ended([self._reading] if self._reading else [])

    async def _interrupt(self) -> None:
        self._send({"type": "control_request", "request_id": "stop", "request": {"subtype": "interrupt"}})
        try:
            async with asyncio.timeout(INTERRUPT):
                while (line := await self._read()) and parsed(line).get("type") != "result":
                    pass
        except (TimeoutError, OSError):
            pass  # the end of its process tree follows in any case


def reason(request: Mapping[str, Any]) -> str:
    """Why the program asks, unless it is because we made it."""
    told = "" if request.get("decision_reason_type") == "hook" else request.get("decision_reason")
    return str(told or request.get("description") or "")


async def ended(tasks: Iterable[asyncio.Task[Any]]) -> None:
    """Cancel the tasks and wait for their ends."""
    for task in (tasks := list(tasks)):
        task.cancel()
    if tasks:
        await asyncio.wait(tasks)


def parsed(line: bytes) -> dict[str, Any]:
    """A line that is no JSON object is none of the protocol, and says nothing."""
    try:
        value = json.loads(line)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}
