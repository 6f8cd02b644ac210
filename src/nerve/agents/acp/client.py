"""The client side of ACP: the calls an agent can make, and the transport of messages as lines."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from nerve.agents.acp.updates import ToolCallState, UpdateReader, permission_request
from nerve.agents.chunk_stream import AnswerTasks, EmitChunk
from nerve.agents.mcp_tools import MCP_TOOL_PREFIX
from nerve.agents.permissions import summarize_use
from nerve.agents.provider import PermissionRequest, QueryOptions
from nerve.errors import NerveError
from nerve.process.line_process import LineProcess


class Unasked(NerveError):
    """The agent did something that the permissions do not allow without asking."""


class AcpClient:
    """Methods that the agent calls: updates and permission requests; it uses its own files and terminals."""

    def __init__(
        self, acp: Any, emit: EmitChunk, options: QueryOptions, cwd: str, answers: AnswerTasks
    ) -> None:
        self._acp, self._emit, self._options, self._cwd = acp, emit, options, cwd
        self._asked_call_ids: set[str] = set()
        """Ids of calls for which the agent has requested permission."""
        self.update_reader = UpdateReader()
        self.is_listening = False  # a loaded session replays its history before the prompt
        self.answers = answers

    async def session_update(self, session_id: str, update: Any, **_: Any) -> None:
        if self.is_listening:
            for chunk in self.update_reader.read_update(message := model_to_json(update)):
                self._emit(chunk)
            if message.get("status") == "completed" and (
                call := self.update_reader.calls.get(message.get("toolCallId", ""))
            ):
                self._check_permission(call)

    def _check_permission(self, call: ToolCallState) -> None:
        """Stop an agent that did something without permission: the protocol does not force it to ask."""
        request = permission_request(call, self._cwd)
        if call.id in self._asked_call_ids or is_own_tool(request):
            return
        rule = self._options.find_rule(request)
        if rule.verdict in ("ask", "deny"):
            self.answers.fail(
                Unasked(
                    f"Agent used {summarize_use(request.tool_uses()[0])} without "
                    f"asking for permission ({rule})"
                )
            )

    async def request_permission(self, session_id: str, tool_call: Any, options: Any, **_: Any) -> Any:
        chunks, request = self.update_reader.read_permission_request(model_to_json(tool_call), self._cwd)
        for chunk in chunks:
            self._emit(chunk)
        self._asked_call_ids.add(tool_call.tool_call_id)
        if is_own_tool(request):  # decided where it is executed
            return self._permission_response(True, options)
        question = self.answers.start(self._options.decide(request))
        await asyncio.wait({question})
        if question.cancelled() or question.exception() is not None:
            return self._permission_response(False, [])
        return self._permission_response(question.result().allow, options)

    def _permission_response(self, allow: bool, options: Any) -> Any:
        """Select the option for one call: `always` would allow more than was decided."""
        option_kinds = ("allow_once",) if allow else ("reject_once", "reject_always")
        for kind in option_kinds:
            for option in options:
                if option.kind == kind:
                    chosen = {"outcome": "selected", "optionId": option.option_id}
                    return self._acp.RequestPermissionResponse.model_validate({"outcome": chosen})
        return self._acp.RequestPermissionResponse.model_validate({"outcome": {"outcome": "cancelled"}})

    def flush_chunks(self) -> None:
        for chunk in self.update_reader.finish():
            self._emit(chunk)


def is_own_tool(request: PermissionRequest) -> bool:
    """Whether the agent asks about a tool of Nerve."""
    return any(use.tool.startswith(MCP_TOOL_PREFIX) for use in request.tool_uses())


class JsonLines:
    """The protocol's messages as lines of a process."""

    def __init__(self, program: LineProcess) -> None:
        self._program = program

    async def send(self, message: dict[str, Any]) -> None:
        self._program.send(json.dumps(message, separators=(",", ":")).encode())

    async def receive(self) -> dict[str, Any] | None:
        while line := await self._program.read_line():
            try:
                message = json.loads(line)
            except ValueError:
                continue  # not JSON: the program prints a banner or a warning on stdout
            if isinstance(message, dict):
                return message
        return None

    async def close(self) -> None:
        """Do nothing: the caller that started the program ends it."""


def model_to_json(model: Any) -> dict[str, Any]:
    """Convert a message to plain JSON data."""
    dumped: dict[str, Any] = model.model_dump(mode="json", by_alias=True, exclude_none=True)
    return dumped
