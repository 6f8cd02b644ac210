"""Ask: a message leads to a start form, a question or a reply; nothing starts by itself."""

import httpx2

from nerve.router import ConversationDecision
from web.conftest import WebServer
from web.form_data import read_form
from web.test_inbox import ATTACK, fill, words


def conversation_of(html: str) -> str:
    return dict(read_form(html, "/ask"))["conversation"]


async def test_a_message_leads_to_the_start_form_of_the_workflow(
    web: WebServer, browser: httpx2.AsyncClient
) -> None:
    page = (await browser.get("/ask")).text
    conversation = conversation_of(page)
    data = {"text": "translate the letter", "conversation": conversation}
    reply = (await browser.post("/ask", data=data)).text
    assert "Start translate ?" in words(reply)
    assert not (await web.api.runs()).runs
    assert conversation_of(reply) == conversation
    start = fill(reply, "/workflows/translate")
    assert start["conversation"] == [conversation]
    assert "translate the letter" in start["params/text"][0] or "the letter" in start["params/text"][0]
    location = (await browser.post("/workflows/translate", data=start)).headers["location"]
    shown = (await browser.get("/ask", params={"conversation": conversation})).text
    assert f'href="{location}"' in shown


async def test_an_open_page_gets_only_the_reply(browser: httpx2.AsyncClient) -> None:
    reply = await browser.post("/ask", data={"text": "hello Ada"}, headers={"hx-request": "true"})
    assert "<html" not in reply.text
    assert 'action="/workflows/hello"' in reply.text
    assert '<hx-partial hx-target="#ask-text"' in reply.text


async def test_a_question_offers_its_candidates(browser: httpx2.AsyncClient) -> None:
    reply = await browser.post("/ask", data={"text": "xyzzy plugh"})
    assert reply.status_code == 200
    assert 'action="/workflows/' not in reply.text


async def test_an_empty_message_is_refused(browser: httpx2.AsyncClient) -> None:
    assert (await browser.post("/ask", data={"text": "  "})).status_code == 400


async def test_messages_and_replies_are_escaped(browser: httpx2.AsyncClient) -> None:
    for text in (ATTACK, f"translate {ATTACK}", f"%hello {ATTACK}"):
        reply = await browser.post("/ask", data={"text": text, "conversation": ATTACK})
        assert "<script>alert" not in reply.text
        assert "<img src=x" not in reply.text


async def test_a_read_caller_cannot_ask(web: WebServer) -> None:
    async with web.browser("read") as reader:
        assert 'action="/ask"' not in (await reader.get("/ask")).text
        assert (await reader.post("/ask", data={"text": "hello"})).status_code == 403


def test_a_decision_has_the_fields_that_the_page_reads() -> None:
    assert ConversationDecision(reply="Hi").to_dict()["reply"] == "Hi"
