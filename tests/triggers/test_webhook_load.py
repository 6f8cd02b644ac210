"""Three hundred webhooks a second: none is lost, and 202 means that the run is stored."""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from nerve.triggers.webhook_signatures import sign_request
from triggers.served_triggers import SECRET, TriggerServer, read_starts, write_project

RATE = 300
CONNECTIONS = 64


@pytest.mark.parametrize("seconds", [1, pytest.param(60, marks=pytest.mark.full)])
async def test_webhooks_at_300_a_second_are_all_stored_when_202_is_sent(tmp_path: Path, seconds: int) -> None:
    write_project(tmp_path)
    for name in ("tick", "file", "fact", "ended"):
        (tmp_path / f".nerve/triggers/{name}.json").unlink()
    server = TriggerServer(tmp_path)
    server.start()
    await server.wait_ready()
    try:
        load = WebhookLoad(server.url)
        await load.send(RATE * seconds)
        server.kill()  # what was confirmed is on disk
    finally:
        server.stop()
    assert load.answers == {202: RATE * seconds}
    stored = read_starts(tmp_path)["hook"]
    assert len(stored) == len(set(stored)) == RATE * seconds
    assert set(stored) == {f"delivery:d{number}" for number in range(RATE * seconds)}


class WebhookLoad:
    """Sends webhooks at a fixed rate, whether the server keeps up or not, over a few connections."""

    def __init__(self, url: str) -> None:
        self._host, self._port = urlsplit(url).hostname or "", urlsplit(url).port or 0
        self.answers: Counter[int] = Counter()
        self.delays: list[float] = []
        self.seconds = 0.0

    async def send(self, count: int) -> None:
        due: asyncio.Queue[tuple[int, float] | None] = asyncio.Queue()
        workers = [asyncio.create_task(self._send_due(due)) for _ in range(CONNECTIONS)]
        begin = time.monotonic()
        for number in range(count):
            at = begin + number / RATE
            if (delay := at - time.monotonic()) > 0:
                await asyncio.sleep(delay)
            due.put_nowait((number, at))
        for _ in workers:
            due.put_nowait(None)
        await asyncio.gather(*workers)
        self.seconds = time.monotonic() - begin

    async def _send_due(self, due: asyncio.Queue[tuple[int, float] | None]) -> None:
        reader, writer = await asyncio.open_connection(self._host, self._port)
        while (item := await due.get()) is not None:
            number, at = item
            body = json.dumps({"n": number}).encode()
            signed = sign_request("standard", SECRET, body, time.time(), f"d{number}")
            lines = [
                "POST /hooks/hook HTTP/1.1",
                f"Host: {self._host}:{self._port}",
                "Content-Type: application/json",
                f"Content-Length: {len(body)}",
                *(f"{name}: {value}" for name, value in signed.items()),
            ]
            writer.write("\r\n".join([*lines, "", ""]).encode() + body)
            head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
            length = int(head.partition("content-length: ")[2].partition("\r\n")[0])
            await reader.readexactly(length)
            self.answers[int(head.split()[1])] += 1
            self.delays.append(time.monotonic() - at)
        writer.close()
