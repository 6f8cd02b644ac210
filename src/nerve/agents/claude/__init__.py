"""The provider `claude`: Claude Code, driven by its own program."""

from nerve.agents.claude.provider import ClaudeProvider

__all__ = ["ClaudeProvider"]
