"""Diffs: how to recognise one, what a tool would change, and a summary of a unified diff."""

from __future__ import annotations

from difflib import unified_diff
from typing import Any

FILE_HEADER_PREFIXES = ("--- ", "+++ ")


def is_diff(text: str) -> bool:
    start = text.lstrip()[:20]
    return start.startswith("diff --git ") or (start.startswith("--- ") and "\n@@ " in text)


def tool_input_diff(tool_input: Any) -> str:
    """Return the file change that a tool input describes, as a unified diff; "" if there is none."""
    if not isinstance(tool_input, dict):
        return ""
    before, after = tool_input.get("old_string"), tool_input.get("new_string")
    if not (isinstance(before, str) and isinstance(after, str)):
        return ""
    file = str(tool_input.get("file_path") or tool_input.get("path") or "")
    lines = unified_diff(before.splitlines(), after.splitlines(), file, file, lineterm="")
    return "\n".join(lines)


def format_diff_counts(text: str) -> str:
    """Return the numbers of added and removed lines."""
    lines = [line for line in text.splitlines() if not line.startswith(FILE_HEADER_PREFIXES)]
    added, removed = (sum(line.startswith(sign) for line in lines) for sign in "+-")
    return f"+{added} −{removed}"


def diff_file_name(text: str) -> str:
    """Return the name of the file that a diff changes."""
    for line in text.splitlines():
        if line.startswith("+++ "):
            return line[4:].split("\t")[0].removeprefix("b/").strip()
    return ""
