"""The provider `claude`: Claude Code, driven through its command-line program."""

from nerve.agents.claude.provider import ClaudeProvider

__all__ = ["ClaudeProvider"]
