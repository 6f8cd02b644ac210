"""The inbox in a real browser: start from a form, answer by keyboard, forms that are too old, and bulk."""

import re

from playwright.async_api import BrowserContext, Page, expect

from e2e.web.conftest import PHONE, start
from e2e.world import World


async def test_a_run_is_started_from_a_form_and_its_gate_answered_by_keyboard(
    page: Page, context: BrowserContext, server: World
) -> None:
    inbox = await context.new_page()
    await inbox.goto(f"{server.about['url']}/inbox")
    await expect(inbox.get_by_text("Nothing waits for an answer.")).to_be_visible()
    await page.goto(f"{server.about['url']}/workflows")
    await page.get_by_role("link", name="merge", exact=True).click()
    await page.get_by_label("Input").first.fill("Merge the *change*?")
    await page.get_by_text("Label, tags and limits").click()
    await page.get_by_label("Label", exact=True).fill("PR 42")
    await page.get_by_role("button", name="Start merge").click()
    await page.wait_for_url(re.compile(r"/runs/[\w-]{36}"))
    row = inbox.locator(".gates li")
    await expect(row).to_contain_text("Merge the")
    await expect(row).to_contain_text("PR 42")
    await expect(inbox.locator("#inbox-badge")).to_contain_text("1")
    await inbox.keyboard.press("j")
    await inbox.keyboard.press("Enter")
    await inbox.wait_for_url(re.compile(r"/inbox/[\w-]{36}/\w{8}"))
    await inbox.keyboard.press("2")
    await expect(inbox.get_by_role("button", name="reject")).to_be_focused()
    await inbox.keyboard.press("1")
    await expect(inbox.get_by_role("button", name="approve")).to_be_focused()
    await inbox.keyboard.press("Enter")
    await expect(inbox.locator(".gate-card.closed")).to_contain_text("approve")
    await expect(inbox.locator("#inbox-badge")).to_be_hidden()


async def test_a_second_page_shows_that_a_gate_was_answered_and_keeps_what_was_typed_before(
    page: Page, context: BrowserContext, server: World
) -> None:
    run = await start(server, "name_it")
    await expect(page.locator("#inbox-badge")).to_contain_text("1")
    await page.goto(f"{server.about['url']}/inbox")
    await page.get_by_label("Your own answer").fill("Corona")
    other = await context.new_page()
    await other.goto(page.url)
    another = await start(server, "review", label="another")
    await expect(page.locator(".gates li")).to_have_count(2)
    await expect(page.get_by_label("Your own answer")).to_have_value("Corona")
    await other.get_by_role("button", name="Aurora").click()
    await expect(other.locator(".gate-card.closed")).to_contain_text("Aurora")
    await expect(page.locator(".gate-card.closed")).to_contain_text("Aurora")
    await expect(page.locator(".gates li")).to_have_count(1)
    await expect(page.get_by_role("link", name="Next: Merge the change into main?")).to_be_visible()
    assert run["run_id"] != another["run_id"]


async def test_a_form_that_is_too_old_says_so_and_sends_nothing(
    page: Page, context: BrowserContext, server: World
) -> None:
    run = await start(server, "review")
    await expect(page.locator("#inbox-badge")).to_contain_text("1")
    stale = await context.new_page()
    await stale.route("**/inbox/stream*", lambda route: route.abort())
    await stale.goto(f"{server.about['url']}/inbox")
    async with server.client() as client:
        await client.post("/api/answers", run=run["run_id"], answer="reject", reason="On call")
    await stale.get_by_text("Add a comment").click()
    await stale.get_by_label("Comment").last.fill("Fine with me")
    await stale.get_by_role("button", name="approve").click()
    notice = stale.get_by_role("alert")
    await expect(notice).to_contain_text("Your answer was not sent.")
    await expect(notice).to_contain_text("Fine with me")
    await expect(stale.locator(".gate-card.closed")).to_contain_text("On call")


async def test_selected_gates_are_answered_together(page: Page, server: World) -> None:
    for number in range(3):
        await start(server, "review", label=f"change {number}")
    await start(server, "name_it")
    await expect(page.locator("#inbox-badge")).to_contain_text("4")
    await page.goto(f"{server.about['url']}/inbox")
    boxes = page.locator(".gates input[type=checkbox]")
    for index in (0, 1, 2):
        await boxes.nth(index).check()
    await expect(page.locator("[data-no-common]")).to_be_visible()  # one of them is not a review
    await boxes.nth(0).uncheck()
    await expect(page.locator("[data-bulk-count]")).to_have_text("2 selected")
    toolbar = page.get_by_role("toolbar")
    await expect(toolbar.get_by_role("button", name="Aurora")).to_be_hidden()
    await toolbar.get_by_label("Comment").fill("Both are small")
    await toolbar.get_by_role("button", name="approve").click()
    await page.get_by_role("button", name="Continue").click()
    await expect(page.locator("#notices")).to_contain_text("2 gates answered with “approve”.")
    await expect(page.locator(".gates li")).to_have_count(2)
    await expect(page.locator("#inbox-badge")).to_contain_text("2")


async def test_a_form_with_errors_keeps_its_values_on_a_phone(page: Page, server: World) -> None:
    await start(server, "roll_out")
    await expect(page.locator("#inbox-badge")).to_contain_text("1")
    await page.set_viewport_size(PHONE)
    await page.goto(f"{server.about['url']}/inbox")
    await page.locator(".gates a").click()
    await page.get_by_label("notes").fill("First line\nSecond line")
    await page.get_by_role("button", name="Add an item").click()
    await page.locator("input[name='answer/reviewers/0/name']").fill("Ada")
    await page.get_by_role("button", name="Send the answer").click()
    await expect(page.get_by_text("This field is required.").first).to_be_visible()
    await expect(page.get_by_label("notes")).to_have_value("First line\nSecond line")
    assert not await page.evaluate("document.documentElement.scrollWidth > innerWidth")
    await page.get_by_label("Yes").check()
    await page.get_by_label("percent").fill("10")
    await page.get_by_role("button", name="Send the answer").click()
    await expect(page.locator(".gate-card.closed")).to_contain_text('"name": "Ada"')


async def test_a_file_fills_a_field_and_a_message_leads_to_a_start_form(page: Page, server: World) -> None:
    await page.goto(f"{server.about['url']}/ask")
    await page.locator("#ask-text").fill("translate my letter")
    await page.keyboard.press("Enter")
    await expect(page.locator(".exchange")).to_contain_text("Start translate?")
    await expect(page.locator("#ask-text")).to_have_value("")
    await page.goto(f"{server.about['url']}/workflows/translate")
    chosen = {"name": "letter.txt", "mimeType": "text/plain", "buffer": b"Good morning"}
    await page.locator("[data-file-into]").first.set_input_files(chosen)  # type: ignore[arg-type]
    await expect(page.get_by_label("text", exact=False).first).to_have_value("Good morning")
    await page.get_by_role("button", name="Start translate").dblclick()
    await page.wait_for_url(re.compile(r"/runs/[\w-]{36}"))
    async with server.client() as client:
        runs = (await client.http.get("/api/runs")).json()["runs"]
    assert len(runs) == 1
