"""Open the store of a session or of a project."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from nerve.codec import CODECS_PROPERTY, Codec
from nerve.project.store_url import is_store_url, require_driver

if TYPE_CHECKING:
    from nerve.store.port import Store


def open_project_store(project: Path, location: str | Path | None) -> Store:
    """Return the store of a project with the codec of its configuration; an empty one without a location.

    A database in PostgreSQL is opened for reading.
    """
    from nerve.project.config import project_config

    codec, encryption = None, project_config(project).encryption
    if location is not None and encryption is not None:
        from nerve.crypto import open_project_codec

        codec = open_project_codec(project, encryption)
    return open_store(location, codec, session=None)


def open_store(
    store: str | os.PathLike[str] | Store | None, codec: Codec | None = None, session: str | None = "default"
) -> Store:
    """Return a store, around which a codec is put; StoreError if its data has another codec.

    In PostgreSQL, the store owns the `session`; without one, it only reads.
    """
    opened = open_plain_store(store, session)
    try:
        if codec is not None or opened.read_property(CODECS_PROPERTY) is not None:
            from nerve.store.encoded_store import EncodedStore, refuse_encoded

            if codec is not None:
                return EncodedStore(opened, codec)
            refuse_encoded(opened)
    except BaseException:
        opened.close()
        raise
    return opened


def open_plain_store(store: str | os.PathLike[str] | Store | None, session: str | None) -> Store:
    if store is None:
        from nerve.store.memory import MemoryStore

        return MemoryStore()
    if isinstance(store, str) and is_store_url(store):
        require_driver()
        from nerve.store.postgres import PostgresStore

        return PostgresStore(store, session)
    if isinstance(store, str | os.PathLike):
        from nerve.store.sqlite import SqliteStore

        return SqliteStore(store)
    return store
