"""What all tests share."""

import asyncio
import os
import tempfile
from collections.abc import Iterator
from typing import Any

import pytest
import uvicorn.server
from hypothesis import settings

# The same examples every time: a change is judged by what it changed. `make test-full` draws new ones.
settings.register_profile("same", derandomize=True, database=None)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "same"))

MEMORY = "/dev/shm"
ROOM = 2**30
"""Bytes that must be free in memory for the files of the quick tests to be there."""


def pytest_configure(config: pytest.Config) -> None:
    """Have the quick tests wait for no disk: who is killed loses nothing that was written to memory."""
    if config.option.markexpr == "not full" and "TMPDIR" not in os.environ and has_room(MEMORY):
        os.environ["TMPDIR"] = MEMORY
        tempfile.tempdir = None


def has_room(folder: str) -> bool:
    """Whether there is such a folder with room for files, and programs in it can be run."""
    try:
        found = os.statvfs(folder)
    except OSError:
        return False
    free = found.f_bavail * found.f_frsize
    return free > ROOM and not found.f_flag & os.ST_NOEXEC and os.access(folder, os.W_OK)


class Hurried:
    """asyncio, in which whoever sleeps does so for a twentieth of the time."""

    def __getattr__(self, name: str) -> Any:
        return getattr(asyncio, name)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds / 20)


@pytest.fixture(scope="session", autouse=True)
def stops_at_once() -> Iterator[None]:
    """A server in this process looks more often than ten times a second whether it is to end."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(uvicorn.server, "asyncio", Hurried())
        yield
