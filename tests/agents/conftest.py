"""Fixtures of the agent tests."""

import pytest

from nerve import Session
from nerve.agents.claude.provider import PASSED_VARIABLES
from nerve.agents.codex.executable import CODEX_KEY_VARIABLES, NETWORK_VARIABLES


@pytest.fixture(autouse=True)
def unset_provider_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    """Unset all variables that providers pass to their programs, unless a test sets them."""
    for name in {*PASSED_VARIABLES, *CODEX_KEY_VARIABLES, *NETWORK_VARIABLES}:
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def session() -> Session:
    """Return a session in memory."""
    return Session(name="test")
