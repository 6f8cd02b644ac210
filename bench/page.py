"""Page: the run page beside the same data as JSON, and long tasks in Chromium while text arrives.

The part in Chromium needs `make browser` and is left out without it.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2

from bench.measure import CHILDREN, Line, Pair, at_most, quantile, temporary_folder
from nerve.api import Api
from nerve.server.app import ServerApp, make_app
from nerve.server.auth import Auth
from nerve.server.tokens import load_tokens
from nerve.store.sqlite import SqliteStore

STEPS, REQUESTS = 1000, 5
CHUNKS_PER_S, STREAM_S = 200, 10
UPDATES = 5 * STREAM_S
"""How often the page is updated meanwhile."""
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
    lines = [asyncio.run(compare_server_time(rounds, directory))]
    if (BROWSER / "ready").exists():
        durations = [measure_long_tasks(directory) for _ in range(min(rounds, 3))]
        # Updates without a long task count as 0 ms, because the browser reports only tasks over 50 ms.
        p95s = [quantile([*tasks, *[0.0] * (UPDATES - len(tasks))], 0.95) for tasks in durations]
        what = f"long tasks of the page, p95, while {CHUNKS_PER_S} chunks a second arrive for {STREAM_S} s"
        lines.append(Line("page", what, "ms", sorted(p95s)[len(p95s) // 2], target=at_most(p95s, 50, "ms")))
    return lines


# -- the server --------------------------------------------------------------------------------------


async def compare_server_time(rounds: int, directory: Path) -> Line:
    """Return the processor time for a run page, beside that for the same run and its events as JSON."""
    from bench.workflows import make_session

    with temporary_folder(directory) as run_directory:
        async with make_session(SqliteStore(run_directory / "page.db")) as session:
            run = await session.start("steps", STEPS)
            await run.wait()
            tokens = load_tokens(run_directory / "tokens")
            app = make_app(Api(session), Auth(tokens))
            api = f"/api/runs/{run.run_id}"
            subjects = [f"/runs/{run.run_id}"], [api, f"{api}/events?limit=10000"]
            for paths in subjects:  # templates are compiled, and caches are filled
                await time_requests(app, tokens["admin"], paths)
            figures: tuple[list[float], list[float]] = ([], [])
            for _ in range(rounds):
                for subject_figures, paths in zip(figures, subjects, strict=True):
                    subject_figures.append(await time_requests(app, tokens["admin"], paths))
    pair = Pair(*figures)
    what = f"page of a run of {STEPS} steps, shown before; the run and its events as JSON"
    ours_ms, limit_ms = pair.medians
    return Line("page", what, "ms CPU", ours_ms, limit_ms, pair.ratio, at_most(pair.ratios, 5))


async def time_requests(app: ServerApp, token: str, paths: list[str]) -> float:
    """Return the milliseconds of processor time for one request of each path."""
    headers = {"authorization": f"Bearer {token}", "accept": "text/html"}
    transport = httpx2.ASGITransport(app, client=ADDRESS)
    async with httpx2.AsyncClient(transport=transport, base_url=ORIGIN, headers=headers) as client:
        began = time.process_time()
        for _ in range(REQUESTS):
            for path in paths:
                (await client.get(path)).raise_for_status()
        return (time.process_time() - began) / REQUESTS * 1000


# -- the browser -------------------------------------------------------------------------------------


@contextmanager
def run_server(directory: Path) -> Iterator[dict[str, Any]]:
    """Run a server with a workflow that streams text; yield what it reports when it is ready."""
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


def measure_long_tasks(directory: Path) -> list[float]:
    """Return the durations of the long tasks of a run page in milliseconds, while its run streams text."""
    with temporary_folder(directory) as run_directory, run_server(run_directory) as about:
        token = Path(about["token_file"]).read_text().strip()
        return asyncio.run(watch_stream(about["url"], token, run_directory))


async def watch_stream(address: str, token: str, directory: Path) -> list[float]:
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
        body = {"workflow": "stream", "input": {"rate": CHUNKS_PER_S, "seconds": STREAM_S}}
        run = (await client.post("/api/runs", json=body)).json()["run_id"]
        # The pane of the step, which shows the text as it arrives.
        await page.goto(f"{address}/runs/{run}/steps/speak")
        await page.evaluate("window.longTasks.length = 0")  # without those of the first drawing
        await page.locator("#run-head .state", has_text="completed").wait_for(timeout=(STREAM_S + 60) * 1000)
        durations: list[float] = await page.evaluate("window.longTasks")
        await browser.close()
    return durations
