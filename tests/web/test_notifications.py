"""The notifications: channels, and messages that were not delivered."""

from pathlib import Path

import httpx2

from notifications.receiver import write_config
from web.conftest import WebServer, serve_web
from web.page_text import text_of


async def test_the_page_of_a_project_without_channels_says_how_to_get_them(
    web: WebServer, browser: httpx2.AsyncClient
) -> None:
    text = text_of((await browser.get("/notifications")).text)
    assert "This project has no channels." in text
    assert "Every message was delivered, or still waits." in text
    assert 'href="/notifications"' in (await browser.get("/inbox")).text


async def test_the_page_shows_channels_with_their_problems(tmp_path: Path) -> None:
    channels = {"phone": {"kind": "ntfy", "topic": "<b>t</b>", "token": {"env": "NO_SUCH_TOKEN"}}}
    rules = [{"events": ["run_failed"], "to": ["phone"]}]
    write_config(tmp_path, notify={"channels": channels, "rules": rules})
    async with serve_web(tmp_path) as server, server.browser() as browser:
        page = (await browser.get("/notifications")).text
    assert "topic &lt;b&gt;t&lt;/b&gt; at https://ntfy.sh" in page
    assert "The environment variable NO_SUCH_TOKEN is not set" in page
    assert "Messages have no links." in page
