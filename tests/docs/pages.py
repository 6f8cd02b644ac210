"""The pages of the documentation, and their runnable parts."""

import contextlib
import io
import os
import re
import sys
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from unittest.mock import patch

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [*sorted(ROOT.glob("*.md")), *sorted(ROOT.glob("docs/**/*.md")), ROOT / "examples/README.md"]
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
FILE = re.compile(r"`([\w./-]+)`:\n\n```\w+\n(.*?)^```$", re.MULTILINE | re.DOTALL)
VARIES = [
    (r"[0-9a-f]{8}-[0-9a-f]{4}(-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12})?", "ID"),
    (r"\d+\.\ds", "TIME"),
]


def page(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


@dataclass(frozen=True)
class Block:
    """A fenced Python block, and the text block that follows it, if there is one."""

    page: str
    line: int
    code: str
    output: str | None

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"

    def run(self, monkeypatch: pytest.MonkeyPatch) -> str:
        """Run the block and return its output; what it sets in the environment does not outlive it."""
        monkeypatch.setattr(sys, "argv", ["page.py"])
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed), patch.dict(os.environ):
            exec(compile(self.code, str(self), "exec"), {"__name__": "__main__"})  # noqa: S102
        return printed.getvalue()


def blocks() -> list[Block]:
    result = []
    for path in PAGES:
        text = path.read_text(encoding="utf-8")
        fences = list(FENCE.finditer(text))
        for fence, following in pairwise([*fences, None]):
            if fence[1] != "python":
                continue
            has_output = following is not None and following[1] == "text"
            has_output = has_output and not text[fence.end() : following.start()].strip()
            line = text.count("\n", 0, fence.start()) + 1
            result.append(Block(path.name, line, fence[2], following[2] if has_output else None))
    return result


def write_files(text: str, folder: Path) -> list[str]:
    """Write the files that a text shows after their names into a folder, and return the names."""
    names = []
    for name, content in FILE.findall(text):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(content, encoding="utf-8")
        names.append(name)
    return names


def commands(text: str) -> list[tuple[str, str]]:
    """Return every `$ nerve …` command of a text with its output."""
    shown = "".join(block for kind, block in FENCE.findall(text) if kind == "console")
    parts = re.split(r"^\$ nerve ", shown, flags=re.MULTILINE)[1:]
    return [(line, output) for line, _, output in (part.partition("\n") for part in parts)]


def normalize(text: str) -> str:
    """Replace ids and times, which differ between runs."""
    for pattern, name in VARIES:
        text = re.sub(pattern, name, text)
    return text


def section(text: str, title: str) -> str:
    return text.split(f"\n## {title}\n")[1].split("\n## ")[0]
