"""`nerve keygen`: add a key to the key file of an encrypted project."""

from __future__ import annotations

from datetime import date
from pathlib import Path
from typing import Annotated

from nerve.cli.errors import UsageError
from nerve.cli.exit_codes import COMPLETED
from nerve.cli.parameters import Flag, Parameter
from nerve.cli.targets import Project
from nerve.client import find_server
from nerve.crypto import InvalidKeys, add_key, project_key_file
from nerve.ui.sanitize import dump_safe_json, sanitize_text

CONFIG_FIX = 'Set "encryption": {"key_file": "PATH"} in .nerve/config.json.'


def keygen_command(
    id: Annotated[str | None, Parameter(name="ID", help="The id of the key. Default: today.")] = None,
    /,
    *,
    json: Flag = False,
    quiet: Flag = False,
) -> int:
    """Add a new random key to the key file of this project. New data is encrypted with it.

    Data that is encrypted with an older key stays readable as long as that key is in the file.

    Parameters
    ----------
    json
        Print one JSON object.
    quiet
        Print only errors.
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
    if json:
        print(dump_safe_json({"id": id, "ids": ids, "key_file": str(file)}))
    elif not quiet:
        print(sanitize_text(f"Added key '{id}' to {file}. Keep a copy: without it, the data is lost."))
        if find_server(Path()) is not None:
            print("The server uses it after a restart: nerve server restart")
    return COMPLETED
