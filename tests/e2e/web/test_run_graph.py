"""The element <run-graph> in a real browser, under the security policy of the real pages."""

import asyncio
from typing import Any

import pytest
from playwright.async_api import Browser

from e2e.web.graph_page import GraphPage, serve_pages
from nerve.ui.graph_model import RunGraph, StepStatus
from nerve.ui.run_graph import build_run_graph


def bash(id: str, **fields: Any) -> dict[str, Any]:
    return {"kind": "bash", "id": id, "command": f"make {id}", **fields}


def release_graph() -> RunGraph:
    """Return a graph with every shape and every state."""
    steps = [
        {"kind": "prompt", "id": "plan", "agent": "claude", "text": "Write a plan"},
        {"kind": "gate", "id": "approve", "prompt": "Is the plan good?", "choices": ["yes", "no"]},
        {"kind": "parallel", "id": "checks", "branches": [bash("unit"), bash("lint")]},
        {"kind": "map", "id": "migrate", "over": "given", "body": bash("edit")},
        {
            "kind": "branch",
            "id": "major",
            "condition": "given",
            "then": {"kind": "workflow", "id": "announce", "workflow": "announce-release"},
            "otherwise": {"kind": "transform", "id": "note", "expression": "1"},
        },
        bash("deploy", on_error={"kind": "call", "id": "rollback", "target": "rollback"}),
        {"kind": "wait", "id": "soak", "seconds": 60},
    ]
    graph = build_run_graph({"name": "release", "body": {"kind": "sequence", "steps": steps}})
    graph.run_id = "run-1"
    graph.states = {
        "/plan": StepStatus("completed", time="12s", path="/plan"),
        "/approve": StepStatus("completed", path="/approve"),
        "/checks": StepStatus("failed", path="/checks"),
        "/checks/unit": StepStatus("completed", path="/checks/unit"),
        "/checks/lint": StepStatus("failed", "3 attempts", path="/checks/lint[2]"),
        "/migrate": StepStatus("running", "3 of 10 done, 1 failed, 2 running", path="/migrate"),
        "/soak": StepStatus("skipped"),
    }
    return graph


