"""Commands for the owner of a session in PostgreSQL, which any process can send; and news of its changes.

Everything here is awaited: a server that does not answer blocks no event loop.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Collection, Coroutine
from contextlib import asynccontextmanager, suppress
from typing import Any, Literal, NamedTuple, TypeVar

import psycopg

from nerve.errors import NerveError, StoreUnreachable
from nerve.store.postgres_connection import (
    DISCONNECTED,
    POSTGRES_SQL,
    AsyncConnection,
    PostgresAddress,
    connect_async,
    lost_ownership_error,
    parse_address,
    to_store_error,
)
from nerve.store.postgres_ownership import LEASE_S

log = logging.getLogger("nerve")

ANSWER_TIMEOUT_S = 10.0
"""Seconds within which the server must answer a statement."""

RECONNECT_PAUSE_S = 1.0

MAX_REPLY_AGE_S = 3600.0
"""Seconds for which a reply is kept for a sender that has not read it."""

Topic = Literal["events", "commands", "replies"]
T = TypeVar("T")


class SentCommand(NamedTuple):
    """A command for the owner; arguments and caller are texts."""

    id: str
    operation: str
    arguments: str
    caller: str


class CommandState(NamedTuple):
    """How far a command is."""

    is_begun: bool
    reply: str | None
    is_expired: bool
    """Whether no owner will begin it any more."""
    is_owned: bool
    """Whether a process owns the session now."""


class PostgresCommands:
    """The commands of one session, over one connection at a time."""

    def __init__(self, url: str, session: str) -> None:
        self.address, self._session = parse_address(url), session
        self._db: AsyncConnection | None = None
        self._lock = asyncio.Lock()

    # -- what the process that asks does -----------------------------------------------------------

    async def send(self, command: SentCommand, patience: float) -> None:
        """Store a command, which the owner may begin within `patience` seconds."""
        values = {**command._asdict(), "session": self._session, "patience": patience}
        await self._fetch("insert_command", values)

    async def state(self, id: str) -> CommandState | None:
        """Return how far a command is; None if it was deleted."""
        rows = await self._fetch("select_command", {"id": id, "lease": LEASE_S})
        return CommandState(*rows[0]) if rows else None

    async def withdraw(self, id: str) -> bool:
        """Delete a command that was not begun; return whether that was so."""
        return bool(await self._fetch("withdraw_command", (id,)))

    async def delete(self, id: str) -> None:
        """Delete a command whose reply was read."""
        await self._execute(lambda db: db.execute(POSTGRES_SQL["delete_command"], (id,)))

    async def owner(self) -> str | None:
        """Return the process that owns the session, as messages name it."""
        rows = await self._fetch("select_live_owner", (self._session, LEASE_S))
        return str(rows[0][0]) if rows else None

    # -- what the owner does -----------------------------------------------------------------------

    async def epoch(self) -> int:
        """Return the epoch of the owner, which stays the same while a cluster executes the runs."""
        rows = await self._fetch("select_epoch", (self._session,))
        return int(rows[0][0]) if rows else 0

    async def begin(self, epoch: int, running: Collection[str]) -> list[SentCommand]:
        """Return the commands without a reply that this process does not execute yet."""
        values = {"session": self._session, "running": list(running)}

        async def begin(db: AsyncConnection) -> list[SentCommand]:
            async with self._owning(db, epoch):
                cursor = await db.execute(POSTGRES_SQL["begin_commands"], values)
                return [SentCommand(*row) for row in await cursor.fetchall()]

        return await self._execute(begin)

    async def reply(self, epoch: int, id: str, reply: str) -> None:
        """Store the reply to a command; OwnershipLost if another process will execute it instead."""
        values = {"session": self._session, "id": id, "reply": reply}

        async def store(db: AsyncConnection) -> None:
            async with self._owning(db, epoch):
                await db.execute(POSTGRES_SQL["reply_to_command"], values)

        await self._execute(store)

    async def delete_old(self) -> None:
        """Delete the commands whose sender has not read the reply, and those that were not begun in time."""
        values = {"session": self._session, "age": MAX_REPLY_AGE_S}
        await self._execute(lambda db: db.execute(POSTGRES_SQL["delete_old_commands"], values))

    @asynccontextmanager
    async def _owning(self, db: AsyncConnection, epoch: int) -> AsyncIterator[None]:
        """Execute a transaction during which no other process can take the session over."""
        async with db.transaction():
            cursor = await db.execute(POSTGRES_SQL["lock_ownership"], (self._session, epoch))
            if await cursor.fetchone() is None:
                raise lost_ownership_error(self.address)
            yield

    # -- the connection ----------------------------------------------------------------------------

    async def _fetch(self, name: str, values: Any) -> list[tuple[Any, ...]]:
        async def fetch(db: AsyncConnection) -> list[tuple[Any, ...]]:
            return await (await db.execute(POSTGRES_SQL[name], values)).fetchall()

        return await self._execute(fetch)

    async def _execute(self, work: Callable[[AsyncConnection], Coroutine[Any, Any, T]]) -> T:
        """Execute statements, and again on a new connection if it was lost: they take effect once."""
        async with self._lock:
            try:
                async with asyncio.timeout(ANSWER_TIMEOUT_S):
                    if self._db is None or self._db.closed:
                        self._db = await connect_async(self.address)
                    try:
                        return await work(self._db)
                    except DISCONNECTED:
                        await self.close()
                        self._db = await connect_async(self.address)
                        return await work(self._db)
            except TimeoutError:
                await self.close()
                raise unanswered_error(self.address, ANSWER_TIMEOUT_S) from None
            except psycopg.Error as error:
                await self.close()
                raise to_store_error(self.address, error) from error
            except asyncio.CancelledError:
                await self.close()  # the statement may still be in progress
                raise

    async def close(self) -> None:
        db, self._db = self._db, None
        if db is not None:
            with suppress(psycopg.Error):
                await db.close()


class ChangeListener:
    """Calls functions when another process has changed something of a session.

    What it reports may be late or missing while the connection is lost, so those who use it also look once a
    second.
    """

    def __init__(self, url: str, session: str) -> None:
        self._address, self._session = parse_address(url), session
        self._functions: dict[str, list[Callable[[], object]]] = {}

    def on(self, topic: Topic, function: Callable[[], object]) -> None:
        """Call a function after each change of a topic, on the event loop of the listener."""
        self._functions.setdefault(topic, []).append(function)

    async def listen(self) -> None:
        """Listen until cancelled; a lost connection is replaced."""
        while True:
            try:
                await self._listen_on_one_connection()
            except (psycopg.Error, NerveError, OSError) as error:
                log.debug("no news from %s: %s", self._address, error)
            await asyncio.sleep(RECONNECT_PAUSE_S)

    async def _listen_on_one_connection(self) -> None:
        db = await connect_async(self._address)
        try:
            await db.execute(POSTGRES_SQL["listen"])
            cursor = await db.execute(POSTGRES_SQL["select_schema_name"])
            [schema] = await cursor.fetchone() or ("",)
            prefix = f"{schema}/{self._session}/"
            for topic in self._functions:
                self._call(topic)  # something may have changed before
            async for notification in db.notifies():
                if notification.payload.startswith(prefix):
                    self._call(notification.payload.removeprefix(prefix))
        finally:
            with suppress(psycopg.Error):
                await db.close()

    def _call(self, topic: str) -> None:
        for function in self._functions.get(topic, ()):
            function()


def unanswered_error(address: PostgresAddress, seconds: float) -> StoreUnreachable:
    return StoreUnreachable(f"{address} has not answered for {seconds:g} seconds")
