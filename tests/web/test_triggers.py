"""The page of the triggers: what it lists, and its buttons."""

import re

import httpx2

from web.conftest import WebServer
from web.page_text import text_of

NIGHTLY = {"workflow": "hello", "schedule": "0 3 * * *", "input": "you"}


async def test_a_project_without_triggers_shows_how_to_define_one(browser: httpx2.AsyncClient) -> None:
    page = (await browser.get("/triggers")).text
    assert "This project has no triggers." in page
    assert "hx-sse:connect" in page


async def test_the_list_shows_next_times_last_runs_and_what_was_not_started(
    web: WebServer, browser: httpx2.AsyncClient
) -> None:
    await web.api.define_trigger(trigger="nightly", definition=NIGHTLY)
    await web.api.define_trigger(trigger="lost", definition={**NIGHTLY, "workflow": "nowhere"})
    fired = await web.api.fire_trigger(trigger="nightly")
    refused = await browser.post("/triggers/change", data={"trigger": "lost", "action": "fire"})
    assert refused.status_code == 422
    page = (await browser.get("/triggers")).text
    assert f"/runs/{fired.run.run_id}" in page
    assert len(re.findall(r"03:00|\d\d:00:00", page)) >= 10
    assert "workflow &#39;nowhere&#39; not found" in page
    assert "defined in" not in text_of(page).lower() or "api" in page


async def test_buttons_pause_resume_and_fire_a_trigger(web: WebServer, browser: httpx2.AsyncClient) -> None:
    await web.api.define_trigger(trigger="nightly", definition=NIGHTLY)
    paused = await browser.post("/triggers/change", data={"trigger": "nightly", "action": "pause"})
    assert (paused.status_code, paused.headers["location"]) == (303, "/triggers?done=paused")
    assert (await web.api.trigger(trigger="nightly")).paused
    assert "The trigger is paused." in (await browser.get("/triggers?done=paused")).text
    await browser.post("/triggers/change", data={"trigger": "nightly", "action": "resume"})
    assert not (await web.api.trigger(trigger="nightly")).paused
    fired = await browser.post("/triggers/change", data={"trigger": "nightly", "action": "fire", "key": "k"})
    again = await browser.post("/triggers/change", data={"trigger": "nightly", "action": "fire", "key": "k"})
    assert fired.headers["location"] == again.headers["location"]
    assert fired.headers["location"].startswith("/runs/")
    wrong = await browser.post("/triggers/change", data={"trigger": "nightly", "action": "delete"})
    assert wrong.status_code == 400
