"""What holds for every page in a real browser: for everyone, light and dark, on a phone and on a desk."""

from __future__ import annotations

import re
from typing import Any

import pytest
from playwright.async_api import Browser, Page, expect

from e2e.web.conftest import PHONE, WIDE, sign_in, start_until
from e2e.web.page_checks import find_accessibility_problems, find_layout_problems
from e2e.web.page_snapshots import SNAPSHOTS, PageSnapshots
from e2e.world import World

MAX_PICTURE_BYTES = 2_000_000
STATES = {"paid": "completed", "broken": "failed", "steady": "running"}
"""The states in which the pages show the runs; those of other workflows wait."""
SIGNED_OUT_PAGE = "sign-in"


async def start_run(server: World, workflow: str, **given: Any) -> dict[str, Any]:
    """Start a run, and return it when its page does not change any more."""
    return await start_until(server, workflow, STATES.get(workflow, "waiting"), **given)


async def fill_project(server: World) -> dict[str, str]:
    """Start runs of every kind, and return the address of every page by its name."""
    paid = [await start_run(server, "paid", input=text) for text in ("Summarise the report", "Summarise it")]
    failed = await start_run(server, "broken", label="nightly", tags={"team": "web"})
    asked = await start_run(server, "review", input="Rename a flag", label="v3")
    await start_run(server, "deploy")
    released = await start_run(server, "release", input="3.0", limits={"cost": 2.0})
    permission = await start_run(server, "publish", input="make deploy\nsudo make clean")
    form = await start_run(server, "roll_out")
    await start_run(server, "steady")
    async with server.client() as client:
        for fact in ("(deploy :target web :version 3)", '(note :text "A <b>bold</b> claim")'):
            await client.post("/api/facts", fact=fact)
    home, release = f"/runs/{failed['run_id']}", f"/runs/{released['run_id']}"
    return {
        "runs": "/runs",
        "runs-sorted": "/runs?sort=cost&state=completed",
        "runs-empty": "/runs?workflow=nothing",
        "run": home,
        "run-step": f"{home}/steps/fail",
        "run-release": release,
        "run-part": f"{release}?to=100000",
        "run-agent": f"{release}/steps/planner",
        "run-table": f"{release}/steps/flaky",
        "run-graph": f"{home}/graph",
        "run-conversation": f"/runs/{paid[0]['run_id']}/conversation",
        "run-events": f"{home}/events",
        "run-definition": f"{home}/definition",
        "run-waiting": f"/runs/{asked['run_id']}",
        "run-stack": f"/runs/{asked['run_id']}/stack",
        "rerun": f"{home}/rerun?from=/fail",
        "rerun-failed": f"{home}/rerun?from=failed",
        "compare": f"/compare?a={paid[0]['run_id']}&b={paid[1]['run_id']}",
        "compare-empty": "/compare",
        "inbox": "/inbox",
        "gate": gate_page(asked),
        "gate-permission": gate_page(permission),
        "gate-form": gate_page(form),
        "workflows": "/workflows",
        "workflow": "/workflows/review",
        "workflow-form": "/workflows/translate",
        "ask": "/ask",
        "agents": "/agents",
        "facts": "/facts",
        "facts-wrong": "/facts?pattern=(x",
        "usage": "/usage",
        "usage-tokens": "/usage?measure=tokens&days=7",
        "not-found": "/nothing",
    }


def gate_page(run: dict[str, Any]) -> str:
    return f"/inbox/{run['run_id']}/{run['gates'][0]['gate_id']}"


async def open_page(page: Page, server: World, path: str) -> int:
    """Open a page, and return its status."""
    reply = await page.goto(f"{server.about['url']}{path}", wait_until="domcontentloaded")
    await page.wait_for_function("document.readyState === 'complete'")
    return reply.status if reply is not None else 0


