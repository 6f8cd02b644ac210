"""The steps from one version of the file's layout to the next."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from nerve.errors import StoreError
from nerve.store.statements import SQL
from nerve.store.transaction import Transaction

if TYPE_CHECKING:
    import apsw

APPLICATION_ID = 1315271286
"""Marks the file as ours: "Nerv" as a number."""

MIGRATIONS = [SQL[f"create_version_{number}"] for number in range(1, 7)]
"""The n-th entry makes version n + 1 out of version n."""


def check_store_version(db: apsw.Connection, file: Path) -> None:
    """Refuse a file that is not ours or from a later version, before anything is written to it."""
    version = db.execute(SQL["user_version"]).get
    if version > len(MIGRATIONS):
        raise StoreError(
            f"{file} has version {version}, this Nerve knows versions up to {len(MIGRATIONS)}. Update Nerve."
        )
    fresh = version == 0 and db.execute(SQL["count_tables"]).get == 0
    if not fresh and db.execute(SQL["application_id"]).get != APPLICATION_ID:
        raise StoreError(f"{file} is the database of another program. Use another file.")


def migrate(db: apsw.Connection) -> None:
    for number in range(db.execute(SQL["user_version"]).get, len(MIGRATIONS)):
        with Transaction(db) as execute:
            if execute(SQL["user_version"]).get == number:
                execute(MIGRATIONS[number])
                db.pragma("user_version", number + 1)
