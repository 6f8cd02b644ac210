"""`nerve trust`, and the question that is asked before anything of a folder from elsewhere is used."""

from __future__ import annotations

import sys
from datetime import datetime
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from nerve.api import ApiError
from nerve.cli.errors import UsageError
from nerve.cli.exit_codes import COMPLETED
from nerve.cli.parameters import Flag
from nerve.cli.targets import project_store_file
from nerve.project import ownership
from nerve.project.paths import ProjectPaths
from nerve.ui.sanitize import dump_safe_json, sanitize_text

TRUST_RISK = (
    "Trusting it lets Nerve continue these runs and use this configuration. Both can execute commands on"
    " this machine: look at the folder first if it came from elsewhere."
)
TRUST_WRITE_FIX = "Set XDG_STATE_HOME to a folder that this user can write to."


def trust_command(
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
        return print_trusted_folders(json, quiet)
    if not folder.exists():
        raise UsageError(f"there is no folder {folder}.")
    try:
        message, payload = revoke_path_trust(folder) if revoke else add_trust(folder)
    except OSError as error:
        raise trust_write_error(error) from None
    if json:
        print(dump_safe_json(payload))
    elif not quiet:
        print(sanitize_text(message))
    return COMPLETED


def add_trust(folder: Path) -> tuple[str, dict[str, object]]:
    """Trust a folder or a store: what is said of it, to a person and to a program."""
    path = folder.resolve()
    if folder.is_file():
        ownership.sign_store(folder)
        return f"Trusted: {path}", {"path": str(path), "trusted": True, "brought": ["runs"]}
    project_store_file(folder)  # a link is refused
    brought = ownership.trust_folder(folder)
    with_ = f", with its own {ownership.join_words(brought)}" if brought else ""
    return f"Trusted: {path}{with_}", {"path": str(path), "trusted": True, "brought": brought}


def revoke_path_trust(folder: Path) -> tuple[str, dict[str, object]]:
    path = folder.resolve()
    if folder.is_file():
        signature = ownership.signature_file(path)
        was_trusted = signature.exists()
        signature.unlink(missing_ok=True)
    else:
        was_trusted = ownership.revoke_folder_trust(folder)
    message = f"No longer trusted: {path}" if was_trusted else f"It was not trusted: {path}"
    return message, {"path": str(path), "trusted": False, "was_trusted": was_trusted}


def print_trusted_folders(json: bool, quiet: bool) -> int:
    try:
        trusted = ownership.list_trusted()
    except OSError as error:
        raise trust_write_error(error) from None
    if json:
        payload = [
            {"path": str(entry.path), "at": entry.at, "is_there": entry.is_unchanged} for entry in trusted
        ]
        print(dump_safe_json(payload))
    for entry in [] if json else trusted:
        suffix = "" if entry.is_unchanged else "  (gone, or another folder)"
        print(sanitize_text(f"{datetime.fromtimestamp(entry.at):%Y-%m-%d %H:%M}  {entry.path}{suffix}"))
    if not (json or quiet or trusted):
        print("No folder was trusted.")
    return COMPLETED


def trust_write_error(error: OSError) -> ApiError:
    path = error.filename or "the state folder of this user"
    return ApiError(
        "refused", f"trust cannot be written down: {path}: {error.strerror or error}", TRUST_WRITE_FIX
    )


def require_trust(store: Path | None = None, *, opening: bool = False) -> None:
    """Return where everything that would be used is this user's; ask once at a terminal where it is not.

    `store` is one that was named. Raises ApiError where the answer is no, or where there is no terminal.
    A configuration that names programs is asked about too. Without a terminal a command that says what is
    to be run takes the configuration as it is; `opening` a project says nothing of the kind, and does not.
    """
    folder = Path()
    if store is not None:
        brought = {} if ownership.is_own_store(store) else {"runs": store}
    elif ProjectPaths.of(folder).symlinks:
        return  # which are refused by what opens them
    else:
        brought = ownership.foreign_state(folder)
        programs = ownership.config_names_programs(folder) and not ownership.is_trusted(folder)
        if programs and (brought or opening or is_at_terminal()):
            brought["configuration"] = ProjectPaths.of(folder).folder / "config.json"
    if not brought:
        return
    what = ownership.join_words([*brought])
    if not (is_at_terminal() and ask_for_trust(store or folder, brought, what)):
        message, fix = ownership.refusal_of([*brought], store)
        raise ApiError("refused", message, fix)
    try:
        add_trust(store or folder)
    except OSError as error:
        raise trust_write_error(error) from None


def is_at_terminal() -> bool:
    return all(stream is not None and stream.isatty() for stream in (sys.stdin, sys.stderr))


def ask_for_trust(path: Path, brought: dict[str, Path], what: str) -> bool:
    """Ask a person whether to trust something; anything but a yes is a no."""
    from nerve.cli.gate_prompt import flush_typeahead

    files = ", ".join(str(file) for file in brought.values())
    lines = [
        f"This {'file' if path.is_file() else 'folder'} brings its own {what}: {path.resolve()}",
        f"You did not make this on this machine: {files}",
        TRUST_RISK,
    ]
    print(sanitize_text("\n".join(lines)), file=sys.stderr)
    flush_typeahead()
    print(f"Trust this {'file' if path.is_file() else 'folder'}? [y/N] ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")
