"""One run, by everything that a project is used with, while its server dies twice."""

import asyncio
import json
from typing import Any

import httpx2
import pytest

from e2e.world import World
from nerve_processes import done
from server.sse import Message, stream


def nerve(world: World, *arguments: str) -> Any:
    """What a command of the command line says, as JSON."""
    ended = done(*arguments, "--json", cwd=world.folder)
    assert ended.returncode == 0, ended.stderr
    return json.loads(ended.stdout)


class Watching:
    """Follows a run over every death of its server, and comes back with the last number it has seen."""

    def __init__(self, world: World, run: str) -> None:
        self.world, self.run = world, run
        self.seen: list[Message] = []
        self.task = asyncio.create_task(self._watch())

    async def _watch(self) -> None:
        while not self.seen or self.seen[-1].kind != "workflow_completed":
            try:
                async with self.world.client("read") as client:
                    last = self.seen[-1].id if self.seen else None
                    async for each in stream(client.http, f"/events/workflow/{self.run}", last):
                        self.seen.append(each)
            except (httpx2.TransportError, AssertionError):
                await asyncio.sleep(0.05)

    async def until(self, kind: str) -> None:
        async with asyncio.timeout(20):
            while kind not in [each.kind for each in self.seen]:  # noqa: ASYNC110 - a list tells nobody
                await asyncio.sleep(0.01)


@pytest.mark.requirement("S4-14")
async def test_a_run_ends_once_with_one_answer_though_its_server_is_killed_twice(world: World) -> None:
    """Started by the command line, watched as events, answered over HTTP."""
    started = await asyncio.to_thread(nerve, world, "start", "work")
    world.acked.starts.append(started["run_id"])
    watching = Watching(world, started["run_id"])
    await watching.until("gate_waiting")
    world.kill()
    world.start()
    async with world.client() as client:
        run = await client.run(started)
        first = await client.answer(run, "yes", key="mine")
        assert first.status_code == 200
        world.kill()
    world.start()
    async with world.client() as client:
        again = await client.answer(run, "yes", key="mine")
        assert (again.status_code, again.json()) == (200, first.json())
        other = await client.answer(run, "no")
        assert (other.status_code, other.json()["details"]["winner"]["answer"]) == (409, "yes")
        await asyncio.wait_for(watching.task, 20)
        told = await client.run(run)
    kinds = [each.kind for each in watching.seen]
    assert [int(each.id or 0) for each in watching.seen] == list(range(1, len(kinds) + 1))
    assert [kinds.count(kind) for kind in ("gate_waiting", "gate_answered", "workflow_completed")] == [
        1,
        1,
        1,
    ]
    assert watching.seen[-1].data["result"] == told["result"] == ["yes", 0, 1, 2, 3]
    shown = await asyncio.to_thread(nerve, world, "status", started["run_id"])
    assert shown["state"] == "completed"
