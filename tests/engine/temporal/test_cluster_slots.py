"""Agents of several workers share the slots and rate limits of their providers."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import ExitStack, closing
from typing import Any

from nerve import Session
from nerve.agents import AgentNode, AssistantText, TurnFinished
from nerve.agents.provider_slots import ProviderSlots
from nerve.core.nodes.attempt import execute_safely
from nerve.core.nodes.context import ExecutionContext
from nerve.engine.temporal.cluster_slots import ClusterSlots
from nerve.store.postgres_slots import PostgresSlots


class Turns:
    """A provider that counts its concurrent turns, and refuses the first ones if it is limited."""

    name = "agent"
    running = most = count = 0
    limited_until = 0.0

    async def query(self, prompt: str, cwd: Any, resume: Any, options: Any) -> AsyncIterator[Any]:
        self.count += 1
        if self.limited_until:
            until, self.limited_until = self.limited_until, 0.0
            yield TurnFinished("t", outcome="limited", resets_at=until)
            return
        self.running += 1
        self.most = max(self.most, self.running)
        await asyncio.sleep(0.05)
        self.running -= 1
        yield AssistantText("done")
        yield TurnFinished("t")


def open_worker(stack: ExitStack, url: str, turns: Turns, number: int = 2) -> Session:
    session = Session(slots={"agent": number})
    AgentNode("dev", session, turns, thread="fresh")
    session.provider_slots.shared = ClusterSlots(stack.enter_context(closing(PostgresSlots(url, "team"))))
    return session


async def ask(session: Session) -> Any:
    result = await execute_safely(session.nodes["dev"], ExecutionContext(session, "Go"))
    return result.output


async def test_all_workers_together_run_as_many_turns_as_there_are_slots(postgresql_url: str) -> None:
    turns = Turns()
    with ExitStack() as stack:
        workers = [open_worker(stack, postgresql_url, turns) for _ in range(3)]
        answers = await asyncio.gather(*(ask(session) for session in workers * 3))
    assert answers == ["done"] * 9
    assert turns.most == 2


async def test_a_rate_limit_that_one_worker_has_met_holds_back_the_others(postgresql_url: str) -> None:
    turns = Turns()
    turns.limited_until = until = time.time() + 1.5
    with ExitStack() as stack:
        first, second = (open_worker(stack, postgresql_url, turns) for _ in range(2))
        asking = asyncio.ensure_future(ask(first))
        while not second.provider_slots.rate_limits.limited:
            async with second.provider_slots.acquire("agent", None):
                await asyncio.sleep(0)
        assert await ask(second) == "done"
        assert time.time() >= until
        assert await asking == "done"
    assert turns.count == 3


async def test_a_cancelled_wait_for_a_slot_leaves_none_taken(postgresql_url: str) -> None:
    with ExitStack() as stack:
        store = stack.enter_context(closing(PostgresSlots(postgresql_url, "team")))
        slots = ProviderSlots({"agent": 1})
        slots.shared = ClusterSlots(store)
        async with slots.acquire("agent", None):
            waiting = asyncio.ensure_future(ClusterSlots(store).acquire("agent", 1))
            await asyncio.sleep(0)
            waiting.cancel()
            await asyncio.wait([waiting])
        assert await asyncio.to_thread(store.take, "agent", "mine", 1, 60)


async def test_a_process_that_slept_learns_that_another_one_has_its_slot(postgresql_url: str) -> None:
    with ExitStack() as stack:
        first, second = (
            stack.enter_context(closing(PostgresSlots(postgresql_url, "team"))) for _ in range(2)
        )
        sleeping, other = ClusterSlots(first, lease=0.3), ClusterSlots(second, lease=0.3)
        slot = await sleeping.acquire("export", 1)
        await asyncio.to_thread(second.release, slot)
        taken = await other.acquire("export", 1)
        async with asyncio.timeout(10):
            while sleeping.is_held(slot):  # noqa: ASYNC110
                await asyncio.sleep(0.02)
        assert other.is_held(taken)
        await other.release(taken)
        assert not other.is_held(taken)
