"""Definitions that are read again when their files change; runs that are open keep what they started from."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from watchfiles import awatch

from nerve.api import Api, ApiError
from nerve.notations.discovery import FOLDERS, PROMPTS

log = logging.getLogger("nerve")


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
    folders = watched(api.session.project, api.session.config.workflows_dir)
    if not folders:
        await stop.wait()
        return
    async for _ in awatch(*folders, stop_event=stop, debounce=200, step=20):
        try:
            await load_all(api)
        except ApiError as error:
            log.warning("the definitions were not read again: %s", error)


def watched(project: Path, extra: str | None) -> list[Path]:
    """The folders in which workflows and their prompts are, as far as there are any."""
    names = [f"{folder}/{part}" for folder in FOLDERS for part in ("workflows", *PROMPTS)]
    return [project / name for name in [*names, *([extra] if extra else [])] if (project / name).is_dir()]
