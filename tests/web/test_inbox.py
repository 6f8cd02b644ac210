"""The inbox: what a gate shows, answers with forms, forms that are too old, and one answer for several."""

import asyncio
import json
import re
from pathlib import Path
from typing import Any

import httpx2
import pytest

from nerve.api import ApiError
from web.conftest import WebServer, serve_web
from web.form_data import read_form
from web.gate_flows import DeployProvider

ATTACK = '"><script>alert(1)</script><img src=x onerror=alert(1)>'


async def open_gate(web: WebServer, workflow: str, **given: Any) -> tuple[Any, str]:
    """Start a run that waits at a gate; return the run and the address of the gate."""
    run = await web.start(workflow, **given)
    return run, f"/inbox/{run.run_id}/{run.gates[0].gate_id}"


async def output_of(web: WebServer, run: Any) -> str:
    """Return what the agent of a run has written when the run has ended."""
    found = web.api.session.get_workflow_run(run.run_id)
    await asyncio.wait_for(found.wait(), 20)
    return str((await web.api.run(run=run.run_id)).result["output"])


def words(html: str) -> str:
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", html))


def pane(html: str) -> str:
    return html[html.index('<section id="gate-pane"') :]


def fill(html: str, address: str, **entered: str) -> dict[str, Any]:
    """Return the form of a gate with other texts in some of its fields."""
    fields: dict[str, Any] = {}
    for name, text in read_form(html, address):
        fields.setdefault(name, []).append(text)
    return fields | {name.replace("__", "/"): text for name, text in entered.items()}


async def test_the_inbox_lists_gates_with_a_deadline_first_then_the_newest(
    web: WebServer, browser: httpx2.AsyncClient
) -> None:
    older, _ = await open_gate(web, "review", label="older")
    newer, _ = await open_gate(web, "review", label="newer")
    urgent, address = await open_gate(web, "merge")
    text = (await browser.get("/inbox")).text
    assert re.findall(r'id="gate-row-(.{36})', text) == [urgent.run_id, newer.run_id, older.run_id]
    assert "due" in pane(text)
    assert f'action="{address}"' in text  # the first gate is open beside the list
    assert 'data-count="3"' in text
    found = (await browser.get("/inbox?search=NEWER")).text
    assert re.findall(r'id="gate-row-(.{36})', found) == [newer.run_id]
    assert "No open gate matches" in (await browser.get("/inbox?search=nothing")).text


async def test_an_empty_inbox_says_so(browser: httpx2.AsyncClient) -> None:
    assert "Nothing waits for an answer." in (await browser.get("/inbox")).text


async def test_a_gate_shows_its_question_as_markdown_and_takes_a_choice_with_a_comment(
    web: WebServer, browser: httpx2.AsyncClient
) -> None:
    run, address = await open_gate(web, "merge", input="Merge it?\n\n- **tests** passed", label="PR 42")
    page = await browser.get(address)
    assert "<h2>Merge it?</h2>" in page.text
    assert "<li><strong>tests</strong> passed</li>" in page.text
    assert "PR 42" in pane(page.text)
    reply = await browser.post(address, data=fill(page.text, address, choice="reject", reason="Too risky"))
    assert (reply.status_code, reply.headers["location"]) == (303, address)
    closed = pane((await browser.get(address)).text)
    for part in ("Answered", "reject", "browser:admin", "Too risky"):
        assert part in closed
    assert 'method="post"' not in closed
    assert (await web.api.run(run=run.run_id)).result == "reject"


async def test_a_gate_shows_exactly_what_an_agent_wants_to_run(
    web: WebServer, browser: httpx2.AsyncClient
) -> None:
    _, command = await open_gate(web, "publish", input="rm -rf \u202ebuild && <b>make</b>")
    text = words(pane((await browser.get(command)).text))
    assert "Will run Bash" in text
    assert "rm -rf \\u202ebuild &amp;&amp; &lt;b&gt;make&lt;/b&gt;" in text
    assert "The agent says: It is Friday." in text
    _, edit = await open_gate(web, "publish", input="edit src/app.py")
    shown = pane((await browser.get(edit)).text)
    assert "src/app.py" in shown
    assert '<span class="removed">-a = 1' in shown
    assert '<span class="added">+a = 2' in shown


