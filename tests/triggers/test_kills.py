"""A server with a trigger of every kind is killed at random points: no start is lost, none is doubled."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from datetime import datetime, timedelta
from itertools import pairwise
from pathlib import Path

import pytest

from triggers.served_triggers import Sender, TriggerServer, read_starts, write_project

QUIET_S = 30.0
"""Seconds in which the last server has to start what is left."""


@pytest.mark.parametrize("kills", [4, pytest.param(100, marks=pytest.mark.full)])
async def test_no_trigger_loses_or_doubles_a_start_when_its_server_is_killed(
    tmp_path: Path, kills: int, record_property: Callable[[str, object], None]
) -> None:
    chance = random.Random(kills)
    write_project(tmp_path)
    server = TriggerServer(tmp_path)
    server.start()
    await server.wait_ready()
    sender = Sender(server)
    sending = asyncio.create_task(sender.send_all())
    try:
        for number in range(kills):
            await asyncio.sleep(chance.uniform(0.05, 1.0))
            server.kill()
            server.start()
            if chance.random() < 0.3:
                # Also while it starts.
                await asyncio.sleep(chance.uniform(0.1, 0.8))
                server.kill()
                server.start()
            await server.wait_ready()
            assert not sending.done(), number
        sender.is_ended = True
        await sending
        await wait_until_started(sender, tmp_path)
    finally:
        sending.cancel()
        server.stop()
    starts = read_starts(tmp_path)
    for name, occurrences in starts.items():
        assert len(occurrences) == len(set(occurrences)), name
    sent = {name: sender.confirmed[name] for name in ("hook", "fact", "file", "ended")}
    assert {name: len(starts[name]) for name in sent} == sent
    assert set(starts["hook"]) == {f"delivery:d{number}" for number in range(1, sent["hook"] + 1)}
    ticks = sorted(datetime.fromisoformat(text) for text in starts["tick"])
    assert [b - a for a, b in pairwise(ticks)] == [timedelta(seconds=1)] * (len(ticks) - 1)
    record_property("sent", f"{sent}, {len(ticks)} ticks")


async def wait_until_started(sender: Sender, folder: Path) -> None:
    """Return when the last server has started a run for everything that was sent, or the time is over."""
    import sqlite3

    from nerve.project.paths import ProjectPaths

    wanted = sum(sender.confirmed[name] for name in ("hook", "fact", "file", "ended"))
    end = asyncio.get_running_loop().time() + QUIET_S
    while asyncio.get_running_loop().time() < end:
        store = sqlite3.connect(f"file:{ProjectPaths.of(folder).store}?mode=ro", uri=True)
        query = "SELECT count(*) FROM runs WHERE key LIKE 'trigger:%' AND key NOT LIKE 'trigger:tick:%'"
        (count,) = store.execute(query).fetchone()
        store.close()
        if count >= wanted:
            return
        await asyncio.sleep(0.1)
