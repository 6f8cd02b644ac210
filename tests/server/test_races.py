"""Many at once over HTTP: one run for a key, one answer for a gate, and everybody told the same."""

import asyncio
from collections import Counter
from typing import Any

import httpx2
import pytest

from server.conftest import Served


def many(served: Served, number: int = 50) -> httpx2.AsyncClient:
    return served.client(limits=httpx2.Limits(max_connections=number))


async def started(client: httpx2.AsyncClient, **given: Any) -> dict[str, Any]:
    found: dict[str, Any] = (
        await client.post("/api/runs", json={"workflow": "ask", "wait": True, **given})
    ).json()
    return found


async def test_a_hundred_starts_with_one_key_are_one_run(served: Served) -> None:
    async with many(served) as client:
        key = {"Idempotency-Key": "same"}
        asked = [client.post("/api/runs", json={"workflow": "hello"}, headers=key) for _ in range(100)]
        replies = await asyncio.gather(*asked)
        assert {reply.status_code for reply in replies} == {200}
        assert len({reply.json()["run_id"] for reply in replies}) == 1
        assert len((await client.get("/api/runs")).json()["runs"]) == 1


async def test_of_fifty_answers_one_wins_and_the_others_hear_which(served: Served) -> None:
    async with many(served) as client:
        run = await started(client)
        gate = run["gates"][0]["gate_id"]
        given = [{"run": run["run_id"], "gate": gate, "answer": ("yes", "no")[n % 2]} for n in range(50)]
        replies = await asyncio.gather(*(client.post("/api/answers", json=each) for each in given))
        assert Counter(reply.status_code for reply in replies) == {200: 1, 409: 49}
        won = next(reply.json()["answer"] for reply in replies if reply.status_code == 200)
        told = {reply.json()["details"]["winner"]["answer"] for reply in replies if reply.status_code == 409}
        assert told == {won}
        events = (await client.get(f"/api/runs/{run['run_id']}/events")).json()["events"]
        answers = [each["data"]["answer"] for each in events if each["event_type"] == "gate_answered"]
        assert answers == [won]


@pytest.mark.parametrize("number", [100, pytest.param(1000, marks=pytest.mark.full)])
async def test_many_gates_are_answered_at_once(served: Served, number: int) -> None:
    async with many(served, 100) as client:
        runs = await asyncio.gather(*(started(client) for _ in range(number)))
        given = [{"gate": run["gates"][0]["gate_id"], "run": run["run_id"], "answer": "yes"} for run in runs]
        replies = await asyncio.gather(*(client.post("/api/answers", json=each) for each in given))
        assert {reply.status_code for reply in replies} == {200}
        ended = [served.api.session.get_workflow_run(run["run_id"]) for run in runs]
        async with asyncio.timeout(30):
            assert {await run.wait() for run in ended} == {"you said yes"}
