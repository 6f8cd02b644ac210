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
from nerve.notations.discovery import FOLDERS, PROMPTS

log = logging.getLogger("nerve")

TICK = 1000
"""Milliseconds after which it is looked whether all folders are still the same."""
LATER = 60.0
"""Seconds after which a system that watches no more folders is asked again."""


async def load_all(api: Api) -> list[dict[str, Any]]:
    """Read all definitions; gives what is wrong with them. One bad file keeps no other from being read."""
    told: Any = await api.perform("reload", {})
    problems: list[dict[str, Any]] = told.problems
    for each in problems:
        log.warning("%s:%s:%s: %s %s", *(each[name] for name in ("file", "line", "column", "message", "fix")))
    return problems


@contextlib.asynccontextmanager
async def reloading(api: Api) -> AsyncIterator[None]:
    """Read the definitions again whenever a file of the project's folders changes."""
    stop = asyncio.Event()
    watching = asyncio.create_task(watch(api, stop))
    try:
        yield
    finally:
        stop.set()
        await watching


async def watch(api: Api, stop: asyncio.Event) -> None:
    """Folders that come later, or are removed and made again, are watched from then on."""
    places = watched(api.session.project, api.session.config.workflows_dir)
    there, anew = present(places), False
    while not stop.is_set():
        async with contextlib.aclosing(changes(list(there), stop)) as looking:
            async for changed in looking:
                now = present(places)
                other = now != there or bool(changed & {each.name for each in places})
                if changed or anew or other:
                    await read_again(api)
                anew, there = other, now
                if anew:
                    break  # what changes until the new ones are watched is read when they are


async def read_again(api: Api) -> None:
    try:
        await load_all(api)
    except ApiError as error:
        log.warning("the definitions were not read again: %s", error)


async def changes(folders: list[Path], stop: asyncio.Event) -> AsyncGenerator[set[str], None]:
    """The names of what has changed in the folders, which may be one of them; every second, if there are any.

    A folder that is made again may be the same to the system, so that it is gone must be seen here.
    """
    try:
        async for changed in awatch(
            *folders, stop_event=stop, debounce=200, step=20, rust_timeout=TICK, yield_on_timeout=True
        ):
            yield {os.path.basename(path) for _, path in changed}
    except OSError as error:
        full = all(each.is_dir() for each in folders)  # or else one is just gone
        if full:
            log.warning("changes of definitions are not seen: %s. Read them: nerve workflow reload", error)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(stop.wait(), LATER if full else TICK / 1000)
        yield set()


def present(folders: list[Path]) -> dict[Path, tuple[int, int]]:
    """The folders that are there, and which ones they are."""
    found = {}
    for each in folders:
        with contextlib.suppress(OSError):
            told = each.stat()
            if stat.S_ISDIR(told.st_mode):
                found[each] = (told.st_dev, told.st_ino)
    return found


def watched(project: Path, extra: str | None) -> list[Path]:
    """The folders in which workflows and their prompts may be."""
    names = [f"{folder}/{part}" for folder in FOLDERS for part in ("workflows", *PROMPTS)]
    return [project / name for name in [*names, *([extra] if extra else [])]]
