"""The command line: one file a verb group, imported when it is used."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import NoReturn

from cyclopts import App, CycloptsError, UnusedCliTokensError

from nerve import __version__
from nerve.cli.usage import UsageError
from nerve.errors import NerveError

app = App(
    name="nerve",
    help="Durable workflows of agents, shell commands and Python functions.",
    version=__version__,
)
app.command(
    "nerve.cli.demo:demo", name="demo", help="Mend a scratch project with a failing test; needs no key."
)


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """The `nerve` command."""
    if hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(errors="replace")
    try:
        code = app(
            arguments,
            exit_on_error=False,
            print_error=False,
            result_action="return_int_as_exit_code_else_zero",
        )
    except UnusedCliTokensError as error:
        code = refuse(f"Unexpected argument: {' '.join(error.unused_tokens or [])}.")
    except (CycloptsError, UsageError) as error:
        code = refuse(str(error))
    except NerveError as error:
        print(f"nerve: {error}", file=sys.stderr)
        code = 1
    sys.exit(code)


def refuse(message: str) -> int:
    """Say what is wrong with the command, in one line."""
    print(f"nerve: {' '.join(message.split())} See: nerve --help", file=sys.stderr)
    return 2
