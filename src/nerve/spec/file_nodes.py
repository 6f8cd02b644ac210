"""Nodes that read files of the project."""

from __future__ import annotations

import asyncio
import errno
import os
from pathlib import Path

from nerve.core.nodes.base import Node
from nerve.core.nodes.context import ExecutionContext
from nerve.core.result import Result
from nerve.project.safe_files import FileRefused, open_folder_inside, read_file_inside
from nerve.spec.expectations import project_directory
from nerve.text.source import InvalidDefinition

MISSING_ERRORS = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG})


class ReadFile(Node):
    """Return the text of a file, or the names in a folder; both must be inside the project or workspace.

    The input is an object with the `path`, and with `optional`, if the output without such a file is null.
    """

    async def execute(self, context: ExecutionContext) -> Result:
        path = context.input["path"]
        root = project_directory(context)
        try:
            text = await asyncio.to_thread(read_project_path, root, path)
        except (FileRefused, InvalidDefinition, OSError) as error:
            if isinstance(error, OSError) and error.errno in MISSING_ERRORS:
                if context.input.get("optional"):
                    return Result.ok(None, {"path": path})
                return Result.failed(f"File not found: {path!r}", "FileNotFoundError")
            reason = error.problems[0].message if isinstance(error, InvalidDefinition) else str(error)
            return Result.failed(f"Cannot read the file {path!r}: {reason}", type(error).__name__)
        return Result.ok(text, {"path": path})


def read_project_path(root: Path, path: str) -> str:
    """Return the text of a file below `root`, or the sorted names in a folder, one on each line."""
    if not path.strip():
        raise FileNotFoundError(errno.ENOENT, "The path is empty")
    if not os.path.isdir(root / path):
        return read_file_inside(root, root / path)
    descriptor = open_folder_inside(root, root / path)
    try:
        with os.scandir(descriptor) as entries:
            names = sorted(f"{entry.name}/" if entry.is_dir() else entry.name for entry in entries)
    finally:
        os.close(descriptor)
    return "".join(f"{name}\n" for name in names)
