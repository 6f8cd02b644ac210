"""What the clients of the fault tests do: kinds of orders, each with what must come of it."""

from __future__ import annotations

import asyncio
import random
import threading
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from faults.clients import PATIENCE_S, POLL_S, Clients, Unexpected
from faults.flows import ROUNDS, result_of

END_S = 20.0
"""Seconds in which the processes of a stopped run end; a paused worker ends them when it continues."""
Order = Callable[[Clients, int], Awaitable[None]]


async def place_order(clients: Clients, number: int) -> None:
    """Of two answers to the gate, one is taken; the result is as without faults."""
    run = await clients.start("order", number)
    await clients.look(run, lambda shown: shown["gates"])
    answers = await asyncio.gather(*(clients.answer(run, f"client {client}") for client in range(2)))
    accepted = [answer for answer in answers if answer is not None]
    if len(accepted) != 1:
        raise Unexpected(f"of two answers, {accepted} were accepted")
    await clients.look_for_end(run, "completed", result_of(accepted[0]["answer"]))


async def place_payment(clients: Clients, number: int) -> None:
    """A step that must not be repeated is executed, or its outcome is declared."""
    run = await clients.start("payment", number)
    await clients.look_for_end(run, "completed", [5, 5, 1])


async def place_letter(clients: Clients, number: int) -> None:
    run = await clients.start("letter", number)
    await clients.look_for_end(run, "completed", ["written", 1])


async def place_and_stop(clients: Clients, number: int) -> None:
    """A run is stopped while it executes a command, whose processes end."""
    run = await clients.start("endless_order", number)
    while not has_begun(clients.executed, run):
        if time.monotonic() > clients.deadline:
            raise TimeoutError(f"the command of run {run} has not begun")
        await clients.look(run, lambda shown: True)
        await asyncio.sleep(POLL_S)
    await clients.send("POST", f"/api/runs/{run}/stop", {"reason": "enough"}, key=f"stop-{number}")
    await clients.look_for_end(run, "cancelled")
    deadline = time.monotonic() + END_S
    while left := find_processes(run):
        if time.monotonic() > deadline:
            raise Unexpected(f"run {run} was stopped, and {left} are still alive")
        await asyncio.sleep(POLL_S)


def has_begun(executed: Path, run: str) -> bool:
    """Return whether the endless command of a run has begun."""
    begun = executed.with_name(f"{executed.name}-endless")
    return begun.exists() and run in begun.read_text()


def find_processes(run: str) -> list[str]:
    """Return the command lines of the processes that the steps of a run have started."""
    found = []
    for each in Path("/proc").iterdir():
        if each.name.isdecimal():
            try:
                if f"NERVE_RUN_ID={run}".encode() in (each / "environ").read_bytes():
                    found.append((each / "cmdline").read_bytes().replace(b"\0", b" ").decode())
            except OSError:
                continue
    return found


async def place_basket(clients: Clients, number: int) -> None:
    """Updates and messages are handled once, whatever is sent again."""
    run = await clients.start("basket", number)
    for count in range(1, 4):
        body = {"update": "add", "value": count}
        await clients.send("POST", f"/api/runs/{run}/updates", body, key=f"add-{number}-{count}")
    await clients.send(
        "POST", f"/api/runs/{run}/messages", {"channel": "end", "value": "end"}, key=f"end-{number}"
    )
    await clients.look_for_end(run, "completed", ["end", 6])


async def place_and_pause(clients: Clients, number: int) -> None:
    """A run is paused while its child runs wait for answers, and continued."""
    run = await clients.start("family", number)
    await clients.look(run, lambda shown: len(shown["gates"]) == 2)
    await clients.send("POST", f"/api/runs/{run}/pause", {}, key=f"pause-{number}")
    paused = await clients.look(run, lambda shown: shown["state"] == "paused")
    if paused["state"] != "paused":
        raise Unexpected(f"run {run} was paused and is {paused['state']}")
    await clients.send("POST", f"/api/runs/{run}/resume", {}, key=f"resume-{number}")
    shown = await clients.look(run, lambda shown: shown["state"] != "paused" and len(shown["gates"]) == 2)
    gates = sorted(shown["gates"], key=lambda gate: str(gate["prompt"]))
    for gate, answer in zip(gates, "ab", strict=True):
        if await clients.answer(run, answer, gate["gate_id"]) is None:
            raise Unexpected(f"the only answer to {gate['gate_id']} was refused")
    await clients.look_for_end(run, "completed", ["a", "b"])


ORDERS: dict[str, Order] = {
    "order": place_order,
    "payment": place_payment,
    "letter": place_letter,
    "stop": place_and_stop,
    "basket": place_basket,
    "pause": place_and_pause,
}


@dataclass
class OpenRuns:
    """Runs that are open together for some seconds: they get answers only after all have been started."""

    count: int
    seconds: float
    seed: int

    def __post_init__(self) -> None:
        self.started: list[float] = []
        self.ended: list[float] = []
        self.are_open = threading.Event()

    async def place(self, clients: Clients, number: int) -> None:
        rng = random.Random(f"{self.seed} {number}")
        run = await clients.start("rounds", number)
        self.started.append(time.monotonic())
        if len(self.started) == self.count:
            self.are_open.set()
        while not self.are_open.is_set():  # noqa: ASYNC110 - it is set for another thread, too
            await asyncio.sleep(POLL_S)
        times = [rng.uniform(0, self.seconds) for _ in range(ROUNDS - 1)]
        for at in [*sorted(times), self.seconds]:
            await asyncio.sleep(max(0.0, max(self.started) + at - time.monotonic()))
            shown = await clients.look(run, lambda shown: shown["gates"])
            await clients.answer(run, "yes", shown["gates"][0]["gate_id"])
        self.ended.append(time.monotonic())
        await clients.look_for_end(run, "completed", ["yes"] * ROUNDS)


async def place_orders(
    clients: Clients, orders: Sequence[Order], seconds: float, seed: int, patience: float = PATIENCE_S
) -> None:
    """Place all orders at random times within some seconds, and note what has not come of them."""
    rng = random.Random(seed)
    begins = [rng.uniform(0, seconds) for _ in orders]
    clients.deadline = time.monotonic() + seconds + patience

    async def place(number: int, order: Order, at: float) -> None:
        await asyncio.sleep(at)
        try:
            await order(clients, number)
        except (Unexpected, TimeoutError) as error:
            clients.problems.append(f"order {number}: {error}")

    async with clients:
        await asyncio.gather(*map(place, range(len(orders)), orders, begins))


def choose_orders(count: int) -> list[Order]:
    """Return some orders of all kinds."""
    kinds: list[Any] = list(ORDERS.values())
    return [kinds[number % len(kinds)] for number in range(count)]
