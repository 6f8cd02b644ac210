"""Conversations: a message starts a run or answers a gate, and runs are read as messages."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from hashlib import sha256
from typing import TYPE_CHECKING, Any, NamedTuple

from nerve.api import OPERATIONS, Api, ApiError, Operation, models
from nerve.api.idempotency import execute_once
from nerve.api.permissions import require_scope
from nerve.api.request_parsing import parse_request
from nerve.core.workflow import GateInfo
from nerve.core.workflow.state import OPEN_STATE_VALUES
from nerve.engine.local_engine import UNREADABLE_REASON
from nerve.notations.workflow_files import discover
from nerve.project.paths import PROJECT_FOLDER_NAMES
from nerve.router import Candidate, answer_command, candidates_of, offers_in
from nerve.router.chat_commands import HELP_TEXT
from nerve.router.run_messages import MessageMode, RunMessages
from nerve.store.port import RunRow

if TYPE_CHECKING:
    from nerve.api.shared_session import SharedSession
    from nerve.session import Session

ANSWER_USAGE = "/answer [GATE] TEXT"
NOT_SHOWN = "The question was not shown here in full, so it cannot be answered here. Answer it in the page."


class ConversationMessage(NamedTuple):
    """A message with its author, time and run."""

    at: float
    role: str
    text: str
    run: str | None = None

    def to_dict(self) -> dict[str, Any]:
        at = datetime.fromtimestamp(self.at, UTC).isoformat()
        return {"role": self.role, "text": self.text, "at": at, "run_id": self.run}


class SendMessageRequest(models.CommandRequest):
    """A message of the user."""

    conversation: models.Name
    text: models.Text


class SendMessageResponse(models.ApiResponse):
    """The new messages of the conversation."""

    messages: list[dict[str, Any]]


MESSAGE_OPERATION = Operation(
    "message",
    SendMessageRequest,
    SendMessageResponse,
    "run",
    "POST",
    "/test/message",
    "Process a message of the user.",
)


async def handle_message(api: Api, conversation: str, text: str, key: str | None) -> SendMessageResponse:
    """Process a message, once per key, and return it with the immediate replies."""
    request = parse_request(MESSAGE_OPERATION, {"text": text, "conversation": conversation, "key": key})
    request.set_caller(api.caller)
    if api.shared is not None and not api.shared.is_owner:
        response = await api.shared.perform(MESSAGE_OPERATION, request)
    else:
        response = await execute_message_once(api, request)
    assert isinstance(response, SendMessageResponse)
    return response


async def execute_message(session: Session | SharedSession, request: Any) -> models.ApiResponse:
    """Process a message that another process has sent."""
    return await execute_message_once(Api(session, request.caller), request)


async def execute_message_once(api: Api, request: Any) -> models.ApiResponse:
    key = request.key
    derived_key = None if key is None else sha256(f"message {key}".encode()).hexdigest()

    async def respond(*_: Any) -> SendMessageResponse:
        messages = await receive_message(api, request.conversation, request.text, derived_key)
        return SendMessageResponse(messages=[entry.to_dict() for entry in messages])

    return await execute_once(api.session, MESSAGE_OPERATION, request, respond)


async def receive_message(
    api: Api, conversation: str, text: str, key: str | None = None
) -> list[ConversationMessage]:
    """Process a message, and return it with the immediate replies."""
    parse_request(MESSAGE_OPERATION, {"text": text, "conversation": conversation})
    previous_count = len(stored_messages(api, conversation))
    if (reply := await run_chat_command(api, conversation, text, key)) is not None:
        for role, content in (("user", text), ("assistant", reply)):
            await asyncio.to_thread(api.session.engine.store.add_message, conversation, role, content)
        return stored_messages(api, conversation)[previous_count:]
    try:
        await api.route(text=text, conversation=conversation, start=True, key=key)
    except ApiError:
        # The conversation already contains the reason why the run was not started.
        if len(stored_messages(api, conversation)) == previous_count:
            raise
    return stored_messages(api, conversation)[previous_count:]


async def run_chat_command(api: Api, conversation: str, text: str, key: str | None = None) -> str | None:
    """Run a chat command about workflows and runs, and return its reply; None for any other text."""
    words = text.split()
    if words[:1] == ["/help"]:
        return f"{HELP_TEXT}\n\nRuns:\n  {ANSWER_USAGE} - Answer what a run of this conversation waits for"
    if words[:1] == ["/answer"]:
        return await answer_conversation_gate(api, conversation, text.split(maxsplit=1)[1:], key)
    if words[:1] != ["/workflow"]:
        return None
    if words[1:] in (["list"], ["ls"], ["reload"]) and (trouble := missing_project_message(api)):
        return trouble
    offered: list[Candidate] = candidates_of(api.session)
    if words[1:] == ["reload"]:
        await api.reload()
        offered = offers_in(await asyncio.to_thread(discover, api.session.project), api.session.config)
    answer = answer_command(text, lambda: offered)
    return answer.text if answer is not None else None


async def answer_conversation_gate(
    api: Api,
    conversation: str,
    arguments: list[str],
    key: str | None = None,
    shown: Mapping[str, str] | None = None,
) -> str:
    """Answer a gate of the runs of a conversation, and return the reply.

    `shown` has the hashes of what the conversation has shown of gates; only those can be answered.
    """
    require_scope(api.caller, OPERATIONS["answer"].scope)
    open_gates = conversation_gates(api, conversation)
    gates = [gate for gate in open_gates if shown is None or gate.gate_id in shown]
    if open_gates and not gates:
        return NOT_SHOWN
    name, _, rest = arguments[0].strip().partition(" ") if arguments else ("", "", "")
    named_gates = [gate for gate in gates if rest.strip() and name in (gate.gate_id, gate.node_id, gate.path)]
    candidates = named_gates or gates
    if not gates:
        return "No run of this conversation is waiting for an answer."
    if not name or len(candidates) > 1:
        waiting = "\n".join(
            f"  {gate.gate_id} ({gate.node_id or gate.path}): {gate.prompt}" for gate in candidates
        )
        return f"Usage: {ANSWER_USAGE}\n\nOpen gates:\n{waiting}"
    text = rest.strip() if named_gates else arguments[0].strip()
    try:
        hash = None if shown is None else shown[candidates[0].gate_id]
        await api.answer(gate=candidates[0].gate_id, answer=text, key=key, hash=hash)
    except ApiError as error:
        return error.sentences
    return f"Answered: {text}{describe_open_vote(api, conversation, candidates[0].gate_id)}"


def describe_open_vote(api: Api, conversation: str, gate_id: str) -> str:
    """Return what a gate still needs after an answer; "" if it is decided."""
    gates = conversation_gates(api, conversation)
    gate = next((gate for gate in gates if gate.gate_id == gate_id), None)
    if gate is None or gate.policy is None or gate.tally is None:
        return ""
    from nerve.core.gate_policy import describe_missing  # few gates have a policy

    return f". The gate still needs {describe_missing(gate.policy, gate.tally)}."


def conversation_gates(api: Api, conversation: str) -> list[GateInfo]:
    engine = api.session.engine
    rows = engine.store.runs(session=api.session.name, conversation=conversation, states=OPEN_STATE_VALUES)
    runs = [engine.run_handle(row) for row in rows if engine.has_workflow(row)]
    return list({gate.gate_id: gate for run in runs for gate in run.pending_gates}.values())


def missing_project_message(api: Api) -> str:
    """Return what is missing before workflows can be listed."""
    project = api.session.project
    if not project.is_dir():
        return "Codebase not found."
    if not api.session.list_workflows() and not any(
        (project / folder).is_dir() for folder in PROJECT_FOLDER_NAMES
    ):
        return "No codebase configured. Use `nerve init` first."
    return ""


def conversation_messages(
    api: Api, conversation: str, mode: MessageMode = "batch"
) -> list[ConversationMessage]:
    """Return all messages in chronological order, including those of its runs.

    Messages of runs are read from their journals, so that none is lost when a server stops.
    """
    engine = api.session.engine
    rows = engine.store.runs(session=api.session.name, conversation=conversation)
    known = [row for row in rows if engine.has_workflow(row)]
    ids = {row.run for row in known}
    stored = [message for message in stored_messages(api, conversation) if message.run not in ids]
    from_runs = [message for row in known for message in run_messages(api, row, mode)]
    return sorted([*stored, *from_runs], key=lambda message: message.at)


def stored_messages(api: Api, conversation: str) -> list[ConversationMessage]:
    rows = api.session.engine.store.messages(conversation)
    return [ConversationMessage(row.at, row.role, row.text, row.run) for row in rows]


def run_messages(api: Api, row: RunRow, mode: MessageMode) -> Iterator[ConversationMessage]:
    """Yield the messages of a run, including its start."""
    run = api.session.engine.run_handle(row)
    if run.held is not None and run.held["reason"] == UNREADABLE_REASON:
        yield ConversationMessage(row.started, "assistant", run.held["message"], row.run)
        return
    formatter = RunMessages(run.workflow, mode)
    for event in run.events:
        for text in formatter.of(event):
            yield ConversationMessage(event.timestamp.timestamp(), "assistant", text, row.run)
