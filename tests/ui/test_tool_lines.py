"""Tool calls of agents on one line."""

from __future__ import annotations

from typing import Any

import pytest

from nerve.ui.tool_lines import MAX_TOOL_INPUT_CHARS, format_tool_call, format_tool_input


@pytest.mark.parametrize(
    ("tool_input", "shown"),
    [
        ({"command": "git status", "description": "look"}, "git status"),
        ({"command": ["bash", "-c", "ls -l"]}, "bash -c 'ls -l'"),
        ({"description": "read it", "file_path": "src/app.py", "limit": 10}, "src/app.py"),
        ({"changes": [{"path": "a.py", "diff": "x"}, {"path": "b.py"}]}, "a.py, b.py"),
        ({"command": "cat <<E\none\ntwo\nE"}, "cat <<E one two E"),
        ({"number": 3, "deep": {"a": [1]}}, '{"number":3,"deep":{"a":[1]}}'),
        ({"command": ""}, '{"command":""}'),
        ("text", "text"),
        ([1, 2], "[1,2]"),
        ({}, ""),
        (None, ""),
    ],
)
def test_the_part_that_tells_most_is_shown(tool_input: Any, shown: str) -> None:
    assert format_tool_input(tool_input) == shown


def test_a_long_input_is_shortened() -> None:
    line = format_tool_call({"name": "Bash", "input": {"command": "x" * 100_000}})
    assert len(line) == len("Bash ") + MAX_TOOL_INPUT_CHARS
    assert line.endswith("x…")
