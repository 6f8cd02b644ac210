"""The file in which a process that serves a project publishes its address."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from nerve import __version__
from nerve.project.ownership import sign_server, write_private


@contextlib.contextmanager
def publish_server_info(path: Path, info: dict[str, Any]) -> Iterator[None]:
    """Publish the server info in a private file while the server runs."""
    info = {**info, "pid": os.getpid(), "version": __version__}
    write_private(path, json.dumps(sign_server(path, info)))
    try:
        yield
    finally:
        path.unlink(missing_ok=True)
