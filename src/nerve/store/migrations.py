"""The layout of a new file, and migrations between versions of the layout."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from nerve.errors import StoreError
from nerve.store.statements import SQL
from nerve.store.transaction import Transaction

if TYPE_CHECKING:
    import apsw

APPLICATION_ID = 1315271286
"""Marks the file as a Nerve store: "Nerv" as a number."""

MIGRATIONS = [SQL["create_newest"], *(SQL[f"create_version_{number}"] for number in range(2, 11))]
"""The n-th entry migrates version n to version n + 1; the first one creates the newest version at once."""


def check_store_version(db: apsw.Connection, file: Path) -> None:
    """Raise StoreError for a file of another program or a later version, before anything is written to it."""
    version = db.execute(SQL["user_version"]).get
    if version > len(MIGRATIONS):
        raise StoreError(
            f"{file} has version {version}, but this Nerve supports up to {len(MIGRATIONS)}. Update Nerve."
        )
    fresh = version == 0 and db.execute(SQL["count_tables"]).get == 0
    if not fresh and db.execute(SQL["application_id"]).get != APPLICATION_ID:
        raise StoreError(f"{file} is the database of another program. Use another file.")


def migrate(db: apsw.Connection) -> None:
    """Bring a file to the newest version, one version per transaction."""
    newest = len(MIGRATIONS)
    while (version := db.execute(SQL["user_version"]).get) < newest:
        with Transaction(db) as execute:
            # Another connection may have migrated it meanwhile.
            if execute(SQL["user_version"]).get == version:
                execute(MIGRATIONS[version])
                db.pragma("user_version", version + 1 if version else newest)
