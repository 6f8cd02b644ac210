"""Our end of the protocol: what an agent tells and asks, and the lines it comes in."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from nerve.agents.acp.hearing import Hearing
from nerve.agents.port import Decision, Options
from nerve.agents.stream import Tell
from nerve.process.talk import Talk


class Client:
    """What the agent can call of us: it tells, and asks for permission; files and terminals are its own."""

    def __init__(self, acp: Any, tell: Tell, options: Options) -> None:
        self._acp, self._tell, self._options = acp, tell, options
        self._questions: set[asyncio.Task[Decision]] = set()
        self.hearing = Hearing()
        self.listening = False  # before the prompt, a session that is loaded tells what was
        self.trouble: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def session_update(self, session_id: str, update: Any, **_: Any) -> None:
        if self.listening:
            for chunk in self.hearing.update(plain(update)):
                self._tell(chunk)

    async def request_permission(self, session_id: str, tool_call: Any, options: Any, **_: Any) -> Any:
        chunks, permission, names = self.hearing.asked(plain(tool_call))
        for chunk in chunks:
            self._tell(chunk)
        if names & set(self._options.tools or ()):
            return self._outcome(True, options)
        question = asyncio.ensure_future(self._options.ask(permission))
        self._questions.add(question)
        await asyncio.wait({question})
        self._questions.discard(question)
        if question.cancelled():
            return self._outcome(False, [])
        if error := question.exception():
            if not self.trouble.done():
                self.trouble.set_exception(error)
            return self._outcome(False, [])
        return self._outcome(question.result().allow, options)

    def _outcome(self, allow: bool, options: Any) -> Any:
        """The option for this once: `always` would allow more than was decided."""
        wanted = ("allow_once",) if allow else ("reject_once", "reject_always")
        for kind in wanted:
            for option in options:
                if option.kind == kind:
                    chosen = {"outcome": "selected", "optionId": option.option_id}
                    return self._acp.RequestPermissionResponse.model_validate({"outcome": chosen})
        return self._acp.RequestPermissionResponse.model_validate({"outcome": {"outcome": "cancelled"}})

    def finish(self) -> None:
        for chunk in self.hearing.over():
            self._tell(chunk)

    async def hush(self) -> None:
        """Take back all questions that are still open."""
        for question in self._questions:
            question.cancel()
        if self._questions:
            await asyncio.wait(set(self._questions))


class Lines:
    """The protocol's messages as lines of a program."""

    def __init__(self, program: Talk) -> None:
        self._program = program

    async def send(self, message: dict[str, Any]) -> None:
        self._program.send(json.dumps(message, separators=(",", ":")).encode())

    async def receive(self) -> dict[str, Any] | None:
        while line := await self._program.line():
            try:
                message = json.loads(line)
            except ValueError:
                continue  # a program that prints a banner, or a warning, on its output
            if isinstance(message, dict):
                return message
        return None

    async def close(self) -> None:
        """The program is ended by whoever started it."""


def plain(model: Any) -> dict[str, Any]:
    """A message as JSON has it."""
    dumped: dict[str, Any] = model.model_dump(mode="json", by_alias=True, exclude_none=True)
    return dumped
