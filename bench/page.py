"""Page: a run page beside the same data as JSON, 200 open pages, sizes of files, and long tasks in Chromium.

The part in Chromium needs `make browser` and is left out without it.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from statistics import median
from typing import Any

import httpx2

from bench.measure import CHILDREN, Line, Pair, at_most, quantile, temporary_folder
from nerve import FunctionNode
from nerve.api import Api
from nerve.core.events import WorkflowEventType
from nerve.server.app import ServerApp, make_app
from nerve.server.auth import Auth
from nerve.server.tokens import load_tokens
from nerve.store.sqlite import SqliteStore
from nerve.web.static_files import load_static_files

STEPS, REQUESTS = 1000, 5
LONG_RUN_STEPS, CHUNKS_PER_STEP = 10_000, 8
"""With the start and the end of each step, 100,000 events."""
OPEN_PAGES, LIVE_STEPS = 200, 20
CHUNKS_PER_S, STREAM_S = 200, 10
UPDATES = 5 * STREAM_S
"""How often the page is updated meanwhile."""
ROUNDS, BROWSER_ROUNDS = 3, 1
BROWSER = Path(sys.prefix) / "browser"
ADDRESS = ("127.0.0.1", 7433)
ORIGIN = "http://127.0.0.1:7433"
OBSERVE_LONG_TASKS = """
    window.longTasks = [];
    new PerformanceObserver(list => {
        for (const entry of list.getEntries()) window.longTasks.push(entry.duration);
    }).observe({type: "longtask", buffered: true});