@pytest.mark.parametrize("viewport", [WIDE, PHONE], ids=["wide", "phone"])
@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_every_page_is_for_everyone_and_as_in_its_snapshot(
    chromium: Browser, server: World, scheme: Any, viewport: Any
) -> None:
    paths = await fill_project(server)
    context = await chromium.new_context(viewport=viewport, color_scheme=scheme, reduced_motion="reduce")
    stranger = await chromium.new_context(viewport=viewport, color_scheme=scheme, reduced_motion="reduce")
    errors: list[str] = []
    context.on("weberror", lambda error: errors.append(str(error.error)))
    signed_in, page = await sign_in(context, server), await stranger.new_page()
    problems: list[str] = []
    snapshots = PageSnapshots("phone" if viewport is PHONE else "wide", scheme)
    for name, path in {SIGNED_OUT_PAGE: "/", **paths}.items():
        page = page if name == SIGNED_OUT_PAGE else signed_in
        status = await open_page(page, server, path)
        assert status == {"not-found": 404, "facts-wrong": 400}.get(name, 200), (path, status)
        problems += [f"{name}: {problem}" for problem in await find_layout_problems(page)]
        await snapshots.take(page, name)
        problems += [f"{name}: {problem}" for problem in await find_accessibility_problems(page)]
    await context.close()
    await stranger.close()
    assert not problems + errors, "\n".join(problems + errors)
    snapshots.compare()


def test_the_kept_pictures_are_those_of_all_pages_and_are_small() -> None:
    files = list(SNAPSHOTS.glob("*.webp"))
    pages = {line[2:] for line in (SNAPSHOTS / "wide.txt").read_text().splitlines() if line[:2] == "# "}
    modes = [f"{size}-{scheme}" for size in ("wide", "phone") for scheme in ("light", "dark")]
    assert {file.stem for file in files} == {f"{name}-{mode}" for name in pages for mode in modes}
    assert sum(file.stat().st_size for file in files) < MAX_PICTURE_BYTES


async def test_a_question_mark_shows_the_keys_and_escape_closes_them(page: Page, server: World) -> None:
    for path in ("/runs", "/agents", "/facts", "/usage", "/compare"):
        await open_page(page, server, path)
        await page.keyboard.press("?")
        await expect(page.get_by_role("dialog", name="Keyboard shortcuts")).to_be_visible()
        await page.keyboard.press("Escape")
        await expect(page.get_by_role("dialog")).to_be_hidden()


async def test_j_and_k_move_through_every_list_and_enter_opens_the_row(page: Page, server: World) -> None:
    run = await start_until(server, "review", "waiting")
    async with server.client() as client:
        await client.post("/api/facts", fact="(note :text x)")
    home = f"/runs/{run['run_id']}"
    lists = ("/runs", "/inbox", "/workflows", "/facts", home, f"{home}/events")
    for path in lists:
        await open_page(page, server, path)
        rows = page.locator("[data-row]")
        await page.keyboard.press("j")
        await expect(rows.first, path).to_have_class(re.compile(r"\bcurrent\b"))
        if await rows.count() > 1:
            await page.keyboard.press("j")
            await expect(rows.nth(1), path).to_have_class(re.compile(r"\bcurrent\b"))
            await page.keyboard.press("k")
        if path != "/facts":  # a fact has no page of its own
            assert await page.evaluate("document.activeElement.matches('[data-open]')"), path


async def test_g_and_a_letter_open_a_page(page: Page, server: World) -> None:
    for letter, path in (("n", "/agents"), ("f", "/facts"), ("u", "/usage"), ("r", "/runs")):
        await page.keyboard.press("g")
        await page.keyboard.press(letter)
        await page.wait_for_url(f"**{path}")


async def test_the_current_row_stays_current_when_the_list_is_updated(page: Page, server: World) -> None:
    await start_until(server, "review", "waiting")
    await open_page(page, server, "/inbox")
    rows = page.locator("[data-row]")
    await page.keyboard.press("j")
    await start_until(server, "review", "waiting")
    await expect(rows).to_have_count(2)
    await expect(page.locator("[data-row].current")).to_have_count(1)
