"""The workflows: the list, the page of one with its start form, and the problems of definition files."""

import re
from pathlib import Path
from typing import Any

import httpx2

from nerve.client import Client
from web.conftest import WebServer, serve_web
from web.test_inbox import ATTACK, fill, words

YAML = """\
name: fix-issue
description: Fix an issue.
inputs:
  issue: {type: number, description: "Its **number**"}
  mode: {type: string, choices: [fast, safe], default: safe}
nodes:
  - {id: plan, bash: "echo plan {{ inputs.issue }}"}
  - {id: build, bash: "echo build", depends_on: [plan]}
"""


def write_workflow(folder: Path, name: str, text: str) -> None:
    path = folder / ".nerve" / "workflows" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


async def test_the_list_has_description_notation_inputs_and_last_runs(
    web: WebServer, browser: httpx2.AsyncClient
) -> None:
    run = await web.start("translate", params={"text": "Good morning"})
    page = (await browser.get("/workflows?search=translate")).text
    for part in ("translate", "Translate a text.", "python", "text", "language", "completed"):
        assert part in words(page)
    assert f'href="/runs/{run.run_id}"' in page
    assert page.count("<li data-row>") == 1
    assert "never run" in (await browser.get("/workflows?search=steady")).text
    assert "No workflow matches" in (await browser.get("/workflows?search=nothing")).text


async def test_problems_of_files_are_shown_with_file_line_and_fix(tmp_path: Path) -> None:
    write_workflow(tmp_path, "bad.yaml", "name: bad\ndescription: x\nnodes:\n  - {id: a, promt: hi}\n")
    async with serve_web(tmp_path) as web, web.browser() as browser:
        assert "problem" not in words((await browser.get("/workflows")).text)
        reply = await browser.post("/workflows/reload")
        assert (reply.status_code, reply.headers["location"]) == (303, "/workflows?done=reloaded")
        text = words((await browser.get("/workflows?done=reloaded")).text)
        assert "1 problem in definition files" in text
        assert "bad.yaml:4 Unknown key" in text
        assert "Did you mean" in text
        assert "The definitions were loaded again." in text


async def test_a_page_has_source_hash_graph_and_start_form(tmp_path: Path) -> None:
    write_workflow(tmp_path, "fix.yaml", YAML)
    async with serve_web(tmp_path) as web, web.browser() as browser:
        await web.api.reload()
        page = (await browser.get("/workflows/fix-issue")).text
        assert "echo build" in page
        assert (await web.api.workflow(workflow="fix-issue")).hash[:12] in page
        assert "Its <strong>number</strong>" in page
        assert 'data-src="/workflows/fix-issue/graph.json"' in page
        graph = (await browser.get("/workflows/fix-issue/graph.json")).json()
        assert {"plan", "build"} <= {node["label"] for node in graph["nodes"]}
        sent = fill(
            page, "/workflows/fix-issue", params__issue="42", label="urgent", tags="customer=7 team=web"
        )
        reply = await browser.post("/workflows/fix-issue", data=sent | {"limit-cost": "1.5"})
        run = await web.api.run(run=reply.headers["location"].removeprefix("/runs/"))
        assert (run.params, run.label, run.tags) == (
            {"issue": 42, "mode": "safe"},
            "urgent",
            {"customer": "7", "team": "web"},
        )


async def test_a_typed_function_gets_its_input_and_parameters(
    web: WebServer, browser: httpx2.AsyncClient
) -> None:
    address = "/workflows/translate"
    page = (await browser.get(address)).text
    assert 'value="German"' in page
    sent = fill(page, address, params__text="Good\r\nmorning", params__words="7")
    del sent["params/formal"]  # the user clears the checkbox
    reply = await browser.post(address, data=sent)
    assert reply.status_code == 303
    run = await finish(web, reply.headers["location"].removeprefix("/runs/"))
    assert run.result == "German 7 False: Good\nmorning"


async def finish(web: WebServer, run_id: str) -> Any:
    async for event in Client(web.api).watch(run_id):
        if event.event_type == "workflow_completed":
            break
    return await web.api.run(run=run_id)


async def test_a_plain_workflow_gets_text_or_json_as_its_input(
    web: WebServer, browser: httpx2.AsyncClient
) -> None:
    page = (await browser.get("/workflows/hello")).text
    for entered, expected in (
        ({"input": "{1}"}, "{1}"),
        ({"input": '{"a": 1}', "is_json": "true"}, {"a": 1}),
    ):
        sent = fill(page, "/workflows/hello", **entered) | {"key": ""}
        reply = await browser.post("/workflows/hello", data=sent)
        run = await web.api.run(run=reply.headers["location"].removeprefix("/runs/"))
        assert run.input == expected
    wrong = fill(page, "/workflows/hello", input="{1}", is_json="true")
    reply = await browser.post("/workflows/hello", data=wrong)
    assert (reply.status_code, "The input is not valid JSON" in reply.text) == (422, True)


