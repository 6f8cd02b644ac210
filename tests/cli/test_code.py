"""Python files that are named on the command line."""

import os
import sys
from pathlib import Path

import pytest

from nerve import Session
from nerve.cli.code import register


def test_a_file_is_executed_as_it_is_now(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    monkeypatch.setattr(sys, "path", sys.path[:])
    file = tmp_path / "edited_at_once.py"
    for name in ("one", "two"):
        file.write_text(f"def register(session):\n    @session.workflow\n    async def {name}(ctx): ...\n")
        os.utime(file, (1e9, 1e9))
        assert register(Session(), file) == [name]
