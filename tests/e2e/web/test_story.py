"""A day with the page: start, watch, answer, rerun with another input, compare, stop, and a killed server."""

import re

from playwright.async_api import Page, expect

from e2e.web.conftest import start
from e2e.world import World


async def test_a_run_is_started_answered_run_again_compared_and_stopped(page: Page, server: World) -> None:
    # Start from a form, and watch.
    await page.goto(f"{server.about['url']}/workflows/release")
    await page.get_by_label("Input").first.fill("3.0")
    await page.get_by_role("button", name="Start release").click()
    await page.wait_for_url(re.compile(r"/runs/[\w-]{36}"))
    first = page.url.rpartition("/")[2]
    await expect(page.locator("#run-head .state")).to_have_text("waiting")

    # The server dies and comes back; the page continues by itself.
    server.kill()
    server.start(port=int(server.about["url"].rpartition(":")[2]))
    await page.get_by_role("link", name="Answer").click()
    await page.get_by_role("button", name="publish").click()
    await expect(page.locator(".gate-card.closed")).to_contain_text("publish")
    await page.goto(f"{server.about['url']}/runs/{first}")
    await expect(page.locator("#run-head .state")).to_have_text("completed")

    # Run it again from a step with another input; the page says what is reused.
    await page.goto(f"{server.about['url']}/runs/{first}/rerun?from=/change")
    await expect(page.locator("main")).to_contain_text("reused")
    await page.locator("textarea").last.fill("DEBUG = True")
    await page.get_by_role("button", name=re.compile("^(Start|Rerun|Run)")).last.click()
    await page.wait_for_url(re.compile(r"/runs/(?!" + first + r")[\w-]{36}$"))
    second = page.url.rpartition("/")[2]
    await expect(page.locator("#run-head .state")).to_have_text("waiting")

    # Compare both, then stop the second.
    await page.goto(f"{server.about['url']}/compare?a={first}&b={second}")
    await expect(page.locator("main")).to_contain_text("change")
    await page.goto(f"{server.about['url']}/runs/{second}")
    page.on("dialog", lambda dialog: dialog.accept())
    await page.locator("summary", has_text="Stop").or_(page.get_by_role("button", name="Stop")).first.click()
    confirm = page.get_by_role("button", name=re.compile("^Stop"))
    if await confirm.count():
        await confirm.last.click()
    await expect(page.locator("#run-head .state")).to_have_text("cancelled")


async def test_the_list_has_every_run_once_after_the_server_was_killed(page: Page, server: World) -> None:
    await start(server, "review", label="before")
    await expect(page.locator("#run-rows tr", has_text="before")).to_have_count(1)
    server.kill()
    server.start(port=int(server.about["url"].rpartition(":")[2]))
    await start(server, "review", label="after")
    await expect(page.locator("#run-rows tr", has_text="after")).to_have_count(1, timeout=30_000)
    await expect(page.locator("#run-rows tr", has_text="before")).to_have_count(1)