async def test_an_edited_input_runs_exactly_as_edited_and_is_recorded(
    web: WebServer, browser: httpx2.AsyncClient
) -> None:
    run, address = await open_gate(web, "publish", input="make deploy")
    page = (await browser.get(address)).text
    command = "make deploy \\\r\n  --dry-run"
    # The button that allows the input as it is must not run what the user has replaced.
    reply = await browser.post(address, data=fill(page, address, choice="allow", answer__command=command))
    assert reply.status_code == 422
    assert "You have edited the input" in reply.text
    edited = fill(reply.text, address, edited="yes", reason="Not for real")
    assert edited["answer/command"] == ["make deploy \\\r\n  --dry-run"]
    assert (await browser.post(address, data=edited)).status_code == 303
    ran = {"command": "make deploy \\\n  --dry-run", "description": "Deploy the site"}
    assert f"ran {json.dumps(ran)}\n" in await output_of(web, run)
    (answered,) = (await web.api.events(run=run.run_id, type=["gate_answered"])).events
    assert answered.data["answer"] == {"allow": ran}
    assert (answered.data["by"], answered.data["reason"]) == ("browser:admin", "Not for real")
    assert "--dry-run" in pane((await browser.get(address)).text)


async def test_an_input_that_was_not_changed_is_allowed_as_it_is(
    web: WebServer, browser: httpx2.AsyncClient
) -> None:
    for given in ({"edited": "yes"}, {"choice": "allow"}):
        run, address = await open_gate(web, "publish", input="make deploy")
        page = (await browser.get(address)).text
        assert (await browser.post(address, data=fill(page, address, **given))).status_code == 303
        assert await output_of(web, run) == "make deploy: True\n"


async def test_what_the_workflow_denies_stays_denied_after_an_edit(
    web: WebServer, browser: httpx2.AsyncClient
) -> None:
    run, address = await open_gate(web, "publish", input="make deploy")
    page = (await browser.get(address)).text
    edited = fill(page, address, edited="yes", answer__command="sudo make deploy")
    assert (await browser.post(address, data=edited)).status_code == 303
    assert await output_of(web, run) == "make deploy: False\n"


async def test_an_input_that_the_agent_cannot_replace_has_no_fields(
    web: WebServer, browser: httpx2.AsyncClient
) -> None:
    run, address = await open_gate(web, "publish", input="fixed command")
    assert 'name="edited"' not in (await browser.get(address)).text
    with pytest.raises(ApiError, match="cannot be edited"):
        await web.api.answer(run=run.run_id, answer={"allow": {"command": "ls"}})


async def test_a_form_is_checked_and_its_values_are_kept(web: WebServer, browser: httpx2.AsyncClient) -> None:
    run, address = await open_gate(web, "roll_out")
    page = await browser.get(address)
    wrong = fill(page.text, address, answer__percent="many", answer__notes="Line 1\r\nLine 2")
    reply = await browser.post(address, data=wrong)
    assert reply.status_code == 422
    assert "Must be an integer, got &#39;many&#39;." in reply.text
    assert "This field is required." in reply.text
    assert 'value="many"' in reply.text
    assert "Line 1\nLine 2</textarea>" in reply.text
    assert read_form(reply.text, address)[0] == ("key", wrong["key"][0])
    right = fill(
        reply.text, address, answer__percent="50", answer__approved="true", answer__regions="eu\r\nus"
    )
    assert (await browser.post(address, data=right)).status_code == 303
    answer = {"approved": True, "percent": 50, "channel": "stable", "notes": "Line 1\nLine 2"}
    assert (await web.api.run(run=run.run_id)).result == answer | {"regions": ["eu", "us"]}


