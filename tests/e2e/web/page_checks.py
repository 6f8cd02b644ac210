"""Checks that hold for every page in a browser."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from playwright.async_api import Page

AXE = Path(sys.prefix) / "browser" / "axe.min.js"
IGNORED = {("label-content-name-mismatch", "run-graph")}
"""Rules and elements: the nodes of the graph draw their names abbreviated, and are labelled in full."""
RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "best-practice"]


async def find_accessibility_problems(page: Page) -> list[str]:
    """Return what axe-core finds on the page: the rule, and the elements that break it."""
    if not AXE.exists():
        pytest.skip("axe-core is missing; `make browser` installs it by npm")
    await page.evaluate(AXE.read_text())
    options = {"runOnly": {"type": "tag", "values": RULES}, "resultTypes": ["violations"]}
    found: dict[str, Any] = await page.evaluate("options => axe.run(document, options)", options)
    return [
        f"{rule['id']}: {node['target'][0]}: {node['failureSummary'].splitlines()[-1].strip()}"
        for rule in found["violations"]
        for node in rule["nodes"]
        if not any(rule["id"] == name and element in str(node["target"]) for name, element in IGNORED)
    ]


async def find_layout_problems(page: Page) -> list[str]:
    """Return whether the page is wider than its window, and which elements reach beyond it."""
    script = """() => {
        const width = document.documentElement.clientWidth;
        if (document.documentElement.scrollWidth <= width) return [];
        const name = (element) => `${element.tagName}.${element.className}`;
        const isOutside = (element) => element.getBoundingClientRect().right > width + 1;
        return [...document.querySelectorAll("main *")]
            .filter((element) => isOutside(element) && !element.closest(".scroll"))
            .slice(0, 5).map(name).concat(`${document.documentElement.scrollWidth} > ${width}`);
    }"""
    return list(await page.evaluate(script))
