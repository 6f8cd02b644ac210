"""What the tests of agents are given."""

import pytest

from nerve import Session


@pytest.fixture
def session() -> Session:
    """A session in memory."""
    return Session(name="test")
