"""Snapshots of pages: what assistive technology reads, which tests compare, and pictures to look at.

Pictures differ between machines by their fonts, so a test cannot compare them. UPDATE_SNAPSHOTS=1 rewrites
both; look at the pictures before you commit them.
"""

from __future__ import annotations

import base64
import os
import re
from difflib import unified_diff
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from playwright.async_api import Page

SNAPSHOTS = Path(__file__).with_name("snapshots")
MAX_PICTURE_HEIGHT = 1600
REPLACEMENTS = [
    (r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}", "ID"),
    (r"\b[0-9a-f]{6,64}\b", "ID"),
    (r"flows\.py:\d+", "flows.py:LINE"),
    (r"line \d+", "line LINE"),
    (r"/\S+/tests/web", "/tests/web"),
    (r"/\S*(?:pytest-of|nerve-tests)\S*", "FOLDER"),
    (r"127\.0\.0\.1:\d+", "HOST"),
    (r"\d{4}-\d\d-\d\d", "DATE"),
    (r"\d\d:\d\d:\d\d(?:\.\d+)?", "CLOCK"),
    (r"\b(?:now|\d+[smhd] ago|in \d+[smhd])\b", "AGO"),
    (r"\b\d+h \d\dm|\b\d+m \d\ds|\b\d+(?:\.\d+)?\s?(?:ms|s)\b", "DURATION"),
    (r"[−+]?DURATION \([−+-]?\d+%\)", "DIFFERENCE"),
    # Two runs can take equally long.
    (r"(DURATION(?:\n *- cell)?(?: Difference)?) –", r"\1 DIFFERENCE"),
    (r"\b(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun)\w*,? ", ""),
    (r"\b\d{1,2} (?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)\w*", "DAY"),
    (r"(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)\w* \d{1,2}\b", "DAY"),
]
"""What differs from run to run, and what stands for it in a snapshot."""
# A style, because an update of the page would bring removed elements back.
HIDE_PROVIDERS = """() => {
    const sheet = new CSSStyleSheet();
    sheet.replaceSync("#providers > * { display: none }");
    document.adoptedStyleSheets.push(sheet);
}"""
TO_WEBP = """async ([picture, scale]) => {
    const image = new Image();
    image.src = `data:image/png;base64,${picture}`;
    await image.decode();
    const canvas = document.createElement("canvas");
    canvas.width = image.width * scale;
    canvas.height = image.height * scale;
    const context = canvas.getContext("2d");
    context.imageSmoothingQuality = "high";
    context.drawImage(image, 0, 0, canvas.width, canvas.height);
    return canvas.toDataURL("image/webp", 0.5).split(",")[1];
}"""


class PageSnapshots:
    """The snapshots of all pages in one size and colour scheme."""

    def __init__(self, size: str, scheme: str) -> None:
        self.size, self.scheme = size, scheme
        self._texts: list[str] = []

    async def take(self, page: Page, name: str) -> None:
        """Add a page; its own texts are kept, and what depends on the machine is left out."""
        if name == "agents":  # lists the programs that the machine has
            await page.evaluate(HIDE_PROVIDERS)
        # Whether a text is quoted depends on what it looks like, such as an id with digits only.
        text = (await page.locator("body").aria_snapshot()).replace('"', "")
        for pattern, stands_for in REPLACEMENTS:
            text = re.sub(pattern, stands_for, text)
        self._texts.append(f"# {name}\n{text}\n")
        if os.environ.get("UPDATE_SNAPSHOTS"):
            await self._keep_picture(page, name)

    async def _keep_picture(self, page: Page, name: str) -> None:
        size = page.viewport_size
        assert size is not None
        height = await page.evaluate("document.documentElement.scrollHeight")
        clip = {"x": 0, "y": 0, "width": size["width"], "height": min(height, MAX_PICTURE_HEIGHT)}
        picture = await page.screenshot(full_page=True, animations="disabled", clip=clip)  # type: ignore[arg-type]
        blank = await page.context.new_page()
        encoded = [base64.b64encode(picture).decode(), 0.8 if self.size == "phone" else 0.5]
        webp = base64.b64decode(await blank.evaluate(TO_WEBP, encoded))
        await blank.close()
        (SNAPSHOTS / f"{name}-{self.size}-{self.scheme}.webp").write_bytes(webp)

    def compare(self) -> None:
        """Fail if a page differs from its snapshot, which is the same in both colour schemes."""
        path = SNAPSHOTS / f"{self.size}.txt"
        text = "\n".join(self._texts)
        if os.environ.get("UPDATE_SNAPSHOTS"):
            path.write_text(text)
        lines = list(
            unified_diff(path.read_text().splitlines(), text.splitlines(), "kept", "now", lineterm="")
        )
        assert not lines, "\n".join(lines[:200])