def wide_graph(count: int) -> RunGraph:
    steps = [bash(f"s{n}", depends_on=[f"s{n - 5}"] if n >= 5 else []) for n in range(count)]
    graph = build_run_graph({"name": "wide", "body": {"kind": "graph", "steps": steps}})
    graph.states = {f"/s{n}": StepStatus("completed", path=f"/s{n}") for n in range(count // 2)}
    return graph


@pytest.mark.parametrize("count", [5, 100, 300])
async def test_a_graph_is_drawn_without_a_complaint_of_the_browser(chromium: Browser, count: int) -> None:
    with serve_pages() as site:
        site.serve_graph(wide_graph(count))
        page = await GraphPage.open(await chromium.new_context(), f"{site.url}/")
        tree = page.page.get_by_role("tree", name="Graph of wide")
        items = tree.get_by_role("treeitem")
        assert await items.count() == count
        assert await items.first.get_attribute("aria-label") == "s0, shell command, completed"
        boxes = await page.page.evaluate(BOXES)
        assert len({(box["x"], box["y"]) for box in boxes}) == count
        assert page.complaints == []


BOXES = """[...document.querySelector('run-graph').shadowRoot.querySelectorAll('[role=treeitem]')]
    .map((item) => item.getBoundingClientRect().toJSON())"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_every_shape_and_state_is_distinct_in_both_themes(chromium: Browser, scheme: Any) -> None:
    with serve_pages() as site:
        site.serve_graph(release_graph())
        context = await chromium.new_context(color_scheme=scheme, viewport={"width": 1280, "height": 1000})
        page = await GraphPage.open(context, f"{site.url}/")
        outlines = await page.page.evaluate(OUTLINES)
        assert len({outline["shape"] for outline in outlines.values()}) >= 6
        states = {id: outlines[id]["stroke"] for id in ("/plan", "/checks", "/migrate", "/major")}
        assert len(set(states.values())) == 4
        background = await page.page.evaluate(
            "getComputedStyle(document.querySelector('run-graph')).backgroundColor"
        )
        assert background == {"light": "rgb(247, 247, 249)", "dark": "rgb(16, 17, 22)"}[scheme]
        assert page.complaints == []


OUTLINES = """Object.fromEntries(
    [...document.querySelector('run-graph').shadowRoot.querySelectorAll('[data-id]')].map((item) => {
        const outline = item.querySelector('.outline');
        const corners = outline.getAttribute('rx') ?? outline.getAttribute('points').split(' ').length;
        const shape = [outline.tagName, corners, item.querySelectorAll('.bar').length].join(' ');
        return [item.dataset.id, { shape, stroke: getComputedStyle(outline).stroke }];
    })
)"""


async def test_other_states_are_shown_without_a_new_layout(chromium: Browser) -> None:
    with serve_pages() as site:
        graph = release_graph()
        site.serve_graph(graph)
        page = await GraphPage.open(await chromium.new_context(), f"{site.url}/")
        item = page.page.locator("[data-id='/migrate']")
        element = await item.element_handle()
        graph.states["/migrate"] = StepStatus("waiting", "9 of 10 done, 1 waiting", path="/migrate")
        await page.replace_data(graph)
        label = "migrate, map, waiting, 9 of 10 done, 1 waiting"
        await page.page.get_by_role("treeitem", name=label).wait_for()
        assert await element.evaluate("(element) => element.isConnected")
        assert await page.page.get_attribute("run-graph", "data-layouts") == "1"
        news = page.page.get_by_role("status")
        assert await news.text_content() == "migrate: waiting"
        more = release_graph()
        more.add_edge("/soak", "/plan")
        await page.replace_data(more)
        await page.page.wait_for_selector("run-graph[data-layouts='2']")
        assert page.complaints == []


async def test_groups_are_expanded_and_collapsed_by_click_and_by_key(chromium: Browser) -> None:
    with serve_pages() as site:
        site.serve_graph(release_graph())
        page = await GraphPage.open(await chromium.new_context(), f"{site.url}/")
        group, inner = (
            page.page.locator("[data-id='/migrate']"),
            page.page.locator("[data-id='/migrate/migrate']"),
        )
        assert await group.get_attribute("aria-expanded") == "false"
        assert await inner.count() == 0
        await group.click()
        assert await group.get_attribute("aria-expanded") == "true"
        assert await inner.get_attribute("aria-level") == "2"
        await page.page.keyboard.press("Space")
        assert await inner.count() == 0
        await page.page.get_by_role("button", name="Collapse all groups").click()
        assert await page.page.locator("[data-id='/checks/unit']").count() == 0
        await page.page.get_by_role("button", name="Expand all groups").click()
        assert await inner.count() == await page.page.locator("[data-id='/checks/unit']").count() == 1


async def test_arrow_keys_move_between_nodes_and_enter_opens_the_step(chromium: Browser) -> None:
    with serve_pages() as site:
        site.serve_graph(release_graph())
        page = await GraphPage.open(await chromium.new_context(), f"{site.url}/")
        keys = page.page.keyboard
        await keys.press("Tab")
        visited = [await page.focused()]
        for key in ("ArrowDown", "ArrowDown", "ArrowDown", "ArrowRight", "Home"):
            await keys.press(key)
            visited.append(await page.focused())
        assert visited == ["/plan", "/approve", "/checks", "/checks/unit", "/checks/lint", "/plan"]
        for key in ("ArrowDown", "ArrowDown", "ArrowDown", "ArrowRight"):
            await keys.press(key)
        async with page.page.expect_navigation():
            await keys.press("Enter")
        assert page.page.url == f"{site.url}/prefix/runs/run-1/steps/checks/lint%5B2%5D"


async def test_a_page_can_open_a_step_in_its_own_way(chromium: Browser) -> None:
    with serve_pages() as site:
        site.serve_graph(release_graph())
        page = await GraphPage.open(await chromium.new_context(), f"{site.url}/")
        await page.page.evaluate(
            """addEventListener("open-step", (event) => {
                event.preventDefault();
                window.opened = event.detail;
            })"""
        )
        await page.page.locator("[data-id='/plan']").click()
        assert await page.page.evaluate("window.opened") == {
            "path": "/plan",
            "run": "run-1",
            "href": "/prefix/runs/run-1/steps/plan",
        }
        assert page.page.url == f"{site.url}/"


async def test_the_graph_is_moved_zoomed_and_shown_as_a_whole(chromium: Browser) -> None:
    with serve_pages() as site:
        site.serve_graph(wide_graph(100))
        page = await GraphPage.open(await chromium.new_context(), f"{site.url}/")
        views = [await page.page.evaluate(VIEW)]
        await page.page.get_by_role("button", name="Zoom in").click()
        views.append(await page.page.evaluate(VIEW))
        await page.page.mouse.move(20, 400)
        await page.page.mouse.down()
        await page.page.mouse.move(120, 450, steps=4)
        await page.page.mouse.up()
        views.append(await page.page.evaluate(VIEW))
        await page.page.get_by_role("button", name="Show the whole graph").click()
        views.append(await page.page.evaluate(VIEW))
        assert len(set(views)) == 4
        boxes, area = await asyncio.gather(
            page.page.evaluate(BOXES), page.page.locator("run-graph").bounding_box()
        )
        assert area is not None
        assert all(area["y"] <= box["y"] and box["bottom"] <= area["y"] + area["height"] for box in boxes)


VIEW = "document.querySelector('run-graph').shadowRoot.querySelector('svg > g').getAttribute('transform')"


async def test_the_data_can_be_at_another_address(chromium: Browser) -> None:
    with serve_pages() as site:
        site.serve_graph(release_graph())
        page = await GraphPage.open(await chromium.new_context(), f"{site.url}/fetched")
        assert await page.page.get_by_role("treeitem", name="plan, agent, completed").count() == 1
        assert page.complaints == []


async def test_text_of_a_workflow_is_never_markup(chromium: Browser) -> None:
    with serve_pages() as site:
        attack = "</script><img src=x onerror=alert(1)>"
        graph = build_run_graph({"name": attack, "body": {"kind": "sequence", "steps": [bash(attack)]}})
        site.serve_graph(graph)
        page = await GraphPage.open(await chromium.new_context(), f"{site.url}/")
        assert await page.page.get_by_role("tree").get_attribute("aria-label") == f"Graph of {attack}"
        assert await page.page.locator("img").count() == 0
        assert page.complaints == []


async def test_nothing_moves_for_a_user_who_prefers_reduced_motion(chromium: Browser) -> None:
    with serve_pages() as site:
        site.serve_graph(release_graph())
        for motion, expected in (("reduce", 0), ("no-preference", 1)):
            context = await chromium.new_context(reduced_motion=motion)  # type: ignore[arg-type]
            page = await GraphPage.open(context, f"{site.url}/")
            animations = await page.page.evaluate(
                "document.querySelector('run-graph').shadowRoot.getAnimations().length"
            )
            assert animations == expected


async def test_the_list_of_steps_stays_for_a_page_without_scripts(chromium: Browser) -> None:
    with serve_pages() as site:
        site.serve_graph(release_graph())
        page = await (await chromium.new_context(java_script_enabled=False)).new_page()
        await page.goto(f"{site.url}/")
        assert await page.get_by_text("A list").is_visible()
