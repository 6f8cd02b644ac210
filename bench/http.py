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

from bench.measure import CHILDREN, Line, at_least, measure_pair, temporary_folder

REQUESTS, WARM_UP_REQUESTS = 1000, 200
CONCURRENCY = (1, 16)
"""One request waits for its own commits; concurrent requests share commits."""


@dataclass(frozen=True)
class Server:
    """A server in a separate process."""

    host: str
    port: int
    token: str

    def rate(self, concurrency: int, requests: int = REQUESTS) -> float:
        """Return requests per second."""
        return asyncio.run(self._rate(concurrency, requests))

    async def _rate(self, concurrency: int, requests: int) -> float:
        remaining = iter(range(requests))
        began = time.perf_counter()
        await asyncio.gather(*(self._request_until_empty(remaining) for _ in range(concurrency)))
        return requests / (time.perf_counter() - began)

    async def _request_until_empty(self, remaining: Iterator[int]) -> None:
        """Send requests on one connection, without an HTTP client that would add its own cost."""
        reader, writer = await asyncio.open_connection(self.host, self.port)
        for _ in remaining:
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
def run_server(directory: Path, *command: object) -> Iterator[Server]:
    process = subprocess.Popen(
        [sys.executable, *map(str, command)], cwd=directory, stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        ready_message = json.loads(process.stdout.readline())
        address = urlsplit(ready_message["url"])
        token = (
            Path(ready_message["token_file"]).read_text().strip() if "token_file" in ready_message else "none"
        )
        server = Server(str(address.hostname), address.port or 0, token)
        server.rate(max(CONCURRENCY), WARM_UP_REQUESTS)
        yield server
    finally:
        process.terminate()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


def measure(rounds: int, directory: Path) -> list[Line]:
    with temporary_folder(directory) as run_directory:
        command = ("-m", "nerve", "serve", "--port", 0, "--json", "--quiet", "--with")
        (run_directory / ".nerve").mkdir()
        with (
            run_server(run_directory, *command, CHILDREN / "greeting.py") as served,
            run_server(run_directory, CHILDREN / "bare_http.py", "bare.db") as bare,
        ):
            return [make_line(concurrency, rounds, served, bare) for concurrency in CONCURRENCY]


def make_line(concurrency: int, rounds: int, served: Server, bare: Server) -> Line:
    pair = measure_pair(rounds, lambda: served.rate(concurrency), lambda: bare.rate(concurrency))
    ours, limit = pair.medians
    what = f"start to finished over HTTP, {concurrency} at a time; bare starlette with one durable commit"
    return Line("http", what, "requests/s", ours, limit, pair.ratio, at_least(pair.ratios, 0.333))
