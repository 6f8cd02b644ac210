"""Sign-in of a real browser: from the file that `nerve web` opens, and once for each code."""

from playwright.async_api import Browser, expect

from e2e.world import World
from nerve.cli.web import REDIRECT_PAGE


async def create_launch_url(server: World) -> str:
    async with server.client() as client:
        code = (await client.http.post("/api/launch-codes", json={})).json()["code"]
    return f"{server.about['url']}/#code={code}"


async def test_a_browser_is_signed_in_by_the_file_that_nerve_web_opens(
    chromium: Browser, server: World
) -> None:
    file = server.folder / "sign-in.html"
    file.write_text(REDIRECT_PAGE.format(await create_launch_url(server)))
    context = await chromium.new_context()
    page = await context.new_page()
    await page.goto(file.as_uri())
    await page.wait_for_url("**/runs")
    await expect(page.get_by_text("No runs yet.")).to_be_visible()
    assert "code" not in page.url


async def test_a_code_signs_in_one_browser_once(chromium: Browser, server: World) -> None:
    address = await create_launch_url(server)
    first, second = [await (await chromium.new_context()).new_page() for _ in range(2)]
    await first.goto(address)
    await first.wait_for_url("**/runs")
    await second.goto(address)
    await expect(second.get_by_text("This address was already used or is too old.")).to_be_visible()
