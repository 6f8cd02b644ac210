"""The comparison of two runs: figures, differences of values, steps side by side."""

import re

import httpx2

from web.conftest import WebServer
from web.page_text import text_of


async def test_two_runs_are_compared_step_by_step(web: WebServer, browser: httpx2.AsyncClient) -> None:
    first = await web.start("paid", input="Summarise <b>it</b>")
    second = await web.start("paid", input="Summarise all")
    page = (await browser.get(f"/compare?a={first.run_id}&b={second.run_id}")).text
    text = text_of(page)
    assert "writer changed completed completed" in text
    assert "Cost $0.31 $0.31 –" in text
    assert '<span class="removed">-Summarise &lt;b&gt;it&lt;/b&gt;' in page
    assert '<span class="added">+Summarise all' in page
    assert f"/runs/{first.run_id}/steps/writer" in page
    same = text_of((await browser.get(f"/compare?a={first.run_id}&b={first.run_id}")).text)
    assert "Input and result are the same." in same
    assert "writer completed completed" in same


async def test_steps_of_one_run_alone_are_marked_and_selected(
    web: WebServer, browser: httpx2.AsyncClient
) -> None:
    paid, failed = await web.start("paid"), await web.start("broken")
    address = f"/compare?a={paid.run_id}&b={failed.run_id}"
    text = text_of((await browser.get(address)).text)
    assert "These are runs of two workflows" in text
    assert "writer only in a" in text
    only = (await browser.get(f"{address}&show=only_b")).text
    assert re.findall(r'<code title="(/\w+)"', only) == ["/echo", "/fail"]


async def test_an_unknown_run_is_named_beside_its_field(web: WebServer, browser: httpx2.AsyncClient) -> None:
    run = await web.start("hello")
    reply = await browser.get("/compare", params={"a": run.run_id, "b": "<nothing>"})
    assert reply.status_code == 404
    assert 'aria-describedby="problem-b"' in reply.text
    assert "&lt;nothing&gt;" in reply.text
    empty = await browser.get("/compare")
    assert empty.status_code == 200
    assert run.run_id in empty.text  # offered


async def test_two_selected_runs_lead_to_the_comparison(web: WebServer, browser: httpx2.AsyncClient) -> None:
    older, newer = await web.start("hello"), await web.start("hello")
    data = {"action": "compare", "run": [newer.run_id, older.run_id]}
    reply = await browser.post("/runs/actions", data=data)
    address = f"/compare?a={older.run_id}&b={newer.run_id}"
    assert (reply.status_code, reply.headers["location"]) == (303, address)
    partial = await browser.post("/runs/actions", data=data, headers={"hx-request": "true"})
    assert partial.headers["hx-redirect"] == address
    one = await browser.post("/runs/actions", data={"action": "compare", "run": [newer.run_id]})
    assert one.status_code == 400
