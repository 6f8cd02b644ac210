"""Open connections to PostgreSQL, and translate its errors."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, cast
from urllib.parse import parse_qsl, quote, urlencode, urlsplit

import psycopg
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict
from psycopg.rows import TupleRow
from psycopg.types.json import Json

from nerve.errors import NerveError, OwnershipLost, StoreError, StoreFailed, StoreFull, StoreUnreachable
from nerve.lazy_dataclass import dataclass
from nerve.store.statements import load_statements

POSTGRES_SQL = load_statements("sql/postgres")

Connection = psycopg.Connection[TupleRow]
AsyncConnection = psycopg.AsyncConnection[TupleRow]

DEFAULT_SCHEMA = "nerve"
CONNECT_TIMEOUT_S = 5
OWNERSHIP_LOST_CODE = "NV001"
"""The SQLSTATE that the function `note_commit` raises for a process that has lost the session."""

DISCONNECTED = psycopg.OperationalError, psycopg.InterfaceError
"""The errors after which a connection is replaced."""

UNREACHABLE_CLASSES = ("08", "57")
"""Classes of SQLSTATE: the connection was lost, or the server is shutting down or starting."""

DEFAULT_OPTIONS: dict[str, Any] = {
    "application_name": "nerve",
    "client_encoding": "utf8",
    "connect_timeout": CONNECT_TIMEOUT_S,
    "target_session_attrs": "read-write",  # of several hosts, the primary server
    # A server that is gone without a word is noticed in ten seconds.
    "keepalives_idle": 4,
    "keepalives_interval": 2,
    "keepalives_count": 3,
    "tcp_user_timeout": 10_000,
}
SETTINGS = {
    # So does the server notice a client that is gone, and release its locks.
    "tcp_keepalives_idle": "4",
    "tcp_keepalives_interval": "2",
    "tcp_keepalives_count": "3",
    # A process that is stopped in a transaction would hold the row that the next owner needs.
    "idle_in_transaction_session_timeout": "3s",
    # The statement that lists runs has many optional conditions: its plan depends on those that are given.
    "plan_cache_mode": "force_custom_plan",
}


@dataclass(frozen=True, slots=True)
class PostgresAddress:
    """What a URL `postgresql://USER:PASSWORD@HOST:PORT/DATABASE?schema=NAME` says."""

    options: dict[str, Any]
    schema: str

    def __str__(self) -> str:
        """Return the address for messages: it has no password."""
        user = f"{self.options['user']}@" if self.options.get("user") else ""
        port = f":{self.options['port']}" if self.options.get("port") else ""
        database = f"/{self.options['dbname']}" if self.options.get("dbname") else ""
        schema = "" if self.schema == DEFAULT_SCHEMA else f"?schema={quote(self.schema)}"
        return f"postgresql://{user}{self.options.get('host') or ''}{port}{database}{schema}"


def parse_address(url: str) -> PostgresAddress:
    """Return the address in a URL; StoreError, without the text of the URL, if it is not valid."""
    try:
        parts = urlsplit(url)
        parameters = dict(parse_qsl(parts.query, strict_parsing=bool(parts.query)))
        schema = parameters.pop("schema", DEFAULT_SCHEMA)
        query = urlencode(parameters, quote_via=quote)
        options = conninfo_to_dict(f"{parts.scheme}://{parts.netloc}{parts.path}?{query}")
    except (ValueError, psycopg.ProgrammingError):
        # Their messages may have a part of the password.
        raise StoreError(
            "The URL of the store is not valid. Write postgresql://USER@HOST:PORT/DATABASE, with special "
            "characters percent-encoded."
        ) from None
    return PostgresAddress(cast("dict[str, Any]", options), schema)


def connect(address: PostgresAddress, timeout: float = CONNECT_TIMEOUT_S) -> Connection:
    """Return a connection that commits each statement, outside of a transaction."""
    db = psycopg.connect(**connection_options(address, timeout), autocommit=True)
    try:
        db.execute(SELECT_SETTINGS, (Json(connection_settings(address, db)),))
        db.execute(SELECT_SYNCHRONOUS_COMMIT)
    except BaseException:
        close_connection(db)
        raise
    return db


async def connect_async(address: PostgresAddress) -> AsyncConnection:
    """Return a connection like that of `connect`, on which the event loop does not wait."""
    db = await psycopg.AsyncConnection.connect(
        **connection_options(address, CONNECT_TIMEOUT_S), autocommit=True
    )
    try:
        await db.execute(SELECT_SETTINGS, (Json(connection_settings(address, db)),))
        await db.execute(SELECT_SYNCHRONOUS_COMMIT)
    except BaseException:
        await db.close()
        raise
    return db


SELECT_SETTINGS = "SELECT set_config(name, value, false) FROM json_each_text(%s::json) AS new (name, value)"

SELECT_SYNCHRONOUS_COMMIT = (
    "SELECT set_config('synchronous_commit', 'on', false) "
    "WHERE current_setting('synchronous_commit') IN ('off', 'local')"
)
"""A stricter setting of the administrator, such as remote_apply, stays."""


def connection_options(address: PostgresAddress, timeout: float) -> dict[str, Any]:
    timeouts = {"connect_timeout": max(2, min(CONNECT_TIMEOUT_S, int(timeout)))}  # libpq waits 2 s at least
    return {**DEFAULT_OPTIONS, **timeouts, **address.options}


def connection_settings(address: PostgresAddress, db: Connection | AsyncConnection) -> dict[str, str]:
    return {**SETTINGS, "search_path": sql.Identifier(address.schema).as_string(db)}


def close_connection(db: Connection) -> None:
    with suppress(psycopg.Error):
        db.close()


@contextmanager
def translate_postgres_errors(address: PostgresAddress) -> Iterator[None]:
    """Translate PostgreSQL's errors into store errors that name the server."""
    try:
        yield
    except psycopg.Error as error:
        raise to_store_error(address, error) from error


def to_store_error(address: PostgresAddress, error: psycopg.Error) -> NerveError:
    """Return the store error for an error of PostgreSQL."""
    lines = str(error).splitlines() or [type(error).__name__]
    if error.sqlstate == OWNERSHIP_LOST_CODE:
        return lost_ownership_error(address)
    if isinstance(error, psycopg.errors.DiskFull):
        return StoreFull(f"{address} cannot grow: {lines[0]}")
    if isinstance(error, DISCONNECTED) and (error.sqlstate or "08")[:2] in UNREACHABLE_CLASSES:
        return StoreUnreachable(f"{address} cannot be reached: {lines[0]}")
    return StoreFailed(f"{address}: {lines[0]}")


def lost_ownership_error(address: PostgresAddress) -> OwnershipLost:
    return OwnershipLost(
        f"Another process has taken over the session in {address}. The runs of this process have stopped and "
        "continue there."
    )
