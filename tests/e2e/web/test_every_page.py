"""What holds for every page in a real browser: for everyone, light and dark, on a phone and on a desk."""

from __future__ import annotations

from typing import Any

import pytest
from playwright.async_api import Browser, BrowserContext, Page, expect

from e2e.web.conftest import PHONE, WIDE, sign_in, start
from e2e.web.page_checks import find_accessibility_problems, find_layout_problems, take_screenshot
from e2e.world import World


async def fill_project(server: World) -> dict[str, str]:
    """Start runs of every kind, and return the address of every page by its name."""
    paid = [await start(server, "paid", input=text) for text in ("Summarise the report", "Summarise it")]
    failed = await start(server, "broken", label="nightly", tags={"team": "web"})
    asked = await start(server, "review", input="Rename a flag", label="v3")
    await start(server, "deploy")
    await start(server, "steady")
    async with server.client() as client:
        for fact in ("(deploy :target web :version 3)", '(note :text "A <b>bold</b> claim")'):
            await client.post("/api/facts", fact=fact)
        await client.ended(paid)
        gates = (await client.get("/api/gates"))["gates"]
    runs = [run["run_id"] for run in paid]
    home = f"/runs/{failed['run_id']}"
    return {
        "runs": "/runs",
        "runs-empty": "/runs?workflow=nothing",
        "run": home,
        "run-graph": f"{home}/graph",
        "run-conversation": f"/runs/{runs[0]}/conversation",
        "run-events": f"{home}/events",
        "run-definition": f"{home}/definition",
        "run-waiting": f"/runs/{asked['run_id']}",
        "rerun": f"{home}/rerun?from=/fail",
        "rerun-failed": f"{home}/rerun?from=failed",
        "compare": f"/compare?a={runs[0]}&b={runs[1]}",
        "compare-empty": "/compare",
        "inbox": "/inbox",
        "gate": f"/inbox/{gates[0]['run_id']}/{gates[0]['gate_id']}",
        "workflows": "/workflows",
        "workflow": "/workflows/review",
        "ask": "/ask",
        "agents": "/agents",
        "facts": "/facts",
        "facts-wrong": "/facts?pattern=(x",
        "usage": "/usage",
        "usage-tokens": "/usage?measure=tokens&days=7",
        "not-found": "/nothing",
    }


async def open_page(page: Page, server: World, path: str) -> int:
    """Open a page, and return its status; a page that does not exist has the title of an error."""
    reply = await page.goto(f"{server.about['url']}{path}", wait_until="domcontentloaded")
    await page.wait_for_function("document.readyState === 'complete'")
    return reply.status if reply is not None else 0


async def check_pages(browser: Browser, server: World, scheme: Any, viewport: Any) -> list[str]:
    """Return the problems of all pages in a colour scheme and a size."""
    paths = await fill_project(server)
    context: BrowserContext = await browser.new_context(viewport=viewport, color_scheme=scheme)
    errors: list[str] = []
    context.on("weberror", lambda error: errors.append(str(error.error)))
    page = await sign_in(context, server)
    problems: list[str] = []
    for name, path in paths.items():
        status = await open_page(page, server, path)
        if status == 404 and name != "not-found" and await page.title() == "Not found · Nerve":
            continue  # this part of the page does not exist yet
        assert status < 500, (path, status)
        await take_screenshot(page, f"{name}-{viewport['width']}-{scheme}")
        found = [*await find_accessibility_problems(page), *await find_layout_problems(page)]
        problems += [f"{name}: {problem}" for problem in found]
    await context.close()
    return problems + errors


async def test_pages_are_for_everyone_in_light(chromium: Browser, server: World) -> None:
    problems = await check_pages(chromium, server, "light", WIDE)
    assert not problems, "\n".join(problems)


@pytest.mark.full
async def test_pages_are_for_everyone_in_dark(chromium: Browser, server: World) -> None:
    problems = await check_pages(chromium, server, "dark", WIDE)
    assert not problems, "\n".join(problems)


@pytest.mark.full
async def test_pages_are_for_everyone_on_a_phone(chromium: Browser, server: World) -> None:
    problems = await check_pages(chromium, server, "light", PHONE)
    assert not problems, "\n".join(problems)


async def test_pages_are_for_everyone_on_a_phone_in_dark(chromium: Browser, server: World) -> None:
    problems = await check_pages(chromium, server, "dark", PHONE)
    assert not problems, "\n".join(problems)


async def test_a_question_mark_shows_the_keys_and_escape_closes_them(page: Page, server: World) -> None:
    for path in ("/runs", "/agents", "/facts", "/usage", "/compare"):
        await open_page(page, server, path)
        await page.keyboard.press("?")
        await expect(page.get_by_role("dialog", name="Keyboard shortcuts")).to_be_visible()
        await page.keyboard.press("Escape")
        await expect(page.get_by_role("dialog")).to_be_hidden()


async def test_g_and_a_letter_open_a_page(page: Page, server: World) -> None:
    for letter, path in (("n", "/agents"), ("f", "/facts"), ("u", "/usage"), ("r", "/runs")):
        await page.keyboard.press("g")
        await page.keyboard.press(letter)
        await page.wait_for_url(f"**{path}")
