"""The command line: one file a verb group, imported when it is used."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import NoReturn

from cyclopts import App, CycloptsError, UnusedCliTokensError

from nerve import __version__
from nerve.cli.exits import FAILED, INTERRUPTED, REFUSED
from nerve.cli.usage import UsageError
from nerve.errors import NerveError

app = App(
    name="nerve",
    help="Durable workflows of agents, shell commands and Python functions.",
    version=__version__,
)
RUN = """Run a workflow in this process, and show it to its end.

TARGET is a workflow file, the name of a workflow of the project or the beginning of it, or a Python file
that has register(session), as FILE.py or FILE.py:NAME. INPUT is the text the run is given. Every
--name=value is an input that the workflow declares; what stands behind -- is no option.
"""
VERBS = {
    "run": ("nerve.cli.run:run", RUN),
    "resume": ("nerve.cli.resume:resume", "Go on with a run that waits, is parked or is held."),
    "runs": ("nerve.cli.runs:runs", "List the runs of this project."),
    "check": ("nerve.cli.checking:check", "Say everything that is wrong with workflows."),
    "show": ("nerve.cli.showing:show", "Show a workflow as a tree or a diagram."),
    "convert": ("nerve.cli.convert:convert", "Write a workflow down in another notation."),
    "demo": ("nerve.cli.demo:demo", "Mend a scratch project with a failing test; needs no key."),
}
USAGES = {"run": "Usage: nerve run TARGET [INPUT] [--name=value …] [OPTIONS]"}
for name, (function, told) in VERBS.items():
    app.command(function, name=name, help=told, usage=USAGES.get(name))


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """The `nerve` command."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")
    try:
        code = command(list(sys.argv[1:] if arguments is None else arguments))
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = FAILED
    sys.exit(code)


def command(arguments: list[str]) -> int:
    """Run one command; the exit code."""
    try:
        done: int = app(
            literal(arguments),
            exit_on_error=False,
            print_error=False,
            result_action="return_int_as_exit_code_else_zero",
        )
    except UnusedCliTokensError as error:
        return refuse(f"Unexpected argument: {' '.join(error.unused_tokens or [])}.")
    except (CycloptsError, UsageError) as error:
        return refuse(str(error))
    except NerveError as error:
        if not (problems := getattr(error, "problems", None)):
            return failed(str(error))
        print("\n".join(map(str, problems)), file=sys.stderr)
        return REFUSED
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        raise
    except OSError as error:
        return failed(f"{error.filename or 'the system'}: {error.strerror or error}")
    except Exception as error:
        return failed(f"{type(error).__name__}: {error}")
    return done


def failed(message: str) -> int:
    print(f"nerve: {message}", file=sys.stderr)
    return FAILED


def literal(arguments: list[str]) -> list[str]:
    """What stands behind `--` in `nerve run` is marked, since it may look like an option."""
    if arguments[:1] != ["run"] or "--" not in arguments:
        return arguments
    at = arguments.index("--")
    return [*arguments[:at], "--", *(f"\0{argument}" for argument in arguments[at + 1 :])]


def refuse(message: str) -> int:
    """Say what is wrong with the command, in one line."""
    print(f"nerve: {' '.join(message.split())} See: nerve --help", file=sys.stderr)
    return REFUSED
