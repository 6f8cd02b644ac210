"""Servers in processes of their own; when a test is over, everything that must be true of a project is."""

from collections.abc import Iterator
from pathlib import Path

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


@pytest.fixture(scope="session")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """A server for all tests that leave it as it was."""
    made = World(tmp_path_factory.mktemp("shared"))
    made.start()
    yield made
    closed(made)
