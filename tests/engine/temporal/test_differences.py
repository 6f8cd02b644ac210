"""The manual names everything that Temporal does otherwise than the local engine."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[3]
MARK = re.compile(r"mark\.differs\(([\"'])(.+?)\1\)")


def test_each_behaviour_that_temporal_does_not_have_is_in_the_manual() -> None:
    page = (ROOT / "docs/guides/temporal.md").read_text()
    table = page.partition("What differs from the local engine")[2].partition("## ")[0]
    rows = re.findall(r"^\| (.+?) \|", table, re.MULTILINE)
    tests = [file for file in (ROOT / "tests").rglob("test_*.py") if file != Path(__file__)]
    marked = {name for file in tests for _, name in MARK.findall(file.read_text())}
    assert marked
    assert marked <= set(rows)
