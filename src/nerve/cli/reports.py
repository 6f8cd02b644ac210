"""What a command prints at its end, if it does not use the API."""

from __future__ import annotations

from typing import Any

from nerve.cli.parameters import CommonOptions, ReportOptions
from nerve.ui.sanitize import dump_safe_json, sanitize_text


def print_report(options: CommonOptions | ReportOptions, data: Any, *lines: str) -> None:
    """Print the data with --json, otherwise the lines, unless --quiet is given."""
    if options.json:
        print(dump_safe_json(data))
    elif not options.quiet:
        for line in lines:
            print(sanitize_text(line))
