"""Options that several commands share, and the command lines and files that they stand for."""

from __future__ import annotations

import shlex
from dataclasses import dataclass  # noqa: TID251 - cyclopts reads the signature
from pathlib import Path
from typing import Annotated, Any, TypeVar

from nerve.cli.errors import UsageError
from nerve.project.paths import ProjectPaths
from nerve.project.store_url import (
    STORE_VARIABLE,
    has_password,
    is_store_url,
    require_driver,
    store_url_of_environment,
)

STORE_FILE = Path(".nerve/nerve.db")
C = TypeVar("C", bound=type)


class Parameter:
    """How the parser reads and describes an option or argument: the settings of `cyclopts.Parameter`.

    `nerve.cli.parser` makes the parameter of cyclopts from it. Importing cyclopts takes long, and a simple
    command line is read without it. As a decorator of a class, it makes options of the fields.
    """

    def __init__(self, **settings: Any) -> None:
        self.settings = settings

    def __call__(self, cls: C) -> C:
        cls.options_parameter = self  # type: ignore[attr-defined]
        return cls


Flag = Annotated[bool, Parameter(negative="", show_default=False)]
TextList = Annotated[tuple[str, ...], Parameter(negative="", show_default=False)]
WaitOption = Annotated[
    Flag, Parameter(help="Follow the run until it ends or waits for an answer. Always on without a server.")
]
FileList = Annotated[tuple[Path, ...], Parameter(name="--with", negative="", show_default=False)]


@Parameter(name="*")
@dataclass(frozen=True)
class CommonOptions:
    """Options of every command that uses the API.

    Parameters
    ----------
    json
        Print exactly one JSON value on standard output.
    quiet
        Print only results and errors.
    modules
        A Python file that defines register(session), or a workflow file. Only without a server.
    store
        The store file, or the URL of a database in PostgreSQL. Default: NERVE_STORE, or .nerve/nerve.db.
        With this option, no server is used.
    """

    json: Flag = False
    quiet: Flag = False
    modules: FileList = ()
    store: str | None = None

    @property
    def store_url(self) -> str | None:
        """The URL of the store; None if it is a file."""
        return find_store_url(self.store)

    @property
    def store_file(self) -> Path:
        if self.store_url is not None:
            raise UsageError("This command works on a store file, not on a database in PostgreSQL.")
        return project_store_file() if self.store is None else require_store_file(Path(self.store))

    @property
    def chosen_store_file(self) -> Path | None:
        """The store file that --store names."""
        return None if self.store is None or is_store_url(self.store) else Path(self.store)

    @property
    def has_store(self) -> bool:
        """Whether the store exists; a database in PostgreSQL does."""
        return self.store_url is not None or self.store_file.is_file()

    @property
    def store_location(self) -> str | Path:
        """The URL or the file of the store."""
        return self.store_url or self.store_file


DEFAULT_OPTIONS = CommonOptions()


@Parameter(name="*")
@dataclass(frozen=True)
class ReportOptions:
    """Options of a command that only reports what it has done.

    Parameters
    ----------
    json
        Print one JSON value.
    quiet
        Print only errors.
    """

    json: Flag = False
    quiet: Flag = False


DEFAULT_REPORT = ReportOptions()


def require_file(file: Path) -> None:
    """Raise UsageError if a file is not found."""
    require_no_folder(file)
    if not file.is_file():
        raise UsageError(f"File not found: {file}.")


def require_no_folder(path: Path) -> None:
    """Raise UsageError for a folder where a file is needed."""
    if path.is_dir():
        raise UsageError(f"{path} is a folder. Name a file in it.")


def find_store_url(option: str | None) -> str | None:
    """Return the URL of the store from the option --store or the environment; None if it is a file."""
    if option is None:
        try:
            option = store_url_of_environment()
        except ValueError as error:
            raise UsageError(f"{error}.") from None
    elif not is_store_url(option):
        return None
    elif has_password(option):
        # Other users of the machine can see the arguments of all processes.
        raise UsageError(
            "--store must not have a password. Put the URL into the environment variable "
            f"{STORE_VARIABLE}, or the password into ~/.pgpass or PGPASSWORD."
        )
    if option is not None:
        require_driver()
    return option


def project_store_file(folder: Path = Path()) -> Path:
    """Return the store file of a project. Symlinks are refused, because a project may be untrusted."""
    if elsewhere := ProjectPaths.of(folder).symlink_problem:
        raise UsageError(f"{elsewhere}, or select a store: --store FILE")
    return require_store_file(folder / STORE_FILE)


def require_store_file(store: Path) -> Path:
    """Return a store path. Raise UsageError if the path exists and cannot be a store file."""
    if store.parent.exists() and not store.parent.is_dir():
        raise UsageError(f"{store.parent} is not a folder. Move it, or select another store.")
    if store.exists() and not store.is_file():
        raise UsageError(f"{store} is not a file. Move it, or select another store.")
    return store


def format_command(*words: str) -> str:
    """Return a `nerve` command line, quoted for the shell."""
    return " ".join(["nerve", *map(shlex.quote, words)])


def format_resume_command(common: CommonOptions, run_id: str) -> str:
    """Return the command that resumes a run."""
    return format_command("resume", run_id, *file_options(common))


def file_options(common: CommonOptions) -> list[str]:
    """Return the --with and --store options of a command."""
    options = [part for file in dict.fromkeys(common.modules) for part in ("--with", str(file))]
    return [*options, "--store", str(common.store)] if common.store is not None else options
