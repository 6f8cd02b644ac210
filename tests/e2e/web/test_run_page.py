"""The page of a run in a real browser: it follows the run, opens steps, and survives a killed server."""

import re

from playwright.async_api import Page, expect

from e2e.web.conftest import start
from e2e.world import World


async def open_run(page: Page, server: World, run: dict[str, str], rest: str = "") -> None:
    await page.goto(f"{server.about['url']}/runs/{run['run_id']}{rest}")


async def answer(server: World, run: dict[str, str], text: str) -> None:
    async with server.client() as client:
        reply = await client.post("/api/answers", run=run["run_id"], answer=text)
        assert reply.status_code == 200, reply.text


async def test_a_run_is_watched_from_its_start_to_its_end(page: Page, server: World) -> None:
    run = await start(server, "release", input="3.0", label="v3")
    await open_run(page, server, run)
    rows = page.locator("#timeline-rows > li")
    await expect(rows.filter(has_text="gate")).to_be_visible()
    await expect(page.locator("#run-head .state")).to_have_text("waiting")
    await expect(page.locator("#run-alerts")).to_contain_text("Publish version 3?")
    await expect(page.locator("#inbox-badge")).to_contain_text("1")
    await answer(server, run, "publish")
    await expect(page.locator("#run-head .state")).to_have_text("completed")
    await expect(page.locator("#run-alerts section")).to_have_count(0)
    await expect(page.get_by_role("button", name="Stop")).to_have_count(0)
    await expect(page.locator("#pane")).to_contain_text('"publish"')
    names = [re.sub(r"\s.*", "", text) for text in await rows.locator("[data-open]").all_text_contents()]
    assert names.count("planner,") + names.count("planner") == 1
    assert len(names) == 11


async def test_a_step_opens_beside_the_timeline_and_has_an_address(page: Page, server: World) -> None:
    run = await start(server, "release", input="3.0")
    await open_run(page, server, run)
    await page.get_by_role("link", name="flaky").click()
    await expect(page).to_have_url(re.compile(r"/steps/flaky$"))
    pane = page.locator("#pane")
    await expect(pane).to_contain_text("The mirror does not respond")
    await expect(page.locator("li.selected")).to_contain_text("flaky")
    await page.reload()
    await expect(page.locator("#step-head h2")).to_contain_text("flaky")
    await page.get_by_role("link", name="change").click()
    await expect(pane.locator(".diff .added")).to_have_text(re.compile(r"\+NEW_FLAG"))
    await page.go_back()
    await expect(page.locator("#step-head h2")).to_contain_text("flaky")
    await page.keyboard.press("Escape")
    await expect(page).to_have_url(re.compile(rf"/runs/{run['run_id']}$"))


async def test_keys_move_through_the_steps_and_open_the_current_one(page: Page, server: World) -> None:
    run = await start(server, "release", input="3.0")
    await open_run(page, server, run)
    await expect(page.locator("#timeline-rows > li").filter(has_text="gate")).to_be_visible()
    for key in ("j", "j", "j", "k"):
        await page.keyboard.press(key)
    await expect(page.locator("li.current")).to_contain_text("planner")
    await page.keyboard.press("Enter")
    await expect(page.locator("#step-head h2")).to_contain_text("planner")
    await expect(page.locator("#pane")).to_contain_text("git grep OLD_FLAG")


async def test_a_part_of_the_time_axis_is_dragged_over_and_shown_alone(page: Page, server: World) -> None:
    run = await start(server, "release", input="3.0")
    await open_run(page, server, run)
    rows = page.locator("#timeline-rows > li")
    await expect(page.locator("#run-head .state")).to_have_text("waiting")
    await answer(server, run, "publish")
    await expect(page.locator("#run-head .state")).to_have_text("completed")
    await expect(rows).to_have_count(11)
    axis = page.locator("#timeline-axis svg")
    place = await axis.bounding_box()
    assert place is not None
    y = place["y"] + place["height"] / 2
    await page.mouse.move(place["x"] + 1, y)
    await page.mouse.down()
    await page.mouse.move(place["x"] + place["width"] * 0.05, y, steps=3)
    await expect(page.locator(".span-mark")).to_be_attached()
    await page.mouse.up()
    await expect(page).to_have_url(re.compile(r"from=0\.0\d+&to=[\d.]+$"))
    assert await rows.count() < 11
    await page.locator("#menu-span summary").click()
    await page.get_by_role("link", name="Whole run").click()
    await expect(rows).to_have_count(11)


