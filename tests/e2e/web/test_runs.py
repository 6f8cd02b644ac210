"""The list of runs in a real browser: rows appear and change by themselves, also after a lost connection."""

import re

from playwright.async_api import Page, expect

from e2e.web.conftest import start
from e2e.world import World


async def test_a_started_run_appears_and_completes_without_a_reload(page: Page, server: World) -> None:
    await expect(page.get_by_text("No runs yet.")).to_be_visible()
    run = await start(server, "review", label="v3", input="Rename a flag\nand its documentation")
    row = page.locator(f"#run-{run['run_id']}")
    await expect(row.locator(".state")).to_have_text("waiting")
    await expect(row.locator(".input")).to_contain_text("Rename a flag")
    await expect(page.locator("#inbox-badge")).to_contain_text("1")
    await expect(page.locator("#waiting")).to_contain_text("Merge the change into main?")
    async with server.client() as client:
        await client.post("/api/answers", run=run["run_id"], answer="approve")
    await expect(row.locator(".state")).to_have_text("completed")
    await expect(page.locator("#inbox-badge")).to_be_hidden()
    await expect(page.locator("#waiting")).to_be_hidden()
    assert await page.locator("tr[data-row]").count() == 1


async def test_a_killed_server_loses_and_doubles_no_row(page: Page, server: World) -> None:
    first = await start(server, "review")
    await expect(page.locator(f"#run-{first['run_id']} .state")).to_have_text("waiting")
    port = server.port
    server.kill()
    await expect(page.locator(".connection")).to_have_text("Reconnecting …")
    server.start(port=port)
    second = await start(server, "hello", input="you")
    await expect(page.locator(f"#run-{second['run_id']} .state")).to_have_text("completed", timeout=15_000)
    await expect(page.locator(".connection")).to_have_text("")
    ids = [await row.get_attribute("id") for row in await page.locator("tr[data-row]").all()]
    assert ids == [f"run-{second['run_id']}", f"run-{first['run_id']}"]


async def test_selected_runs_are_stopped_together_after_a_confirmation(page: Page, server: World) -> None:
    runs = [await start(server, "steady", label=f"number {number}") for number in range(3)]
    for run in runs[:2]:
        await page.get_by_label(f"Select steady {run['label']}").check()
    await expect(page.locator("[data-bulk-count]")).to_have_text("2 selected")
    await page.get_by_role("button", name="Stop").click()
    await page.get_by_role("button", name="Continue").click()
    await expect(page.locator("#notices")).to_contain_text("2 runs stopped.")
    for run, state in zip(runs, ("cancelled", "cancelled", "running"), strict=True):
        await expect(page.locator(f"#run-{run['run_id']} .state")).to_have_text(state)


async def test_keys_move_through_the_rows_and_open_the_current_one(page: Page, server: World) -> None:
    await start(server, "hello", label="older")
    newer = await start(server, "hello", label="newer")
    await expect(page.locator("tr[data-row]")).to_have_count(2)
    for key in ("j", "j", "k"):
        await page.keyboard.press(key)
    await expect(page.locator("tr.current")).to_contain_text("newer")
    await page.keyboard.press("?")
    await expect(page.get_by_role("dialog")).to_contain_text("Keyboard shortcuts")
    await page.keyboard.press("Escape")
    await page.keyboard.press("Enter")
    await expect(page).to_have_url(re.compile(f"/runs/{newer['run_id']}$"))
