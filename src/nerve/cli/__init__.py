"""The command line: one file a verb group, imported when it is used."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn

from cyclopts import App, CycloptsError, Group, UnknownOptionError, UnusedCliTokensError

from nerve import __version__
from nerve.cli.exits import COMPLETED, FAILED, INTERRUPTED, REFUSED
from nerve.cli.usage import UsageError, stopped
from nerve.cli.verbs import GROUPS, SERVER, VERBS, WORKFLOW, Verb
from nerve.errors import NerveError, StoreError, StoreLocked, WorkflowAbsent
from nerve.quiet import begun

ABOUT = """Durable workflows of agents, shell commands and Python functions.

`nerve` without a command opens the Commander. Begin with: nerve init my-project
"""
app = App(
    name="nerve",
    help=ABOUT,
    group_commands=Group("Options", sort_key=len(GROUPS)),
    version=__version__,
)
SHARED = "One process has the runs at a time; where a server has them, every command asks it: nerve serve"
DOCTOR = "See what is wrong: nerve doctor"
CHECK = "See everything that is wrong: nerve check"
ARGUMENTS = "TARGET [INPUT] [--name=value …] [OPTIONS]"

HELP_GROUPS = {
    name: group
    for position, (title, names) in enumerate(GROUPS.items())
    for group in [Group(title, sort_key=position)]
    for name in names
}
"""The group of the help in which each command is listed."""
ORDER = list(HELP_GROUPS)


def add(group: App, verbs: dict[str, Verb], before: str = "") -> None:
    """Add commands that are imported when they are used."""
    for name, verb in verbs.items():
        usage = f"Usage: nerve {before}{name} {ARGUMENTS}" if name in ("run", "start") else None
        example = f"Example: {verb.example}"
        listed: dict[str, Any] = {} if before else {"group": HELP_GROUPS[name], "sort_key": ORDER.index(name)}
        group.command(verb.function, name=name, help=verb.told, help_epilogue=example, usage=usage, **listed)


workflow = App(
    name="workflow",
    help="Define, start, watch and list workflows.",
    version_flags=(),
    group=HELP_GROUPS["workflow"],
    sort_key=ORDER.index("workflow"),
)
server = App(
    name="server",
    help="Look at the server of this project, stop it, restart it, and sign in a browser.",
    version_flags=(),
    group=HELP_GROUPS["server"],
    sort_key=ORDER.index("server"),
)
add(app, VERBS)
add(workflow, WORKFLOW, "workflow ")
add(server, SERVER, "server ")
app.command(workflow)
app.command(server)
app.register_install_completion_command(help="Install completion for this shell.")


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """The `nerve` command."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # it was closed: nerve … >&-
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115 - it is open to the end
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")
    try:
        code = command(list(sys.argv[1:] if arguments is None else arguments))
        sys.stdout.flush()
    except OSError as error:
        if not isinstance(error, BrokenPipeError):  # whoever read has heard enough
            print(f"nerve: standard output: {error.strerror}", file=sys.stderr)
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = FAILED
    sys.exit(code)


def command(arguments: list[str]) -> int:
    """Run one command; the exit code."""
    try:
        verb, given, _ = app.parse_args(literal(arguments or alone()), exit_on_error=False, print_error=False)
        begun()
        done = verb(*given.args, **given.kwargs)
    except BrokenPipeError:
        raise
    except KeyboardInterrupt:
        return INTERRUPTED
    except Exception as error:
        from nerve.commander.core.harmless import harmless, in_json

        wrong = wrong_with(error, help_on(arguments))
        if as_json(arguments):
            print(in_json({"error": wrong.to_dict()}))
        print(harmless(wrong.text), file=sys.stderr)
        return wrong.code
    return done if isinstance(done, int) else COMPLETED


def alone() -> list[str]:
    """What `nerve` without anything means: the Commander, at a terminal or for lines that are piped in."""
    at_terminal = all(stream is not None and stream.isatty() for stream in (sys.stdin, sys.stdout))
    if at_terminal:
        return ["commander"]
    return ["commander", "--plain"] if is_piped() else []


def is_piped() -> bool:
    """Whether standard input is a pipe or a file with something in it; a pipe is waited for."""
    import select
    import stat

    try:
        about = os.fstat(0)
        if stat.S_ISREG(about.st_mode):
            return about.st_size > os.lseek(0, 0, os.SEEK_CUR)
        if not stat.S_ISFIFO(about.st_mode):
            return False
        poll = select.poll()
        poll.register(0, select.POLLIN)
        return any(event & select.POLLIN for _, event in poll.poll())
    except OSError:
        return False


