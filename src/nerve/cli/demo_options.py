"""Options of the demo that its processes share."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from rich.console import Console


class DemoOptions(NamedTuple):
    """Whether to approve the gate automatically, and whether to print nothing."""

    yes: bool = False
    quiet: bool = False

    def create_console(self) -> Console:
        return Console(highlight=False, quiet=self.quiet)

    def to_arguments(self) -> list[str]:
        """Return the options as command-line arguments for a child process."""
        return [f"--{name}" for name, value in self._asdict().items() if value]

    @classmethod
    def parse(cls, options: Iterable[str]) -> DemoOptions:
        return cls("--yes" in options, "--quiet" in options)
