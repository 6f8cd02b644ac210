"""The program `codex`: its path, its command line, and its environment."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from nerve.agents.provider import Unavailable

NETWORK_VARIABLES = ("HTTPS_PROXY", "HTTP_PROXY", "ALL_PROXY", "NO_PROXY", "SSL_CERT_FILE", "SSL_CERT_DIR")
"""Network settings, which the commands that Codex runs need too."""
CODEX_KEY_VARIABLES = ("CODEX_API_KEY", "OPENAI_API_KEY", "CODEX_CA_CERTIFICATE")
"""Variables for Codex itself."""


def find_executable(program: str | None) -> str:
    """Return the path of the named program, of the bundled one, or of the one on the PATH."""
    if program is not None:
        if path := shutil.which(program):
            return path
        raise Unavailable(f"Program not found: {program}. Set 'program' to the path of codex, or omit it")
    if path := bundled_executable() or shutil.which("codex"):
        return path
    raise Unavailable(
        "codex is not installed: pip install '.[codex]' in the clone of Nerve, or put codex on the PATH"
    )


def bundled_executable() -> str | None:
    try:
        from codex_cli_bin import bundled_codex_path  # type: ignore[import-not-found,unused-ignore]
    except ImportError:
        return None
    try:
        path: Path = bundled_codex_path()
    except FileNotFoundError:
        return None
    return str(path)


def app_server_command(program: str, config: Mapping[str, Any]) -> list[str]:
    overrides = [
        word for key, value in config.items() for word in ("-c", f"{key}={format_toml_value(value)}")
    ]
    return [program, "app-server", *overrides]


def format_toml_value(value: Any) -> str:
    """Format a JSON value as TOML on one line."""
    match value:
        case Mapping():
            return (
                "{"
                + ", ".join(
                    f"{format_toml_value(key)} = {format_toml_value(item)}" for key, item in value.items()
                )
                + "}"
            )
        case list() | tuple():
            return "[" + ", ".join(format_toml_value(item) for item in value) + "]"
        case bool() | int() | float() | str():
            return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    raise TypeError(f"codex setting must be a string, number, boolean, list or table, got {value!r}")


def codex_home_variables(home: str | os.PathLike[str] | None) -> dict[str, str]:
    """Return the variables that locate the login, settings and threads of Codex; the user's by default."""
    path = os.fspath(home) if home is not None else os.environ.get("CODEX_HOME")
    return {"CODEX_HOME": path} if path else {}


def absolute_folder(folder: str) -> str:
    return os.path.abspath(folder)
