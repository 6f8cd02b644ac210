"""Reload definitions when their files change. Open runs keep the definitions they started with."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import stat
from collections.abc import AsyncGenerator, AsyncIterator
from pathlib import Path
from typing import Any

from watchfiles import awatch

from nerve.api import Api
from nerve.background_tasks import wait_for_event
from nerve.errors import NerveError
from nerve.project.discovery import PROMPT_FOLDER_NAMES
from nerve.project.paths import PROJECT_FOLDER_NAMES
from nerve.project.trigger_files import TRIGGERS_FOLDER

log = logging.getLogger("nerve")

WATCH_INTERVAL_MS = 1000
"""Milliseconds between two checks whether the watched folders were replaced."""
RETRY_DELAY_S = 60.0
"""Seconds before another attempt after the system refused to watch the folders."""


async def load_definitions(api: Api) -> list[dict[str, Any]]:
    """Load all definitions and return their problems. An invalid file does not affect the others."""
    response = await api.reload_definitions()
    problems: list[dict[str, Any]] = response.problems
    for problem in problems:
        log.warning(
            "%s:%s:%s: %s %s", *(problem[name] for name in ("file", "line", "column", "message", "fix"))
        )
    return problems


@contextlib.asynccontextmanager
async def reload_on_change(api: Api) -> AsyncIterator[None]:
    """Reload the definitions whenever a file in the definition folders changes."""
    stop = asyncio.Event()
    watch_task = asyncio.create_task(watch_definition_folders(api, stop))
    try:
        yield
    finally:
        stop.set()
        await watch_task


async def watch_definition_folders(api: Api, stop: asyncio.Event) -> None:
    """Watch the definition folders, including folders that are created or replaced later."""
    folders = definition_folders(api.session.project, api.session.config.workflows_dir)
    existing, folders_changed = existing_folders(folders), False
    while not stop.is_set():
        async with contextlib.aclosing(watch_changes(list(existing), stop)) as change_stream:
            async for changed in change_stream:
                now = existing_folders(folders)
                other = now != existing or bool(changed & {folder.name for folder in folders})
                if changed or folders_changed or other:
                    await reload_definitions(api)
                folders_changed, existing = other, now
                if folders_changed:
                    break  # the next watch reloads once, for changes made before it started


async def reload_definitions(api: Api) -> None:
    try:
        await load_definitions(api)
    except NerveError as error:
        log.warning("could not reload definitions: %s", error)


async def watch_changes(folders: list[Path], stop: asyncio.Event) -> AsyncGenerator[set[str], None]:
    """Yield the names of changed files and folders, once per second even without changes.

    A recreated folder can get the same inode, so the caller must see the deletion itself.
    """
    try:
        async for changed in awatch(
            *folders,
            stop_event=stop,
            debounce=200,
            step=20,
            rust_timeout=WATCH_INTERVAL_MS,
            yield_on_timeout=True,
        ):
            yield {os.path.basename(path) for _, path in changed}
    except OSError as error:
        full = all(folder.is_dir() for folder in folders)  # otherwise a folder was just removed
        if full:
            log.warning("cannot watch definition files: %s. Reload them with: nerve workflow reload", error)
        await wait_for_event(stop, RETRY_DELAY_S if full else WATCH_INTERVAL_MS / 1000)
        yield set()


def existing_folders(folders: list[Path]) -> dict[Path, tuple[int, int]]:
    """Return the existing folders with device and inode, which identify them."""
    identities = {}
    for folder in folders:
        with contextlib.suppress(OSError):
            status = folder.stat()
            if stat.S_ISDIR(status.st_mode):
                identities[folder] = (status.st_dev, status.st_ino)
    return identities


def definition_folders(project: Path, extra: str | None) -> list[Path]:
    """Return the folders that may contain workflows, prompts and triggers."""
    names = [
        f"{folder}/{part}" for folder in PROJECT_FOLDER_NAMES for part in ("workflows", *PROMPT_FOLDER_NAMES)
    ]
    return [project / name for name in [*names, TRIGGERS_FOLDER, *([extra] if extra else [])]]