async def test_items_of_a_list_are_added_without_scripts(web: WebServer, browser: httpx2.AsyncClient) -> None:
    run, address = await open_gate(web, "roll_out")
    page = await browser.get(address)
    for _ in range(2):
        page = await browser.post(address, data=fill(page.text, address, add="answer/reviewers"))
        assert page.status_code == 200
    filled = {"answer__reviewers__0__name": "Ada", "answer__reviewers__1__name": "Bob"}
    page = await browser.post(address, data=fill(page.text, address, remove="answer/reviewers/0", **filled))
    entered = {"answer__percent": "5", "answer__approved": "false"}
    assert (await browser.post(address, data=fill(page.text, address, **entered))).status_code == 303
    result: Any = (await web.api.run(run=run.run_id)).result
    assert result["reviewers"] == [{"name": "Bob", "is_lead": False}]


async def test_suggested_and_own_answers_are_taken(web: WebServer, browser: httpx2.AsyncClient) -> None:
    for entered, expected in (
        ({"choice": "Aurora"}, "Aurora"),
        ({"text": "Corona\r\nBorealis"}, "Corona\nBorealis"),
    ):
        run, address = await open_gate(web, "name_it")
        page = await browser.get(address)
        assert 'value="Borealis"' in page.text
        empty = await browser.post(address, data=fill(page.text, address))
        assert (empty.status_code, "Choose or write an answer." in empty.text) == (422, True)
        assert (await browser.post(address, data=fill(page.text, address, **entered))).status_code == 303
        assert (await web.api.run(run=run.run_id)).result == expected


async def test_an_answer_that_is_not_offered_is_refused_beside_the_form(
    web: WebServer, browser: httpx2.AsyncClient
) -> None:
    _, address = await open_gate(web, "review")
    page = await browser.get(address)
    reply = await browser.post(address, data=fill(page.text, address, choice="maybe"))
    assert (reply.status_code, "Invalid choice &#39;maybe&#39;" in reply.text) == (422, True)


async def test_a_form_that_is_sent_twice_answers_once(web: WebServer, browser: httpx2.AsyncClient) -> None:
    for workflow, entered in (
        ("review", {"choice": "approve"}),
        ("roll_out", {"answer__percent": "5", "answer__approved": "true"}),
    ):
        _, address = await open_gate(web, workflow)
        sent = fill((await browser.get(address)).text, address, **entered)
        replies = [await browser.post(address, data=sent) for _ in range(2)]
        assert [reply.status_code for reply in replies] == [303, 303]


async def test_a_form_of_an_answered_gate_sends_nothing_and_says_who_answered(
    web: WebServer, browser: httpx2.AsyncClient
) -> None:
    run, address = await open_gate(web, "review")
    old = await browser.get(address)
    await web.api.answer(run=run.run_id, answer="approve", reason="On call")
    reply = await browser.post(address, data=fill(old.text, address, choice="reject", reason="No"))
    assert reply.status_code == 409
    text = words(pane(reply.text))
    for part in ("Your answer was not sent.", "Answered", "approve", "On call", "reject Comment: No"):
        assert part in text
    assert (await web.api.run(run=run.run_id)).result == "decided: approve"


async def test_a_form_that_shows_something_else_than_the_gate_asks_sends_nothing(
    web: WebServer, browser: httpx2.AsyncClient
) -> None:
    run, address = await open_gate(web, "publish", input="make deploy")
    old = fill((await browser.get(address)).text, address, choice="allow", reason="Looks safe", hash="0" * 32)
    old["shown"] = re.sub(r"action=\w+", "action=00000000", old["shown"][0])
    async with web.stream(f"/inbox/stream?run={run.run_id}&gate={address[-8:]}&hash={'0' * 32}") as live:
        await live.until(lambda text: "The question has changed" in text)
    reply = await browser.post(address, data=old)
    text = words(pane(reply.text))
    assert reply.status_code == 409
    assert "The gate asks something else now: what will be run changed." in text
    assert "make deploy" in text
    assert "Looks safe" in text
    assert (await web.api.run(run=run.run_id)).state == "waiting"
    with pytest.raises(ApiError, match="asks something else now"):
        await web.api.answer(run=run.run_id, answer="allow", hash="0" * 32)


