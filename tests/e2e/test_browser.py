"""A real browser that is signed in, and pages of other origins in it: none of them can do or see anything."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from e2e.chromium import MISSING, Browser, Page, browser
from e2e.world import World

pytestmark = pytest.mark.skipif(bool(MISSING), reason=MISSING or "there is one")

TRIES = Path(__file__).with_name("hostile.js").read_text()
PAGE = "<!doctype html><title>Nice page</title><body>"
NAMES = "MAP evil.example 127.0.0.1, MAP rebind.example 127.0.0.1, MAP localhost.evil.example 127.0.0.1"
ORIGINS = (
    ("127.0.0.1", "127.0.0.1"),
    ("localhost", "localhost"),
    ("evil.example", "127.0.0.1"),
    ("localhost.evil.example", "localhost"),
)
"""Where pages come from, and how they call us; not all with all, since browsers slow down who fails often."""
OURS = ("read", "preflighted", "socket", "events")
"""What our own page does, and therefore must succeed there."""


class Elsewhere:
    """A server of somebody else, which gives everybody everything and counts what it is sent."""

    def __init__(self) -> None:
        self.port = 0
        self.posts: list[bytes] = []
        self.gets: list[str] = []

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
            method, path, _ = head.split(" ", 2)
            fields = dict(line.lower().split(": ", 1) for line in head.split("\r\n")[1:] if ": " in line)
            sent = await reader.readexactly(int(fields.get("content-length", 0)))
            if method == "POST":
                self.posts.append(sent)
            else:
                self.gets.append(path)
            kind, body = reply_to(path, fields.get("accept", ""))
            said = [
                "HTTP/1.1 200 OK",
                f"Content-Type: {kind}",
                f"Access-Control-Allow-Origin: {fields.get('origin', '*')}",
                "Access-Control-Allow-Credentials: true",
                "Access-Control-Allow-Headers: content-type, x-nerve",
                f"Content-Length: {len(body)}",
                "Connection: close",
            ]
            writer.write("\r\n".join([*said, "", body]).encode("latin-1"))
            await writer.drain()
        writer.close()


def reply_to(path: str, accept: str) -> tuple[str, str]:
    if path.startswith("/api") and "image" in accept and "html" not in accept:
        return "image/svg+xml", "<svg xmlns='http://www.w3.org/2000/svg' width='1' height='1'/>"
    if path.startswith("/events"):
        return "text/event-stream", "data: {}\n\n"
    return (
        ("text/html", PAGE)
        if path == "/"
        else ("text/css", "")
        if "css" in accept
        else ("text/javascript", "")
    )


@contextlib.asynccontextmanager
async def elsewhere() -> AsyncIterator[Elsewhere]:
    made = Elsewhere()
    serving = await asyncio.start_server(made.answer, "127.0.0.1", 0)
    made.port = serving.sockets[0].getsockname()[1]
    async with serving:
        yield made


async def signed_in(driven: Browser, world: World) -> Page:
    """Our own page, opened as a person opens it: by the address with the code."""
    async with world.client() as client:
        code = (await client.http.post("/api/launch-codes", json={})).json()["code"]
    page = await driven.page()
    await page.open(f"{world.about['url']}/#code={code}")
    await page.until("location.pathname === '/runs' && document.readyState === 'complete'")
    return page


async def tried(page: Page, target: str) -> dict[str, Any]:
    told: dict[str, Any] = await page.run(f"({TRIES})({target!r})")
    return told


async def runs(world: World) -> int:
    async with world.client() as client:
        return len((await client.get("/api/runs", limit=1000))["runs"])


async def test_pages_of_other_origins_can_neither_read_nor_write(world: World, tmp_path_factory: Any) -> None:
    """Another port of this machine, another name for it, another site, and one that was rebound to it."""
    async with (
        elsewhere() as other,
        browser(tmp_path_factory.mktemp("profile"), f"--host-resolver-rules={NAMES}") as driven,
    ):
        own = await signed_in(driven, world)
        before = await runs(world)
        for origin, target in ORIGINS:
            page = await driven.page()
            await page.open(f"http://{origin}:{other.port}/")
            found = await tried(page, f"http://{target}:{world.port}")
            assert {name for name, done in found.items() if done} == set(), (origin, target)
        assert await rebound(driven, world) == set()
        assert await runs(world) == before
        # It was no accident: the browser is still signed in, and our own page may do all this.
        found = await tried(own, world.about["url"])
        assert {name for name in OURS if found[name]} == set(OURS)
        assert await runs(world) >= before + 2


async def rebound(driven: Browser, world: World) -> set[str]:
    """What a page can do whose own name has come to mean our server after it was loaded."""
    page, url = await driven.page(), f"http://rebind.example:{world.port}"
    await page.answer_for(f"{url}/*", PAGE)
    await page.open(f"{url}/")
    assert await page.run("document.title") == "Nice page"
    found = await tried(page, url)
    return {name for name, done in found.items() if done}


async def test_the_same_page_succeeds_against_an_unprotected_server(tmp_path: Path) -> None:
    """A server that asks for nothing: every way in leads somewhere, or the test above would show nothing."""
    async with (
        elsewhere() as page_server,
        elsewhere() as victim,
        browser(tmp_path / "profile", f"--host-resolver-rules={NAMES}") as driven,
    ):
        page = await driven.page()
        await page.open(f"http://evil.example:{page_server.port}/")
        found = await tried(page, f"http://127.0.0.1:{victim.port}")
        done = {name for name, well in found.items() if well}
        assert done >= {"read", "simple", "preflighted", "image", "script", "style", "events"}
        arrived = [each for each in victim.posts if b"hello" in each]
        assert len(arrived) == len(("simple", "blind", "preflighted", "beacon", "form"))
        assert "/ws" in victim.gets


async def test_an_address_with_a_used_code_reports_it_and_fits_a_narrow_window(
    world: World, tmp_path_factory: Any
) -> None:
    async with browser(tmp_path_factory.mktemp("profile")) as driven:
        stranger = await driven.page()
        await stranger.open(f"{world.about['url']}/#code=made-up")
        await stranger.until("document.getElementById('status')?.textContent.includes('already used')")
        await stranger.ask(
            "Emulation.setDeviceMetricsOverride", width=320, height=480, deviceScaleFactor=1, mobile=True
        )
        await stranger.until("innerWidth === 320")
        assert await stranger.run("document.documentElement.scrollWidth") == 320


async def test_the_page_does_not_request_results(world: World, tmp_path_factory: Any) -> None:
    async with world.client() as client:
        await client.start("hello", input="x" * 500_000)
    async with browser(tmp_path_factory.mktemp("profile")) as driven:
        page = await signed_in(driven, world)
        await page.until("document.querySelectorAll('tr[data-row]').length === 1")
        assert await page.run("document.documentElement.outerHTML.length") < 50_000
