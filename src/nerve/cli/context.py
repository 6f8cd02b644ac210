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
from nerve.cli.errors import UsageError, with_full_stop
from nerve.cli.exit_codes import COMPLETED, INTERRUPTED
from nerve.cli.outcome import RunOutcome, outcome_from_run, print_outcome
from nerve.cli.parameters import CommonOptions, file_options, format_command, format_resume_command
from nerve.cli.trust import require_trust
from nerve.early_interrupt import install_early_interrupt, remove_early_interrupt
from nerve.errors import NerveError
from nerve.lazy_dataclass import dataclass
from nerve.ui.sanitize import dump_safe_json, sanitize_text

if TYPE_CHECKING:
    from rich.console import Console

    from nerve.api.models import ApiResponse, RunResponse
    from nerve.cli.gate_answers import PresetAnswers
    from nerve.client import Client
    from nerve.client.stored_lists import StoredLists
    from nerve.session import Session

WITH_OPTION_REFUSED = (
    "--with cannot be used while a server is running for this project. Start the server with the file."
)


@dataclass(slots=True)
class CliContext:
    """The API client of one command, and its output."""

    client: Client
    common: CommonOptions
    session: Session | None = None
    """The session of this process; None if a server owns the store, or the store alone answers."""
    stored_lists: StoredLists | None = None
    """The store, if it alone answers the command."""
    problems: list[dict[str, Any]] = field(default_factory=list)
    """Problems in the definitions of the project."""
    out: TextIO = field(default_factory=lambda: sys.stdout)
    shown_run_id: str = ""
    """The run being followed, which the message after Ctrl-C names."""
    read_outcome: Callable[[], dict[str, Any]] | None = None
    """Returns the last known outcome of the followed run."""

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
        self, result: ApiResponse | list[Any] | dict[str, Any], lines: str | Sequence[str] = ()
    ) -> None:
        """Print the result: one JSON value with --json, otherwise lines."""
        if self.common.json:
            data = result if isinstance(result, list | dict) else result.model_dump(mode="json")
            print(dump_safe_json(data), file=self.out)
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
                self.info(f"{action_text or 'The run continues'} on the server. Follow it: {watch}")
            return COMPLETED
        from nerve.cli.run_follower import RunFollower

        return self.print_outcome(await RunFollower(self, run.run_id, answers, known_seq).follow())

    def print_outcome(self, outcome: RunOutcome) -> int:
        """Print the outcome of a run; return the exit code."""
        return print_outcome(outcome, self.common, self.out, has_server=self.session is None)


CommandAction = Callable[[CliContext], Coroutine[Any, Any, int]]


def run_with_api(
    common: CommonOptions,
    action: CommandAction,
    writes: bool = False,
    read_only: bool = False,
    definitions: bool | None = None,
    only_lists: bool = False,
) -> int:
    """Run an action against the API of the project server, or of this process; return the exit code.

    Unless `read_only`, the project state must belong to this user or be trusted. Without a server, the
    workflow files of the project are read if the action needs `definitions`; by default unless `read_only`.
    An action that `only_lists` runs or gates, and prints at its end, needs no engine without a server.
    """
    contexts = list[CliContext]()
    try:
        if only_lists and (code := list_from_store(common, action, contexts)) is not None:
            return code
        if not read_only:
            require_trust(common.chosen_store_file, has_url=common.store_url is not None)
        needs_definitions = not read_only if definitions is None else definitions
        return run_in_event_loop(common, action, contexts, writes, needs_definitions)
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
) -> int:
    with exit_quietly_while_importing():
        import asyncio

        import nerve.client.client  # noqa: F401 - later imports of it are instant
        from nerve.core.step_output import capture_standard_streams

    out = sys.stdout

    async def run_action() -> int:
        async with open_context(common, writes, definitions) as context:
            context.out = out
            contexts.append(context)
            return await action(context)

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
    common: CommonOptions, writes: bool, definitions: bool = True
) -> AsyncIterator[CliContext]:
    from nerve.client import Client

    client = Client.of_project(via="cli") if common.store is None else None
    if client is not None:
        if common.modules:
            raise UsageError(WITH_OPTION_REFUSED)
        async with client:
            yield CliContext(client, common)
        return
    # Only a command without a server needs the engine, whose imports take long.
    from nerve.api import Api
    from nerve.session import Session

    store_exists = common.has_store
    if writes and not store_exists:
        common.store_file.parent.mkdir(parents=True, exist_ok=True)
    session = Session(store=common.store_location if store_exists or writes else None, project=Path())
    try:
        context = CliContext(Client(Api(session), via="cli"), common, session)
        register_files(session, common.modules)
        if store_exists:
            session.engine  # noqa: B018 - opens the store now, to report who owns it
        if definitions:
            context.problems = (await context.client.reload()).problems
            if store_exists:
                session.dataspace.define_all()
        yield context
    finally:
        await session.close()


def register_files(session: Session, files: Iterable[Path]) -> None:
    """Register the contents of the --with files."""
    for file in files:
        from nerve.cli.session_setup import register_file

        register_file(session, file)


def format_api_error(error: ApiError) -> str:
    message = with_full_stop(error.message) + (f" {error.fix}" if error.fix else "")
    return sanitize_text(f"{message} [{error.code}]")


def stderr_console(common: CommonOptions) -> Console:
    from rich.console import Console

    return Console(stderr=True, highlight=False, quiet=common.quiet)
