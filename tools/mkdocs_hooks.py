"""Hooks of `make docs`."""

from __future__ import annotations

import re
from typing import Any

CODE = re.compile(r"(`+)(.+?)\1")
EXAMPLE_LINK = re.compile(r"\[([^]]+)\]\((?:\.\./)+(examples/[^)]+)\)")


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Adapt what is written for GitHub.

    Unescape pipes in the code of tables: GitHub needs the backslash, Python-Markdown would print it. Name
    the files of examples instead of linking to them: they are not part of the site.
    """
    lines = EXAMPLE_LINK.sub(r"`\2`", markdown).split("\n")
    return "\n".join(unescape_pipes(line) if line.startswith("|") else line for line in lines)


def unescape_pipes(line: str) -> str:
    return CODE.sub(lambda match: match[0].replace("\\|", "|"), line)
