"""JSON-RPC with a program, one message per line, without the version field."""

from __future__ import annotations

import itertools
import json
import re
from collections import deque
from typing import Any

from nerve.agents.provider import AgentEnded
from nerve.errors import NerveError
from nerve.process.line_process import LineProcess

RpcMessage = dict[str, Any]
ANSI_COLOR = re.compile(r"\x1b\[[0-9;]*m")


class CodexEnded(AgentEnded):
    """Codex ended, or sent an invalid message, before the turn was over."""


class RpcError(NerveError):
    """Codex responded to a request with an error."""


class JsonRpcPeer:
    """The remote side. Only one task reads, so messages that arrive before a response are queued."""

    def __init__(self, lines: LineProcess) -> None:
        self._lines = lines
        self._request_ids = itertools.count(1)
        self._pending_messages: deque[RpcMessage] = deque()

    async def request(self, method: str, params: RpcMessage) -> RpcMessage:
        request_id = next(self._request_ids)
        self._send({"id": request_id, "method": method, "params": params})
        while True:
            message = await self._read_message()
            if message.get("id") != request_id or "method" in message:
                self._pending_messages.append(message)
            elif "error" in message:
                raise RpcError(str(message["error"].get("message") or message["error"]))
            else:
                return dict(message.get("result") or {})

    async def next_message(self) -> RpcMessage:
        """Return the next notification or request of the remote side."""
        while True:
            message = (
                self._pending_messages.popleft() if self._pending_messages else await self._read_message()
            )
            if "method" in message:
                return message

    def notify(self, method: str) -> None:
        self._send({"method": method})

    def request_without_reply(self, method: str, params: RpcMessage) -> None:
        """Send a request and ignore its response."""
        self._send({"id": next(self._request_ids), "method": method, "params": params})

    def respond(self, request_id: Any, result: RpcMessage) -> None:
        self._send({"id": request_id, "result": result})

    def reject(self, request_id: Any, code: int, message: str) -> None:
        self._send({"id": request_id, "error": {"code": code, "message": message}})

    def _send(self, message: RpcMessage) -> None:
        # ASCII only, so that no character of the prompt is read as a line break.
        self._lines.send(json.dumps(message).encode())

    async def _read_message(self) -> RpcMessage:
        line = await self._lines.read_line()
        if not line.endswith(b"\n"):  # end of the stream, or a truncated message
            error_output = ANSI_COLOR.sub("", await self._lines.wait_for_stderr()).strip()[-500:]
            raise CodexEnded(
                f"codex ended before the turn was over{': ' if error_output else ''}{error_output}"
            )
        try:
            message = json.loads(line)
        except ValueError as error:
            raise CodexEnded(f"codex sent invalid JSON: {line[:200]!r}") from error
        if not isinstance(message, dict):
            raise CodexEnded(f"codex sent an invalid message: {line[:200]!r}")
        return message
