"""People sign in with tokens of their own, with the page or without; a new token ends the old one at once."""

import hashlib
import json
from typing import Any

import httpx2
import pytest
from websockets.asyncio.client import connect

from server.conftest import Served

TOKEN = "nvp_" + "a" * 43
NEW_TOKEN = "nvp_" + "b" * 43


def token_hash(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()


async def add_ann(served: Served, **fields: Any) -> None:
    async with served.client() as admin:
        ann = {"person": "ann", "token_hash": token_hash(TOKEN), **fields}
        assert (await admin.post("/api/people", json=ann)).status_code == 200


def as_person(served: Served, token: str = TOKEN) -> httpx2.AsyncClient:
    client = served.client(None)
    client.headers["authorization"] = f"Bearer {token}"
    return client


async def test_a_person_answers_in_their_own_name(served: Served) -> None:
    await add_ann(served)
    run = (await served.api.start(workflow="ask", wait=True)).run_id
    async with as_person(served) as ann:
        told = (await ann.post("/api/answers", json={"run": run, "answer": "yes"})).json()
    assert (told["by"], told["via"], told["scope"]) == ("person:ann", "http", "answer")
    assert told["address"] == "127.0.0.1"
    [event] = [e for e in (await served.api.events(run=run)).events if e.event_type == "gate_answered"]
    assert (event.data["by"], event.data["address"]) == ("person:ann", "127.0.0.1")


async def test_a_person_may_do_what_their_scope_permits(served: Served) -> None:
    await add_ann(served, scope="member")
    async with as_person(served) as ann:
        assert (await ann.post("/api/runs", json={"workflow": "hello"})).status_code == 200
        for method, path in (("GET", "/api/people"), ("POST", "/api/people"), ("POST", "/api/launch-codes")):
            reply = await ann.request(method, path, **({"json": {}} if method == "POST" else {}))
            assert reply.status_code == 403
    async with served.client() as admin:
        reader = await admin.post("/api/people/ann", json={"scope": "read"})
        assert reader.json()["scope"] == "read"
    async with as_person(served) as ann:
        assert (await ann.post("/api/runs", json={"workflow": "hello"})).status_code == 403
        assert (await ann.get("/api/runs")).status_code == 200


@pytest.mark.parametrize(
    "change",
    [
        ("/api/people/ann", {"token_hash": token_hash(NEW_TOKEN)}),
        ("/api/people/ann", {"disabled": True}),
        ("/api/people/ann/remove", {}),
    ],
)
async def test_a_change_ends_the_token_and_the_cookie_at_once(
    served: Served, change: tuple[str, dict[str, Any]]
) -> None:
    await add_ann(served)
    async with as_person(served) as ann, served.client(None) as browser, served.client() as admin:
        await sign_in(served, browser)
        assert (await ann.get("/api/runs")).status_code == 200
        assert (await browser.get("/api/runs")).status_code == 200
        path, fields = change
        assert (await admin.post(path, json=fields)).status_code == 200
        assert (await ann.get("/api/runs")).status_code == 401
        assert (await browser.get("/api/runs")).status_code == 401


async def test_the_new_token_works(served: Served) -> None:
    await add_ann(served)
    async with served.client() as admin, as_person(served, NEW_TOKEN) as ann:
        assert (await ann.get("/api/runs")).status_code == 401
        await admin.post("/api/people/ann", json={"token_hash": token_hash(NEW_TOKEN)})
        assert (await ann.get("/api/runs")).status_code == 200


async def sign_in(served: Served, browser: httpx2.AsyncClient, token: str = TOKEN) -> httpx2.Response:
    headers = {"origin": served.url, "content-type": "application/x-www-form-urlencoded"}
    return await browser.post("/sign-in", content=f"token={token}", headers=headers)


async def test_a_browser_signs_in_and_out_with_a_form(served: Served) -> None:
    await add_ann(served)
    async with served.client(None) as browser:
        assert 'action="/sign-in"' in (await browser.get("/")).text
        reply = await sign_in(served, browser)
        assert (reply.status_code, reply.headers["location"]) == (303, "/inbox")
        cookie = reply.headers["set-cookie"]
        assert "HttpOnly; SameSite=Strict" in cookie
        assert TOKEN not in cookie
        page = (await browser.get("/inbox", headers={"accept": "text/html"})).text
        assert ">ann</button>" in page
        run = (await served.api.start(workflow="ask", wait=True)).run_id
        answer = {"run": run, "answer": "yes"}
        told = (await browser.post("/api/answers", json=answer, headers={"x-nerve": "1"})).json()
        assert (told["by"], told["via"]) == ("person:ann", "page")
        assert (await browser.post("/sign-out", headers={"origin": served.url})).status_code == 303
        assert (await browser.get("/api/runs")).status_code == 401


async def test_a_wrong_token_is_refused_by_the_form(served: Served) -> None:
    async with served.client(None) as browser:
        reply = await sign_in(served, browser, NEW_TOKEN)
        assert reply.status_code == 401
        assert "This token is not valid." in reply.text
        assert "set-cookie" not in reply.headers
        for headers in ({"origin": "https://evil.example"}, {}):
            headers["content-type"] = "application/x-www-form-urlencoded"
            assert (await browser.post("/sign-in", content="token=x", headers=headers)).status_code == 403


async def test_a_cookie_of_another_person_or_generation_is_refused(served: Served) -> None:
    await add_ann(served)
    async with served.client() as admin, served.client(None) as browser:
        await admin.post("/api/people", json={"person": "ben", "scope": "admin"})
        await sign_in(served, browser)
        [(name, value)] = browser.cookies.items()
        browser.cookies.clear()
        for forged in (
            value.replace("person:ann", "person:ben"),
            value.replace("person:ann", "admin"),
            value[:-1],
        ):
            assert (await browser.get("/api/runs", headers={"cookie": f"{name}={forged}"})).status_code == 401
        assert (await browser.get("/api/runs", headers={"cookie": f"{name}={value}"})).status_code == 200


async def test_a_websocket_accepts_the_token_in_its_first_message(served: Served) -> None:
    await add_ann(served)
    run = (await served.api.start(workflow="ask", wait=True)).run_id
    async with connect(f"ws://127.0.0.1:{served.port}/ws", proxy=None) as socket:
        await socket.send(json.dumps({"token": TOKEN}))
        assert json.loads(await socket.recv())["result"] == {"done": True}
        await socket.send(json.dumps({"id": 1, "op": "answer", "args": {"run": run, "answer": "yes"}}))
        told = json.loads(await socket.recv())["result"]
        assert (told["by"], told["via"], told["address"]) == ("person:ann", "ws", "127.0.0.1")


async def test_the_token_is_stored_nowhere(served: Served) -> None:
    await add_ann(served)
    async with as_person(served) as ann, served.client(None) as browser:
        await ann.get("/api/runs")
        await sign_in(served, browser)
    folder = served.api.session.project
    for file in folder.rglob("*"):
        if file.is_file():
            assert TOKEN.encode() not in file.read_bytes(), file


async def test_an_unknown_person_is_refused_with_the_nearest_name(served: Served) -> None:
    await add_ann(served)
    async with served.client() as admin:
        error = (await admin.post("/api/people/anm", json={"disabled": True})).json()
        assert (error["message"], error["fix"]) == ("Person 'anm' not found", "Did you mean 'ann'?")
        again = await admin.post("/api/people", json={"person": "ann"})
        assert again.status_code == 409
