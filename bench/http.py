"""HTTP: a run from its start to its end, beside a bare starlette handler with one durable commit."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from bench.measure import CHILDREN, Line, at_least, folder, paired

REQUESTS, WARM = 1000, 200
AT_A_TIME = (1, 16)
"""Alone a request waits for its own commits; many at a time, ours share theirs."""


@dataclass(frozen=True)
class Server:
    """A server in a process of its own."""

    host: str
    port: int
    token: str

    def rate(self, at_a_time: int, requests: int = REQUESTS) -> float:
        """Requests a second."""
        return asyncio.run(self._rate(at_a_time, requests))

    async def _rate(self, at_a_time: int, requests: int) -> float:
        left = iter(range(requests))
        began = time.perf_counter()
        await asyncio.gather(*(self._one_after_the_other(left) for _ in range(at_a_time)))
        return requests / (time.perf_counter() - began)

    async def _one_after_the_other(self, left: Iterator[int]) -> None:
        """By hand, on one connection: what the client costs must not hide what the server costs."""
        reader, writer = await asyncio.open_connection(self.host, self.port)
        for _ in left:
            writer.write(self._request)
            head = await reader.readuntil(b"\r\n\r\n")
            length = head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0]
            body = await reader.readexactly(int(length))
            if not head.startswith(b"HTTP/1.1 200 ") or b'"hello you"' not in body:
                raise RuntimeError(f"{head!r} {body!r}")
        writer.close()
        await writer.wait_closed()

    @property
    def _request(self) -> bytes:
        body = json.dumps({"workflow": "hello", "input": "you", "wait": True}).encode()
        head = (
            f"POST /api/runs HTTP/1.1\r\nHost: {self.host}:{self.port}\r\nAuthorization: Bearer {self.token}"
            f"\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        return head.encode() + body


@contextmanager
def serving(place: Path, *command: object) -> Iterator[Server]:
    process = subprocess.Popen(
        [sys.executable, *map(str, command)], cwd=place, stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        told = json.loads(process.stdout.readline())
        at = urlsplit(told["url"])
        token = Path(told["token_file"]).read_text().strip() if "token_file" in told else "none"
        server = Server(str(at.hostname), at.port or 0, token)
        server.rate(max(AT_A_TIME), WARM)
        yield server
    finally:
        process.terminate()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


def measure(rounds: int, place: Path) -> list[Line]:
    with folder(place) as here:
        ours = ("-m", "nerve", "serve", "--port", 0, "--json", "--quiet", "--with")
        (here / ".nerve").mkdir()
        with (
            serving(here, *ours, CHILDREN / "greeting.py") as served,
            serving(here, CHILDREN / "bare_http.py", "bare.db") as bare,
        ):
            return [line(at_a_time, rounds, served, bare) for at_a_time in AT_A_TIME]


def line(at_a_time: int, rounds: int, served: Server, bare: Server) -> Line:
    pair = paired(rounds, lambda: served.rate(at_a_time), lambda: bare.rate(at_a_time))
    many, most = pair.medians
    what = f"start to finished over HTTP, {at_a_time} at a time; bare starlette with one durable commit"
    return Line("http", what, "requests/s", many, most, pair.ratio, at_least(pair.ratios, 0.333))
