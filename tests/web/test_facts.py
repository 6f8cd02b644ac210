"""The facts: patterns, pages, changes while the page is open, and forms to assert and retract."""

import re

import httpx2

from web.conftest import WebServer
from web.page_text import element, text_of


def facts(page: str) -> list[str]:
    return [text_of(found) for found in re.findall(r'<code class="fact".*?</code>', page, re.DOTALL)]


async def test_asserted_facts_come_first_and_those_of_runs_on_request(
    web: WebServer, browser: httpx2.AsyncClient
) -> None:
    await web.start("hello")
    for number in range(3):
        await web.api.assert_fact(fact=["step", number])
    shown = facts((await browser.get("/facts")).text)
    assert [re.sub(r"\W+", " ", fact).strip() for fact in shown] == ["step 2", "step 1", "step 0"]
    everything = (await browser.get("/facts?all=1")).text
    assert "workflow/state" in everything
    assert "workflow/state" in (await browser.get("/facts?pattern=workflow/state")).text


async def test_a_pattern_is_part_of_the_address_and_an_error_is_beside_its_field(
    web: WebServer, browser: httpx2.AsyncClient
) -> None:
    await web.api.assert_fact(fact='(review "a.py" :by "ada")')
    await web.api.assert_fact(fact='(review "b.py" :by "bob")')
    page = await browser.get("/facts", params={"pattern": '(review _ :by "bob")'})
    assert len(facts(page.text)) == 1
    assert "b.py" in page.text
    assert "/facts/stream?pattern=" in page.text
    wrong = await browser.get("/facts", params={"pattern": '(review "<script>'})
    assert wrong.status_code == 400
    assert 'aria-describedby="pattern-problem"' in wrong.text
    assert "hx-sse:connect" not in wrong.text
    assert "<script>" not in re.sub(r"<script src", "", wrong.text)


async def test_pages_lead_to_all_facts_once(web: WebServer, browser: httpx2.AsyncClient) -> None:
    for number in range(230):
        await web.api.assert_fact(fact=["number", number])
    path, seen = "/facts?pattern=number", list[str]()
    while path:
        page = (await browser.get(path)).text
        seen += facts(page)
        path = next(iter(re.findall(r'rel="next" href="([^"]+)"', page)), "").replace("&amp;", "&")
    assert len(seen) == len(set(seen)) == 230


async def test_a_fact_is_asserted_and_retracted_by_forms(web: WebServer, browser: httpx2.AsyncClient) -> None:
    reply = await browser.post("/facts", data={"fact": '(deploy :target "?x")', "pattern": "deploy"})
    assert (reply.status_code, reply.headers["location"]) == (303, "/facts?pattern=deploy&done=asserted")
    await web.api.assert_fact(fact="(deploy :target other)")
    page = (await browser.get(reply.headers["location"])).text
    assert "The fact is asserted." in page
    assert "browser:admin" in page
    record = '["deploy",{"target":"?x"}]'  # as a pattern it would match both
    gone = await browser.post("/facts/retract", data={"record": record})
    assert gone.headers["location"] == "/facts?done=retracted"
    left = (await web.api.facts(asserted=True)).facts
    assert [fact.text for fact in left] == ['(deploy :target "other")']
    notice = await browser.post("/facts/retract", data={"record": record}, headers={"hx-request": "true"})
    assert "0 facts retracted." in notice.text
    assert (await browser.post("/facts/retract", data={"record": "{"})).status_code == 400


async def test_a_wrong_fact_stays_in_its_field_with_the_problem(
    web: WebServer, browser: httpx2.AsyncClient
) -> None:
    for fact in ("(deploy", "", "(workflow/state :run 1)"):
        reply = await browser.post("/facts", data={"fact": fact})
        assert reply.status_code in (400, 409, 422), fact
        assert 'aria-describedby="fact-problem"' in reply.text
        assert f'name="fact" value="{fact}"' in reply.text
    async with web.browser("run") as user:
        reply = await user.post("/facts", data={"fact": '(workflow-definition :id "x" :source "y")'})
        assert reply.status_code == 403
        assert "is not sufficient" in reply.text


async def test_a_read_caller_sees_no_forms(web: WebServer) -> None:
    await web.api.assert_fact(fact="(deploy :target web)")
    async with web.browser("read") as reader:
        page = (await reader.get("/facts")).text
        assert "deploy" in page
        assert "Retract" not in page
        assert 'name="fact"' not in page


async def test_the_list_changes_while_it_is_open_and_resumes_without_a_repetition(web: WebServer) -> None:
    async with web.stream("/facts/stream") as live:
        await live.until(lambda text: 'id="facts"' in text)
        await web.api.assert_fact(fact="(deploy :target web)")
        await live.until(lambda text: "deploy" in text)
        last = live.last_id
    async with web.stream("/facts/stream", last_id=last) as live:
        await web.api.retract(fact="deploy")
        await live.until(lambda text: "No fact is asserted." in text)
        assert len(live.messages) == 1
        assert "deploy" not in element(live.text, "facts")
