"""A notification of a gate, if the user has allowed it and does not look at the page."""

from playwright.async_api import BrowserContext, expect

from e2e.web.conftest import start
from e2e.world import World

BROWSER_PARTS = """
    window.shown = [];
    window.Notification = class {
        static permission = "default";
        static async requestPermission() { return this.permission = window.choice ?? "granted"; }
        constructor(title, options) { window.shown.push(`${title}: ${options.body}`); }
    };
    window.isHidden = false;
    Object.defineProperty(document, "hidden", { get: () => window.isHidden });
"""
"""Parts of a browser that one without a desktop does not have: a question to the user, and notifications."""


async def test_a_hidden_page_notifies_of_a_new_gate_if_that_is_allowed(
    context: BrowserContext, server: World
) -> None:
    await context.add_init_script(BROWSER_PARTS)
    page = await context.new_page()
    await page.goto(f"{server.about['url']}/runs")
    await start(server, "review", label="seen")
    await expect(page.locator("#inbox-badge")).to_contain_text("1")
    await page.evaluate("isHidden = true")
    await start(server, "review", label="not allowed yet")
    await expect(page.locator("#inbox-badge")).to_contain_text("2")
    assert await page.evaluate("shown") == []
    await page.evaluate("isHidden = false")
    await page.get_by_role("button", name="Notify me").click()
    await expect(page.get_by_role("button", name="Notify me")).to_be_hidden()
    await page.evaluate("isHidden = true")
    await start(server, "review", label="third")
    await expect(page.locator("#inbox-badge")).to_contain_text("3")
    assert await page.evaluate("shown") == ["Nerve: 3 gates wait for an answer."]


async def test_a_browser_that_is_not_allowed_to_notify_is_not_asked_again(
    context: BrowserContext, server: World
) -> None:
    await context.add_init_script(BROWSER_PARTS + "Notification.permission = 'denied';")
    page = await context.new_page()
    await page.goto(f"{server.about['url']}/runs")
    await expect(page.get_by_role("heading", name="Runs")).to_be_visible()
    await expect(page.get_by_role("button", name="Notify me")).to_be_hidden()
