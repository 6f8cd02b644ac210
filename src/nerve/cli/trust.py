"""`nerve trust`, and the trust prompt for folders with state from elsewhere."""

from __future__ import annotations

import sys
from datetime import datetime
from pathlib import Path
from typing import Annotated

from nerve.api import ApiError
from nerve.cli.errors import UsageError
from nerve.cli.exit_codes import COMPLETED
from nerve.cli.parameters import DEFAULT_REPORT, Flag, Parameter, ReportOptions, project_store_file
from nerve.cli.reports import print_report
from nerve.project import ownership
from nerve.project.paths import ProjectPaths
from nerve.ui.sanitize import sanitize_text

TRUST_RISK = (
    "Trusting it lets Nerve resume these runs and use this configuration. Both can execute commands on"
    " this machine: review the folder first if it came from elsewhere."
)
TRUST_WRITE_FIX = "Set XDG_STATE_HOME to a writable folder."


def trust_command(
    folder: Annotated[
        Path, Parameter(name="FOLDER", help="A folder or a store file. Default: the current folder.")
    ] = Path(),
    /,
    *,
    revoke: Flag = False,
    list: Flag = False,
    options: ReportOptions = DEFAULT_REPORT,
) -> int:
    """Trust a folder from elsewhere, so that Nerve resumes its runs and uses its configuration.

    Projects that you created on this machine are trusted already. Trusting a folder signs its runs as yours
    and removes its tokens; the server creates new ones.

    Parameters
    ----------
    revoke
        Revoke trust: commands ask again before they use the folder.
    list
        List trusted folders.
    """
    if list:
        return print_trusted_folders(options)
    if not folder.exists():
        raise UsageError(f"Folder not found: {folder}.")
    try:
        message, payload = revoke_path_trust(folder) if revoke else add_trust(folder)
    except OSError as error:
        raise trust_write_error(error) from None
    print_report(options, payload, message)
    return COMPLETED


def add_trust(folder: Path) -> tuple[str, dict[str, object]]:
    """Trust a folder or a store file; return the message and the JSON payload."""
    path = folder.resolve()
    if folder.is_file():
        ownership.sign_store(folder)
        return f"Trusted: {path}", {"path": str(path), "trusted": True, "brought": ["runs"]}
    project_store_file(folder)  # raises for a symlink
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
    message = f"No longer trusted: {path}" if was_trusted else f"Not trusted before: {path}"
    return message, {"path": str(path), "trusted": False, "was_trusted": was_trusted}


def print_trusted_folders(options: ReportOptions) -> int:
    try:
        trusted = ownership.list_trusted()
    except OSError as error:
        raise trust_write_error(error) from None
    payload = [{"path": str(entry.path), "at": entry.at, "is_there": entry.is_unchanged} for entry in trusted]
    lines = [
        f"{datetime.fromtimestamp(entry.at):%Y-%m-%d %H:%M}  {entry.path}"
        + ("" if entry.is_unchanged else "  (removed or replaced)")
        for entry in trusted
    ]
    if trusted:
        options = ReportOptions(options.json)  # the list is the result
    print_report(options, payload, *(lines or ["No trusted folders."]))
    return COMPLETED


def trust_write_error(error: OSError) -> ApiError:
    path = error.filename or "the state folder"
    return ApiError("refused", f"Cannot save trust: {path}: {error.strerror or error}", TRUST_WRITE_FIX)


def require_trust(
    store: Path | None = None, *, has_url: bool = False, opening: bool = False, folder: Path = Path()
) -> None:
    """Return if the project state belongs to this user or is trusted; otherwise ask once at a terminal.

    `store` is the store file given with --store; with `has_url` the store is a database that the user named.
    Raises ApiError if the user declines or without a terminal.
    A configuration that names programs also requires trust. Without a terminal, a command that names what to
    run uses such a configuration without asking. `opening` a project names nothing, so it is refused.
    """
    if store is not None:
        brought = {} if ownership.is_own_store(store) else {"runs": store}
    elif ProjectPaths.of(folder).symlinks:
        return  # opening them raises an error
    else:
        brought = ownership.foreign_state(folder)
        if has_url:
            brought.pop("runs", None)
        if not ownership.is_trusted(folder) and (programs := files_with_programs(folder)):
            brought |= programs if brought or opening or is_at_terminal() else {}
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


def files_with_programs(folder: Path) -> dict[str, Path]:
    """Return the files of a project that can name programs, by description."""
    files: dict[str, Path] = {}
    if ownership.config_names_programs(folder):
        files["configuration"] = ProjectPaths.of(folder).folder / "config.json"
    if (agent_file := ownership.agent_file_with_programs(folder)) is not None:
        files["agent files"] = agent_file
    return files


def is_at_terminal() -> bool:
    return all(stream is not None and stream.isatty() for stream in (sys.stdin, sys.stderr))


def ask_for_trust(path: Path, brought: dict[str, Path], what: str) -> bool:
    """Ask the user whether to trust a folder or store. Only "y" and "yes" accept."""
    files = ", ".join(str(file) for file in brought.values())
    lines = [
        f"This {'file' if path.is_file() else 'folder'} contains its own {what}: {path.resolve()}",
        f"You did not create this on this machine: {files}",
        TRUST_RISK,
    ]
    print(sanitize_text("\n".join(lines)), file=sys.stderr)
    return confirm(f"Trust this {'file' if path.is_file() else 'folder'}?")


def confirm(question: str) -> bool:
    """Ask the user a question. Only "y" and "yes" accept."""
    from nerve.ui.async_input import flush_typeahead

    flush_typeahead()
    print(f"{sanitize_text(question)} [y/N] ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")
