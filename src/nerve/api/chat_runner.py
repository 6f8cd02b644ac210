"""Replies to the messages of chats, in the process that executes the runs."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Mapping
from typing import TYPE_CHECKING, Any

from nerve.api import ApiError, models
from nerve.api.chat_messages import make_replies, receive_chat
from nerve.api.errors import to_api_error
from nerve.background_tasks import cancel_tasks
from nerve.chat.adapter import ChatMessage
from nerve.chat.adapter_table import make_chats
from nerve.chat.telegram import TelegramAdapter
from nerve.chat.texts import split_text
from nerve.chat.threads import CHANNEL_PREFIX
from nerve.engine.task_tracking import spawn_detached
from nerve.errors import OwnershipLost, PayloadUnreadable, StoreError
from nerve.notifications.delivery import DeliveryFailed
from nerve.notifications.messages import REPLY_EVENT, NotifiedEvent
from nerve.notifications.notifier import Notifier
from nerve.notifications.outbox import UnansweredMessage

if TYPE_CHECKING:
    from nerve.session import Session

log = logging.getLogger("nerve")

RETRY_S = 5.0
"""Seconds before another attempt after an error of the store or of a service."""
MAX_RETRY_S = 60.0


@contextlib.asynccontextmanager
async def run_chats(session: Session) -> AsyncIterator[None]:
    """Reply to the messages of chats in this block, and ask the services that have to be asked."""
    notifier = session.notifier
    if notifier is None:
        raise RuntimeError(f"Session '{session.name}' has no chats, or its store is not on disk")
    runner = ChatRunner(session, notifier)
    tasks = [spawn_detached(work) for work in runner.list_work()]
    try:
        yield
    finally:
        await cancel_tasks(*tasks)
        await runner.close()


class ChatRunner:
    """Takes the stored messages one after the other in each thread, and beside each other in several."""

    def __init__(self, session: Session, notifier: Notifier) -> None:
        self._session, self._notifier = session, notifier
        config = session.config
        self._chats = make_chats(config.chat, session.project, config.public_url, session.name)
        self._replying: dict[tuple[str, str], asyncio.Task[None]] = {}
        """The threads that get a reply."""

    def list_work(self) -> list[Any]:
        """Return what runs until it is cancelled."""
        polled = [
            self._poll_until_cancelled(name, chat)
            for name, chat in self._chats.items()
            if chat.is_polled and isinstance(chat, TelegramAdapter)
        ]
        return [self._reply_until_cancelled(), *polled]

    async def close(self) -> None:
        """Stop replying. A reply that was not stored is made by the next process."""
        await cancel_tasks(*self._replying.values())
        for chat in self._chats.values():
            await chat.close()

    # -- replies -----------------------------------------------------------------------------------

    async def _reply_until_cancelled(self) -> None:
        news = self._notifier.has_received
        while True:
            news.clear()
            try:
                received = await self._notifier.list_received()
            except OwnershipLost:
                return
            except StoreError as error:
                log.warning("the replies in chats are late: %s", error)
                await asyncio.sleep(RETRY_S)
                continue
            for message in received:
                place = message.channel, message.thread
                if place not in self._replying:
                    self._replying[place] = spawn_detached(self._reply(message))
            await news.wait()

    async def _reply(self, message: UnansweredMessage) -> None:
        try:
            await self._try_to_reply(message)
        except OwnershipLost:
            return
        except Exception as error:
            if not isinstance(error, StoreError | ApiError):
                log.exception("the reply in chat '%s' is late", message.channel)
            else:
                log.warning("the reply in chat '%s' is late: %s", message.channel, error)
            await asyncio.sleep(RETRY_S)
        finally:
            self._replying.pop((message.channel, message.thread), None)
            self._notifier.has_received.set()

    async def _try_to_reply(self, message: UnansweredMessage) -> None:
        name = message.channel.removeprefix(CHANNEL_PREFIX)
        chat = self._chats.get(name)
        if chat is None:  # the configuration has it no longer
            await self._notifier.settle(message, [])
            return
        try:
            replies = await make_replies(self._session, message, name)
        except PayloadUnreadable as error:
            replies = [f"The message cannot be read: {error}"]
        texts = [part for reply in replies for part in split_text(reply, chat.max_chars)]
        now = time.time()
        events = [
            NotifiedEvent(REPLY_EVENT, message.key, number, "", now, content=text)
            for number, text in enumerate(texts)
        ]
        await self._notifier.settle(message, events)

    # -- services that have to be asked ------------------------------------------------------------

    async def _poll_until_cancelled(self, name: str, chat: TelegramAdapter) -> None:
        offset, pause = 0, RETRY_S
        while True:
            try:
                for update in await chat.ask_for_updates(offset):
                    await self._take_update(name, chat, update)
                    offset = max(offset, int(update["update_id"]) + 1)
                self._session.chat_problems.pop(name, None)
                pause = RETRY_S
            except OwnershipLost:
                return
            except Exception as error:
                problem = describe_poll_error(error)
                if self._session.chat_problems.get(name) != problem:
                    log.warning("chat '%s' gets no messages: %s", name, problem)
                self._session.chat_problems[name] = problem
                asked = error.retry_after if isinstance(error, DeliveryFailed) else None
                await asyncio.sleep(pause if asked is None else asked)
                pause = min(2 * pause, MAX_RETRY_S)

    async def _take_update(self, name: str, chat: TelegramAdapter, update: Mapping[str, Any]) -> None:
        """Store the messages of an update before the next request confirms it."""
        delivery = chat.read_delivery({}, update)
        for message in delivery.messages:
            await receive_chat(self._session, make_request(name, message))
        if delivery.reply is not None:
            with contextlib.suppress(DeliveryFailed):  # the button is answered anyway
                await chat.send_reply(delivery.reply)


def make_request(chat: str, message: ChatMessage) -> models.ChatMessageRequest:
    """Return the request that stores a message of a chat."""
    return models.ChatMessageRequest(
        chat=chat,
        key=message.key,
        thread=message.thread,
        account=message.account,
        text=message.text,
        addressed=message.is_addressed,
        gate=message.gate,
        choice=message.choice,
        hash=message.hash,
    )


def describe_poll_error(error: Exception) -> str:
    """Return why a service gives no messages."""
    if isinstance(error, DeliveryFailed):
        conflict = " A webhook is set for the bot, or another program asks for its messages."
        return f"{error}.{conflict if '409' in str(error) else ''}"
    if not isinstance(error, StoreError | ApiError):
        log.error("the messages of a chat cannot be taken", exc_info=error)
    return to_api_error(error).message
