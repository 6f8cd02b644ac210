"""`nerve backup`, `nerve restore` and `nerve store copy`: verified copies of a store."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from nerve.cli.errors import UsageError
from nerve.cli.exit_codes import COMPLETED
from nerve.cli.parameters import (
    DEFAULT_OPTIONS,
    DEFAULT_REPORT,
    CommonOptions,
    Parameter,
    ReportOptions,
    require_file,
)
from nerve.cli.reports import print_report
from nerve.cli.trust import require_trust
from nerve.project.store_url import has_password, is_store_url
from nerve.ui.formatting import count_noun

if TYPE_CHECKING:
    from nerve.store.store_copy import CopiedStore


def backup_command(
    file: Annotated[Path, Parameter(name="FILE", help="The new file; it must not exist.")],
    /,
    *,
    common: CommonOptions = DEFAULT_OPTIONS,
) -> int:
    """Write a backup of the store into a file, also while a server runs, and verify it.

    The backup has everything that was acknowledged before it began. It is itself a store file. It does not
    have the files of the project folder, such as artifacts, logs, workflows and keys.
    """
    store = common.store_location
    if not common.has_store:
        raise UsageError(f"No store to back up: {store} does not exist. The first run creates it.")
    copied = copy(str(store), str(file), while_owned=True)
    report_copy(common, copied, str(store), str(file), "Backed up")
    return COMPLETED


def restore_command(
    file: Annotated[Path, Parameter(name="FILE", help="A file that nerve backup has written.")],
    /,
    *,
    common: CommonOptions = DEFAULT_OPTIONS,
) -> int:
    """Restore the store of the project from a backup. The store must not exist, or be an empty database.

    The backup is verified. Its open runs resume when a server starts. A backup that you did not write on this
    machine needs `nerve trust` afterwards.
    """
    require_file(file)
    store = common.store_location
    if isinstance(store, Path):
        if store.exists():
            raise UsageError(f"{store} exists already. Stop the server, and move the file away.")
        store.parent.mkdir(parents=True, exist_ok=True)
    copied = copy(str(file), str(store), while_owned=True)
    report_copy(common, copied, str(file), str(store), "Restored")
    return COMPLETED


def store_copy_command(
    source: Annotated[str, Parameter(name="FROM", help="A store file or a URL that no process uses.")],
    target: Annotated[str, Parameter(name="TO", help="A new file, or the URL of an empty database.")],
    /,
    *,
    options: ReportOptions = DEFAULT_REPORT,
) -> int:
    """Copy a store into a new one, to move a project, and verify the hash chain of every run.

    A store is a file or the URL of a PostgreSQL database. Stop the server first. The copy has everything or
    does not exist, also if it is interrupted. Afterwards use only one of the two stores: the open runs are in
    both.
    """
    for store in (source, target):
        if is_store_url(store) and has_password(store):
            # Other users of the machine can see the arguments of all processes.
            raise UsageError(
                f"{name_store(store)} must not have a password in the arguments. Put it into ~/.pgpass or"
                " PGPASSWORD."
            )
    report_copy(options, copy(source, target), source, target, "Copied")
    return COMPLETED


def copy(source: str, target: str, *, while_owned: bool = False) -> CopiedStore:
    from nerve.store.store_copy import copy_store

    if is_store_url(target) and not is_store_url(source):
        # A database has no signature that tells where its runs come from.
        require_trust(Path(source))
    return copy_store(source, target, while_owned=while_owned)


def report_copy(
    options: CommonOptions | ReportOptions, copied: CopiedStore, source: str, target: str, done: str
) -> None:
    source, target = name_store(source), name_store(target)
    amount = f"{count_noun(copied.runs, 'run')} with {count_noun(copied.events, 'event')}"
    text = f"{done} {amount} into {target}. All hash chains are intact."
    print_report(options, {**copied._asdict(), "from": source, "to": target}, text)


def name_store(store: str) -> str:
    """Return the name of a store for messages: a URL without its password."""
    if not is_store_url(store):
        return store
    from nerve.store.postgres_connection import parse_address

    return str(parse_address(store))
