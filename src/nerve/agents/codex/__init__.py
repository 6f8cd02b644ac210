"""The provider `codex`: turns of `codex app-server`, driven over its pipes."""

from nerve.agents.codex.provider import CodexProvider

__all__ = ["CodexProvider"]
