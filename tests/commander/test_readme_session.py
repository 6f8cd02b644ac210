"""The README session is reproducible: typing it again gives the same image."""

import os
from pathlib import Path

from commander.recorded import lines_of, recorded

ROOT = Path(__file__).parents[2]
PICTURE = ROOT / "docs" / "commander.svg"
LARGEST = 64_000


async def test_the_readme_session_reproduces_its_recording(tmp_path: Path) -> None:
    svg = await recorded(tmp_path)
    if os.environ.get("UPDATE_SNAPSHOTS"):
        PICTURE.write_text(svg, encoding="utf-8")
    assert lines_of(PICTURE.read_text(encoding="utf-8")) == lines_of(svg)
    assert "(docs/commander.svg)" in (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_picture_is_small_and_loads_nothing_external() -> None:
    svg = PICTURE.read_text(encoding="utf-8")
    assert len(svg.encode()) < LARGEST
    assert "@font-face" not in svg
    assert svg.count("http") == svg.count("http://www.w3.org/")
