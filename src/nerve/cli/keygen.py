"""`nerve keygen`: add a key to the key file of an encrypted project."""

from __future__ import annotations

from datetime import date
from pathlib import Path
from typing import Annotated

from nerve.cli.errors import UsageError
from nerve.cli.exit_codes import COMPLETED
from nerve.cli.parameters import DEFAULT_REPORT, Parameter, ReportOptions
from nerve.cli.reports import print_report
from nerve.cli.targets import Project
from nerve.client import find_server
from nerve.crypto import InvalidKeys, add_key, project_key_file

CONFIG_FIX = 'Set "encryption": {"key_file": "PATH"} in .nerve/config.json.'


def keygen_command(
    id: Annotated[str | None, Parameter(name="ID", help="The id of the key. Default: today.")] = None,
    /,
    *,
    options: ReportOptions = DEFAULT_REPORT,
) -> int:
    """Add a new random key to the key file of this project. New data is encrypted with it.

    Data that is encrypted with an older key stays readable as long as that key is in the file.
    """
    encryption = Project().config.encryption
    if encryption is None:
        raise UsageError(f"This project is not encrypted. {CONFIG_FIX}")
    if encryption.key_file is None:
        raise UsageError(
            f"The keys of this project are in the variable {encryption.key_env}. Add a key there."
        )
    file = project_key_file(Path(), encryption)
    id = id if id is not None else date.today().isoformat()
    try:
        ids = add_key(file, id)
    except InvalidKeys as error:
        raise UsageError(str(error)) from None
    lines = [f"Added key '{id}' to {file}. Keep a copy: without it, the data is lost."]
    if find_server(Path()) is not None:
        lines.append("The server uses it after a restart: nerve server restart")
    print_report(options, {"id": id, "ids": ids, "key_file": str(file)}, *lines)
    return COMPLETED
