"""Supervised process trees: limited, and killed as a whole (by process group outside Linux)."""

from nerve.process.command_runner import Exit, run_command
from nerve.process.environment import child_env

__all__ = ["Exit", "child_env", "run_command"]
