"""Which files of a project match patterns, in which versions, and what has changed."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from types import TracebackType

from nerve.background_tasks import wait_for_event
from nerve.core.triggers import FileOptions
from nerve.lazy_dataclass import dataclass

MAX_WATCHED_FILES = 10_000
SCAN_INTERVAL_S = 5.0
"""Seconds between two looks at all files while the system reports changes."""
SCAN_INTERVAL_WITHOUT_WATCH_S = 1.0
SKIPPED_FOLDERS = frozenset({".git", "node_modules", "__pycache__", ".venv"})
"""Folders that are searched only if a pattern names them."""


class TooManyFiles(ValueError):
    """The patterns of a trigger match more files than it can watch."""


@dataclass(frozen=True, slots=True)
class FileChanges:
    """What has changed: files with their new versions, and files that are gone."""

    settled: dict[str, str]
    removed: list[str]


class FileWatch:
    """The files of a trigger, as an async context manager that lets the system report changes."""

    def __init__(self, project: Path, options: FileOptions) -> None:
        self._project, self._options = project, options
        self._pending: dict[str, tuple[str, float]] = {}
        """Versions that may still change, and since when they are known."""
        self._news = asyncio.Event()
        self._stop = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> FileWatch:
        self._task = asyncio.create_task(self._watch())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._task is not None
        self._stop.set()
        await asyncio.gather(self._task, return_exceptions=True)

    async def scan(self) -> dict[str, str]:
        """Return the matching files with their versions."""
        return await asyncio.to_thread(find_file_versions, self._project, self._options.paths)

    async def next_changes(self, known: Mapping[str, str]) -> FileChanges:
        """Return the next files that have changed and not changed again for the time of `debounce`."""
        while True:
            self._news.clear()
            present = await self.scan()
            now = asyncio.get_running_loop().time()
            changed = {path: version for path, version in present.items() if known.get(path) != version}
            pending = self._pending
            self._pending = {
                path: (version, pending[path][1] if pending.get(path, ("",))[0] == version else now)
                for path, version in changed.items()
            }
            settled = {
                path: version
                for path, (version, since) in self._pending.items()
                if now - since >= self._options.debounce
            }
            removed = [path for path in known if path not in present]
            if settled or removed:
                return FileChanges(settled, removed)
            await self._wait(now)

    async def _wait(self, now: float) -> None:
        is_watched = self._task is not None and not self._task.done()
        delay = SCAN_INTERVAL_S if is_watched else SCAN_INTERVAL_WITHOUT_WATCH_S
        if self._pending:
            oldest = min(since for _, since in self._pending.values())
            delay = max(0.01, oldest + self._options.debounce - now)
        await wait_for_event(self._news, delay)

    async def _watch(self) -> None:
        """Look at the files when the system reports a change; end where it cannot."""
        from watchfiles import awatch

        roots = [root for root in watched_folders(self._project, self._options.paths) if root.is_dir()]
        if not roots:
            return
        with contextlib.suppress(OSError):
            async for _ in awatch(*roots, stop_event=self._stop, debounce=100, step=20):
                self._news.set()


def watched_folders(project: Path, patterns: tuple[str, ...]) -> list[Path]:
    """Return the folders below which all matching files are."""
    return list(dict.fromkeys(project / fixed_folder(pattern) for pattern in patterns))


def fixed_folder(pattern: str) -> str:
    """Return the part of a pattern before its first wildcard, as a folder."""
    parts = pattern.split("/")[:-1]
    fixed = next((index for index, part in enumerate(parts) if re.search(r"[*?\[]", part)), len(parts))
    return "/".join(parts[:fixed])


def find_file_versions(project: Path, patterns: tuple[str, ...]) -> dict[str, str]:
    """Return the files that match, relative to the project, with a text that differs after every change."""
    versions: dict[str, str] = {}
    for pattern in patterns:
        matcher = compile_pattern(pattern)
        is_deep = "/" in pattern[len(fixed_folder(pattern)) :].lstrip("/")
        for path, status in walk_files(project, fixed_folder(pattern), is_deep):
            if matcher.fullmatch(path):
                versions[path] = f"{status.st_mtime_ns:x}-{status.st_size:x}-{status.st_ino:x}"
        if len(versions) > MAX_WATCHED_FILES:
            raise TooManyFiles(
                f"The patterns {', '.join(patterns)} match more than {MAX_WATCHED_FILES:,} files. Use"
                " narrower patterns"
            )
    return versions


def walk_files(project: Path, folder: str, is_deep: bool) -> Iterator[tuple[str, os.stat_result]]:
    """Yield the files below a folder of the project; links are not followed."""
    folders = [folder]
    while folders:
        current = folders.pop()
        try:
            with os.scandir(project / current) as entries:
                for entry in entries:
                    path = f"{current}/{entry.name}" if current else entry.name
                    if entry.is_file(follow_symlinks=False):
                        with contextlib.suppress(OSError):  # it is gone again
                            yield path, entry.stat(follow_symlinks=False)
                    elif is_deep and entry.is_dir(follow_symlinks=False):
                        is_own = path == ".nerve" or path.startswith(".nerve/")
                        if entry.name not in SKIPPED_FOLDERS and not is_own:
                            folders.append(path)
        except OSError:
            continue


@lru_cache(maxsize=256)
def compile_pattern(pattern: str) -> re.Pattern[str]:
    """Return a regular expression for a pattern in which `**` is any number of folders."""
    parts = pattern.split("/")
    expression = ""
    for index, part in enumerate(parts):
        is_last = index == len(parts) - 1
        if part == "**":
            expression += ".*" if is_last else "(?:[^/]+/)*"
            continue
        expression += translate_part(part) + ("" if is_last else "/")
    return re.compile(expression, re.DOTALL)


def translate_part(part: str) -> str:
    """Return the regular expression of one name in a pattern; a wildcard does not match a leading dot."""
    expression = "" if part.startswith(".") else r"(?!\.)"
    index = 0
    while index < len(part):
        character = part[index]
        end = part.find("]", index + 2) if character == "[" else -1
        if character == "*":
            expression += "[^/]*"
        elif character == "?":
            expression += "[^/]"
        elif end > 0:
            inner = part[index + 1 : end].replace("\\", "\\\\")
            expression += f"[{'^' + inner[1:] if inner.startswith('!') else inner}]"
            index = end
        else:
            expression += re.escape(character)
        index += 1
    return expression
