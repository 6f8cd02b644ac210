"""The rerun of a run: the preview, an edited input, another definition, failed steps, and stale forms."""

import contextlib
import re
from typing import Any

import httpx2
import pytest

from nerve import FunctionNode, WorkflowContext
from web.conftest import WebServer
from web.page_text import element, text_of


def fates(page: str) -> list[str]:
    return [
        text_of(found)
        for found in re.findall(r"<li class=.*?</li>", element(page, "preview", "section"), re.DOTALL)
    ]


async def form_fields(browser: httpx2.AsyncClient, path: str) -> dict[str, str]:
    """Return the hidden fields of the form."""
    page = (await browser.get(path)).text
    found = re.findall(r'<input type="hidden" name="(\w+)" value="([^"]*)"', element(page, "rerun", "form"))
    return dict(found)


@pytest.fixture
async def failed(web: WebServer) -> Any:
    return await web.start("broken", label="nightly")


async def test_the_page_shows_what_would_be_reused_and_what_would_run_again(
    failed: Any, browser: httpx2.AsyncClient
) -> None:
    home = f"/runs/{failed.run_id}/rerun"
    assert fates((await browser.get(f"{home}?from=/fail")).text) == ["/echo reused", "/fail runs again"]
    assert fates((await browser.get(f"{home}?from=failed")).text) == ["/echo reused", "/fail runs again"]
    first = (await browser.get(f"{home}?from=/echo")).text
    assert fates(first)[0] == "/echo runs again"
    assert ">\nfirst</textarea>" in first
    wrong = await browser.get(f"{home}?from=/nothing")
    assert wrong.status_code == 400
    assert 'role="alert"' in wrong.text


async def test_the_preview_follows_the_edited_input(failed: Any, browser: httpx2.AsyncClient) -> None:
    path = f"/runs/{failed.run_id}/rerun/preview"
    headers = {"hx-request": "true"}
    same = await browser.post(path, data={"from": "", "input": "", "format": "text"}, headers=headers)
    assert same.text.startswith('<section id="preview"')
    other = await browser.post(path, data={"input": '{"a": 1}', "format": "json"}, headers=headers)
    assert "with another input" in other.text
    wrong = await browser.post(path, data={"input": "{", "format": "json"}, headers=headers)
    assert "The input is not valid JSON" in text_of(wrong.text)
    whole = await browser.post(path, data={"input": "x", "format": "text"})
    assert "<!doctype html>" in whole.text.lower()


async def test_a_rerun_from_a_step_has_its_edited_input(
    web: WebServer, failed: Any, browser: httpx2.AsyncClient
) -> None:
    home = f"/runs/{failed.run_id}/rerun"
    fields = await form_fields(browser, f"{home}?from=/echo")
    reply = await browser.post(home, data={**fields, "from": "/echo", "input": "another", "format": "text"})
    assert reply.status_code == 303
    run = reply.headers["location"].removeprefix("/runs/")
    with contextlib.suppress(RuntimeError):
        await web.api.session.get_workflow_run(run).wait()
    events = (await web.api.events(run=run, path="/echo")).events
    assert "another" in str([event.data for event in events])
    detail = await web.api.run(run=run)
    assert detail.started_by == "browser:admin"
    repeated = await browser.post(
        home, data={**fields, "from": "/echo", "input": "another", "format": "text"}
    )
    assert repeated.headers["location"] == reply.headers["location"]


async def test_failed_steps_run_again(web: WebServer, failed: Any, browser: httpx2.AsyncClient) -> None:
    home = f"/runs/{failed.run_id}/rerun"
    fields = await form_fields(browser, f"{home}?from=failed")
    reply = await browser.post(home, data={**fields, "from": "failed"})
    assert reply.status_code == 303
    assert reply.headers["location"] != f"/runs/{failed.run_id}"


async def test_several_chosen_steps_run_again_and_the_others_are_reused(
    web: WebServer, browser: httpx2.AsyncClient
) -> None:
    session, calls = web.api.session, list[Any]()

    async def note(context: Any) -> None:
        calls.append(context.input)

    FunctionNode("note", session, note)

    @session.workflow
    async def noted(ctx: WorkflowContext) -> None:
        for number in range(4):
            await ctx.run("note", number)

    source = await web.start("noted")
    home = f"/runs/{source.run_id}/rerun"
    query = "?from=/note[2]&also=/note[4]"
    page = (await browser.get(home + query)).text
    assert fates(page) == [
        "/note reused",
        "/note[2] runs again",
        "/note[3] reused if its input stays the same",
        "/note[4] runs again",
    ]
    assert re.findall(r'name="also" value="([^"]+)"( checked)?', page) == [
        ("/note", ""),
        ("/note[3]", ""),
        ("/note[4]", " checked"),
    ]
    fields = await form_fields(browser, home + query)
    reply = await browser.post(home, data={**fields, "from": "/note[2]", "also": ["/note[4]"]})
    assert reply.status_code == 303
    run = reply.headers["location"].removeprefix("/runs/")
    await web.api.session.get_workflow_run(run).wait()
    assert calls == [0, 1, 2, 3, 1, 3]


async def test_an_invalid_input_starts_nothing(
    web: WebServer, failed: Any, browser: httpx2.AsyncClient
) -> None:
    home = f"/runs/{failed.run_id}/rerun"
    reply = await browser.post(home, data={"input": "{", "format": "json"})
    assert reply.status_code == 400
    assert ">\n{</textarea>" in reply.text
    assert len((await web.api.runs()).runs) == 1


async def test_a_form_of_a_run_that_has_changed_says_so_instead_of_starting(
    web: WebServer, browser: httpx2.AsyncClient
) -> None:
    asked = await web.start("review")
    home = f"/runs/{asked.run_id}/rerun"
    fields = await form_fields(browser, home)
    await web.api.answer(run=asked.run_id, answer="approve")
    await web.api.start(workflow="hello", wait=True)
    reply = await browser.post(home, data={**fields, "input": "", "format": "text"})
    assert reply.status_code == 409
    assert "The run has changed since this page was shown" in reply.text
    assert len((await web.api.runs()).runs) == 2


async def test_another_definition_is_offered_when_there_is_one(tmp_path: Any) -> None:
    from web.conftest import serve_web

    source = '{"name": "small", "body": {"kind": "transform", "expression": "%s"}}'
    async with serve_web(tmp_path) as web, web.browser() as browser:
        await web.api.define(source=source % 1)
        run = await web.api.start(workflow="small", wait=True)
        home = f"/runs/{run.run_id}/rerun"
        assert "rerun-definition" not in (await browser.get(home)).text
        await web.api.define(source=source % 2)
        page = (await browser.get(f"{home}?definition=current")).text
        assert "rerun-definition" in page
        assert "with another definition" in page


async def test_a_read_caller_sees_the_preview_and_no_button(web: WebServer, failed: Any) -> None:
    async with web.browser("read") as reader:
        page = (await reader.get(f"/runs/{failed.run_id}/rerun?from=/fail")).text
        assert fates(page)
        assert "Start the rerun" not in page
