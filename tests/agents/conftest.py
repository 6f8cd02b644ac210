"""What the tests of agents are given."""

import pytest

from nerve import Session
from nerve.agents.claude.provider import PASSED
from nerve.agents.codex.program import KEYS, REACH


@pytest.fixture(autouse=True)
def nothing_of_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Programs get their own variables of our environment: none of them is set, unless a test does it."""
    for name in {*PASSED, *KEYS, *REACH}:
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def session() -> Session:
    """A session in memory."""
    return Session(name="test")
