"""A folder with two prompts, in which files are checked."""

from pathlib import Path

import pytest

from notations.mistakes.checking import Check


@pytest.fixture
def nerve_check(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Check:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "steps").mkdir()
    for name in ("plan", "review"):
        (tmp_path / "steps" / f"{name}.md").write_text("Do it: $ARGUMENTS\n")
    return Check(tmp_path, capsys)
