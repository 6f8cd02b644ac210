"""`nerve trust`, and the question that is asked before anything of a folder from elsewhere is used."""

from __future__ import annotations

import sys
from datetime import datetime
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from nerve import ownership
from nerve.api import ApiError
from nerve.cli.exits import COMPLETED
from nerve.cli.flags import Flag
from nerve.cli.project import store_of
from nerve.cli.usage import UsageError
from nerve.commander.core.harmless import harmless, in_json
from nerve.places import Places

RISK = (
    "Trusting it lets Nerve continue these runs and use this configuration. Both can execute commands on"
    " this machine: look at the folder first if it came from elsewhere."
)
UNWRITTEN = "Set XDG_STATE_HOME to a folder that this user can write to."


def trust(
    folder: Annotated[
        Path, Parameter(name="FOLDER", help="Or the file of a store; this one without it.")
    ] = Path(),
    /,
    *,
    revoke: Flag = False,
    list: Flag = False,
    json: Flag = False,
    quiet: Flag = False,
) -> int:
    """Trust a folder that came from elsewhere: its runs are continued and its configuration is used.

    A project that you made yourself on this machine needs none of this. The runs of a folder that is
    trusted are signed as yours, and tokens that it brought are removed; a server makes new ones.

    Parameters
    ----------
    revoke
        Trust it no longer: commands ask again before they use what is in it.
    list
        List the folders that were trusted.
    json
        Print one JSON value.
    quiet
        Say nothing but errors.
    """
    if list:
        return show_list(json, quiet)
    if not folder.exists():
        raise UsageError(f"there is no folder {folder}.")
    try:
        said, told = revoke_trust(folder) if revoke else add_trust(folder)
    except OSError as error:
        raise unwritten(error) from None
    if json:
        print(in_json(told))
    elif not quiet:
        print(harmless(said))
    return COMPLETED


def add_trust(folder: Path) -> tuple[str, dict[str, object]]:
    """Trust a folder or a store: what is said of it, to a person and to a program."""
    path = folder.resolve()
    if folder.is_file():
        ownership.sign_store(folder)
        return f"Trusted: {path}", {"path": str(path), "trusted": True, "brought": ["runs"]}
    store_of(folder)  # a link is refused
    brought = ownership.trust_folder(folder)
    with_ = f", with its own {ownership.join_words(brought)}" if brought else ""
    return f"Trusted: {path}{with_}", {"path": str(path), "trusted": True, "brought": brought}


def revoke_trust(folder: Path) -> tuple[str, dict[str, object]]:
    path = folder.resolve()
    if folder.is_file():
        signature = ownership.signature_file(path)
        was = signature.exists()
        signature.unlink(missing_ok=True)
    else:
        was = ownership.revoke_trust(folder)
    said = f"No longer trusted: {path}" if was else f"It was not trusted: {path}"
    return said, {"path": str(path), "trusted": False, "was_trusted": was}


def show_list(json: bool, quiet: bool) -> int:
    try:
        found = ownership.list_trusted()
    except OSError as error:
        raise unwritten(error) from None
    if json:
        told = [{"path": str(each.path), "at": each.at, "is_there": each.is_there} for each in found]
        print(in_json(told))
    for each in [] if json else found:
        gone = "" if each.is_there else "  (gone, or another folder)"
        print(harmless(f"{datetime.fromtimestamp(each.at):%Y-%m-%d %H:%M}  {each.path}{gone}"))
    if not (json or quiet or found):
        print("No folder was trusted.")
    return COMPLETED


def unwritten(error: OSError) -> ApiError:
    where = error.filename or "the state folder of this user"
    return ApiError("refused", f"trust cannot be written down: {where}: {error.strerror or error}", UNWRITTEN)


def require_trust(store: Path | None = None, *, opening: bool = False) -> None:
    """Return where everything that would be used is this user's; ask once at a terminal where it is not.

    `store` is one that was named. Raises ApiError where the answer is no, or where there is no terminal.
    A configuration that names programs is asked about too. Without a terminal a command that says what is
    to be run takes the configuration as it is; `opening` a project says nothing of the kind, and does not.
    """
    folder = Path()
    if store is not None:
        brought = {} if ownership.is_own_store(store) else {"runs": store}
    elif Places.of(folder).links:
        return  # which are refused by what opens them
    else:
        brought = ownership.foreign_state(folder)
        programs = ownership.config_names_programs(folder) and not ownership.is_trusted(folder)
        if programs and (brought or opening or at_terminal()):
            brought["configuration"] = Places.of(folder).folder / "config.json"
    if not brought:
        return
    what = ownership.join_words([*brought])
    if not (at_terminal() and is_accepted(store or folder, brought, what)):
        said, fix = ownership.refusal_of([*brought], store)
        raise ApiError("refused", said, fix)
    try:
        add_trust(store or folder)
    except OSError as error:
        raise unwritten(error) from None


def at_terminal() -> bool:
    return all(stream is not None and stream.isatty() for stream in (sys.stdin, sys.stderr))


def is_accepted(path: Path, brought: dict[str, Path], what: str) -> bool:
    """Ask a person whether to trust something; anything but a yes is a no."""
    from nerve.cli.asking import forget_typed

    files = ", ".join(str(each) for each in brought.values())
    lines = [
        f"This {'file' if path.is_file() else 'folder'} brings its own {what}: {path.resolve()}",
        f"You did not make this on this machine: {files}",
        RISK,
    ]
    print(harmless("\n".join(lines)), file=sys.stderr)
    forget_typed()
    print(f"Trust this {'file' if path.is_file() else 'folder'}? [y/N] ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")
