"""Helpers of the engine tests."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from both_engines import parametrize_engine
from nerve import FunctionNode, Session, WorkflowContext
from store.vfs import Disk


@pytest.fixture(autouse=True)
def _both_engines(engine: str) -> None:
    pass


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "nerve.db"


@pytest.fixture
def disk() -> Iterator[Disk]:
    disk = Disk()
    yield disk
    disk.unregister()


async def until(condition: Callable[[], Any], seconds: float = 30.0) -> None:
    """Run the loop until the condition holds."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited too long"
        await asyncio.sleep(0.001)


def register(session: Session, done: list[str]) -> None:
    """A step, a gate, a step: the workflow most tests here need."""

    async def work(context: Any) -> Any:
        done.append(context.path)
        return context.input

    FunctionNode("work", session, work)

    @session.workflow
    async def asking(ctx: WorkflowContext) -> Any:
        one = await ctx.run("work", 1)
        answer = await ctx.gate("Go on?")
        two = await ctx.run("work", 2)
        return [one["output"], answer, two["output"]]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run the tests of this folder with both engines."""
    if metafunc.definition.path.parent.name == "engine":
        parametrize_engine(metafunc)
