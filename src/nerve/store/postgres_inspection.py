"""What a PostgreSQL server says about itself and the tables of a store, without a change to them."""

from __future__ import annotations

from contextlib import closing
from typing import NamedTuple

from nerve.codec import CODECS_PROPERTY
from nerve.store.postgres_connection import POSTGRES_SQL, connect, parse_address, translate_postgres_errors
from nerve.store.postgres_migrations import MIGRATIONS
from nerve.store.postgres_ownership import LEASE_S


class ServerReport(NamedTuple):
    """The state of a server."""

    address: str
    version: int | None
    """The version of the tables; None if there are none."""
    newest_version: int
    unsafe_settings: list[str]
    """Settings of the server with which it can lose committed transactions."""
    server: str
    """The version of PostgreSQL, and when it acknowledges the commits of Nerve."""
    owners: list[tuple[str, str]]
    """The sessions that a process owns now, and that process."""
    codecs: str | None
    """The property with the names under which data is encrypted."""


def inspect_server(url: str) -> ServerReport:
    """Return the state of the server in a URL; StoreError if it cannot be reached."""
    address = parse_address(url)
    with translate_postgres_errors(address), closing(connect(address)) as db:
        row = db.execute(POSTGRES_SQL["select_version_table"]).fetchone()
        version, owners, codecs = None, [], None
        if row is not None and row[0]:
            [version] = db.execute(POSTGRES_SQL["select_version"]).fetchone() or (None,)
            owners = db.execute(POSTGRES_SQL["select_live_owners"], (LEASE_S,)).fetchall()
            [codecs] = db.execute(POSTGRES_SQL["select_property"], (CODECS_PROPERTY,)).fetchone() or (None,)
        [server] = db.execute(POSTGRES_SQL["select_server"]).fetchone() or ("",)
        settings = db.execute(POSTGRES_SQL["select_unsafe_settings"]).fetchall()
    unsafe_settings = [f"{name} is {value}" for name, value in settings]
    return ServerReport(str(address), version, len(MIGRATIONS), unsafe_settings, server, owners, codecs)
