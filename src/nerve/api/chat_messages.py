"""Messages of people in chats: which ones are taken, and the replies to them."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from nerve.agents.redaction import Redactor
from nerve.api import Api, ApiError, Operation, models
from nerve.api.callers import Caller
from nerve.api.conversation import answer_conversation_gate, conversation_gates, run_chat_command
from nerve.api.idempotency import execute_once
from nerve.chat.threads import channel_of, conversation_of
from nerve.codec import decode_text, encode_text
from nerve.core.gates import gate_hash
from nerve.core.people import PERSON_IDENTITY, Person, find_by_contact
from nerve.core.workflow import GateInfo
from nerve.notifications.notifier import TooManyMessages
from nerve.notifications.outbox import UnansweredMessage
from nerve.router.open_gates import normalize_answer

if TYPE_CHECKING:
    from nerve.project.notify_settings import ChannelSettings
    from nerve.session import Session

RECEIVE_OPERATION = Operation(
    "receive_chat",
    models.ChatMessageRequest,
    models.ReceivedChatResponse,
    "run",
    "POST",
    "/chat/{chat}",
    "Store a message of a chat, so that it gets a reply.",
)
REPLY_OPERATION = Operation(
    "reply_chat",
    models.ChatMessageRequest,
    models.ChatRepliesResponse,
    "run",
    "POST",
    "/chat/{chat}",
    "Make the replies to a message of a chat.",
)
ANSWER_WORDS = ("answer", "/answer")
RETRIED_CODES = frozenset({"busy", "storage_full", "internal", "timeout", "too_many"})
"""The errors after which the same message is tried again."""
NOT_OPEN = "The question is not open any more."
CHANGED = "The question asks something else now. Read it again, then answer it."
NO_MATCH = "No workflow was started. See the list: /workflow list"


# -- which messages are taken ----------------------------------------------------------------------


async def take_message(api: Api, request: models.ChatMessageRequest) -> bool:
    """Let the process that executes the runs store a message; return whether it gets a reply."""
    if api.shared is not None and not api.shared.is_owner:
        response = await api.shared.perform(RECEIVE_OPERATION, request)
    else:
        response = await receive_chat(api.session, request)
    assert isinstance(response, models.ReceivedChatResponse)
    return response.accepted


async def receive_chat(session: Session, request: Any) -> models.ReceivedChatResponse:
    """Store a message that is new, of a known person and for Nerve; it is durable then."""
    settings, notifier = session.config.chat.get(request.chat), session.notifier
    if settings is None:
        raise ApiError("not_found", f"Chat '{request.chat}' not found", "See the list: nerve chat")
    if notifier is None:
        fix = "Serve the project with a store on disk: nerve serve"
        raise ApiError("refused", "This process does not take messages of chats", fix)
    key = f"chat {request.chat} {request.key}"
    is_wanted = session.engine.store.stored_reply(session.name, key) is None and is_for_nerve(
        session, request, settings
    )
    if not is_wanted:
        return models.ReceivedChatResponse(accepted=False)
    text = request.text if session.codec is None else encode_text(session.codec, request.text, "chat", key)
    message = UnansweredMessage(
        key,
        channel_of(request.chat),
        request.thread,
        request.account,
        text,
        session.engine.clock.time(),
        request.gate,
        request.choice,
        request.hash,
    )
    try:
        return models.ReceivedChatResponse(accepted=await notifier.receive(message))
    except TooManyMessages as error:
        raise ApiError("busy", str(error)) from None


def is_for_nerve(session: Session, request: models.ChatMessageRequest, settings: ChannelSettings) -> bool:
    """Whether a message gets a reply: it addresses Nerve, or answers a gate where that is not necessary."""
    is_known = find_account(session, settings.kind, request.account) is not None
    if request.addressed:
        return is_known or settings.values["unknown"] == "refuse"
    if not is_known or settings.values["answers"] != "thread":
        return False
    gates = conversation_gates(Api(session), conversation_of(request.chat, request.thread))
    return any(find_choice(gate, request.text) is not None for gate in gates)


def find_account(session: Session, kind: str, account: str) -> Person | None:
    """Return the person with an account at a service; None for an unknown one."""
    return find_by_contact(session.people.current().values(), kind, account)


# -- replies ---------------------------------------------------------------------------------------


async def make_replies(session: Session, message: UnansweredMessage, chat: str) -> Sequence[str]:
    """Return the replies to a message. Its key makes them once, also if the process is killed meanwhile."""
    codec = session.codec
    text = message.text if codec is None else decode_text(codec, message.text, "chat", message.key)
    request = models.ChatMessageRequest(
        chat=chat,
        thread=message.thread,
        account=message.account,
        text=text,
        gate=message.gate,
        choice=message.choice,
        hash=message.hash,
        key=message.key,
    )
    response = await execute_once(session, REPLY_OPERATION, request, reply_once)
    assert isinstance(response, models.ChatRepliesResponse)
    return response.replies


async def reply_once(session: Session, request: Any) -> models.ChatRepliesResponse:
    settings = session.config.chat[request.chat]
    person = find_account(session, settings.kind, request.account)
    if person is None:
        return models.ChatRepliesResponse(replies=[describe_unknown(settings.kind, request.account)])
    address = f"{request.account} in {request.thread}"
    caller = Caller(f"{PERSON_IDENTITY}{person.name}", settings.kind, person.scope, address=address)  # type: ignore[arg-type]
    responder = ChatResponder(Api(session, caller), request, has_content=settings.values["content"])
    try:
        reply = await responder.reply()
    except ApiError as error:
        if error.code in RETRIED_CODES:
            raise
        reply = responder.describe_error(error, person)
    return models.ChatRepliesResponse(replies=[Redactor(os.environ).redact_text(reply)])


def describe_unknown(kind: str, account: str) -> str:
    return (
        f"The account '{account}' belongs to no person of this project, so nothing was done."
        f" An administrator can add it: nerve people change NAME --contact {kind}={account}"
    )


class ChatResponder:
    """Answers one message of a person."""

    def __init__(self, api: Api, request: models.ChatMessageRequest, *, has_content: bool) -> None:
        self._api, self._request, self._has_content = api, request, has_content
        self._conversation = conversation_of(request.chat, request.thread)
        self._key = sha256(f"message {request.key}".encode()).hexdigest()

    async def reply(self) -> str:
        """Answer a gate, run a command, or route the message; return the reply."""
        gates = conversation_gates(self._api, self._conversation)
        if self._request.gate is not None:
            return await self._press_button(gates)
        text, (word, _, rest) = self._request.text, self._request.text.partition(" ")
        if word.casefold() == ANSWER_WORDS[1] or (gates and word.casefold() == ANSWER_WORDS[0]):
            return await self._answer([rest.strip()] if rest.strip() else [])
        matching = [gate for gate in gates if find_choice(gate, text) is not None]
        if len(matching) == 1:
            return await self._answer([f"{matching[0].gate_id} {find_choice(matching[0], text)}"])
        if matching:
            return await self._answer([])
        command = await run_chat_command(self._api, self._conversation, text, self._key)
        if command is not None:
            await self._record(text, command)
            return command
        return await self._route(text)

    async def _press_button(self, gates: Sequence[GateInfo]) -> str:
        request = self._request
        gate = next((gate for gate in gates if gate.gate_id == request.gate), None)
        if gate is None:
            return NOT_OPEN
        answers = gate.choices or gate.options or []
        hash = gate_hash(gate)
        if not hash.startswith(request.hash or "-") or not 0 <= (request.choice or 0) < len(answers):
            return CHANGED
        return await self._answer([f"{gate.gate_id} {answers[request.choice or 0]}"], {gate.gate_id: hash})

    async def _answer(self, arguments: list[str], shown: dict[str, str] | None = None) -> str:
        if shown is None:
            notifier = self._api.session.notifier
            shown = {} if notifier is None else dict(await notifier.read_shown_gates())
        reply = await answer_conversation_gate(self._api, self._conversation, arguments, self._key, shown)
        await self._record(f"/answer {' '.join(arguments)}".strip(), reply)
        return reply

    async def _record(self, text: str, reply: str) -> None:
        """Keep a message and its reply in the conversation, as the router does for those that it gets."""
        store = self._api.session.engine.store
        for role, content in (("user", text), ("assistant", reply)):
            await asyncio.to_thread(store.add_message, self._conversation, role, content)

    async def _route(self, text: str) -> str:
        session = self._api.session
        started = session.engine.store.run_by_key(session.name, self._key)
        if started is not None:
            # A process that was killed has started it; the router could decide otherwise now.
            return self._describe_start(started.workflow, started.run)
        response = await self._api.route(
            text=text, conversation=self._conversation, start=True, key=self._key
        )
        if response.run is not None:
            return self._describe_start(response.run.workflow, response.run.run_id)
        fields = response.model_extra or {}
        if self._has_content:
            return str(fields.get("reply") or fields.get("question") or NO_MATCH)
        candidates = fields.get("candidates") or ()
        return f"Which workflow do you mean: {', '.join(candidates)}?" if candidates else NO_MATCH

    def _describe_start(self, workflow: str, run: str) -> str:
        url = self._api.session.config.public_url
        link = "" if url is None else f"\n{url}/runs/{run}"
        return f"Started {workflow}, run {run[:8]}.{link}"

    def describe_error(self, error: ApiError, person: Person) -> str:
        """Return why a message was refused. Without content, only what names and scopes say."""
        if error.code == "forbidden":
            return f"{person.name} has the scope '{person.scope}', which does not allow this."
        if not self._has_content:
            return f"The message was refused ({error.code}). See the server for the reason."
        return error.sentences


def find_choice(gate: GateInfo, text: str) -> str | None:
    """Return the answer that a whole message is; None if it is none of those that the gate offers."""
    said = normalize_answer(text)
    answers = gate.choices or gate.options or ()
    return next((answer for answer in answers if normalize_answer(answer) == said), None)
