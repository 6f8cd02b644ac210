"""A real server and a real browser that is signed in, driven by Playwright."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from playwright.async_api import Browser, BrowserContext, Page, async_playwright

from e2e import world as e2e_world
from e2e.chromium import FOLDER, MISSING, PROGRAM
from e2e.world import World

FLOWS = Path(__file__).parents[2] / "web" / "flows.py"
WIDE, PHONE = {"width": 1280, "height": 800}, {"width": 360, "height": 720}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Use one event loop for all these tests: the browser belongs to it."""
    for item in items:
        if Path(__file__).parent in item.path.parents and pytest_asyncio.is_async_test(item):
            item.add_marker(pytest.mark.asyncio(loop_scope="session"), append=False)


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    """A server of the workflows in tests/web/flows.py, which a test may stop, kill and start again."""
    monkeypatch.setattr(e2e_world, "FLOWS", FLOWS)
    world = World(tmp_path)
    world.start()
    yield world
    world.kill()


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def browser_process(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Browser]:
    """The browser of all tests of this process."""
    if MISSING:
        pytest.skip(MISSING)
    home = str(tmp_path_factory.mktemp("browser"))
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(
            executable_path=str(PROGRAM),
            args=["--headless=shell", "--no-sandbox", "--no-zygote", "--disable-gpu"],
            env={**os.environ, "LD_LIBRARY_PATH": str(FOLDER / "lib"), "HOME": home},
        )
        yield browser
        await browser.close()


@pytest_asyncio.fixture(loop_scope="session")
async def chromium(browser_process: Browser) -> AsyncIterator[Browser]:
    """A browser with no open page and no cookie."""
    yield browser_process
    for context in browser_process.contexts:
        await context.close()


@pytest_asyncio.fixture(loop_scope="session")
async def context(chromium: Browser, server: World) -> AsyncIterator[BrowserContext]:
    """A signed-in browser whose pages must not report errors or break the content security policy."""
    context = await chromium.new_context(viewport=WIDE)
    problems: list[str] = []
    context.on("weberror", lambda error: problems.append(str(error.error)))
    context.on(
        "console",
        lambda message: (
            problems.append(message.text)
            if message.type == "error" and "Content Security Policy" in message.text
            else None
        ),
    )
    await sign_in(context, server)
    yield context
    await context.close()
    assert problems == []


@pytest_asyncio.fixture(loop_scope="session")
async def page(context: BrowserContext) -> Page:
    return context.pages[0]


async def sign_in(context: BrowserContext, server: World, scope: str = "admin") -> Page:
    """Open the first page with a launch code, as `nerve web` does."""
    async with server.client() as client:
        code = (await client.http.post("/api/launch-codes", json={})).json()["code"]
    page = await context.new_page()
    await page.goto(f"{server.about['url']}/#code={code}")
    await page.wait_for_url("**/runs")
    return page


async def start(server: World, workflow: str, **given: Any) -> dict[str, Any]:
    async with server.client() as client:
        return await client.start(workflow, **given)


async def start_until(server: World, workflow: str, state: str, **given: Any) -> dict[str, Any]:
    """Start a run, and return it when it is in a state."""
    run = await start(server, workflow, **given)
    async with server.client() as client, asyncio.timeout(30):
        while run["state"] != state:
            await asyncio.sleep(0.02)
            run = await client.run(run)
    return run
