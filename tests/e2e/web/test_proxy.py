"""The page behind a reverse proxy of its own that serves it under a path."""

from __future__ import annotations

import asyncio
import re
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from playwright.async_api import Browser, expect

from e2e.web.conftest import start
from e2e.world import World

PREFIX = "/nerve"


@asynccontextmanager
async def serve_proxy(listening: socket.socket, target: int) -> AsyncIterator[list[str]]:
    """Forward requests below the prefix of a socket to a port without it; yield the paths of all requests."""
    paths: list[str] = []

    async def forward(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            method, path, rest = head.split(" ", 2)
            paths.append(path)
            if not path.startswith(PREFIX):
                writer.write(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
                return
            head = f"{method} {path.removeprefix(PREFIX) or '/'} {rest}"
            head = re.sub(r"(?im)^connection:.*\r\n", "", head)
            head = head.replace("\r\n", "\r\nConnection: close\r\n", 1)
            inner_reader, inner_writer = await asyncio.open_connection("127.0.0.1", target)
            inner_writer.write(head.encode())
            sending = asyncio.create_task(copy(reader, inner_writer))
            try:
                await copy(inner_reader, writer)
            finally:
                sending.cancel()
                inner_writer.close()
        except (OSError, asyncio.IncompleteReadError):
            pass  # the browser has closed the connection
        finally:
            writer.close()

    tasks: set[asyncio.Task[None]] = set()

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        tasks.add(asyncio.create_task(forward(reader, writer)))

    async with await asyncio.start_server(accept, sock=listening):
        yield paths
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def copy(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
    while data := await source.read(65536):
        target.write(data)
        await target.drain()


async def test_pages_forms_and_streams_work_below_the_path_of_a_proxy(
    chromium: Browser, server: World
) -> None:
    listening = socket.create_server(("127.0.0.1", 0))  # first: the server is told its address
    port = listening.getsockname()[1]
    server.stop()
    server.start("--name", f"127.0.0.1:{port}", "--prefix", PREFIX)
    async with serve_proxy(listening, server.port) as paths:
        async with server.client() as client:
            code = (await client.http.post("/api/launch-codes", json={})).json()["code"]
        page = await (await chromium.new_context()).new_page()
        await page.goto(f"http://127.0.0.1:{port}{PREFIX}/#code={code}")
        await page.wait_for_url(f"**{PREFIX}/runs")
        run = await start(server, "review")
        await page.locator(f"#run-{run['run_id']} a[data-open]").click()  # it has come by the stream
        await page.wait_for_url(f"**{PREFIX}/runs/{run['run_id']}")
        await expect(page.locator("#run-head .state")).to_have_text("waiting")
        await page.get_by_role("link", name="gate").first.click()
        await page.wait_for_url("**/steps/gate")
        await page.get_by_role("link", name="Answer").first.click()
        await page.get_by_role("button", name="approve").click()
        await expect(page.locator(".gate-card.closed")).to_contain_text("approve")
        await page.goto(f"http://127.0.0.1:{port}{PREFIX}/runs/{run['run_id']}/graph")
        await expect(page.get_by_role("treeitem", name=re.compile("gate"))).to_be_visible()
        assert all(path.startswith(PREFIX) for path in paths if path != "/favicon.ico"), paths
