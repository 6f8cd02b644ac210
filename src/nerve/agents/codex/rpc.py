"""JSON-RPC with a program, one message a line, in the dialect that leaves the version out."""

from __future__ import annotations

import itertools
import json
import re
from collections import deque
from typing import Any, Protocol

from nerve.errors import NerveError

Message = dict[str, Any]
ANSI = re.compile(r"\x1b\[[0-9;]*m")


class CodexEnded(NerveError):
    """Codex ended, or said what nobody understands, before the turn was over."""


class Refused(NerveError):
    """Codex answered a request with an error."""


class Lines(Protocol):
    """What a message is sent and heard through."""

    def send(self, line: bytes) -> None: ...
    async def line(self) -> bytes: ...
    async def ended(self) -> str: ...


class Peer:
    """The other side. Only one task reads, so what comes before an answer is kept for later."""

    def __init__(self, lines: Lines) -> None:
        self._lines = lines
        self._numbers = itertools.count(1)
        self._kept: deque[Message] = deque()

    async def request(self, method: str, params: Message) -> Message:
        number = next(self._numbers)
        self._send({"id": number, "method": method, "params": params})
        while True:
            message = await self._read()
            if message.get("id") != number or "method" in message:
                self._kept.append(message)
            elif "error" in message:
                raise Refused(str(message["error"].get("message") or message["error"]))
            else:
                return dict(message.get("result") or {})

    async def message(self) -> Message:
        """The next notification or request of the other side."""
        while True:
            message = self._kept.popleft() if self._kept else await self._read()
            if "method" in message:
                return message

    def notify(self, method: str) -> None:
        self._send({"method": method})

    def ask_only(self, method: str, params: Message) -> None:
        """A request whose answer is of no interest."""
        self._send({"id": next(self._numbers), "method": method, "params": params})

    def answer(self, number: Any, result: Message) -> None:
        self._send({"id": number, "result": result})

    def refuse(self, number: Any, method: str) -> None:
        self._send({"id": number, "error": {"code": -32601, "message": f"{method} is not known here"}})

    def _send(self, message: Message) -> None:
        # ASCII only: a line ends nowhere but at its end, whatever the prompt holds.
        self._lines.send(json.dumps(message).encode())

    async def _read(self) -> Message:
        line = await self._lines.line()
        if not line.endswith(b"\n"):  # nothing more, or a message that was cut off
            said = ANSI.sub("", await self._lines.ended()).strip()[-500:]
            raise CodexEnded(f"codex ended before the turn was over{': ' if said else ''}{said}")
        try:
            message = json.loads(line)
        except ValueError as error:
            raise CodexEnded(f"codex said what is no JSON: {line[:200]!r}") from error
        if not isinstance(message, dict):
            raise CodexEnded(f"codex said what is no message: {line[:200]!r}")
        return message
