"""Our end of the protocol: what an agent tells and asks, and the lines it comes in."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from nerve.agents.acp.hearing import Call, Hearing, permission
from nerve.agents.permissions import Action, gist
from nerve.agents.port import Decision, Options
from nerve.agents.stream import Tell
from nerve.errors import NerveError
from nerve.process.talk import Talk


class Unasked(NerveError):
    """The agent did what the permissions do not let it do by itself."""


class Client:
    """What the agent can call of us: it tells, and asks for permission; files and terminals are its own."""

    def __init__(self, acp: Any, tell: Tell, options: Options, cwd: str) -> None:
        self._acp, self._tell, self._options, self._cwd = acp, tell, options, cwd
        self._questions: set[asyncio.Task[Decision]] = set()
        self._decided: set[str] = set()
        """Calls that the agent has asked about."""
        self.hearing = Hearing()
        self.listening = False  # before the prompt, a session that is loaded tells what was
        self.trouble: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def session_update(self, session_id: str, update: Any, **_: Any) -> None:
        if self.listening:
            for chunk in self.hearing.update(told := plain(update)):
                self._tell(chunk)
            if told.get("status") == "completed" and (
                call := self.hearing.calls.get(told.get("toolCallId", ""))
            ):
                self._look_at(call)

    def _look_at(self, call: Call) -> None:
        """The protocol does not make an agent ask: one that did what it may not is stopped, and said so."""
        wanted = permission(call, self._cwd)
        if call.id in self._decided or self.trouble.done():
            return
        if (verdict := self._options.settled(wanted)) in ("ask", "deny"):
            said = self._options.permissions.said(*wanted.uses())[1]
            rule = f"{verdict}: {said}" if said else f"otherwise: {verdict}"
            self.trouble.set_exception(
                Unasked(f"the agent used {gist(Action(wanted.tool, wanted.input))} without asking ({rule})")
            )

    async def request_permission(self, session_id: str, tool_call: Any, options: Any, **_: Any) -> Any:
        chunks, wanted = self.hearing.asked(plain(tool_call), self._cwd)
        for chunk in chunks:
            self._tell(chunk)
        self._decided.add(tool_call.tool_call_id)
        question = asyncio.ensure_future(self._options.decide(wanted))
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
