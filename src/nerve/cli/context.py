"""What the verbs share: their options, the api they talk to, and how they tell what it said."""

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
    "A server is running for this project, and has what it was started with: leave out --with."
)
PYTHON_TARGET_REFUSED = (
    "A server is running for this project, and has only the code that it was started with."
    " Start the server with the file (nerve serve --with {file}) and name the workflow,"
    " or use another store: --store FILE."
)


@Parameter(name="*")
@dataclass(frozen=True)
class CommonOptions:
    """Options that every verb has which talks to the api.

    Parameters
    ----------
    json
        Print one JSON value, and nothing else, on standard output.
    quiet
        Say nothing on standard error but errors.
    modules
        A Python file that has register(session), or a workflow file; only where no server runs.
    store
        The file of the store, instead of .nerve/nerve.db; no server is asked then.
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
    """The api of this project, and what is told of it."""

    client: Client
    common: CommonOptions
    session: Session | None = None
    """The session of this process; None where a server has it."""
    problems: list[dict[str, Any]] = field(default_factory=list)
    """What is wrong with the definitions of the project."""
    out: TextIO = field(default_factory=lambda: sys.stdout)
    shown_run_id: str = ""
    """The run that is shown until it ends, which goes on after Ctrl-C."""
    read_outcome: Callable[[], dict[str, Any]] | None = None
    """How it was when it was last looked at."""

    @property
    def interrupt_message(self) -> str:
        """What is said of it then."""
        if not self.shown_run_id:
            return "Interrupted."
        if self.session is None:
            return (
                "Interrupted. The run goes on in the server. See it: "
                f"{format_command('watch', self.shown_run_id)}"
            )
        return (
            "Interrupted. The run is parked. Go on with: "
            f"{format_resume_command(self.common, self.shown_run_id)}"
        )

    def info(self, line: str) -> None:
        """Something beside the result, for a person."""
        if not self.common.quiet:
            print(sanitize_text(line), file=sys.stderr)

    def print_result(
        self, result: BaseModel | list[Any] | dict[str, Any], lines: str | Sequence[str] = ()
    ) -> None:
        """The result: one JSON value, or lines."""
        if self.common.json:
            data = result.model_dump(mode="json") if isinstance(result, BaseModel) else result
            print(dump_safe_json(data), file=self.out)
        else:
            for line in [lines] if isinstance(lines, str) else lines:
                print(sanitize_text(line), file=self.out)

    async def ensure_driven(self, name: str) -> str:
        """Make sure that somebody drives a run; where no server does, this process. Gives its id.

        A child run goes on with the run that called it.
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
        """Return the options a command on a run needs; without a server, the files that have its code."""
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
    """Do something with the api: that of the server of this project, or one in this process.

    Unless it only `looks`, everything that it would use must be this user's, or be trusted.
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
        with contextlib.redirect_stdout(sys.stderr):  # what nodes print is no result
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
    """One clear error with its code and what to do; the exit code."""
    if common.json:
        print(dump_safe_json({"error": error.to_dict()}))
    print(f"nerve: {format_api_error(error)}", file=sys.stderr)
    return REFUSED if error.status < 500 else FAILED


def format_api_error(error: ApiError) -> str:
    message = with_full_stop(error.message) + (f" {error.fix}" if error.fix else "")
    return sanitize_text(f"{message} [{error.code}]")


def format_command(*words: str) -> str:
    """A command as it can be typed."""
    return " ".join(["nerve", *map(shlex.quote, words)])


def format_resume_command(common: CommonOptions, run_id: str) -> str:
    """The command that goes on with a run."""
    return format_command("resume", run_id, *file_options(common))


def file_options(common: CommonOptions) -> list[str]:
    """Return the options that name the files a command works with."""
    options = [part for file in dict.fromkeys(common.modules) for part in ("--with", str(file))]
    return [*options, "--store", str(common.store)] if common.store is not None else options


def stderr_console(common: CommonOptions) -> Console:
    return Console(stderr=True, highlight=False, quiet=common.quiet)


def count_noun(number: int, noun: str) -> str:
    """A number of things in words, such as `1 run`."""
    return f"{number} {noun}{'' if number == 1 else 's'}"
