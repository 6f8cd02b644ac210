"""Claude Code: the real program against a stub of its API, and its recorded lines."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from agents.contract import ProviderContract
from agents.stubs.anthropic import AnthropicStub
from nerve.agents.claude import ClaudeProvider
from nerve.agents.claude.provider import find_program

needs_program = pytest.mark.skipif(
    find_program() is None, reason="Claude Code is not installed: pip install 'nerve[claude]'"
)


@pytest.fixture
def stub() -> Iterator[AnthropicStub]:
    with AnthropicStub() as stub:
        yield stub


@pytest.fixture
def provider(stub: AnthropicStub) -> ClaudeProvider:
    return made(stub)


def made(stub: AnthropicStub, **changes: Any) -> ClaudeProvider:
    """A provider that knows nothing of this machine, and asks the stub."""
    env = {"ANTHROPIC_BASE_URL": stub.url, "ANTHROPIC_API_KEY": "sk-ant-dummy"}
    given: dict[str, Any] = {"env": env, "pass_env": (), "retries": 0, **changes}
    return ClaudeProvider(**given)


@needs_program
class TestClaude(ProviderContract):
    thinks = True
    allowed = ("Bash(touch *)",)

    @pytest.fixture
    def stub(self) -> Iterator[AnthropicStub]:
        with AnthropicStub() as stub:
            yield stub

    @pytest.fixture
    def provider(self, stub: AnthropicStub) -> ClaudeProvider:
        return made(stub)
