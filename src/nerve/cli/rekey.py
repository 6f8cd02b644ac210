"""`nerve rekey`: encrypt everything that is stored with the newest key of the project."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

from nerve.agents.thread_files import ThreadFiles
from nerve.cli.errors import UsageError
from nerve.cli.exit_codes import COMPLETED
from nerve.cli.keygen import CONFIG_FIX
from nerve.cli.parameters import DEFAULT_OPTIONS, CommonOptions
from nerve.cli.reports import print_report
from nerve.cli.targets import Project
from nerve.cli.trust import require_trust
from nerve.client import find_server
from nerve.crypto import open_project_codec
from nerve.ui.formatting import count_noun

if TYPE_CHECKING:
    from nerve.codec import Codec
    from nerve.store.reencoding import ReencodedRows

SESSION_NAME = "default"
"""The session of a project."""
THREADS_FOLDER = Path(".nerve", "threads")


def rekey_command(*, common: CommonOptions = DEFAULT_OPTIONS) -> int:
    """Encrypt everything that is stored with the newest key, also what was stored readable, and verify it.

    Afterwards the older keys are not needed. If it is interrupted, nothing is lost: run it again. The server
    must not run meanwhile.
    """
    encryption = Project().config.encryption
    if encryption is None:
        raise UsageError(f"This project is not encrypted. {CONFIG_FIX}")
    require_trust(common.chosen_store_file, has_url=common.store_url is not None)
    if common.store is None and find_server(Path()) is not None:
        raise UsageError("The server of the project runs. Stop it first: nerve server stop")
    codec = open_project_codec(Path(), encryption)
    events = others = 0
    if (url := common.store_url) is not None:
        events, others = reencode_database(url, codec)
    elif common.store_file.is_file():
        events, others = reencode_file(common.store_file, codec)
    threads = ThreadFiles(THREADS_FOLDER, codec).reencode() if THREADS_FOLDER.is_dir() else 0
    newest, unused = codec.key_ids[-1], codec.key_ids[:-1]
    total = count_noun(events + others + threads, "payload")
    lines = [f"Encrypted {total} with key '{newest}'. Everything that is stored was verified."]
    if unused:
        names = ", ".join(f"'{id}'" for id in unused)
        lines.append(f"Not needed any more, except for backups: {names} in {codec.source}.")
    counts = {"events": events, "rows": others, "threads": threads}
    print_report(common, {"key": newest, "unused_keys": unused, **counts}, *lines)
    return COMPLETED


def reencode_file(file: Path, codec: Codec) -> ReencodedRows:
    from nerve.store.reencoding import reencode_store
    from nerve.store.sqlite import SqliteStore

    with closing(SqliteStore(file)) as store:
        return reencode_store(store, codec)


def reencode_database(url: str, codec: Codec) -> ReencodedRows:
    from nerve.store.postgres import PostgresStore
    from nerve.store.postgres_inspection import inspect_server
    from nerve.store.reencoding import reencode_store

    with closing(PostgresStore(url)) as store:
        for session, owner in inspect_server(url).owners:
            if session != SESSION_NAME:
                raise UsageError(f"{owner} uses the session '{session}' of the database. Stop it first.")
        return reencode_store(store, codec)
