"""Static files: style sheet and scripts, each under an address that changes with its content."""

from __future__ import annotations

import gzip
import hashlib
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from starlette.responses import Response

if TYPE_CHECKING:
    from starlette.requests import Request

STATIC_FOLDER = Path(__file__).with_name("static")
STATIC_PREFIX = "/static/"
MEDIA_TYPES = {".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
KEEP_FOREVER = "public, max-age=31536000, immutable"


class StaticFile(NamedTuple):
    """A file in memory."""

    content: bytes
    compressed: bytes
    media_type: str
    version: str


@cache
def load_static_files() -> dict[str, StaticFile]:
    """Return the files that browsers may load, by their path in the static folder."""
    paths = (path for path in STATIC_FOLDER.rglob("*") if path.suffix in MEDIA_TYPES)
    return {path.relative_to(STATIC_FOLDER).as_posix(): load_file(path) for path in paths}


def load_file(path: Path) -> StaticFile:
    content = path.read_bytes()
    version = hashlib.sha256(content).hexdigest()[:12]
    return StaticFile(content, gzip.compress(content, 9, mtime=0), MEDIA_TYPES[path.suffix], version)


def static_path(name: str) -> str:
    """Return the path of a file with its version."""
    return f"{STATIC_PREFIX}{name}?v={load_static_files()[name].version}"


async def serve_static_file(request: Request) -> Response:
    """Respond with a static file, which needs no sign-in because it contains nothing of the project."""
    file = load_static_files().get(request.path_params["name"])
    if file is None:
        from starlette.exceptions import HTTPException

        raise HTTPException(404)
    headers = {"vary": "accept-encoding"}
    if request.query_params.get("v") == file.version:
        headers["cache-control"] = KEEP_FOREVER
    if "gzip" in request.headers.get("accept-encoding", ""):
        return Response(
            file.compressed, headers=headers | {"content-encoding": "gzip"}, media_type=file.media_type
        )
    return Response(file.content, headers=headers, media_type=file.media_type)
