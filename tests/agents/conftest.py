"""What the tests of agents are given."""

import pytest

from nerve import Session
from nerve.agents.claude.provider import PASSED_VARIABLES
from nerve.agents.codex.executable import CODEX_KEY_VARIABLES, NETWORK_VARIABLES


@pytest.fixture(autouse=True)
def nothing_of_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Programs get their own variables of our environment: none of them is set, unless a test does it."""
    for name in {*PASSED_VARIABLES, *CODEX_KEY_VARIABLES, *NETWORK_VARIABLES}:
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def session() -> Session:
    """A session in memory."""
    return Session(name="test")