async def test_a_form_from_before_a_restart_does_not_answer_the_question_that_is_asked_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with serve_web(tmp_path) as web, web.browser() as browser:
        run, address = await open_gate(web, "publish", input="make deploy")
        old = fill((await browser.get(address)).text, address, choice="allow")
    monkeypatch.setattr(DeployProvider, "suffix", " --force")
    async with serve_web(tmp_path) as web, web.browser() as browser:
        async with web.stream("/inbox/stream") as live:
            await web.api.session.recover()
            await live.until(lambda text: "--force" in text)
        reply = await browser.post(address, data=old)
        assert (reply.status_code, "Your answer was not sent." in reply.text) == (409, True)
        (gate,) = (await web.api.run(run=run.run_id)).gates
        assert gate.action is not None
        assert gate.action["input"]["command"] == "make deploy --force"


async def test_an_answer_without_the_hash_of_a_gate_is_not_sent(
    web: WebServer, browser: httpx2.AsyncClient
) -> None:
    run, address = await open_gate(web, "review")
    reply = await browser.post(address, data={"choice": "approve"})
    assert reply.status_code == 409
    assert (await web.api.run(run=run.run_id)).state == "waiting"


async def test_selected_gates_get_one_answer_and_each_has_a_result(
    web: WebServer, browser: httpx2.AsyncClient
) -> None:
    first, _ = await open_gate(web, "review", label="first")
    gone, _ = await open_gate(web, "review", label="gone")
    other, _ = await open_gate(web, "name_it")
    form, _ = await open_gate(web, "roll_out")
    page = (await browser.get("/inbox")).text
    picked = re.findall(r'name="gate" value="([^"]+)"', page)
    assert len(picked) == 4
    await web.api.answer(run=gone.run_id, answer="reject")
    data = {"gate": picked, "choice": "approve", "reason": "All good", "key": "k"}
    notice = await browser.post("/inbox/answers", data=data, headers={"hx-request": "true"})
    text = words(notice.text)
    assert "2 gates answered with “approve”, 2 not." in text
    assert "already answered" in text
    assert (await web.api.run(run=first.run_id)).result == "decided: approve"
    assert (await web.api.run(run=other.run_id)).result == "approve"  # its options are suggestions
    assert (await web.api.run(run=form.run_id)).state == "waiting"
    again = await browser.post("/inbox/answers", data=data)
    assert "2 gates answered with “approve”, 2 not." in words(again.text)
    assert (await browser.post("/inbox/answers", data={"choice": "approve"})).status_code == 400


async def test_a_stream_sends_new_gates_and_the_end_of_the_shown_one(web: WebServer) -> None:
    run, _ = await open_gate(web, "review", label="shown")
    gate = run.gates[0]
    query = f"run={run.run_id}&gate={gate.gate_id}&hash={gate.hash}"
    async with web.stream(f"/inbox/stream?{query}") as live:
        await live.until(lambda text: "gate-rows" in text)
        assert "gate-pane" not in live.text
        await open_gate(web, "review", label="later")
        await live.until(lambda text: "later" in text)
        assert "gate-pane" not in live.text
        await web.api.answer(run=run.run_id, answer="approve", reason="From another page")
        text = await live.until(lambda text: "gate-pane" in text)
        assert "From another page" in text
        assert "Next:" in text
        assert 'data-count="1"' in text


async def test_a_stopped_run_closes_its_gates(web: WebServer, browser: httpx2.AsyncClient) -> None:
    run, address = await open_gate(web, "review")
    page = await browser.get(address)
    async with web.stream("/inbox/stream") as live:
        await live.until(lambda text: run.run_id in text)
        await web.api.stop(run=run.run_id)
        await live.until(lambda text: "Nothing waits for an answer." in text)
    reply = await browser.post(address, data=fill(page.text, address, choice="approve"))
    assert reply.status_code == 409
    assert "Not open any more" in reply.text


