"""The commands that processes send to the owner of a session in PostgreSQL."""

from __future__ import annotations

import asyncio

from nerve.store.postgres import PostgresStore
from nerve.store.postgres_commands import PostgresCommands, SentCommand
from postgresql_server import PostgresqlServer


async def test_commands_are_sent_and_read_after_the_server_was_killed_while_nobody_asked(
    postgresql_server: PostgresqlServer,  # skips the test without a server
) -> None:
    with PostgresqlServer() as server:
        url = server.create_database()
        PostgresStore(url).close()
        commands = PostgresCommands(url, "shop")
        assert await commands.owner() is None
        await restart(server)
        assert await commands.owner() is None
        await restart(server)
        await commands.send(SentCommand("one", "pause", "{}", "{}"), patience=60)
        await restart(server)
        state = await commands.state("one")
        assert state is not None
        assert not state.is_begun
        await restart(server)
        assert await commands.withdraw("one")
        await commands.close()


async def restart(server: PostgresqlServer) -> None:
    await asyncio.to_thread(server.kill)
    await asyncio.to_thread(server.start)
