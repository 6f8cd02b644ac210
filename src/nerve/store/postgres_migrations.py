"""Migrations between versions of the tables in PostgreSQL."""

from __future__ import annotations

from psycopg import sql

from nerve.errors import StoreError
from nerve.store.postgres_connection import POSTGRES_SQL, Connection, PostgresAddress

MIGRATIONS = [POSTGRES_SQL[f"create_version_{number}"] for number in range(1, 9)]
"""The n-th entry migrates version n to version n + 1."""


def migrate(db: Connection, address: PostgresAddress) -> None:
    """Bring the schema of an address to the newest version, in one transaction.

    Raise StoreError for tables of another program or a later version, before anything is written.
    """
    with db.transaction():
        # Of two processes that start at the same time, the second one finds the newest version.
        db.execute(POSTGRES_SQL["lock_schema"], (address.schema,))
        if db.execute(POSTGRES_SQL["select_schema"], (address.schema,)).fetchone() is None:
            schema = sql.Identifier(address.schema)
            db.execute(sql.SQL(POSTGRES_SQL["create_schema"]).format(schema=schema))
        version = _read_version(db, address)
        if version > len(MIGRATIONS):
            raise StoreError(
                f"{address} has version {version}, but this Nerve supports up to {len(MIGRATIONS)}. "
                "Update Nerve."
            )
        for statements in MIGRATIONS[version:]:
            db.execute(statements)
        if version < len(MIGRATIONS):
            db.execute(POSTGRES_SQL["update_version"], (len(MIGRATIONS),))


def _read_version(db: Connection, address: PostgresAddress) -> int:
    [has_version] = db.execute(POSTGRES_SQL["select_version_table"]).fetchone() or (False,)
    if not has_version:
        [table_count] = db.execute(POSTGRES_SQL["count_tables"]).fetchone() or (0,)
        if table_count:
            raise StoreError(
                f"The schema {address.schema!r} in {address} has tables of another program. "
                "Use another one: ?schema=NAME"
            )
        db.execute(POSTGRES_SQL["create_version_table"])
    [version] = db.execute(POSTGRES_SQL["select_version"]).fetchone() or (0,)
    return int(version)