async def test_other_pages_get_only_the_card_of_a_gate(web: WebServer, browser: httpx2.AsyncClient) -> None:
    _, address = await open_gate(web, "review")
    headers = {"hx-request": "true"}
    card = await browser.get(address, headers=headers)
    assert "<html" not in card.text
    assert f'hx-post="{address}"' in card.text
    reply = await browser.post(address, data=fill(card.text, address, choice="approve"), headers=headers)
    assert (reply.status_code, "Answered" in reply.text, "<html" in reply.text) == (200, True, False)


async def test_unknown_gates_and_runs_are_not_found(web: WebServer, browser: httpx2.AsyncClient) -> None:
    run, _ = await open_gate(web, "review")
    for path in (f"/inbox/{run.run_id}/ffffffff", "/inbox/nothing/ffffffff"):
        assert (await browser.get(path)).status_code == 404
        assert (await browser.post(path, data={"choice": "x"})).status_code == 404


async def test_a_caller_who_may_not_answer_sees_no_form(web: WebServer) -> None:
    _, address = await open_gate(web, "review")
    for scope in ("read", "run"):
        async with web.browser(scope) as reader:
            for path in ("/inbox", address):
                text = pane((await reader.get(path)).text)
                assert "may not answer" in text
                assert 'method="post"' not in text
            assert 'type="checkbox"' not in (await reader.get("/inbox")).text
            for path in (address, "/inbox/answers"):
                assert (await reader.post(path, data={"choice": "approve"})).status_code == 403
    async with web.browser("answer") as approver:
        page = await approver.get(address)
        assert (
            await approver.post(address, data=fill(page.text, address, choice="approve"))
        ).status_code == 303


async def test_texts_of_users_agents_and_files_are_escaped(
    web: WebServer, browser: httpx2.AsyncClient
) -> None:
    api = web.api
    _, asked = await open_gate(
        web, "merge", input=f"{ATTACK}\n\n{ATTACK} [x](javascript:alert(1))", label=ATTACK[:50]
    )
    _, allowed = await open_gate(web, "publish", input=f"{ATTACK}")
    _, edited = await open_gate(web, "publish", input=f"edit {ATTACK}")
    _, chosen = await open_gate(web, "choose", input=[ATTACK, "b"])
    pages = [(await browser.get(path)).text for path in ("/inbox", asked, allowed, edited, chosen)]
    pages.append((await browser.get("/inbox", params={"search": ATTACK})).text)
    sent = fill(pages[1], asked, choice=ATTACK, reason=ATTACK, text=ATTACK)
    pages.append((await browser.post(asked, data=sent)).text)
    picked = re.findall(r'name="gate" value="([^"]+)"', pages[0])
    pages.append(
        (await browser.post("/inbox/answers", data={"gate": [*picked, ATTACK], "choice": ATTACK})).text
    )
    await api.answer(run=asked.split("/")[2], answer="approve", reason=ATTACK)
    pages.append((await browser.get(asked)).text)
    for text in pages:
        assert "<script>alert" not in text
        assert "<img src=x" not in text
        assert 'href="javascript:' not in text
        assert not re.search(r"<[^>]+\sonerror=", re.sub(r'"[^"]*"', "", text))


async def test_links_of_the_inbox_have_the_prefix_of_the_proxy(tmp_path: Path) -> None:
    async with serve_web(tmp_path, prefix="/nerve") as web, web.browser() as browser:
        _, address = await open_gate(web, "review")
        page = await browser.get(address)
        addresses = re.findall(r'(?:href|src|action|connect|hx-post)="(/[^"]*)"', page.text)
        assert all(found.startswith("/nerve/") for found in addresses)
        sent = fill(page.text, f"/nerve{address}", choice="approve")
        assert (await browser.post(address, data=sent)).headers["location"] == f"/nerve{address}"
