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
from nerve.api.commands import at_rest
from nerve.cli.completion import RUN
from nerve.cli.exits import FAILED, INTERRUPTED, REFUSED
from nerve.cli.flags import Files, Flag
from nerve.cli.project import Project, plain, store_of
from nerve.cli.providing import provide
from nerve.cli.trust import require_trust
from nerve.cli.usage import UsageError, stopped
from nerve.client import Client
from nerve.commander.core.harmless import harmless, in_json
from nerve.core.session import Session
from nerve.core.workflow import WorkflowRun

__all__ = [
    "CODE",
    "DEFAULT",
    "SERVED",
    "Common",
    "Door",
    "Files",
    "Flag",
    "Run",
    "again",
    "answering",
    "command",
    "console",
    "sentence",
]

Run = Annotated[str, RUN]

SERVED = "A server is running for this project, and has what it was started with: leave out --with."
CODE = (
    "A server is running for this project, and has only the code that it was started with."
    " Start the server with the file (nerve serve --with {file}) and name the workflow,"
    " or use another store: --store FILE."
)


@Parameter(name="*")
@dataclass(frozen=True)
class Common:
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
    modules: Files = ()
    store: Path | None = None

    @property
    def file(self) -> Path:
        return store_of() if self.store is None else plain(self.store)


DEFAULT = Common()


@dataclass(slots=True)
class Door:
    """The api of this project, and what is told of it."""

    client: Client
    common: Common
    session: Session | None = None
    """The session of this process; None where a server has it."""
    problems: list[dict[str, Any]] = field(default_factory=list)
    """What is wrong with the definitions of the project."""
    out: TextIO = field(default_factory=lambda: sys.stdout)
    shows: str = ""
    """The run that is shown until it ends, which goes on after Ctrl-C."""
    seen: Callable[[], dict[str, Any]] | None = None
    """How it was when it was last looked at."""

    @property
    def left(self) -> str:
        """What is said of it then."""
        if not self.shows:
            return "Interrupted."
        if self.session is None:
            return f"Interrupted. The run goes on in the server. See it: {command('watch', self.shows)}"
        return f"Interrupted. The run is parked. Go on with: {again(self.common, self.shows)}"

    def say(self, line: str) -> None:
        """Something beside the result, for a person."""
        if not self.common.quiet:
            print(harmless(line), file=sys.stderr)

    def tell(self, told: BaseModel | list[Any] | dict[str, Any], lines: str | Sequence[str] = ()) -> None:
        """The result: one JSON value, or lines."""
        if self.common.json:
            data = told.model_dump(mode="json") if isinstance(told, BaseModel) else told
            print(in_json(data), file=self.out)
        else:
            for line in [lines] if isinstance(lines, str) else lines:
                print(harmless(line), file=self.out)

    async def taken_up(self, name: str) -> str:
        """Make sure that somebody drives a run; where no server does, this process. Gives its id.

        A child run goes on with the run that called it.
        """
        found = await self.client.run(run=name)
        if self.session is None:
            return found.run_id
        from nerve.cli.resume import check_names

        store = self.session.engine.store
        row = store.run(found.run_id)
        while row is not None and row.parent is not None:
            row = store.run(row.parent)
        assert row is not None
        if row.ended is None:
            check_names(self.session, self.session.engine.workflow(row))
        run = self.session.engine.take_up(row)
        await self.rests(run)
        return run.run_id

    def options_for(self, run_id: str) -> list[str]:
        """Return the options a command on a run needs; without a server, the files that have its code."""
        if self.session is None:
            return []
        row = self.session.engine.store.run(run_id)
        recorded = self.session.engine.modules_of(row) if row is not None else []
        return file_options(replace(self.common, modules=(*self.common.modules, *map(Path, recorded))))

    async def rests(self, run: WorkflowRun) -> None:
        if self.session is not None:
            await at_rest(self.session, run)


def answering(
    common: Common, do: Callable[[Door], Awaitable[int]], writes: bool = False, looks: bool = False
) -> int:
    """Do something with the api: that of the server of this project, or one in this process.

    Unless it only `looks`, everything that it would use must be this user's, or be trusted.
    """
    out, doors = sys.stdout, list[Door]()

    async def go() -> int:
        async with opened(common, writes) as door:
            door.out = out
            doors.append(door)
            return await do(door)

    try:
        if not looks:
            require_trust(common.store)
        with contextlib.redirect_stdout(sys.stderr):  # what nodes print is no result
            return asyncio.run(go())
    except ApiError as error:
        return refused(error, common)
    except KeyboardInterrupt:
        if common.json and doors and doors[0].seen is not None:
            print(in_json(doors[0].seen()), file=out)
        if not common.quiet:
            print(f"\n{doors[0].left if doors else 'Interrupted.'}", file=sys.stderr)
        return INTERRUPTED


@contextlib.asynccontextmanager
async def opened(common: Common, writes: bool) -> AsyncIterator[Door]:
    client = Client.of_project(via="cli") if common.store is None else None
    if client is not None:
        if common.modules:
            raise UsageError(SERVED)
        async with client:
            yield Door(client, common)
        return
    there = common.file.is_file()
    if writes and not there:
        common.file.parent.mkdir(parents=True, exist_ok=True)
    session = Session(store=common.file if there or writes else None, project=Project().folder)
    try:
        door = Door(Client(Api(session), via="cli"), common, session)
        for file in common.modules:
            provide(session, file)
        door.problems = (await door.client.reload()).problems
        if there:
            session.dataspace.define_all()
        yield door
    finally:
        await session.close()


def refused(error: ApiError, common: Common) -> int:
    """One clear error with its code and what to do; the exit code."""
    if common.json:
        print(in_json({"error": error.to_dict()}))
    print(f"nerve: {sentence(error)}", file=sys.stderr)
    return REFUSED if error.status < 500 else FAILED


def sentence(error: ApiError) -> str:
    told = stopped(error.message) + (f" {error.fix}" if error.fix else "")
    return harmless(f"{told} [{error.code}]")


def command(*words: str) -> str:
    """A command as it can be typed."""
    return " ".join(["nerve", *map(shlex.quote, words)])


def again(common: Common, run_id: str) -> str:
    """The command that goes on with a run."""
    return command("resume", run_id, *file_options(common))


def file_options(common: Common) -> list[str]:
    """Return the options that name the files a command works with."""
    options = [part for file in dict.fromkeys(common.modules) for part in ("--with", str(file))]
    return [*options, "--store", str(common.store)] if common.store is not None else options


def console(common: Common) -> Console:
    return Console(stderr=True, highlight=False, quiet=common.quiet)


def count_noun(number: int, what: str) -> str:
    """A number of things in words, such as `1 run`."""
    return f"{number} {what}{'' if number == 1 else 's'}"
