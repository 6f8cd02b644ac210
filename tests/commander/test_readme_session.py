"""The session in the README is one that can be had: it is typed again, and gives the same picture."""

import os
from pathlib import Path

from commander.recorded import lines_of, recorded

ROOT = Path(__file__).parents[2]
PICTURE = ROOT / "docs" / "commander.svg"
LARGEST = 64_000


async def test_the_session_of_the_readme_is_typed_again_and_looks_the_same(tmp_path: Path) -> None:
    svg = await recorded(tmp_path)
    if os.environ.get("UPDATE_SNAPSHOTS"):
        PICTURE.write_text(svg, encoding="utf-8")
    assert lines_of(PICTURE.read_text(encoding="utf-8")) == lines_of(svg)
    assert "(docs/commander.svg)" in (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_picture_is_small_and_asks_nobody_for_anything() -> None:
    svg = PICTURE.read_text(encoding="utf-8")
    assert len(svg.encode()) < LARGEST
    assert "@font-face" not in svg
    assert svg.count("http") == svg.count("http://www.w3.org/")
