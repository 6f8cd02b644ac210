"""The command line: execute one command and report its failure."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Callable, Sequence
from dataclasses import field
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn

from nerve import __version__
from nerve.cli.command_table import CLI_COMMANDS, NESTED_TABLES
from nerve.cli.errors import InvalidInputs, UsageError
from nerve.cli.exit_codes import COMPLETED, FAILED, INTERRUPTED, REFUSED
from nerve.early_interrupt import remove_early_interrupt
from nerve.errors import NerveError, StoreError, StoreFull, StoreInUse, StoreUnreachable, WorkflowAbsent
from nerve.lazy_dataclass import dataclass
from nerve.text import with_full_stop

if TYPE_CHECKING:
    from cyclopts import UnknownOptionError

LOCKED_STORE_FIX = (
    "Only one process can open the store. To share it between commands, run a server: nerve serve"
)
STORE_ERROR_CODES: dict[type[StoreError], str] = {StoreUnreachable: "busy", StoreFull: "storage_full"}
CHECK_FIX = "To list all problems: nerve check"


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run the `nerve` command and exit with its exit code."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # closed by the shell: nerve … >&-
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115 - stays open until exit
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")
    code = 0
    try:
        code = execute_command_line(list(sys.argv[1:] if arguments is None else arguments))
        sys.stdout.flush()
    except OSError as error:
        # A command that failed has reported its problem, and BrokenPipeError is none: `head` closes its pipe.
        if code == 0 and not isinstance(error, BrokenPipeError):
            print(f"nerve: standard output: {error.strerror}", file=sys.stderr)
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = FAILED
    sys.exit(code)


def execute_command_line(arguments: list[str]) -> int:
    """Run one command and return the exit code."""
    try:
        arguments = arguments or default_arguments()
    except KeyboardInterrupt:
        return INTERRUPTED
    # These need neither the parser nor the engine.
    if arguments in (["version"], ["--version"]):
        print(__version__)
        return COMPLETED
    if arguments in ([], ["--help"], ["-h"]):
        from nerve.cli.general_help import print_general_help

        print_general_help()
        return COMPLETED
    try:
        call = read_command(arguments)
        remove_early_interrupt()
        returned = call()
    except BrokenPipeError:
        raise
    except KeyboardInterrupt:
        return INTERRUPTED
    except Exception as error:
        from nerve.ui.sanitize import dump_safe_json, sanitize_text

        failure = failure_from_error(error, help_hint(arguments))
        if wants_json(arguments):
            print(dump_safe_json({"error": failure.to_dict()}))
        print(sanitize_text(failure.terminal_text), file=sys.stderr)
        return failure.exit_code
    except BaseException as error:
        if is_early_cancellation(error):
            return INTERRUPTED
        raise
    return returned if isinstance(returned, int) else COMPLETED


def is_early_cancellation(error: BaseException) -> bool:
    """Whether Ctrl-C came as `asyncio.run` began, which forgets then that it has cancelled its task."""
    asyncio = sys.modules.get("asyncio")
    return asyncio is not None and isinstance(error, asyncio.CancelledError)


def read_command(arguments: list[str]) -> Callable[[], Any]:
    """Return the call of a command; raise CycloptsError for invalid arguments."""
    from nerve.cli.simple_arguments import read_simple_command

    if (call := read_simple_command(arguments)) is not None:
        return call
    from nerve.cli.parser import app

    function, bound_arguments, _ = app.parse_args(
        protect_after_double_dash(arguments), exit_on_error=False, print_error=False
    )
    return partial(function, *bound_arguments.args, **bound_arguments.kwargs)


def default_arguments() -> list[str]:
    """Return the arguments for a bare `nerve`: the Commander, full-screen or reading lines from a pipe."""
    at_terminal = all(stream is not None and stream.isatty() for stream in (sys.stdin, sys.stdout))
    if at_terminal:
        return ["commander"]
    return ["commander", "--plain"] if is_stdin_piped() else []


def is_stdin_piped() -> bool:
    """Whether standard input is a pipe or a non-empty file. Blocks until a pipe has data or is closed."""
    import select
    import stat

    try:
        stdin_status = os.fstat(0)
        if stat.S_ISREG(stdin_status.st_mode):
            return stdin_status.st_size > os.lseek(0, 0, os.SEEK_CUR)
        if not stat.S_ISFIFO(stdin_status.st_mode):
            return False
        poll = select.poll()
        poll.register(0, select.POLLIN)
        return any(event & select.POLLIN for _, event in poll.poll())
    except OSError:
        return False


def protect_after_double_dash(arguments: list[str]) -> list[str]:
    """Mark the arguments after `--` of a start command, because they may look like options."""
    starts_run = arguments[:1] in (["run"], ["start"]) or arguments[:2] == ["workflow", "start"]
    if not starts_run or "--" not in arguments:
        return arguments
    separator = arguments.index("--")
    return [*arguments[:separator], "--", *(f"\0{argument}" for argument in arguments[separator + 1 :])]


def wants_json(arguments: list[str]) -> bool:
    """Whether the arguments contain `--json` as an option."""
    options = arguments[: arguments.index("--")] if "--" in arguments else arguments
    return "--json" in options


@dataclass(frozen=True, slots=True)
class CommandFailure:
    """A failed command: exit code, error code and message."""

    exit_code: int
    error_code: str
    message: str
    terminal_text: str
    """The message for standard error."""
    fix: str = ""
    details: dict[str, Any] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        fields = {"code": self.error_code, "message": self.message}
        optional = {"fix": self.fix, "details": self.details}
        return fields | {name: value for name, value in optional.items() if value}


def help_hint(arguments: list[str]) -> str:
    """Return a pointer to the help of a command, or to the general help."""
    match arguments:
        case [group, verb, *_] if verb in NESTED_TABLES.get(group, ()):
            return f"See: nerve {group} {verb} --help"
        case [verb, *_] if verb in CLI_COMMANDS or verb in NESTED_TABLES:
            return f"See: nerve {verb} --help"
    return "See: nerve --help"


def failure_from_error(error: Exception, help: str) -> CommandFailure:
    from cyclopts import CycloptsError, UnknownOptionError, UnusedCliTokensError

    from nerve.api.errors import ApiError, to_api_error

    match error:
        case WorkflowAbsent():
            return failure_from_error(to_api_error(error), help)
        case ApiError():
            from nerve.cli.context import format_api_error
            from nerve.text.source import Problem

            exit = REFUSED if error.status < 500 else FAILED
            lines = [str(Problem.from_dict(problem)) for problem in error.details.get("problems", ())]
            text = "\n".join(lines) or f"nerve: {format_api_error(error)}"
            return CommandFailure(exit, error.code, error.message, text, error.fix, error.details)
        case UnusedCliTokensError():
            return usage_failure(f"Unexpected argument: {' '.join(error.unused_tokens or [])}.", help)
        case UnknownOptionError():
            return usage_failure(unknown_option_message(error), help)
        case InvalidInputs():
            return usage_failure(str(error), help.replace("--help", f"{shlex.quote(error.target)} --help"))
        case CycloptsError() | UsageError():
            return usage_failure(str(error), help, getattr(error, "code", "bad_request"))
        case NerveError() if problems := getattr(error, "problems", None):
            text = "\n".join(map(str, problems))
            fix = next((problem.fix for problem in problems if problem.fix), CHECK_FIX)
            details = {"problems": [problem.to_dict() for problem in problems]}
            return CommandFailure(REFUSED, "refused", text, text, fix, details)
        case NerveError() if isinstance(code := getattr(error, "code", None), str):
            message, fix = getattr(error, "message", str(error)), getattr(error, "fix", "")
            exit = REFUSED if code == "bad_request" else FAILED
            return CommandFailure(
                exit, code, message, f"nerve: {with_full_stop(message)} {with_full_stop(fix)} [{code}]", fix
            )
        case StoreInUse():
            return internal_failure(str(error), LOCKED_STORE_FIX, "busy")
        case StoreError():
            return internal_failure(str(error), error.fix, STORE_ERROR_CODES.get(type(error), "internal"))
        case NerveError():
            return internal_failure(str(error))
        case OSError():
            return internal_failure(f"{error.filename or 'system call'}: {error.strerror or error}")
    return internal_failure(f"{type(error).__name__}: {error}")


def unknown_option_message(error: UnknownOptionError) -> str:
    """Return the message for an unknown option with a suggestion. Hyphens do not count as similarity."""
    import difflib

    option = error.token.keyword or error.token.value
    option_names = {
        name.lstrip("-"): name for argument in error.argument_collection for name in argument.names
    }
    matches = difflib.get_close_matches(option.lstrip("-"), option_names, n=1)
    return f"Unknown option: {option}." + "".join(f" Did you mean {option_names[name]}?" for name in matches)


def usage_failure(message: str, help: str, code: str = "bad_request") -> CommandFailure:
    """Return the failure for invalid arguments, as one line."""
    message = with_full_stop(" ".join(message.split()))
    return CommandFailure(REFUSED, code, message, f"nerve: {message} {help}", help)


def internal_failure(message: str, fix: str = "", code: str = "internal") -> CommandFailure:
    text = f"nerve: {with_full_stop(message)} {fix}" if fix else f"nerve: {message}"
    return CommandFailure(FAILED, code, message, text, fix)
