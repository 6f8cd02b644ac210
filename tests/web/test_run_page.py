"""The page of a run: header, actions, timeline, detail of steps, graph, conversation, events, definition."""

import re

import httpx2

from web.conftest import WebServer

TABS = ("", "/graph", "/conversation", "/events", "/definition")
HTMX = {"hx-request": "true"}


def plain(text: str) -> str:
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", text))


def form_fields(text: str, action: str) -> dict[str, str]:
    """The hidden fields of the form of an action."""
    found = re.search(rf'<form method="post" action="[^"]*/{action}".*?</form>', text, re.DOTALL)
    assert found is not None, action
    return dict(re.findall(r'<input type="hidden" name="([^"]+)"(?: id="[^"]+")? value="([^"]*)"', found[0]))


def shown_actions(text: str) -> set[str]:
    return set(re.findall(r'<form[^>]* action="[^"]*/runs/[^/"]+/(\w+)"', text))


async def test_the_header_and_the_timeline_show_the_run(web: WebServer, browser: httpx2.AsyncClient) -> None:
    run = await web.start("release", input="3.0", label="v3", tags={"team": "core"}, limits={"cost": 2.0})
    reply = await browser.get(f"/runs/{run.run_id}")
    assert reply.status_code == 200
    text = plain(reply.text)
    for part in ("v3", "release", "waiting", "team=core", "$0.62", "of $2.00", "Publish version 3?"):
        assert part in text, part
    assert 'aria-valuenow="31"' in reply.text
    assert f'href="/inbox/{run.run_id}/{run.gates[0].gate_id}"' in reply.text
    for name in ("planner", "flaky", "change", "verify", "work"):
        assert re.search(rf"data-open[^>]*>.*?{name}", reply.text), name
    assert 'class="bar run failed"' in reply.text
    assert 'class="bar retry waiting wait"' in reply.text
    assert "attempt 2, runs, completed" in reply.text
    assert f"/runs/{run.run_id}/stream" in reply.text
