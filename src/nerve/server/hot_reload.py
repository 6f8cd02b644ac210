"""Definitions that are read again when their files change; runs that are open keep what they started from."""

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

from nerve.api import Api, ApiError
from nerve.project.discovery import PROJECT_FOLDER_NAMES, PROMPT_FOLDER_NAMES

log = logging.getLogger("nerve")

WATCH_INTERVAL_MS = 1000
"""Milliseconds after which it is looked whether all folders are still the same."""
RETRY_DELAY_S = 60.0
"""Seconds after which a system that watches no more folders is asked again."""


async def load_definitions(api: Api) -> list[dict[str, Any]]:
    """Read all definitions; gives what is wrong with them. One bad file keeps no other from being read."""
    response: Any = await api.perform("reload", {})
    problems: list[dict[str, Any]] = response.problems
    for problem in problems:
        log.warning(
            "%s:%s:%s: %s %s", *(problem[name] for name in ("file", "line", "column", "message", "fix"))
        )
    return problems


@contextlib.asynccontextmanager
async def reload_on_change(api: Api) -> AsyncIterator[None]:
    """Read the definitions again whenever a file of the project's folders changes."""
    stop = asyncio.Event()
    watch_task = asyncio.create_task(watch_definition_folders(api, stop))
    try:
        yield
    finally:
        stop.set()
        await watch_task


async def watch_definition_folders(api: Api, stop: asyncio.Event) -> None:
    """Folders that come later, or are removed and made again, are watched from then on."""
    folders = definition_folders(api.session.project, api.session.config.workflows_dir)
    existing, anew = existing_folders(folders), False
    while not stop.is_set():
        async with contextlib.aclosing(watch_changes(list(existing), stop)) as change_stream:
            async for changed in change_stream:
                now = existing_folders(folders)
                other = now != existing or bool(changed & {folder.name for folder in folders})
                if changed or anew or other:
                    await reload_definitions(api)
                anew, existing = other, now
                if anew:
                    break  # what changes until the new ones are watched is read when they are


async def reload_definitions(api: Api) -> None:
    try:
        await load_definitions(api)
    except ApiError as error:
        log.warning("the definitions were not read again: %s", error)


async def watch_changes(folders: list[Path], stop: asyncio.Event) -> AsyncGenerator[set[str], None]:
    """The names of what has changed in the folders, which may be one of them; every second, if there are any.

    A folder that is made again may be the same to the system, so that it is gone must be seen here.
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
        full = all(folder.is_dir() for folder in folders)  # or else one is just gone
        if full:
            log.warning("changes of definitions are not seen: %s. Read them: nerve workflow reload", error)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(stop.wait(), RETRY_DELAY_S if full else WATCH_INTERVAL_MS / 1000)
        yield set()


def existing_folders(folders: list[Path]) -> dict[Path, tuple[int, int]]:
    """The folders that are there, and which ones they are."""
    identities = {}
    for folder in folders:
        with contextlib.suppress(OSError):
            status = folder.stat()
            if stat.S_ISDIR(status.st_mode):
                identities[folder] = (status.st_dev, status.st_ino)
    return identities


def definition_folders(project: Path, extra: str | None) -> list[Path]:
    """The folders in which workflows and their prompts may be."""
    names = [
        f"{folder}/{part}" for folder in PROJECT_FOLDER_NAMES for part in ("workflows", *PROMPT_FOLDER_NAMES)
    ]
    return [project / name for name in [*names, *([extra] if extra else [])]]
