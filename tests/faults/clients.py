"""Clients of servers that come and go: a request is sent again, to any of them, until one takes it."""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2

from e2e.world import Acked

REQUEST_TIMEOUT_S = 5.0
PATIENCE_S = 240.0
"""Seconds in which every order must be completed after the last fault."""
POLL_S = 0.1
CONNECTIONS = 400


class Unexpected(Exception):
    """A server replied what it must not reply."""


@dataclass
class Address:
    """Where a server answers, if it runs, and the file of its token."""

    port: int
    token: Path


@dataclass
class Clients:
    """Sends requests and keeps what was acknowledged."""

    addresses: Sequence[Address]
    executed: Path
    """The file to which steps write when they begin."""
    poll_s: float = POLL_S
    request_timeout_s: float = REQUEST_TIMEOUT_S
    acked: Acked = field(default_factory=Acked)
    problems: list[str] = field(default_factory=list)
    deadline: float = float("inf")

    async def __aenter__(self) -> Clients:
        limits = httpx2.Limits(max_connections=CONNECTIONS)
        client = httpx2.AsyncClient(timeout=self.request_timeout_s, limits=limits)
        self._http = await client.__aenter__()
        return self

    async def __aexit__(self, *about: Any) -> None:
        await self._http.__aexit__(*about)

    async def start(self, workflow: str, number: int) -> str:
        """Start the run of an order, and return its id."""
        body = {"workflow": workflow, "input": number}
        run: str = (await self.send("POST", "/api/runs", body, key=f"start-{number}"))["run_id"]
        self.acked.starts.append(run)
        return run

    async def look(self, run: str, is_met: Callable[[dict[str, Any]], object]) -> dict[str, Any]:
        """Return a run as soon as it is as expected, or has ended.

        A run that the loss of its store has stopped is resumed, and a step in doubt is declared completed.
        """
        while True:
            shown: dict[str, Any] = await self.send("GET", f"/api/runs/{run}?steps=false")
            self.acked.seen.append((run, shown["last_seq"]))
            if shown["ended_at"] is not None or is_met(shown):
                return shown
            if shown["held"] is not None:
                await self._settle(run, shown["held"])
            await asyncio.sleep(self.poll_s)

    async def _settle(self, run: str, held: dict[str, Any]) -> None:
        if held["reason"] == "in doubt":
            await self.send("POST", f"/api/runs/{run}/skip", {"path": held["path"], "output": 5})
        else:
            await self.send("POST", f"/api/runs/{run}/resume", {})

    async def look_for_end(self, run: str, state: str, expected: object = None) -> None:
        """Wait for the end of a run, which must have a state and a result."""
        shown = await self.look(run, lambda shown: False)
        if (shown["state"], shown["result"]) != (state, expected):
            raise Unexpected(f"run {run} is {shown['state']} {shown['result']}, not {state} {expected}")

    async def answer(self, run: str, answer: str, gate: str | None = None) -> dict[str, Any] | None:
        """Return the `gate_id` and the `answer` if this answer was taken."""
        body = {"run": run, "answer": answer, "gate": gate}
        reply = await self.send("POST", "/api/answers", body, key=f"answer-{run}-{gate}-{answer}")
        if "gate_id" not in reply:
            return None
        self.acked.answers.append(reply)
        accepted: dict[str, Any] = reply
        return accepted

    async def send(self, method: str, path: str, body: object = None, key: str | None = None) -> Any:
        """Return the reply of the first server that takes the request; a conflict is one, too."""
        last: object = "no server answered"
        while time.monotonic() < self.deadline:
            for address in random.sample(self.addresses, len(self.addresses)):
                with contextlib.suppress(FileNotFoundError):
                    try:
                        reply = await self._request(address, method, path, body, key)
                    except httpx2.HTTPError as error:
                        last = repr(error)
                        continue
                    if reply.status_code in (200, 409, 410):
                        return reply.json()
                    last = f"{reply.status_code} {reply.text}"
            await asyncio.sleep(POLL_S)
        raise TimeoutError(f"{method} {path}: {last}")

    async def _request(
        self, address: Address, method: str, path: str, body: object, key: str | None
    ) -> httpx2.Response:
        headers = {"authorization": f"Bearer {address.token.read_text().strip()}"}
        if key is not None:
            headers["idempotency-key"] = key
        url = f"http://127.0.0.1:{address.port}{path}"
        return await self._http.request(method, url, json=body, headers=headers)
