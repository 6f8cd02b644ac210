"""The pictures of the README are screenshots of a real run. UPDATE_SNAPSHOTS=1 takes them again."""

import os
import struct
from pathlib import Path

import pytest
from playwright.async_api import Page, expect

from e2e.web.conftest import WIDE, start
from e2e.world import World

ROOT = Path(__file__).parents[3]
RUN_PICTURE, INBOX_PICTURE = ROOT / "docs" / "web-run.png", ROOT / "docs" / "web-inbox.png"
MAX_BYTES = 150_000


async def test_the_pages_in_the_pictures_can_be_shown_again(page: Page, server: World) -> None:
    run = await start(server, "release", input="3.0", label="v3", tags={"team": "core"})
    for workflow, label in (("review", "pull-118"), ("merge", "pull-117")):
        await start(server, workflow, label=label)
    await page.goto(f"{server.about['url']}/runs/{run['run_id']}")
    await expect(page.locator("#timeline-rows > li").filter(has_text="gate")).to_be_visible()
    await expect(page.locator("#run-alerts")).to_contain_text("Publish version 3?")
    await take_picture(page, RUN_PICTURE)
    await page.goto(f"{server.about['url']}/inbox")
    await expect(page.locator(".gates li")).to_have_count(3)
    await take_picture(page, INBOX_PICTURE)


async def take_picture(page: Page, path: Path) -> None:
    if os.environ.get("UPDATE_SNAPSHOTS"):
        await page.screenshot(path=path)


@pytest.mark.parametrize("path", [RUN_PICTURE, INBOX_PICTURE], ids=lambda path: path.stem)
def test_the_readme_shows_a_picture_of_moderate_size(path: Path) -> None:
    data = path.read_bytes()
    assert data.startswith(b"\x89PNG")
    assert struct.unpack(">II", data[16:24]) == (WIDE["width"], WIDE["height"])
    assert len(data) < MAX_BYTES
    assert f"(docs/{path.name})" in (ROOT / "README.md").read_text(encoding="utf-8")