async def test_text_arrives_while_an_agent_writes_it(page: Page, server: World) -> None:
    run = await start(server, "talk", input=600)
    await open_run(page, server, run)
    await page.get_by_role("link", name="talker").click()
    writing = page.locator("#transcript .writing")
    await expect(writing).to_contain_text("word 0 word 1")
    await expect(writing).to_contain_text("word 300 ", timeout=15_000)
    text = await writing.text_content() or ""
    numbers = [int(number) for number in re.findall(r"word (\d+) ", text)]
    assert numbers == list(range(len(numbers)))  # no chunk is lost or doubled
    await expect(page.locator("#transcript .markdown strong")).to_have_text("end", timeout=15_000)
    await expect(page.locator("#step-head .state")).to_have_text("completed")


async def test_a_run_is_stopped_by_its_button_with_a_reason(page: Page, server: World) -> None:
    run = await start(server, "steady")
    await open_run(page, server, run)
    await page.locator("#menu-stop summary").click()
    await page.get_by_label("Reason").fill("Started by mistake")
    await page.get_by_role("button", name="Stop the run").click()
    await expect(page.locator("#notices")).to_contain_text("Stopped.")
    await expect(page.locator("#run-head .state")).to_have_text("cancelled")
    await expect(page.locator("#run-alerts")).to_contain_text("Started by mistake")


async def test_typed_text_and_opened_parts_stay_while_the_run_changes(page: Page, server: World) -> None:
    run = await start(server, "talk", input=500)
    await open_run(page, server, run)
    await page.locator("#menu-send summary").click()
    await page.get_by_label("Channel").fill("chat")
    await expect(page.locator("#run-alerts")).to_contain_text("Enough?", timeout=15_000)
    await expect(page.get_by_label("Channel")).to_have_value("chat")
    await expect(page.get_by_label("Channel")).to_be_visible()


async def test_a_form_that_is_too_late_says_so(page: Page, server: World) -> None:
    run = await start(server, "review")
    await open_run(page, server, run)
    pause = page.get_by_role("button", name="Pause")
    await expect(pause).to_be_visible()
    await page.route("**/stream?*", lambda route: route.abort())
    await page.route("**/stream", lambda route: route.abort())
    await page.reload()
    await answer(server, run, "approve")
    await pause.click()
    await expect(page.locator("#notices")).to_contain_text("the run is completed now")


async def test_a_killed_server_comes_back_and_the_page_continues(page: Page, server: World) -> None:
    run = await start(server, "review")
    await open_run(page, server, run)
    await expect(page.locator("#run-head .state")).to_have_text("waiting")
    port = server.port
    server.kill()
    await expect(page.locator(".connection")).to_have_text("Reconnecting …")
    server.start(port=port)
    await answer(server, run, "approve")
    await expect(page.locator("#run-head .state")).to_have_text("completed", timeout=20_000)
    await expect(page.locator("#timeline-rows > li")).to_have_count(2)
    await expect(page.locator("#pane")).to_contain_text("decided: approve")


async def test_the_graph_shows_live_states_and_opens_steps(page: Page, server: World) -> None:
    run = await start(server, "review")
    await open_run(page, server, run, "/graph")
    item = page.get_by_role("treeitem", name=re.compile("gate"))
    await expect(item).to_have_attribute("aria-label", re.compile("waiting"))
    await answer(server, run, "approve")
    await expect(item).to_have_attribute("aria-label", re.compile("completed"))
    await item.click()
    await expect(page).to_have_url(re.compile(r"/steps/"))


async def test_new_events_and_messages_appear_in_their_tabs(page: Page, server: World) -> None:
    run = await start(server, "talk", input=300)
    await open_run(page, server, run, "/events")
    await expect(page.locator("tr", has_text="gate_waiting")).to_have_count(1, timeout=15_000)
    numbers = [int(text) for text in await page.locator("tr[data-row] td:first-child").all_text_contents()]
    assert numbers == list(range(1, len(numbers) + 1))
    await open_run(page, server, run, "/conversation")
    await expect(page.locator(".thread")).to_contain_text("word 299")


async def test_nothing_is_wider_than_a_phone(page: Page, server: World) -> None:
    run = await start(server, "release", input="3.0", label="v3", limits={"cost": 2.0})
    await page.set_viewport_size({"width": 360, "height": 720})
    for tab in ("", "/steps/planner", "/graph", "/conversation", "/events", "/definition"):
        await open_run(page, server, run, tab)
        await page.locator("#menu-stop summary").click()
        assert await page.evaluate("document.documentElement.scrollWidth <= innerWidth"), tab
