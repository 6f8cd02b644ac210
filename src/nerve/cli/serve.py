"""`nerve serve`: run the project server until Ctrl-C or SIGTERM."""

from __future__ import annotations

import json as json_text
import re
import sys
from typing import TYPE_CHECKING, Annotated

from cyclopts import validators

from nerve.cli.context import find_command_server
from nerve.cli.errors import UsageError
from nerve.cli.parameters import (
    STORE_FILE,
    FileList,
    Flag,
    Parameter,
    TextList,
    find_store_url,
    require_store_file,
)
from nerve.cli.session_setup import register_file
from nerve.cli.trust import require_trust
from nerve.errors import EngineUnavailable, StoreError
from nerve.project.engine_url import TemporalAddress, engine_url_of_environment, parse_engine_url
from nerve.ui.formatting import count_noun

if TYPE_CHECKING:
    from nerve.server.serve import RunningServer
    from nerve.session import Session


OPEN_COMMAND = "nerve web"
"""Printed instead of a sign-in URL if the output is not a terminal, so that no log contains a code."""
PREFIX_PATTERN = re.compile(r"(/[A-Za-z0-9._~-]+)+")


def serve_command(
    *,
    host: str = "127.0.0.1",
    port: int | None = None,
    name: TextList = (),
    wide: Flag = False,
    prefix: str = "",
    idle: Annotated[float | None, Parameter(validator=validators.Number(gt=0))] = None,
    store: str | None = None,
    engine: str | None = None,
    log_json: Flag = False,
    modules: FileList = (),
    json: Flag = False,
    quiet: Flag = False,
) -> int:
    """Run the project server, which executes the runs of this project and serves its API.

    Ctrl-C and SIGTERM stop it. Running runs are parked and resume when the server restarts.

    Parameters
    ----------
    host
        The address to listen on.
    port
        The port. Default: 7433, or any free port if it is in use.
    name
        An additional host name with port that clients may use, such as example.org:8000. Repeatable.
    wide
        Allow connections from other machines. Traffic is not encrypted unless a proxy adds TLS.
    prefix
        The path under which a proxy serves the web page, such as /nerve.
    idle
        Exit after this many seconds without connections and active runs. Waiting runs are parked.
    store
        The URL of a database in PostgreSQL. Default: NERVE_STORE, or the file .nerve/nerve.db.
    engine
        The URL of a Temporal cluster that executes the runs, temporal://HOST:7233/NAMESPACE. Default:
        NERVE_ENGINE, or this server. Needs a database.
    log_json
        Write the log as JSON lines, with the run and the step of each record.
    modules
        A Python file that defines register(session), or a workflow file. Repeatable.
    json
        Print one JSON object when the server is ready.
    quiet
        Print only results and errors.
    """
    from nerve.api import ApiError, errors
    from nerve.server.serve import serve as run_server

    def prepare(session: Session) -> None:
        for file in modules:
            register_file(session, file)

    def ready(serving: RunningServer) -> None:
        if json:
            names = ("url", "socket", "token_file", "workflows", "recovered", "problems", "executes_runs")
            print(json_text.dumps({name: getattr(serving, name) for name in names}), flush=True)
        if not quiet:
            print("\n".join(format_server_notice(serving)), file=sys.stderr, flush=True)

    if (server := find_command_server()) is not None:
        raise ApiError(
            "conflict",
            f"{server} drives runs of this project".capitalize(),
            "Wait until it has ended, or stop it with Ctrl-C: its runs are parked and resume here.",
        )
    if prefix and not PREFIX_PATTERN.fullmatch(prefix):
        raise UsageError(f"--prefix must be a path such as /nerve, got '{prefix}'.")
    url = find_store_url(store)
    if url is None:
        if store is not None:
            raise UsageError(f"--store must be a URL such as postgresql://USER@HOST/DATABASE, got '{store}'.")
        require_store_file(STORE_FILE)
    address = find_engine_address(engine, url)
    require_trust(has_url=url is not None)
    try:
        return run_server(
            ".",
            host,
            port,
            hosts=name,
            wide=wide,
            prefix=prefix,
            idle=idle,
            store=url,
            engine=address,
            log_json=log_json,
            modules=modules,
            prepare=prepare,
            ready=ready,
        )
    except StoreError as error:
        raise errors.to_api_error(error) from error
    except EngineUnavailable as error:
        raise ApiError("refused", f"{error.problem}.", f"{error.fix}.") from None
    except OSError as error:
        message = f"{error.filename or 'system call'}: {error.strerror or error}"
        raise ApiError("refused", message, "Fix the problem and start the server again.") from error


def find_engine_address(option: str | None, store_url: str | None) -> TemporalAddress | None:
    """Return the engine of the option --engine or the environment; None if the server executes the runs."""
    url = option or engine_url_of_environment()
    if url is None:
        return None
    if store_url is None:
        raise UsageError(
            f"Runs in {url} need a database: --store postgresql://USER@HOST/DATABASE, or NERVE_STORE."
        )
    try:
        return parse_engine_url(url)
    except ValueError as error:
        raise UsageError(f"{error}.") from None


def format_server_notice(serving: RunningServer) -> list[str]:
    """Return the lines printed when the server is ready."""
    problems = [f"{problem['file']}: {problem['message']}" for problem in serving.problems]
    recovery_text = f", resuming {count_noun(serving.recovered, 'run')}" if serving.recovered else ""
    return [
        *problems,
        f"Serving {count_noun(serving.workflows, 'workflow')} at {serving.url}{recovery_text}. Press Ctrl-C "
        "to stop.",
        f"Web page, signed in once: {serving.launch_url if sys.stderr.isatty() else OPEN_COMMAND}",
        f"Token for programs: {serving.token_file}",
    ]
