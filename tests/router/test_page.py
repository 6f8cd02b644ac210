"""The page about the router: its blocks run and print what it says."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs/guides/router.md"
BLOCKS = re.findall(
    r"^```python\n(.*?)^```\n\n```text\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL
)


def test_the_page_has_blocks() -> None:
    assert len(BLOCKS) == PAGE.read_text().count("```python") == 2


@pytest.mark.parametrize(("code", "output"), BLOCKS)
def test_a_block_prints_what_the_page_says(code: str, output: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.stdout == output, done.stderr
