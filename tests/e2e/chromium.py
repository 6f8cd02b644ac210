"""A real browser, driven by its own protocol over a WebSocket."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import itertools
import json
import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from websockets.asyncio.client import ClientConnection, connect

FOLDER = Path(sys.prefix) / "browser"
PROGRAM = FOLDER / "chromium"
MISSING = "" if (FOLDER / "ready").exists() else "there is no browser; `make browser` installs one by npm"


class Page:
    """One tab."""

    def __init__(self, browser: Browser, session: str) -> None:
        self.browser, self.session = browser, session

    async def ask(self, method: str, **params: Any) -> Any:
        return await self.browser.ask(method, self.session, **params)

    async def open(self, url: str) -> None:
        """Go there, and wait until everything was loaded."""
        await self.ask("Page.navigate", url=url)
        await self.until("location.href !== 'about:blank' && document.readyState === 'complete'")

    async def until(self, script: str) -> None:
        """Return when something is so."""
        async with asyncio.timeout(30):
            while not await self.run(script):  # noqa: ASYNC110 - a page tells nobody
                await asyncio.sleep(0.02)

    async def run(self, script: str) -> Any:
        """What a script gives; a promise is waited for."""
        given = {"expression": script, "awaitPromise": True, "returnByValue": True}
        told = await self.ask("Runtime.evaluate", **given)
        if "exceptionDetails" in told:
            raise RuntimeError(told["exceptionDetails"])
        return told["result"].get("value")

    async def answer_for(self, url: str, body: str) -> None:
        """Give a page for an address, once, before anybody is asked for it."""
        await self.ask("Fetch.enable", patterns=[{"urlPattern": url, "resourceType": "Document"}])
        self.browser.given = self.session, body


class Browser:
    """A browser with a profile of its own."""

    def __init__(self, wire: ClientConnection) -> None:
        self._wire = wire
        self._numbers = itertools.count(1)
        self._asked: dict[int, asyncio.Future[Any]] = {}
        self.given: tuple[str, str] | None = None
        self._listening = asyncio.create_task(self._listen())

    async def ask(self, method: str, session: str | None = None, **params: Any) -> Any:
        number = next(self._numbers)
        asked: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._asked[number] = asked
        said = {"id": number, "method": method, "params": params}
        await self._wire.send(json.dumps(said | ({"sessionId": session} if session else {})))
        return await asyncio.wait_for(asked, 60)

    async def page(self) -> Page:
        target = await self.ask("Target.createTarget", url="about:blank")
        told = await self.ask("Target.attachToTarget", targetId=target["targetId"], flatten=True)
        page = Page(self, told["sessionId"])
        await page.ask("Page.enable")
        return page

    async def _listen(self) -> None:
        async for text in self._wire:
            told = json.loads(text)
            if (asked := self._asked.pop(told.get("id"), None)) is not None:
                if "error" in told:
                    asked.set_exception(RuntimeError(told["error"]["message"]))
                else:
                    asked.set_result(told["result"])
            elif told.get("method") == "Fetch.requestPaused" and self.given is not None:
                await self._give(told["params"]["requestId"])

    async def _give(self, request: str) -> None:
        assert self.given is not None
        session, body = self.given
        headers = [{"name": "Content-Type", "value": "text/html"}]
        given = {"requestId": request, "responseCode": 200, "responseHeaders": headers}
        text = base64.b64encode(body.encode()).decode()
        for method, params in (("Fetch.fulfillRequest", {**given, "body": text}), ("Fetch.disable", {})):
            said = {"id": next(self._numbers), "method": method, "params": params, "sessionId": session}
            await self._wire.send(json.dumps(said))

    async def close(self) -> None:
        self._listening.cancel()
        await asyncio.gather(self._listening, return_exceptions=True)


@contextlib.asynccontextmanager
async def browser(profile: Path, *options: str) -> AsyncIterator[Browser]:
    arguments = ["--headless=shell", "--no-sandbox", "--no-zygote", "--disable-gpu", "--no-first-run"]
    process = await asyncio.create_subprocess_exec(
        str(PROGRAM),
        *arguments,
        "--remote-debugging-port=0",
        f"--user-data-dir={profile}",
        *options,
        env={**os.environ, "LD_LIBRARY_PATH": str(FOLDER / "lib"), "HOME": str(profile)},
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        told = profile / "DevToolsActivePort"
        async with asyncio.timeout(30):
            while not (told.exists() and told.read_text().count("\n")):  # noqa: ASYNC110
                await asyncio.sleep(0.02)
        port, path = told.read_text().split("\n")[:2]
        async with connect(f"ws://127.0.0.1:{port}{path}", max_size=None, proxy=None) as wire:
            driven = Browser(wire)
            try:
                yield driven
            finally:
                await driven.close()
    finally:
        process.kill()
        await process.wait()
