"""The program `codex`: where it is, how it is started, and what of our environment it gets."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from nerve.agents.provider import Unavailable

NETWORK_VARIABLES = ("HTTPS_PROXY", "HTTP_PROXY", "ALL_PROXY", "NO_PROXY", "SSL_CERT_FILE", "SSL_CERT_DIR")
"""How the network is reached, which the commands that Codex runs must know as well."""
CODEX_KEY_VARIABLES = ("CODEX_API_KEY", "OPENAI_API_KEY", "CODEX_CA_CERTIFICATE")
"""What is for Codex itself."""


def find_executable(program: str | None) -> str:
    """The path: of the one named, of the one that comes with the extra, or of the one on PATH."""
    if program is not None:
        if path := shutil.which(program):
            return path
        raise Unavailable(f"there is no program {program}; name the path of codex, or leave it out")
    if path := bundled_executable() or shutil.which("codex"):
        return path
    raise Unavailable("codex is not installed: pip install 'nerve[codex]', or put codex on PATH")


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
    """A JSON value in TOML, on one line."""
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
    raise TypeError(f"a setting of codex is a text, a number, a truth, a list or a table, not {value!r}")


def codex_home_variables(home: str | os.PathLike[str] | None) -> dict[str, str]:
    """Where Codex keeps its login, settings and threads; the user's own if nothing else is said."""
    path = os.fspath(home) if home is not None else os.environ.get("CODEX_HOME")
    return {"CODEX_HOME": path} if path else {}


def absolute_folder(folder: str) -> str:
    return os.path.abspath(folder)
