"""Supervised process trees: started, bounded, killed whole (off Linux best effort, by process group)."""

from nerve.process.command_runner import Exit, run_command
from nerve.process.environment import child_env

__all__ = ["Exit", "child_env", "run_command"]
