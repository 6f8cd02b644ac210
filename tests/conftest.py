"""What all tests share."""

import asyncio
import os
from collections.abc import Iterator
from typing import Any

import pytest
import uvicorn.server
from hypothesis import settings

# The same examples every time: a change is judged by what it changed. `make test-full` draws new ones.
settings.register_profile("same", derandomize=True, database=None)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "same"))


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
