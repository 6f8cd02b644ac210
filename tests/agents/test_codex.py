"""Codex against a stub of its API: the real program where it is installed, and its recorded words."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from agents.contract import ProviderContract
from agents.stubs.openai import OpenAIStub
from nerve.agents import Unavailable
from nerve.agents.codex import CodexProvider, program


def missing() -> str:
    try:
        program.found(None)
    except Unavailable as error:
        return str(error)
    return ""


@pytest.fixture
def stub() -> Iterator[OpenAIStub]:
    with OpenAIStub() as stub:
        yield stub


def codex(stub: OpenAIStub, **settings: Any) -> CodexProvider:
    return CodexProvider(
        **{"model": "stub-model", "approval": "untrusted", **settings},
        base_url=f"{stub.url}/v1",
        env_key="STUB_KEY",
        env={"STUB_KEY": "sk-stub"},
    )


@pytest.mark.skipif(bool(missing()), reason=missing())
class TestCodex(ProviderContract):
    thinks = True
    allowed = ("shell",)

    @pytest.fixture
    def stub(self) -> Iterator[OpenAIStub]:
        with OpenAIStub() as stub:
            yield stub

    @pytest.fixture
    def provider(self, stub: OpenAIStub, monkeypatch: pytest.MonkeyPatch) -> CodexProvider:
        monkeypatch.delenv("CODEX_HOME", raising=False)
        return codex(stub)
