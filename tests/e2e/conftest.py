"""Servers in processes of their own; when a test is over, everything that must be true of a project is."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from e2e.invariants import broken
from e2e.world import World


def closed(world: World) -> None:
    world.kill()
    assert broken(world) == []


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    """A server to be stopped and killed."""
    made = World(tmp_path)
    made.start()
    yield made
    closed(made)


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Callable[..., World]]:
    """Makes a server that is otherwise than others."""
    made: list[World] = []

    def make(*options: str, **otherwise: Any) -> World:
        made.append(World(tmp_path, **otherwise))
        made[-1].start(*options)
        return made[-1]

    yield make
    for world in made:
        closed(world)


@pytest.fixture(scope="session")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """A server for all tests that leave it as it was."""
    made = World(tmp_path_factory.mktemp("shared"))
    made.start()
    yield made
    closed(made)