def literal(arguments: list[str]) -> list[str]:
    """What stands behind `--` when a run is started is marked, since it may look like an option."""
    begins = arguments[:1] in (["run"], ["start"]) or arguments[:2] == ["workflow", "start"]
    if not begins or "--" not in arguments:
        return arguments
    at = arguments.index("--")
    return [*arguments[:at], "--", *(f"\0{argument}" for argument in arguments[at + 1 :])]


def as_json(arguments: list[str]) -> bool:
    """Whether a program reads what is printed."""
    options = arguments[: arguments.index("--")] if "--" in arguments else arguments
    return "--json" in options


@dataclass(frozen=True, slots=True)
class Wrong:
    """Why a command was not done."""

    code: int
    name: str
    message: str
    text: str
    """As a person reads it."""
    fix: str = ""
    problems: list[dict[str, Any]] = field(default_factory=list)

    def to_dict(self) -> dict[str, Any]:
        told: dict[str, Any] = {"code": self.name, "message": self.message}
        told |= {"fix": self.fix} if self.fix else {}
        return told | ({"details": {"problems": self.problems}} if self.problems else {})


def help_on(arguments: list[str]) -> str:
    """Where a command is explained; everything, if it is none."""
    match arguments:
        case ["workflow", verb, *_] if verb in WORKFLOW:
            return f"See: nerve workflow {verb} --help"
        case ["server", verb, *_] if verb in SERVER:
            return f"See: nerve server {verb} --help"
        case [verb, *_] if verb in VERBS or verb in ("workflow", "server"):
            return f"See: nerve {verb} --help"
    return "See: nerve --help"


def wrong_with(error: Exception, help: str) -> Wrong:
    from nerve.api.errors import ApiError, told

    match error:
        case WorkflowAbsent():
            return wrong_with(told(error), help)
        case ApiError():
            from nerve.cli.common import sentence

            exit = REFUSED if error.status < 500 else FAILED
            problems = error.details.get("problems", [])
            return Wrong(exit, error.code, error.message, f"nerve: {sentence(error)}", error.fix, problems)
        case UnusedCliTokensError():
            return refused(f"Unexpected argument: {' '.join(error.unused_tokens or [])}.", help)
        case UnknownOptionError():
            return refused(unknown(error), help)
        case CycloptsError() | UsageError():
            return refused(str(error), help, getattr(error, "code", "bad_request"))
        case NerveError() if problems := getattr(error, "problems", None):
            text = "\n".join(map(str, problems))
            fix = next((problem.fix for problem in problems if problem.fix), CHECK)
            places = [problem.to_dict() for problem in problems]
            return Wrong(REFUSED, "refused", text, text, fix, places)
        case NerveError() if isinstance(code := getattr(error, "code", None), str):
            message, fix = getattr(error, "message", str(error)), getattr(error, "fix", "")
            exit = REFUSED if code == "bad_request" else FAILED
            return Wrong(exit, code, message, f"nerve: {stopped(message)} {stopped(fix)} [{code}]", fix)
        case StoreLocked():
            return Wrong(FAILED, "busy", str(error), f"nerve: {error} {SHARED}.", SHARED)
        case StoreError():
            return Wrong(FAILED, "internal", str(error), f"nerve: {stopped(str(error))} {DOCTOR}", DOCTOR)
        case NerveError():
            return failed(str(error))
        case OSError():
            return failed(f"{error.filename or 'the system'}: {error.strerror or error}")
    return failed(f"{type(error).__name__}: {error}")


def unknown(error: UnknownOptionError) -> str:
    """That an option is not known, and the one that is spelt nearly so; hyphens are no likeness."""
    import difflib

    option = error.token.keyword or error.token.value
    known = {name.lstrip("-"): name for each in error.argument_collection for name in each.names}
    close = difflib.get_close_matches(option.lstrip("-"), known, n=1)
    return f"Unknown option: {option}." + "".join(f" Did you mean {known[name]}?" for name in close)


def refused(message: str, help: str, code: str = "bad_request") -> Wrong:
    """What is wrong with the command, in one line."""
    message = stopped(" ".join(message.split()))
    return Wrong(REFUSED, code, message, f"nerve: {message} {help}", help)


def failed(message: str) -> Wrong:
    return Wrong(FAILED, "internal", message, f"nerve: {message}")
