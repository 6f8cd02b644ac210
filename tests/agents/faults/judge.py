"""Invariants of the journal and of the API log, whatever was killed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

from agents.faults.engine import AGENTS, ROUNDS
from agents.faults.world import APIS, Request
from nerve.core.usage_ledger import UsageLedger
from nerve.store.port import EventRow
from nerve.store.sqlite import SqliteStore

RESUMED = ("claude", "codex", "acp")


def problems(folder: Path, kind: str, requests: list[Request], agents_killed: int) -> Iterator[str]:
    store = SqliteStore(folder / "nerve.db")
    try:
        runs = store.runs(session="faults")
        yield from (f"{row.key} is {row.state}" for row in runs if row.state != "completed")
        failed: list[str] = []
        for row in runs:
            number = str(row.key).removeprefix("run-")
            rows = store.events(row.run)
            failed += [reported for reported in map(retry_of, rows) if reported]
            for agent in AGENTS:
                yield from Conversation(kind, f"{number}/{agent}", rows, requests).problems()
        # Steps are retried until they succeed, which would hide a conversation that cannot be resumed.
        if len(failed) > agents_killed:
            yield f"{agents_killed} agents were killed, but {len(failed)} attempts failed: {failed}"
    finally:
        store.close()


def retry_of(row: EventRow) -> str:
    """Return why an attempt failed in a live engine; empty for any other event."""
    data = json.loads(row.data) if row.type == "node_retrying" else {"recovered": True}
    return "" if data.get("recovered") else str(data.get("error"))[:200]


class Conversation:
    """One agent in one run, as recorded by the journal and by the API."""

    def __init__(self, kind: str, name: str, rows: list[EventRow], requests: list[Request]) -> None:
        self.kind, self.name = kind, name
        agent = name.partition("/")[2]
        self.rows = [row for row in rows if row.path.rpartition("/")[2].partition("[")[0] == agent]
        self.requests = [request for request in requests if request.step.startswith(f"{name}/")]
        self.settled = [row for row in self.rows if row.settles is not None]
        self.ledger = ledger_of(self.rows).by_step()

    def problems(self) -> Iterator[str]:
        if len(self.settled) != ROUNDS or len({row.path for row in self.settled}) != ROUNDS:
            yield f"{self.name}: settled {[(row.path, row.type) for row in self.settled]}"
            return
        for round, row in enumerate(self.settled):
            yield from self.step(f"{self.name}/{round}", row)
        if self.kind in RESUMED:
            yield from self.one_thread()

    def step(self, name: str, row: EventRow) -> Iterator[str]:
        result = json.loads(row.data)["result"]
        requests = [request for request in self.requests if request.step == name]
        if not result["success"] or f"answer to {name}, in several pieces" not in result["output"]:
            yield f"{name}: {result}"
        if late := [request for request in requests if request.began > row.at]:
            yield f"{name}: asked again {len(late)} times after it was settled"
        if not requests:
            yield f"{name}: settled without asking"
        yield from self.charged(
            name, result["attributes"].get("usage") or {}, self.ledger[row.path], requests
        )

    def charged(
        self, name: str, usage: dict[str, Any], told: dict[str, float], asked: list[Request]
    ) -> Iterator[str]:
        """Charged: at least the turn that ended it, at most every answer; the rest is reported as unknown."""
        if usage["turns"] != told["turns"] or usage.get("input_tokens") != told.get("input_tokens"):
            yield f"{name}: the ledger has {told}, the result {usage}"
        if self.kind not in RESUMED:
            if told["turns_without_tokens"] < len(asked):
                yield f"{name}: {told} are charged; {len(asked)} answers were given"
            return
        calls = usage.get("input_tokens", 0) / APIS[self.kind].tokens
        if not CALLS <= calls <= len(asked):
            yield f"{name}: {calls:g} answers are charged; {len(asked)} were given, {CALLS} are the least"
        if calls < len(asked) and not told.get("turns_without_tokens"):
            yield f"{name}: {calls:g} answers are charged; {len(asked)} were given, and nothing is unknown"

    def one_thread(self) -> Iterator[str]:
        threads = {request.thread for request in self.requests}
        if len(threads) != 1:
            yield f"{self.name}: asked in {len(threads)} threads"
        reported = [json.loads(row.data)["thread"] for row in self.rows if row.type == "agent_thread"]
        ends = [json.loads(row.data)["result"]["attributes"]["thread"] for row in self.settled]
        if set(ends) != threads or reported[-1:] != ends[-1:]:
            yield f"{self.name}: threads {sorted(threads)}, journalled {reported}, settled {ends}"
        for before, after in pairwise(sorted(self.requests, key=lambda request: request.began)):
            if after.began < before.ended:
                yield f"{self.name}: a turn began {before.ended - after.began:.3f} s before another ended"
        for request in self.requests:
            if request.beside:
                yield f"{request.step}: gone on with beside {request.beside}"
            earlier = {f"{self.name}/{round}" for round in range(int(request.step.rpartition("/")[2]))}
            if not earlier <= set(request.before):
                yield f"{request.step}: the conversation knew of {sorted(set(request.before))} only"


def ledger_of(rows: list[EventRow]) -> UsageLedger:
    ledger = UsageLedger()
    for row in rows:
        if row.type == "usage":
            ledger.add_turn(row.path, json.loads(row.data))
        elif row.settles is not None:
            ledger.settle_step(row.path, json.loads(row.data)["result"]["attributes"])
    return ledger


CALLS = 2
"""Answers in a turn: one that calls the tool, and the last one."""
