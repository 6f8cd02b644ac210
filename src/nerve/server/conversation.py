"""Conversations: a text comes in, a run or an answer comes of it, and runs are read as messages."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from datetime import UTC, datetime
from hashlib import sha256
from typing import Any, NamedTuple

from nerve.api import Api, ApiError, Operation, models
from nerve.api.once import done_once
from nerve.api.reading import read
from nerve.core.workflow import GateInfo
from nerve.engine.local import UNREADABLE
from nerve.engine.recovery import OPEN
from nerve.notations.discovery import FOLDERS, discover
from nerve.router import Offered, answer_command, offers_in, offers_of
from nerve.router.commands import HELP
from nerve.router.messages import Messages, Mode
from nerve.store.port import RunRow

ANSWER = "/answer [GATE] TEXT"


class Message(NamedTuple):
    """What was said, by whom, when, and because of which run."""

    at: float
    role: str
    text: str
    run: str | None = None

    def to_dict(self) -> dict[str, Any]:
        at = datetime.fromtimestamp(self.at, UTC).isoformat()
        return {"role": self.role, "text": self.text, "at": at, "run_id": self.run}


class Heard(models.Command):
    """What a user writes."""

    conversation: models.Name
    text: models.Text


class Answered(models.Told):
    """What is said in a conversation."""

    messages: list[dict[str, Any]]


MESSAGE = Operation("message", Heard, Answered, "run", "POST", "/test/message", "Hear what a user writes.")


async def heard(api: Api, conversation: str, text: str, key: str | None) -> Answered:
    """Take in what a user writes, once if there is a key, and say what is answered at once."""
    asked = read(MESSAGE, {"text": text, "conversation": conversation, "key": key})
    own = None if key is None else sha256(f"message {key}".encode()).hexdigest()

    async def hear(*_: Any) -> Answered:
        return Answered(messages=[each.to_dict() for each in await message(api, conversation, text, own)])

    told = await done_once(api.session, MESSAGE, asked, hear)
    assert isinstance(told, Answered)
    return told


async def message(api: Api, conversation: str, text: str, key: str | None = None) -> list[Message]:
    """Take in what a user writes; gives that, and what is answered at once."""
    read(MESSAGE, {"text": text, "conversation": conversation})
    seen = len(said(api, conversation))
    if (reply := await command(api, conversation, text, key)) is not None:
        for role, each in (("user", text), ("assistant", reply)):
            await asyncio.to_thread(api.session.engine.store.add_message, conversation, role, each)
        return said(api, conversation)[seen:]
    try:
        await api.route(text=text, conversation=conversation, start=True, key=key)
    except ApiError:
        # The conversation says why a run could not be started.
        if len(said(api, conversation)) == seen:
            raise
    return said(api, conversation)[seen:]


async def command(api: Api, conversation: str, text: str, key: str | None = None) -> str | None:
    """What is said to a command about workflows and runs; None for any other text."""
    words = text.split()
    if words[:1] == ["/help"]:
        return f"{HELP}\n\nRuns:\n  {ANSWER} - Answer what a run of this conversation waits for"
    if words[:1] == ["/answer"]:
        return await answered(api, conversation, text.split(maxsplit=1)[1:], key)
    if words[:1] != ["/workflow"]:
        return None
    if words[1:] in (["list"], ["ls"], ["reload"]) and (trouble := missing(api)):
        return trouble
    offered: list[Offered] = offers_of(api.session)
    if words[1:] == ["reload"]:
        await api.reload()
        offered = offers_in(await asyncio.to_thread(discover, api.session.project), api.session.config)
    answer = answer_command(text, lambda: offered)
    return answer.text if answer is not None else None


async def answered(api: Api, conversation: str, given: list[str], key: str | None = None) -> str:
    """Answer a gate of the runs of a conversation, and say what came of it."""
    gates = open_gates(api, conversation)
    name, _, rest = given[0].strip().partition(" ") if given else ("", "", "")
    named = [gate for gate in gates if rest.strip() and name in (gate.gate_id, gate.node_id, gate.path)]
    meant = named or gates
    if not gates:
        return "No run of this conversation waits for an answer."
    if not name or len(meant) > 1:
        waiting = "\n".join(
            f"  {gate.gate_id} ({gate.node_id or gate.path}): {gate.prompt}" for gate in meant
        )
        return f"Usage: {ANSWER}\n\nOpen gates:\n{waiting}"
    text = rest.strip() if named else given[0].strip()
    try:
        await api.answer(gate=meant[0].gate_id, answer=text, key=key)
    except ApiError as error:
        return f"{error.message}. {error.fix}".rstrip()
    return f"Answered: {text}"


def open_gates(api: Api, conversation: str) -> list[GateInfo]:
    engine = api.session.engine
    rows = engine.store.runs(session=api.session.name, conversation=conversation, states=OPEN)
    runs = [engine.handle(row) for row in rows if engine.has_workflow(row)]
    return list({gate.gate_id: gate for run in runs for gate in run.pending_gates}.values())


def missing(api: Api) -> str:
    """What there must be before workflows can be told of."""
    project = api.session.project
    if not project.is_dir():
        return "Codebase not found."
    if not api.session.list_workflows() and not any((project / folder).is_dir() for folder in FOLDERS):
        return "No codebase configured. Use `nerve init` first."
    return ""


def messages(api: Api, conversation: str, mode: Mode = "batch") -> list[Message]:
    """Everything that was said, what its runs have said included, in the order of time.

    What runs say is read from their journals, so that none of it is lost when a server stops.
    """
    engine = api.session.engine
    rows = engine.store.runs(session=api.session.name, conversation=conversation)
    known = [row for row in rows if engine.has_workflow(row)]
    ids = {row.run for row in known}
    kept = [each for each in said(api, conversation) if each.run not in ids]
    told = [each for row in known for each in run_said(api, row, mode)]
    return sorted([*kept, *told], key=lambda each: each.at)


def said(api: Api, conversation: str) -> list[Message]:
    rows = api.session.engine.store.messages(conversation)
    return [Message(row.at, row.role, row.text, row.run) for row in rows]


def run_said(api: Api, row: RunRow, mode: Mode) -> Iterator[Message]:
    """The messages of a run, its start included."""
    run = api.session.engine.handle(row)
    if run.held is not None and run.held["reason"] == UNREADABLE:
        yield Message(row.started, "assistant", run.held["message"], row.run)
        return
    making = Messages(run.workflow, mode)
    for event in run.events:
        for text in making.of(event):
            yield Message(event.timestamp.timestamp(), "assistant", text, row.run)