async def test_wrong_values_start_nothing_and_stay_in_the_form(
    web: WebServer, browser: httpx2.AsyncClient
) -> None:
    address = "/workflows/translate"
    page = (await browser.get(address)).text
    entered = {"params__words": "seven", "tags": "no-value", "label": "kept"}
    reply = await browser.post(address, data=fill(page, address, **entered) | {"limit-tokens": "-1"})
    assert reply.status_code == 422
    text = words(reply.text)
    for part in ("Must be an integer", "This field is required.", "Use tags such as", "non-negative integer"):
        assert part in text
    for part in ('value="seven"', 'value="kept"', 'value="no-value"', 'value="-1"'):
        assert part in reply.text
    assert not (await web.api.runs()).runs


async def test_a_double_click_starts_one_run(web: WebServer, browser: httpx2.AsyncClient) -> None:
    page = (await browser.get("/workflows/hello")).text
    sent = fill(page, "/workflows/hello", input="you")
    replies = [await browser.post("/workflows/hello", data=sent) for _ in range(2)]
    assert replies[0].headers["location"] == replies[1].headers["location"]
    assert len((await web.api.runs()).runs) == 1
    changed = await browser.post("/workflows/hello", data=sent | {"input": "them"})
    assert changed.status_code == 422  # the form has already started a run
    again = await browser.post("/workflows/hello", data=fill(changed.text, "/workflows/hello"))
    assert again.status_code == 303
    assert len((await web.api.runs()).runs) == 2


async def test_a_read_caller_sees_no_start_form(web: WebServer) -> None:
    async with web.browser("read") as reader:
        for path in ("/workflows", "/workflows/hello"):
            text = (await reader.get(path)).text
            assert 'method="post"' not in text
            assert ">Start<" not in text
        assert (await reader.post("/workflows/hello", data={"input": "x"})).status_code == 403
    async with web.browser("run") as runner:
        assert (await runner.post("/workflows/reload")).status_code == 403
        assert 'action="/workflows/reload"' not in (await runner.get("/workflows")).text


async def test_an_unknown_workflow_is_not_found_and_a_prefix_leads_to_the_name(
    browser: httpx2.AsyncClient,
) -> None:
    assert (await browser.get("/workflows/nothing")).status_code == 404
    assert (await browser.get("/workflows/transl")).headers["location"] == "/workflows/translate"


async def test_texts_of_definitions_and_users_are_escaped(tmp_path: Path) -> None:
    quoted = ATTACK.replace('"', '\\"')
    write_workflow(
        tmp_path,
        "hostile.yaml",
        f'name: hostile\ndescription: "{quoted} [x](javascript:alert(1))"\n'
        f'inputs:\n  thing: {{type: string, description: "{quoted}", default: "{quoted}"}}\n'
        f'nodes:\n  - {{id: a, bash: "echo {quoted}"}}\n',
    )
    write_workflow(
        tmp_path, "bad.yaml", f'name: bad\ndescription: x\nnodes:\n  - {{id: a, "{quoted}": hi}}\n'
    )
    async with serve_web(tmp_path) as web, web.browser() as browser:
        await web.api.reload()
        await web.start("hostile", label=ATTACK[:50], input=ATTACK)
        pages = [(await browser.get(path)).text for path in ("/workflows", "/workflows/hostile")]
        sent = fill(pages[1], "/workflows/hostile", tags=ATTACK, label=ATTACK, input=ATTACK)
        pages.append((await browser.post("/workflows/hostile", data=sent)).text)
        pages.append((await browser.get("/workflows", params={"search": ATTACK})).text)
        for text in pages:
            assert "<script>alert" not in text
            assert "<img src=x" not in text
            assert 'href="javascript:' not in text
            assert not re.search(r"<script(?![^>]*\bsrc=)|<style|\sstyle=", text)


async def test_links_of_the_workflows_have_the_prefix_of_the_proxy(tmp_path: Path) -> None:
    async with serve_web(tmp_path, prefix="/nerve") as web, web.browser() as browser:
        await web.start("hello")
        for path in ("/workflows", "/workflows/translate", "/ask"):
            text = (await browser.get(path)).text
            addresses = re.findall(r'(?:href|src|action|connect|hx-post)="(/[^"]*)"', text)
            assert all(address.startswith("/nerve/") for address in addresses), path
        sent = fill((await browser.get("/workflows/hello")).text, "/nerve/workflows/hello")
        reply = await browser.post("/workflows/hello", data=sent)
        assert reply.headers["location"].startswith("/nerve/runs/")


async def test_a_start_form_of_a_changed_definition_says_so_instead_of_starting(
    web: WebServer, browser: httpx2.AsyncClient
) -> None:
    source = "name: said\nbody: {{kind: transform, id: say, expression: {}}}\n"
    await web.api.define(source=source.format('"1"'), notation="yaml")
    page = (await browser.get("/workflows/said")).text
    fields = dict(re.findall(r'<input type="hidden" name="(key|hash)" value="([^"]*)"', page))
    await web.api.define(source=source.format('"2"'), notation="yaml")
    reply = await browser.post("/workflows/said", data=fields | {"input": "kept"})
    assert reply.status_code == 409
    assert "The definition of the workflow has changed since this form was shown" in reply.text
    assert "kept" in reply.text
    assert (await web.api.runs(workflow="said")).runs == []
    fields = dict(re.findall(r'<input type="hidden" name="(key|hash)" value="([^"]*)"', reply.text))
    started = await browser.post("/workflows/said", data=fields | {"input": "kept"})
    assert started.status_code == 303
