"""`nerve serve`: the server of this project, until Ctrl-C or SIGTERM."""

from __future__ import annotations

import json as json_text
import sys
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter, validators

from nerve.cli.context import FileList, Flag, count_noun
from nerve.cli.parameters import TextList
from nerve.cli.session_setup import register_file
from nerve.cli.targets import STORE_FILE, require_store_file
from nerve.cli.trust import require_trust
from nerve.errors import StoreError

if TYPE_CHECKING:
    from nerve.server.serve import RunningServer
    from nerve.session import Session


SIGN_IN_COMMAND = "nerve server sign-in"
"""What makes the code that signs in a browser, where the output of a server may be kept as a log."""


def serve_command(
    *,
    host: str = "127.0.0.1",
    port: int | None = None,
    name: TextList = (),
    wide: Flag = False,
    idle: Annotated[float | None, Parameter(validator=validators.Number(gt=0))] = None,
    modules: FileList = (),
    json: Flag = False,
    quiet: Flag = False,
) -> int:
    """Serve this project: its runs go on here, and everything else talks to this process.

    Ctrl-C and SIGTERM stop it; what is running is parked, and the next server goes on with it.

    Parameters
    ----------
    host
        The address to listen on.
    port
        The port; without it 7433, or any that is free.
    name
        A name by which it is reached, as a browser writes it: example.org:8000; can be given several times.
    wide
        Let other machines reach it. What is sent can be read on the way, unless something else encrypts it.
    idle
        End after so many seconds in which nobody is connected and no run goes on; runs that wait are parked.
    modules
        A Python file that has register(session), or a workflow file; can be given several times.
    json
        Print one JSON object when it is ready.
    quiet
        Say nothing on standard error but errors.
    """
    from nerve.api import ApiError, errors
    from nerve.server.serve import serve as run_server

    def prepare(session: Session) -> None:
        for file in modules:
            register_file(session, file)

    def ready(serving: RunningServer) -> None:
        if json:
            names = ("url", "socket", "token_file", "workflows", "recovered", "problems")
            print(json_text.dumps({name: getattr(serving, name) for name in names}), flush=True)
        if not quiet:
            print("\n".join(format_server_notice(serving)), file=sys.stderr, flush=True)

    require_store_file(STORE_FILE)
    require_trust()
    try:
        return run_server(
            ".", host, port, hosts=name, wide=wide, idle=idle, modules=modules, prepare=prepare, ready=ready
        )
    except StoreError as error:
        raise errors.to_api_error(error) from error
    except OSError as error:
        message = f"{error.filename or 'the system'}: {error.strerror or error}"
        raise ApiError("refused", message, "Correct it and start the server again.") from error


def format_server_notice(serving: RunningServer) -> list[str]:
    """What the owner of a server is told."""
    problems = [f"{problem['file']}: {problem['message']}" for problem in serving.problems]
    recovery_text = f", resuming {count_noun(serving.recovered, 'run')}" if serving.recovered else ""
    return [
        *problems,
        f"Serving {count_noun(serving.workflows, 'workflow')} at {serving.url}{recovery_text}. Ctrl-C "
        "stops it.",
        f"Sign in a browser, once: {serving.launch_url if sys.stderr.isatty() else SIGN_IN_COMMAND}",
        f"The token for programs is in {serving.token_file}",
    ]
