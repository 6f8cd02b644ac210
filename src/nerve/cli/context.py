"""What commands share: common options, access to the API, and output of results."""

from __future__ import annotations

import asyncio
import contextlib
import shlex
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, TextIO

from cyclopts import Parameter
from pydantic import BaseModel
from rich.console import Console

from nerve.api import Api, ApiError
from nerve.api.commands import wait_until_run_idle
from nerve.cli.completion import RUN_PARAMETER
from nerve.cli.errors import UsageError, with_full_stop
from nerve.cli.exit_codes import FAILED, INTERRUPTED, REFUSED
from nerve.cli.parameters import FileList, Flag
from nerve.cli.session_setup import register_file
from nerve.cli.targets import Project, project_store_file, require_store_file
from nerve.cli.trust import require_trust
from nerve.client import Client
from nerve.core.workflow import WorkflowRun
from nerve.session import Session
from nerve.ui.sanitize import dump_safe_json, sanitize_text

__all__ = [
    "DEFAULT_OPTIONS",
    "PYTHON_TARGET_REFUSED",
    "WITH_OPTION_REFUSED",
    "CliContext",
    "CommonOptions",
    "FileList",
    "Flag",
    "RunArgument",
    "format_api_error",
    "format_command",
    "format_resume_command",
    "run_with_api",
    "stderr_console",
]

RunArgument = Annotated[str, RUN_PARAMETER]

WITH_OPTION_REFUSED = (
    "--with cannot be used while a server is running for this project. Start the server with the file."
)
PYTHON_TARGET_REFUSED = (
    "The running project server cannot load Python files."
    " Start it with the file (nerve serve --with {file}) and pass the workflow name,"
    " or use another store: --store FILE."
)


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
        The store file. Default: .nerve/nerve.db. With this option, no server is used.
    """

    json: Flag = False
    quiet: Flag = False
    modules: FileList = ()
    store: Path | None = None

    @property
    def store_file(self) -> Path:
        return project_store_file() if self.store is None else require_store_file(self.store)


DEFAULT_OPTIONS = CommonOptions()


@dataclass(slots=True)
class CliContext:
    """The API client of one command, and its output."""

    client: Client
    common: CommonOptions
    session: Session | None = None
    """The session of this process; None if a server owns the store."""
    problems: list[dict[str, Any]] = field(default_factory=list)
    """Problems in the definitions of the project."""
    out: TextIO = field(default_factory=lambda: sys.stdout)
    shown_run_id: str = ""
    """The run being followed, which the message after Ctrl-C names."""
    read_outcome: Callable[[], dict[str, Any]] | None = None
    """Returns the last known outcome of the followed run."""

    @property
    def interrupt_message(self) -> str:
        """The message after Ctrl-C."""
        if not self.shown_run_id:
            return "Interrupted."
        if self.session is None:
            return (
                "Interrupted. The run continues on the server. Follow it: "
                f"{format_command('watch', self.shown_run_id)}"
            )
        return (
            "Interrupted. The run is parked. Resume with: "
            f"{format_resume_command(self.common, self.shown_run_id)}"
        )

    def info(self, line: str) -> None:
        """Print a line on standard error, unless --quiet is given."""
        if not self.common.quiet:
            print(sanitize_text(line), file=sys.stderr)

    def print_result(
        self, result: BaseModel | list[Any] | dict[str, Any], lines: str | Sequence[str] = ()
    ) -> None:
        """Print the result: one JSON value with --json, otherwise lines."""
        if self.common.json:
            data = result.model_dump(mode="json") if isinstance(result, BaseModel) else result
            print(dump_safe_json(data), file=self.out)
        else:
            for line in [lines] if isinstance(lines, str) else lines:
                print(sanitize_text(line), file=self.out)

    async def ensure_driven(self, name: str) -> str:
        """Resume a run in this process unless a server drives it, and return its id.

        A child run is resumed through its root run.
        """
        named_run = await self.client.run(run=name)
        if self.session is None:
            return named_run.run_id
        from nerve.cli.resume import check_run_names

        store = self.session.engine.store
        row = store.run(named_run.run_id)
        while row is not None and row.parent is not None:
            row = store.run(row.parent)
        assert row is not None
        if row.ended is None:
            check_run_names(self.session, self.session.engine.workflow_of(row))
        run = self.session.engine.resume_run(row)
        await self.wait_until_idle(run)
        return run.run_id

    def options_for(self, run_id: str) -> list[str]:
        """Return the options a command on a run needs: without a server, its Python files and the store."""
        if self.session is None:
            return []
        row = self.session.engine.store.run(run_id)
        recorded = self.session.engine.modules_of(row) if row is not None else []
        return file_options(replace(self.common, modules=(*self.common.modules, *map(Path, recorded))))

    async def wait_until_idle(self, run: WorkflowRun) -> None:
        if self.session is not None:
            await wait_until_run_idle(self.session, run)


def run_with_api(
    common: CommonOptions,
    action: Callable[[CliContext], Awaitable[int]],
    writes: bool = False,
    read_only: bool = False,
) -> int:
    """Run an action against the API of the project server, or of this process; return the exit code.

    Unless `read_only`, the project state must belong to this user or be trusted.
    """
    out, contexts = sys.stdout, list[CliContext]()

    async def run_action() -> int:
        async with open_context(common, writes) as context:
            context.out = out
            contexts.append(context)
            return await action(context)

    try:
        if not read_only:
            require_trust(common.store)
        with contextlib.redirect_stdout(sys.stderr):  # nodes may print; stdout is for the result
            return asyncio.run(run_action())
    except ApiError as error:
        return report_api_error(error, common)
    except KeyboardInterrupt:
        if common.json and contexts and contexts[0].read_outcome is not None:
            print(dump_safe_json(contexts[0].read_outcome()), file=out)
        if not common.quiet:
            print(f"\n{contexts[0].interrupt_message if contexts else 'Interrupted.'}", file=sys.stderr)
        return INTERRUPTED


@contextlib.asynccontextmanager
async def open_context(common: CommonOptions, writes: bool) -> AsyncIterator[CliContext]:
    client = Client.of_project(via="cli") if common.store is None else None
    if client is not None:
        if common.modules:
            raise UsageError(WITH_OPTION_REFUSED)
        async with client:
            yield CliContext(client, common)
        return
    store_exists = common.store_file.is_file()
    if writes and not store_exists:
        common.store_file.parent.mkdir(parents=True, exist_ok=True)
    session = Session(store=common.store_file if store_exists or writes else None, project=Project().folder)
    try:
        context = CliContext(Client(Api(session), via="cli"), common, session)
        for file in common.modules:
            register_file(session, file)
        context.problems = (await context.client.reload()).problems
        if store_exists:
            session.dataspace.define_all()
        yield context
    finally:
        await session.close()


def report_api_error(error: ApiError, common: CommonOptions) -> int:
    """Print an API error and return the exit code."""
    if common.json:
        print(dump_safe_json({"error": error.to_dict()}))
    print(f"nerve: {format_api_error(error)}", file=sys.stderr)
    return REFUSED if error.status < 500 else FAILED


def format_api_error(error: ApiError) -> str:
    message = with_full_stop(error.message) + (f" {error.fix}" if error.fix else "")
    return sanitize_text(f"{message} [{error.code}]")


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


def stderr_console(common: CommonOptions) -> Console:
    return Console(stderr=True, highlight=False, quiet=common.quiet)


def count_noun(number: int, noun: str) -> str:
    """Return a count with its noun, such as `1 run` or `2 runs`."""
    return f"{number} {noun}{'' if number == 1 else 's'}"
