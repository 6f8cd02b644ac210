"""Codex as an agent: turns of `codex app-server`, spoken with over its pipes."""

from nerve.agents.codex.provider import CodexProvider

__all__ = ["CodexProvider"]
