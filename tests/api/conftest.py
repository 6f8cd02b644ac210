"""Fixtures of the API tests."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from api.support import with_workflows
from nerve import Session
from nerve.api import Api
from nerve.client import Client


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "nerve.db"


@pytest.fixture
async def api(file: Path) -> AsyncIterator[Api]:
    """Return the API of a session with a file."""
    async with Session(store=file) as session:
        yield with_workflows(session)


@pytest.fixture
async def memory(tmp_path: Path) -> AsyncIterator[Api]:
    """Return the API of a session in memory."""
    async with Session(project=tmp_path) as session:
        yield with_workflows(session)


@pytest.fixture
async def numbers_client(api: Api) -> Client:
    """A client of a session with a workflow of 21 steps."""

    @api.session.node
    def double(context: Any) -> Any:
        return context.input * 2

    @api.session.workflow
    async def numbers(ctx: Any) -> None:
        for number in range(20):
            await ctx.run("double", number)
        await ctx.run("careful", "Zebra")

    return Client(api)
