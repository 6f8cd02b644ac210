"""Hooks of `make docs`."""

from __future__ import annotations

import re
from typing import Any

CODE = re.compile(r"(`+)(.+?)\1")


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Unescape pipes in the code of tables: GitHub needs the backslash, Python-Markdown would print it."""
    lines = markdown.split("\n")
    return "\n".join(unescape_pipes(line) if line.startswith("|") else line for line in lines)


def unescape_pipes(line: str) -> str:
    return CODE.sub(lambda match: match[0].replace("\\|", "|"), line)
