"""What commands share: access to the API in this process or on a server, and output of results.

A command imports this module before it knows its arguments, so the engine and the models of the API are
imported on first use.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator, Sequence
from dataclasses import field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO, cast

from nerve.api.errors import ApiError
from nerve.cli.errors import UsageError
from nerve.cli.exit_codes import COMPLETED, INTERRUPTED
from nerve.cli.outcome import RunOutcome, outcome_from_run, print_outcome, state_when_idle
from nerve.cli.parameters import CommonOptions, file_options, format_command, format_resume_command
from nerve.cli.trust import require_trust
from nerve.early_interrupt import install_early_interrupt, remove_early_interrupt
from nerve.errors import NerveError, StoreInUse
from nerve.lazy_dataclass import dataclass
from nerve.project.paths import ProjectPaths
from nerve.ui.sanitize import dump_safe_json, sanitize_text

if TYPE_CHECKING:
    from rich.console import Console

    from nerve.api import Api
    from nerve.api.models import ApiResponse, RunResponse
    from nerve.cli.gate_answers import PresetAnswers
    from nerve.client import Client
    from nerve.client.stored_lists import StoredLists
    from nerve.server.on_demand import OnDemandServer
    from nerve.session import Session

WITH_OPTION_REFUSED = (
    "--with cannot be used while a server is running for this project. Start the server with the file."
)
BUSY_COMMAND = (
    "{} serves this project until it ends, and cannot load Python files."
    " Wait for it, or use another store: --store FILE."
)
STORE_PATIENCE_S = 2.0
"""Seconds to wait for a store that another command has just opened, and is about to serve."""
TAKE_OVER_PATIENCE_S = 30.0
"""Seconds to wait for the store of a command that has ended: its agents may take a while to end."""
STORE_POLL_S = 0.05
CLIENT_GRACE_S = 1.0
"""Seconds that the other commands have to read the end of their runs before this one exits."""


@dataclass(slots=True)
class CliContext:
    """The API client of one command, and its output."""

    client: Client
    common: CommonOptions
    session: Session | None = None
    """The session of this process; None if a server owns the store, or the store alone answers."""
    api: Api | None = None
    """The API of the session of this process."""
    stored_lists: StoredLists | None = None
    """The store, if it alone answers the command."""
    problems: list[dict[str, Any]] = field(default_factory=list)
    """Problems in the definitions of the project."""
    out: TextIO = field(default_factory=lambda: sys.stdout)
    shown_run_id: str = ""
    """The run being followed, which the message after Ctrl-C names."""
    read_outcome: Callable[[], dict[str, Any]] | None = None
    """Returns the last known outcome of the followed run."""
    own_server: OnDemandServer | None = None
    """Serves the session of this process to other commands."""
    command_server: CommandServer | None = None
    """The other command that serves the project, if it is not a server that stays."""

    @property
    def has_server(self) -> bool:
        """Whether a server owns the store and drives its runs."""
        return self.session is None and self.stored_lists is None

    @property
    def interrupt_message(self) -> str:
        """The message after Ctrl-C."""
        if not self.shown_run_id:
            return "Interrupted."
        if self.session is None:
            place = "on the server" if self.command_server is None else f"in {self.command_server}"
            watch = format_command("watch", self.shown_run_id)
            return f"Interrupted. The run continues {place}. Follow it: {watch}"
        return (
            "Interrupted. The run is parked. Resume with: "
            f"{format_resume_command(self.common, self.shown_run_id)}"
        )

    def shown_state(self, run: RunResponse) -> str:
        """Return the state of a run: a server drives all runs, a command only those that it was asked to."""
        is_driven = self.has_server and not (self.command_server is not None and run.parked)
        return run.state if is_driven else state_when_idle(run)

    def info(self, line: str) -> None:
        """Print a line on standard error, unless --quiet is given."""
        if not self.common.quiet:
            print(sanitize_text(line), file=sys.stderr)

    def print_result(
        self, result: ApiResponse | list[Any] | dict[str, Any], lines: str | Sequence[str] = ()
    ) -> None:
        """Print the result: one JSON value with --json, otherwise lines."""
        if self.common.json:
            print(dump_safe_json(to_json_data(result)), file=self.out)
        else:
            for line in [lines] if isinstance(lines, str) else lines:
                print(sanitize_text(line), file=self.out)

    async def ensure_driven(self, name: str, until_idle: bool = True) -> str:
        """Drive a run in this process unless a server drives it, and return the id of its root run.

        `until_idle` waits until the run ends or needs a person, so that its gates are open.
        """
        run = await self.client.run(run=name)
        if self.session is None:
            return run.run_id
        from nerve.cli.session_setup import drive_run, wait_until_idle

        while run.parent is not None:  # a child run continues with its root run
            run = await self.client.run(run=run.parent)
        drive_run(self.session, run.run_id)
        if until_idle:
            await wait_until_idle(self.session)
        return run.run_id

    def options_for(self, run_id: str) -> list[str]:
        """Return the options a command on a run needs: without a server, its Python files and the store."""
        if self.stored_lists is not None:
            recorded = self.stored_lists.modules_of(run_id)
        elif self.session is None:
            return []
        else:
            from nerve.api.lookup import find_run_row

            recorded = self.session.engine.modules_of(find_run_row(self.session, run_id))
        return file_options(replace(self.common, modules=(*self.common.modules, *map(Path, recorded))))

    async def follow_or_report(
        self,
        run: RunResponse,
        wait: bool,
        answers: PresetAnswers | None = None,
        known_seq: int = 0,
        action_text: str = "",
    ) -> int:
        """Report that a run continues on the server, or follow it; return the exit code."""
        if self.session is None and not wait:
            self.print_result(outcome_from_run(run).to_dict(), run.run_id)
            if not self.common.json:
                watch = format_command("watch", run.run_id)
                place = "on the server" if self.command_server is None else f"in {self.command_server}"
                self.info(f"{action_text or 'The run continues'} {place}. Follow it: {watch}")
            return COMPLETED
        from nerve.cli.run_follower import RunFollower

        code = self.print_outcome(await RunFollower(self, run.run_id, answers, known_seq).follow())
        await self.wait_for_other_runs()
        return code

    async def wait_for_other_runs(self) -> None:
        """Serve the runs that other commands have in this process until they end or need a person."""
        if self.session is None or self.own_server is None or not self.own_server.is_started:
            return
        from nerve.cli.session_setup import has_active_runs, wait_until_idle

        self.out.flush()
        # The outcome is printed: Ctrl-C must not print it again.
        self.shown_run_id, self.read_outcome = "", None
        if has_active_runs(self.session):
            self.info(
                "Runs of other commands continue in this process, which serves them until they end. "
                "Ctrl-C parks them, or a `nerve run` that follows them continues them."
            )
        while has_active_runs(self.session):
            await wait_until_idle(self.session)
        await self.own_server.wait_until_unused(CLIENT_GRACE_S)

    def print_outcome(self, outcome: RunOutcome) -> int:
        """Print the outcome of a run; return the exit code."""
        return print_outcome(outcome, self.common, self.out, has_server=self.session is None)


def to_json_data(result: Any) -> Any:
    """Return the JSON form of a response, or of a list of responses."""
    if isinstance(result, list):
        return [to_json_data(each) for each in result]
    return result.model_dump(mode="json") if hasattr(result, "model_dump") else result


CommandAction = Callable[[CliContext], Coroutine[Any, Any, int]]


@dataclass(frozen=True, slots=True)
class CommandServer:
    """Another command that drives runs, and serves the project until it ends."""

    pid: int
    command: str
    modules: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"process {self.pid} ({self.command})"

    @property
    def has_ended(self) -> bool:
        from nerve.client.server_address import find_server_pid

        return find_server_pid(Path()) != self.pid


class CommandServerGone(Exception):
    """The command that drove a run has ended, and the run may not have."""

    def __init__(
        self, server: CommandServer, run_id: str, answers: PresetAnswers | None, known_seq: int
    ) -> None:
        super().__init__(f"{server} has ended")
        self.server, self.run_id, self.answers, self.known_seq = server, run_id, answers, known_seq

    async def take_over(self, context: CliContext) -> int:
        """Continue the run in this process, or in that of another command which was faster; follow it."""
        place = f"in {context.command_server}" if context.session is None else "in this process"
        context.info(f"{str(self).capitalize()}. The run continues {place}.")
        if context.session is not None:
            register_files(context.session, map(Path, self.server.modules))
            await context.ensure_driven(self.run_id, until_idle=False)
        else:
            with contextlib.suppress(ApiError):  # it is not parked any more
                await context.client.resume(run=self.run_id)
        run = await context.client.run(run=self.run_id)
        return await context.follow_or_report(run, True, self.answers, self.known_seq)


def run_with_api(
    common: CommonOptions,
    action: CommandAction,
    writes: bool = False,
    read_only: bool = False,
    definitions: bool | None = None,
    only_lists: bool = False,
    serves_as: str = "",
) -> int:
    """Run an action against the API of the project server, or of this process; return the exit code.

    Unless `read_only`, the project state must belong to this user or be trusted. Without a server, the
    workflow files of the project are read if the action needs `definitions`; by default unless `read_only`.
    An action that `only_lists` runs or gates, and prints at its end, needs no engine without a server.
    `serves_as` names a command that drives runs: without a server, it serves the project meanwhile.
    """
    contexts = list[CliContext]()
    try:
        if only_lists and (code := list_from_store(common, action, contexts)) is not None:
            return code
        if not read_only:
            require_trust(common.chosen_store_file, has_url=common.store_url is not None)
        needs_definitions = not read_only if definitions is None else definitions
        patience_s = STORE_PATIENCE_S
        while True:
            try:
                return run_in_event_loop(
                    common, action, contexts, writes, needs_definitions, serves_as, patience_s
                )
            except CommandServerGone as gone:
                contexts.clear()
                action, needs_definitions, patience_s = gone.take_over, True, TAKE_OVER_PATIENCE_S
                serves_as = serves_as or gone.server.command
    except KeyboardInterrupt:
        if common.json and contexts and contexts[0].read_outcome is not None:
            print(dump_safe_json(contexts[0].read_outcome()), file=contexts[0].out)
        if not common.quiet:
            print(f"\n{contexts[0].interrupt_message if contexts else 'Interrupted.'}", file=sys.stderr)
        return INTERRUPTED


def list_from_store(common: CommonOptions, action: CommandAction, contexts: list[CliContext]) -> int | None:
    """Run an action that lists runs or gates on the store alone; return None if it needs an API."""
    with exit_quietly_while_importing():
        from nerve.client import find_server
        from nerve.client.stored_lists import EngineRequired, StoredLists

    if common.modules or (common.store is None and find_server(Path()) is not None):
        return None
    with StoredLists.open(Path(), common.store_location) as lists:
        contexts.append(CliContext(cast("Client", lists), common, stored_lists=lists))
        coroutine = action(contexts[0])
        try:
            coroutine.send(None)  # without an event loop, because a store never waits
        except StopIteration as end:
            return int(end.value)
        except (EngineRequired, NerveError):
            contexts.clear()
    return None


def run_in_event_loop(
    common: CommonOptions,
    action: CommandAction,
    contexts: list[CliContext],
    writes: bool,
    definitions: bool,
    serves_as: str,
    patience_s: float,
) -> int:
    with exit_quietly_while_importing():
        import asyncio

        from nerve.client.client import ServerNotRunning
        from nerve.core.step_output import capture_standard_streams

    out = sys.stdout

    async def run_action() -> int:
        deadline, has_lost_server = asyncio.get_running_loop().time() + patience_s, False
        while True:
            try:
                async with open_context(common, writes, definitions, serves_as) as context:
                    context.out = out
                    contexts.append(context)
                    return await action(context)
            except StoreInUse:  # by a command that is about to serve the project, or about to end
                if common.store is not None or asyncio.get_running_loop().time() > deadline:
                    raise
                contexts.clear()
            except ServerNotRunning:
                if has_lost_server:
                    raise
                # It has ended since open_context found it. It may have the store a moment longer.
                has_lost_server, deadline = True, asyncio.get_running_loop().time() + patience_s
                contexts.clear()
            await asyncio.sleep(STORE_POLL_S)

    with capture_standard_streams(redirect_stdout=True):  # standard output is for the result
        return asyncio.run(run_action())


@contextlib.contextmanager
def exit_quietly_while_importing() -> Iterator[None]:
    """Exit quietly at Ctrl-C, as during the imports before the command."""
    with contextlib.suppress(ValueError):  # not the main thread
        install_early_interrupt()
    yield
    remove_early_interrupt()


@contextlib.asynccontextmanager
async def open_context(
    common: CommonOptions, writes: bool, definitions: bool = True, serves_as: str = ""
) -> AsyncIterator[CliContext]:
    from nerve.client import Client

    client = Client.of_project(via="cli") if common.store is None else None
    if client is not None:
        server = find_command_server()
        if common.modules:
            raise UsageError(WITH_OPTION_REFUSED if server is None else BUSY_COMMAND.format(server))
        async with client:
            yield CliContext(client, common, command_server=server)
        return
    if serves_as and common.store is None and common.store_url is None:
        from nerve.server.on_demand import serve_on_demand

        paths, modules = ProjectPaths.of(Path()), [str(file.absolute()) for file in common.modules]
        async with (
            serve_on_demand(paths, f"nerve {serves_as}", modules) as own_server,
            open_own_context(common, writes, definitions) as context,
        ):
            context.own_server = own_server
            if own_server is None:
                yield context
                return
            assert context.api is not None
            own_server.start_on_connection(context.api)
            try:
                yield context
            finally:
                await own_server.close()  # before the session
        return
    async with open_own_context(common, writes, definitions) as context:
        yield context


def find_command_server() -> CommandServer | None:
    """Return the command that serves the project; None if it is a server that stays."""
    from nerve.client.server_address import find_server_pid, read_server_info

    info, pid = read_server_info(ProjectPaths.of(Path())) or {}, find_server_pid(Path())
    command, modules = info.get("command"), info.get("modules")
    if pid is None or not isinstance(command, str):
        return None
    return CommandServer(pid, command, tuple(map(str, modules)) if isinstance(modules, list) else ())


@contextlib.asynccontextmanager
async def open_own_context(
    common: CommonOptions, writes: bool, definitions: bool
) -> AsyncIterator[CliContext]:
    """Open a session in this process."""
    # Only a command without a server needs the engine, whose imports take long.
    from nerve.session import Session

    if (url := common.store_url) is not None:
        async with open_database_context(common, url, definitions) as context:
            yield context
        return
    store_exists = common.has_store
    if writes and not store_exists:
        common.store_file.parent.mkdir(parents=True, exist_ok=True)
    session = Session(store=common.store_location if store_exists or writes else None, project=Path())
    try:
        yield await open_session_context(common, session, store_exists, definitions)
    finally:
        await session.close()


async def open_session_context(
    common: CommonOptions, session: Session, has_store: bool, definitions: bool
) -> CliContext:
    """Return the context of a command that executes runs in this process."""
    from nerve.api import Api
    from nerve.client import Client

    api = Api(session)
    context = CliContext(Client(api, via="cli"), common, session, api=api)
    register_files(session, common.modules)
    if has_store:
        session.engine  # noqa: B018 - opens the store now, to report who owns it
    if definitions:
        context.problems = (await context.client.reload()).problems
        if has_store:
            session.dataspace.define_all()
    return context


@contextlib.asynccontextmanager
async def open_database_context(
    common: CommonOptions, url: str, definitions: bool
) -> AsyncIterator[CliContext]:
    """Use a session in PostgreSQL: own it, or let the process that owns it execute the commands."""
    from nerve.api import Api
    from nerve.api.service import execute_operation
    from nerve.api.shared_session import SharedSession, execute_sent_commands
    from nerve.client import Client
    from nerve.project.engine_url import ENGINE_SCHEME, parse_engine_url
    from nerve.session import Session
    from nerve.store.postgres import PostgresStore

    try:
        store = PostgresStore(url)
    except StoreInUse as error:
        engine = parse_engine_url(error.owner) if error.owner.startswith(ENGINE_SCHEME) else None
        if common.modules and engine is None:
            raise UsageError(
                f"--with cannot be used while another process executes the runs ({error.owner}). "
                "Start that process with the file."
            ) from None

        def prepare(session: Session) -> None:
            register_files(session, common.modules)

        session = SharedSession(url, Path(), execute_operation, prepare, engine=engine)
        async with session.open() as shared:
            yield CliContext(Client(Api(shared), via="cli"), common, problems=shared.problems)
        return
    owned = Session(store=store, project=Path())
    try:
        context = await open_session_context(common, owned, True, definitions)
        async with execute_sent_commands(url, owned, store.epoch, execute_operation):
            yield context
    finally:
        await owned.close()
        store.close()


def register_files(session: Session, files: Iterable[Path]) -> None:
    """Register the contents of the --with files."""
    for file in files:
        from nerve.cli.session_setup import register_file

        register_file(session, file)


def format_api_error(error: ApiError) -> str:
    return sanitize_text(f"{error.sentences} [{error.code}]")


def stderr_console(common: CommonOptions) -> Console:
    from rich.console import Console

    return Console(stderr=True, highlight=False, quiet=common.quiet)
