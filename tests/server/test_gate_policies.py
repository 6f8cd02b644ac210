"""Fifty people answer one gate over HTTP, and the page shows who has answered."""

import asyncio
import hashlib
from typing import Any

import httpx2

from server.conftest import Served

PEOPLE = 50


def token_of(name: str) -> str:
    return f"nvp_{name}".ljust(47, "x")


async def add_people(served: Served, names: list[str], **fields: Any) -> None:
    for name in names:
        hash = hashlib.sha256(token_of(name).encode()).hexdigest()
        await served.api.add_person(person=name, token_hash=hash, **fields)


def as_person(served: Served, name: str) -> httpx2.AsyncClient:
    client = served.client(None)
    client.headers["authorization"] = f"Bearer {token_of(name)}"
    return client


async def open_gate(served: Served, **policy: Any) -> tuple[str, dict[str, Any]]:
    @served.api.session.workflow
    async def ship(ctx: Any) -> str:
        return str(await ctx.gate("Ship?", choices=["approve", "reject"], **policy))

    run = (await served.api.start(workflow="ship", wait=True)).run_id
    async with served.client() as admin:
        [gate] = (await admin.get("/api/gates")).json()["gates"]
    return run, gate


async def test_fifty_people_race_on_one_gate_over_http(served: Served) -> None:
    names = [f"p{number}" for number in range(PEOPLE)]
    await add_people(served, names, roles=["crowd"])
    run, gate = await open_gate(served, approvers=["crowd"], quorum=20)

    async def answer(number: int, name: str) -> int:
        choice = "approve" if number % 2 else "reject"
        async with as_person(served, name) as client:
            body = {"run": run, "gate": gate["gate_id"], "answer": choice, "hash": gate["hash"]}
            return (await client.post("/api/answers", json=body)).status_code

    statuses = await asyncio.gather(*(answer(number, name) for number, name in enumerate(names)))
    outcome = await served.api.session.get_workflow_run(run).wait()
    events = (await served.api.events(run=run)).events
    [answered] = [event for event in events if event.event_type == "gate_answered"]
    voted = [event.data["person"] for event in events if event.event_type == "gate_voted"]
    assert set(statuses) == {200, 409}
    assert statuses.count(200) == len(voted) + 1
    assert len(set(voted)) == len(voted)
    assert (answered.data["answer"], len(answered.data["votes"])) == (outcome, 20)


async def test_the_page_shows_who_has_answered_and_takes_a_vote(served: Served) -> None:
    await add_people(served, ["ann", "ben"], roles=["lead"])
    run, gate = await open_gate(served, approvers=["lead"], quorum=2)
    headers = {"origin": served.url, "content-type": "application/x-www-form-urlencoded"}
    for name in ("ann", "ben"):
        async with served.client(None) as browser:
            await browser.post("/sign-in", content=f"token={token_of(name)}", headers=headers)
            address = f"/inbox/{run}/{gate['gate_id']}"
            page = (await browser.get(address)).text
            assert "Only people with a token of their own can answer: lead." in page
            shown = (
                "needs 2 people of lead" if name == "ann" else "<li>ann (page from 127.0.0.1): approve</li>"
            )
            assert shown in page
            form = f"choice=approve&hash={gate['hash']}&key={name}"
            sent = await browser.post(address, content=form, headers={**headers, "hx-request": "true"})
            assert sent.status_code == 200
    assert await served.api.session.get_workflow_run(run).wait() == "approve"
    [answered] = [e for e in (await served.api.events(run=run)).events if e.event_type == "gate_answered"]
    assert [(vote["by"], vote["via"]) for vote in answered.data["votes"]] == [
        ("person:ann", "page"),
        ("person:ben", "page"),
    ]


async def test_the_inbox_lists_what_waits_for_the_person_who_has_signed_in(served: Served) -> None:
    await add_people(served, ["ann", "ben"])

    @served.api.session.workflow
    async def ask_one(ctx: Any) -> str:
        return str(await ctx.gate("Ship?", choices=["approve", "reject"], approvers=[ctx.input]))

    runs = {}
    for name in ("ann", "ben"):
        runs[name] = (await served.api.start(workflow="ask_one", input=name, wait=True)).run_id
    headers = {"origin": served.url, "content-type": "application/x-www-form-urlencoded"}
    async with served.client(None) as browser:
        await browser.post("/sign-in", content=f"token={token_of('ann')}", headers=headers)
        everything = (await browser.get("/inbox")).text
        assert all(f'id="gate-row-{run}' in everything for run in runs.values())
        assert ">Waiting for me</a>" in everything
        own = (await browser.get("/inbox?mine=1")).text
        assert f'id="gate-row-{runs["ann"]}' in own
        assert f'id="gate-row-{runs["ben"]}' not in own
        assert ">All gates</a>" in own