"""


def measure(rounds: int, directory: Path) -> list[Line]:
    lines = [*measure_files(), *asyncio.run(measure_server(min(rounds, ROUNDS), directory))]
    if (BROWSER / "ready").exists():
        for workflow, step, what in (
            ("stream", "speak", "an agent writes"),
            ("print_lines", "bash", "a command prints"),
        ):
            found = [measure_long_tasks(directory, workflow, step) for _ in range(BROWSER_ROUNDS)]
            # Updates without a long task count as 0 ms, because the browser reports only tasks over 50 ms.
            p95s = [quantile([*tasks, *[0.0] * (UPDATES - len(tasks))], 0.95) for tasks in found]
            longest = max((task for tasks in found for task in tasks), default=0)
            text = f"long tasks, p95 (longest {longest:.0f} ms), while {what} {CHUNKS_PER_S} times a second"
            target = at_most(p95s * 2, 50, "ms")
            lines.append(Line("page", text, "ms", median(p95s), target=target))
    return lines


def measure_files() -> Iterator[Line]:
    for suffix, bound in ((".js", 70), (".css", 30)):
        files = load_static_files()
        size = sum(len(file.compressed) for name, file in files.items() if name.endswith(suffix)) / 1024
        target = at_most([size] * 2, bound, "KB")
        yield Line("page", f"all {suffix[1:].upper()} files of the page, gzipped", "KB", size, target=target)


# -- the server --------------------------------------------------------------------------------------


@asynccontextmanager
async def open_app(directory: Path) -> AsyncIterator[tuple[Any, ServerApp, str]]:
    """Yield a session, its application and a token."""
    from bench.workflows import make_session

    async with make_session(SqliteStore(directory / "page.db")) as session:

        async def say(context: Any) -> Any:
            for number in range(CHUNKS_PER_STEP):
                data = {"stream": "stdout", "text": f"line {number}\n"}
                context.emit(WorkflowEventType.OUTPUT_CHUNK, data)
            return context.input

        FunctionNode("say", session, say)

        @session.workflow
        async def long(ctx: Any) -> None:
            for number in range(LONG_RUN_STEPS):
                await ctx.run("say", number)

        tokens = load_tokens(directory / "tokens")
        yield session, make_app(Api(session), Auth(tokens)), tokens["admin"]


async def measure_server(rounds: int, directory: Path) -> list[Line]:
    with temporary_folder(directory) as folder:
        async with open_app(folder) as (session, app, token):
            runs = [await run_to_end(session, "steps", STEPS) for _ in range(rounds + 1)]
            await time_requests(app, token, [f"/runs/{runs.pop()}"], 1)  # templates are compiled
            first, again, json_ms = list[float](), list[float](), list[float]()
            for run in runs:
                api = f"/api/runs/{run}"
                json_ms.append(await time_requests(app, token, [api, f"{api}/events?limit=10000"]))
                first.append(await time_requests(app, token, [f"/runs/{run}"], 1))
                again.append(await time_requests(app, token, [f"/runs/{run}"]))
            long_run = await run_to_end(session, "long", None)
            long_ms = await time_requests(app, token, [f"/runs/{long_run}"], 1)
            long_again_ms = await time_requests(app, token, [f"/runs/{long_run}"], 1)
            live = [await measure_open_pages(session, app, token, shared) for shared in (True, False)]
    what = f"page of a run of {STEPS} steps, {{}}; the run and its events as JSON"
    lines = [
        compare(what.format("opened first"), Pair(first, json_ms), 5),
        compare(what.format("opened again"), Pair(again, json_ms), 5),
    ]
    json_of_1000 = median(json_ms)
    for name, figure in (("first", long_ms), ("second", long_again_ms)):
        text = f"{name} response of a run of 10,000 steps and 100,000 events; JSON of {STEPS} steps"
        lines.append(compare(text, Pair([figure], [json_of_1000]), 10))
    text = f"{OPEN_PAGES} open pages of a live run of {LIVE_STEPS} steps that share what is rendered; do not"
    return [*lines, compare(text, Pair(live[:1], live[1:]), 0.25)]


def compare(what: str, pair: Pair, bound: float) -> Line:
    ours, limit = pair.medians
    return Line("page", what, "ms CPU", ours, limit, pair.ratio, at_most(pair.ratios * 2, bound))


async def run_to_end(session: Any, workflow: str, input: Any) -> str:
    run = await session.start(workflow, input)
    await run.wait()
    return str(run.run_id)


async def time_requests(app: ServerApp, token: str, paths: list[str], count: int = REQUESTS) -> float:
    """Return the milliseconds of processor time for one request of each path."""
    headers = {"authorization": f"Bearer {token}", "accept": "text/html"}
    transport = httpx2.ASGITransport(app, client=ADDRESS)
    async with httpx2.AsyncClient(transport=transport, base_url=ORIGIN, headers=headers) as client:
        began = time.process_time()
        for _ in range(count):
            for path in paths:
                (await client.get(path)).raise_for_status()
        return (time.process_time() - began) / count * 1000


async def measure_open_pages(session: Any, app: ServerApp, token: str, is_shared: bool) -> float:
    """Return the milliseconds of processor time of a run while many pages of it are open."""
    release = asyncio.Event()

    async def work(context: Any) -> Any:
        await release.wait()
        await asyncio.sleep(0.1)
        return context.input

    name = f"work_{'shared' if is_shared else 'alone'}"
    FunctionNode(name, session, work)

    async def live(ctx: Any) -> None:
        for number in range(LIVE_STEPS):
            await ctx.run(name, number)

    from nerve import Workflow

    Workflow(f"live_{name}", session, live)
    run = await session.start(f"live_{name}", None)
    # Another query is another page for the server, although it shows the same.
    queries = [b"" if is_shared else f"rows={number + 200}".encode() for number in range(OPEN_PAGES)]
    readers = [OpenPage(app, token, f"/runs/{run.run_id}/stream", query) for query in queries]
    await asyncio.gather(*(reader.opened.wait() for reader in readers))
    began = time.process_time()
    release.set()
    await asyncio.gather(*(reader.ended.wait() for reader in readers))
    elapsed = (time.process_time() - began) * 1000
    await run.wait()
    if not all(b"state completed" in reader.text for reader in readers):
        raise RuntimeError("a page missed the end of the run")
    await asyncio.gather(*(reader.task for reader in readers))
    return elapsed


class OpenPage:
    """The stream of one open page, read until it ends."""

    def __init__(self, app: ServerApp, token: str, path: str, query: bytes) -> None:
        self.text = b""
        self.opened, self.ended = asyncio.Event(), asyncio.Event()
        request = {
            "type": "http", "method": "GET", "scheme": "http", "server": ADDRESS, "state": {}, "path": path,
            "headers": [(b"host", b"127.0.0.1:7433"), (b"authorization", f"Bearer {token}".encode())],
            "raw_path": path.encode(), "query_string": query, "root_path": "",
        }  # fmt: skip
        self.task = asyncio.create_task(app(request, self._wait_for_end, self._receive))

    async def _wait_for_end(self) -> dict[str, Any]:
        await self.ended.wait()
        return {"type": "http.disconnect"}

    async def _receive(self, message: Any) -> None:
        self.text += message.get("body", b"")
        if b"data: " in self.text:
            self.opened.set()
        if b"event: end" in message.get("body", b""):
            self.ended.set()


# -- the browser -------------------------------------------------------------------------------------


@contextmanager
def run_server(directory: Path) -> Iterator[dict[str, Any]]:
    """Run a server with workflows that write text; yield what it reports when it is ready."""
    (directory / ".nerve").mkdir()
    command = ["-m", "nerve", "serve", "--port", "0", "--json", "--quiet", "--with"]
    process = subprocess.Popen(
        [sys.executable, *command, str(CHILDREN / "stream_text.py")],
        cwd=directory,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    try:
        yield json.loads(process.stdout.readline())
    finally:
        process.terminate()
        process.wait()
        process.stdout.close()


def measure_long_tasks(directory: Path, workflow: str, step: str) -> list[float]:
    """Return the durations of the long tasks of a page in milliseconds, while a step of its run writes."""
    with temporary_folder(directory) as run_directory, run_server(run_directory) as about:
        token = Path(about["token_file"]).read_text().strip()
        return asyncio.run(watch_step(about["url"], token, run_directory, workflow, step))


async def watch_step(address: str, token: str, directory: Path, workflow: str, step: str) -> list[float]:
    from playwright.async_api import async_playwright

    headers = {"authorization": f"Bearer {token}"}
    async with (
        httpx2.AsyncClient(base_url=address, headers=headers, timeout=60) as client,
        async_playwright() as playwright,
    ):
        browser = await playwright.chromium.launch(
            executable_path=str(BROWSER / "chromium"),
            args=["--headless=shell", "--no-sandbox", "--no-zygote", "--disable-gpu"],
            env={**os.environ, "LD_LIBRARY_PATH": str(BROWSER / "lib"), "HOME": str(directory)},
        )
        page = await browser.new_page()
        await page.add_init_script(OBSERVE_LONG_TASKS)
        code = (await client.post("/api/launch-codes", json={})).json()["code"]
        await page.goto(f"{address}/#code={code}")
        await page.wait_for_url("**/runs")
        body = {"workflow": workflow, "input": {"rate": CHUNKS_PER_S, "seconds": STREAM_S}}
        run = (await client.post("/api/runs", json=body)).json()["run_id"]
        # The pane of the step, which shows the text as it arrives.
        await page.goto(f"{address}/runs/{run}/steps/{step}")
        await page.evaluate("window.longTasks.length = 0")  # without those of the first drawing
        await page.locator("#run-head .state", has_text="completed").wait_for(timeout=(STREAM_S + 60) * 1000)
        durations: list[float] = await page.evaluate("window.longTasks")
        await browser.close()
    return durations
