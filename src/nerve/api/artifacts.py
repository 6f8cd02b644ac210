"""Artifacts: the files that the steps of a run put into its artifacts folder."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import stat
from collections.abc import AsyncGenerator, Iterator
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import BinaryIO

from nerve.api import models
from nerve.api.errors import ApiError
from nerve.lazy_dataclass import dataclass
from nerve.project.paths import PROJECT_FOLDER_NAMES
from nerve.project.safe_files import FileRefused, open_file_without_links, open_folder_without_links

OTHER_MEDIA_TYPE = "application/octet-stream"
MEDIA_TYPES = {
    ".png": "image/png",
    ".jpg": "image/jpeg",
    ".jpeg": "image/jpeg",
    ".gif": "image/gif",
    ".webp": "image/webp",
    ".txt": "text/plain",
    ".log": "text/plain",
    ".csv": "text/plain",
    ".diff": "text/plain",
    ".patch": "text/plain",
    ".md": "text/markdown",
    ".json": "application/json",
    ".pdf": "application/pdf",
}
"""The types that are named; those of HTML and SVG are not, because a browser would run their scripts."""
CHUNK_BYTES = 256 * 1024
RUN_ID_PATTERN = re.compile(r"[A-Za-z0-9][A-Za-z0-9-]{7,127}")
"""Matches the ids of runs, which are names of files too."""
MAX_LISTED_FILES = 100_000
"""Files of a run that a list takes into account."""
MAX_FOLDER_DEPTH = 32
LAST_TIME_S = datetime(9999, 12, 31, tzinfo=UTC).timestamp()
"""The latest time that a list can show; a program may set any time of its files."""


@dataclass(frozen=True, slots=True)
class OpenArtifact:
    """A file that is open for reading. Read it with `chunks`, or close it."""

    about: models.ArtifactResponse
    file: BinaryIO

    async def chunks(self) -> AsyncGenerator[bytes]:
        """Yield the bytes that the file had when it was opened, fewer if it has become shorter."""
        with self.file:
            left = self.about.size
            while left > 0 and (chunk := await asyncio.to_thread(self.file.read, min(left, CHUNK_BYTES))):
                left -= len(chunk)
                yield chunk


def list_artifacts(project: Path, run_id: str, after: str | None, limit: int) -> models.ArtifactPage:
    """Return the artifacts of a run that follow a name, in the order of their names."""
    files: dict[str, tuple[list[str], os.stat_result]] = {}
    for name, path, status in islice(iterate_files(project, run_id), MAX_LISTED_FILES):
        if after is None or name > after:
            files.setdefault(name, (path, status))
    page = [describe_artifact(name, *files[name]) for name in sorted(files)[:limit]]
    more = len(files) > limit
    return models.ArtifactPage(run_id=run_id, artifacts=page, more=more, next=page[-1].name if more else None)


def iterate_files(project: Path, run_id: str) -> Iterator[tuple[str, list[str], os.stat_result]]:
    """Yield the regular files in the artifacts folders of a run: name, path in the project, and status."""
    for parts in artifact_folders(run_id):
        try:
            descriptor = open_folder_without_links(project, parts)
        except OSError:
            continue
        try:
            for folder, folders, files, here in os.fwalk(".", dir_fd=descriptor):
                inner = folder.split("/")[1:]
                if len(inner) >= MAX_FOLDER_DEPTH:
                    folders.clear()
                for file in files:
                    name = "/".join([*inner, file])
                    with contextlib.suppress(OSError, UnicodeError):  # deleted in the meantime, or not UTF-8
                        name.encode()
                        status = os.stat(file, dir_fd=here, follow_symlinks=False)
                        if stat.S_ISREG(status.st_mode):
                            yield name, [*parts, *inner, file], status
        finally:
            os.close(descriptor)


def open_artifact(project: Path, run_id: str, name: str) -> OpenArtifact:
    """Open the artifact with this name; links, folders and devices are not artifacts."""
    names = name.split("/")
    if "\0" not in name and not {"", ".", ".."} & set(names):
        for parts in artifact_folders(run_id):
            path = [*parts, *names]
            try:
                file = os.fdopen(open_file_without_links(project, path), "rb")
            except (OSError, FileRefused, UnicodeError):
                continue
            return OpenArtifact(describe_artifact(name, path, os.fstat(file.fileno())), file)
    fix = f"See the list: nerve artifacts {run_id}"
    raise ApiError("not_found", f"Run '{run_id}' has no artifact '{name}'", fix)


def artifact_folders(run_id: str) -> list[list[str]]:
    """Return the paths in the project where a run may have artifacts."""
    folders = PROJECT_FOLDER_NAMES if RUN_ID_PATTERN.fullmatch(run_id) else ()
    return [[folder, "artifacts", run_id] for folder in folders]


def describe_artifact(name: str, path: list[str], status: os.stat_result) -> models.ArtifactResponse:
    return models.ArtifactResponse(
        name=name,
        path="/".join(path),
        size=status.st_size,
        media_type=MEDIA_TYPES.get(os.path.splitext(name)[1].lower(), OTHER_MEDIA_TYPE),
        modified_at=datetime.fromtimestamp(min(max(status.st_mtime, 0), LAST_TIME_S), UTC),
    )
