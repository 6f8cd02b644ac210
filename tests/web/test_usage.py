"""The usage: charts with the same numbers as their tables, the budget, and the period in the address."""

import re
import time
from datetime import datetime, timedelta
from typing import Any

import httpx2

from nerve.api.pending_reply import append_to_store
from nerve.store.port import Append, UsageRow
from web.conftest import WebServer
from web.page_text import element, text_of


async def use(web: WebServer, days_ago: int, model: str, cost: float) -> None:
    """Record what a model has used on an earlier day."""
    day = (datetime.now() - timedelta(days=days_ago)).date().isoformat()
    session = web.api.session
    amounts = {"tokens": 1000, "cost": cost, "turns": 1}
    rows = [
        UsageRow(
            session.name, day, model, {"input_tokens": 900, "output_tokens": 100, "reported_cost": cost}
        ),
        UsageRow(session.name, day, "", amounts),
    ]
    await append_to_store(session, Append("", 0, (), usage=rows))


async def test_a_chart_has_a_bar_for_each_day_and_model_and_a_table_with_the_same_numbers(
    web: WebServer, browser: httpx2.AsyncClient
) -> None:
    for days_ago, model, cost in ((0, "large", 2.0), (0, "small", 1.0), (3, "large", 4.0)):
        await use(web, days_ago, model, cost)
    page = (await browser.get("/usage?days=7")).text
    (chart,) = re.findall(r'<figure class="chart">.*?</figure>', page, re.DOTALL)
    assert len(re.findall(r'<rect class="c\d"', chart)) == 3 + 2  # bars, and the legend
    assert "$7.00 in 7 days: large $6.00, small $1.00." in text_of(chart)
    assert re.search(r'role="img" aria-labelledby="models-svg-title models-svg-desc"', chart)
    (table,) = re.findall(r"<caption.*?</table>", page, re.DOTALL)
    assert re.findall(r"\$[\d.]+", text_of(table)) == ["$2.00", "$1.00", "$3.00", "$4.00", "$0", "$4.00"]
    assert "Last 7 days $7.00 3.0k tokens" in text_of(page)


async def test_the_page_shows_usage_by_workflow_and_step(web: WebServer, browser: httpx2.AsyncClient) -> None:
    await web.start("paid")
    page = text_of((await browser.get("/usage")).text)
    assert "Today $0.31 12.4k tokens" in page
    assert "paid 1 12.4k $0.31" in page
    assert "/writer paid 1 12.4k $0.31" in page
    tokens = text_of((await browser.get("/usage?measure=tokens")).text)
    assert "12.4k tokens" in tokens


async def test_a_store_of_an_earlier_version_says_since_when_steps_are_known(
    web: WebServer, browser: httpx2.AsyncClient
) -> None:
    await web.start("paid")
    assert "is known since" not in (await browser.get("/usage")).text
    store = web.api.session.engine.store
    store.write_property("step_usage_since", str(time.time() - 3 * 86400))
    assert "by workflow and step is known since 3d ago" in text_of((await browser.get("/usage")).text)
    assert "is known since" not in (await browser.get("/usage?days=2")).text


async def test_all_runs_count_by_step_even_if_they_are_deleted(
    web: WebServer, browser: httpx2.AsyncClient
) -> None:
    for _ in range(30):
        await web.start("paid")
    runs = web.api.session.engine.store.runs(states=["completed"])
    web.api.session.engine.store.delete_runs([row.run for row in runs[:5]])
    page = text_of((await browser.get("/usage")).text)
    assert "/writer paid 30 372.0k $9.30" in page
    assert "Runs with agents 30" in page


async def test_the_budget_of_the_day_is_a_meter(web: WebServer, browser: httpx2.AsyncClient) -> None:
    assert "Budget of the day" not in (await browser.get("/usage")).text
    web.api.session.budget = {"cost": 0.4}  # type: ignore[assignment]
    await web.start("paid")
    page = (await browser.get("/usage")).text
    assert "$0.31 of $0.40" in text_of(page)
    assert re.search(r'role="meter"[^>]*aria-valuenow="77.5"', page)


async def test_a_wrong_period_is_an_error_that_names_it(browser: httpx2.AsyncClient) -> None:
    for query, problem in (
        ("days=0", "Invalid days"),
        ("days=x", "Invalid days"),
        ("measure=time", "Unknown measure"),
    ):
        reply = await browser.get(f"/usage?{query}")
        assert reply.status_code == 400
        assert problem in reply.text


async def test_a_project_without_usage_says_so(browser: httpx2.AsyncClient) -> None:
    page = text_of((await browser.get("/usage")).text)
    assert page.count("Nothing was used in this period.") == 2
    assert "No step has used an agent in this period." in page


async def test_the_figures_change_while_the_page_is_open(web: WebServer) -> None:
    async with web.stream("/usage/stream?days=7&measure=cost") as live:
        await live.until(lambda text: 'id="usage"' in text)
        await web.start("paid")
        text: Any = await live.until(lambda text: "$0.31" in text)
        assert "12.4k tokens" in text_of(element(text, "usage"))
