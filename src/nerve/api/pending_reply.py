"""Commands in progress, and the reply to one with an idempotency key, stored so that it can be repeated."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable
from typing import TYPE_CHECKING, Any, Literal, TypeVar
from weakref import WeakKeyDictionary

from nerve.store.port import Append, ReplyRow

if TYPE_CHECKING:
    from nerve.api.models import ApiResponse
    from nerve.session import Session

T = TypeVar("T")
WorkName = tuple[Literal["command", "answer"], str]
"""A command by its idempotency key, or the writing of an answer by the id of its gate."""

_work_in_progress: WeakKeyDictionary[Session, dict[WorkName, asyncio.Future[Any]]] = WeakKeyDictionary()


def work_in_progress(session: Session) -> dict[WorkName, asyncio.Future[Any]]:
    """Return the commands with keys and the answers of a session that are in progress."""
    return _work_in_progress.setdefault(session, {})


async def run_to_completion(session: Session, name: WorkName, work: Awaitable[T]) -> T:
    """Return the result of work that completes even if the caller disconnects; others can wait for it."""
    in_progress = work_in_progress(session)
    task = in_progress[name] = asyncio.ensure_future(work)
    # Another answer to the same gate may be in progress as well, if another process decides which one wins.
    task.add_done_callback(lambda done: in_progress.get(name) is done and in_progress.pop(name))
    return await asyncio.shield(task)


class PendingReply:
    """The future reply to a command; `is_stored` if it is written together with the command's effect."""

    def __init__(self, session: str, key: str, fingerprint: str) -> None:
        self.session, self.key, self.fingerprint = session, key, fingerprint
        self.is_stored = False

    def started_row(self) -> ReplyRow:
        """Return a row without the reply, to write atomically with the effect; the reply follows later."""
        return ReplyRow(self.session, self.key, time.time(), self.fingerprint, "")

    def completed_row(self, response: ApiResponse) -> ReplyRow:
        self.is_stored = True
        return ReplyRow(self.session, self.key, time.time(), self.fingerprint, response.model_dump_json())


async def append_to_store(session: Session, part: Append) -> None:
    """Write rows that belong to no run; a store on disk is written in a thread."""
    store = session.engine.store
    if store.durable:
        await asyncio.to_thread(store.append, [part])
    else:
        store.append([part])
