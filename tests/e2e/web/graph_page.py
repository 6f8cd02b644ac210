"""A page with one graph, served on loopback with the headers of the real pages, in a real Chromium."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any

import nerve
from nerve.ui.graph_model import RunGraph, encode_for_script

if TYPE_CHECKING:
    from playwright.async_api import BrowserContext, Page

SECURITY_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self';"
    " font-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
)
STYLES = (
    ":root { color-scheme: light dark; } body { margin: 16px; font-family: system-ui, sans-serif; }"
    " run-graph { --run-graph-height: calc(100vh - 40px); }"
)
ELEMENT = Path(nerve.__file__).with_name("web") / "static" / "run-graph.js"


def graph_html(graph: RunGraph, source: str = "") -> str:
    data = (
        f'<script id="data" type="application/json">{encode_for_script(graph.to_dict())}</script>'
        if not source
        else ""
    )
    src = f' data-src="{source}"' if source else ""
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Graph</title>'
        '<link rel="icon" href="data:,"><link rel="stylesheet" href="/page.css">'
        '<script src="/run-graph.js" defer></script></head>'
        f'<body><run-graph data-runs="/prefix/runs"{src}>{data}<ol><li>A list</li></ol></run-graph>'
    )


class GraphServer:
    """Serves a page with a graph."""

    def __init__(self) -> None:
        self.pages: dict[str, tuple[str, bytes]] = {
            "/page.css": ("text/css", STYLES.encode()),
            "/run-graph.js": ("text/javascript", ELEMENT.read_bytes()),
        }
        self.url = ""

    def serve_graph(self, graph: RunGraph) -> None:
        """Serve the graph at `/` with its data inside, and at `/fetched` with its data at another address."""
        self.pages["/"] = ("text/html", graph_html(graph).encode())
        self.pages["/fetched"] = ("text/html", graph_html(graph, "/graph.json").encode())
        self.pages["/graph.json"] = ("application/json", encode_for_script(graph.to_dict()).encode())


@contextlib.contextmanager
def serve_pages() -> Iterator[GraphServer]:
    site = GraphServer()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            kind, body = site.pages.get(
                self.path, ("text/html", b"<!doctype html><title>Another page</title>")
            )
            self.send_response(200)
            headers = {"Content-Type": f"{kind}; charset=utf-8", "Content-Length": str(len(body))}
            for name, value in (headers | {"Content-Security-Policy": SECURITY_POLICY}).items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    site.url = f"http://127.0.0.1:{server.server_port}"
    try:
        yield site
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class GraphPage:
    """An open page, and what the browser complained about."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.complaints: list[str] = []
        page.on("console", lambda message: self._note(message.type, message.text))
        page.on("pageerror", lambda error: self.complaints.append(str(error)))

    def _note(self, kind: str, text: str) -> None:
        if kind in ("error", "warning"):
            self.complaints.append(text)

    @classmethod
    async def open(cls, context: BrowserContext, url: str) -> GraphPage:
        graph_page = cls(await context.new_page())
        await graph_page.page.goto(url)
        await graph_page.page.wait_for_selector("run-graph[data-layouts]")
        return graph_page

    async def replace_data(self, graph: RunGraph) -> None:
        """Replace the element with the data, as the server does."""
        await self.page.evaluate(
            """(text) => {
                const script = document.createElement("script");
                script.id = "data";
                script.type = "application/json";
                script.textContent = text;
                document.querySelector("#data").replaceWith(script);
            }""",
            encode_for_script(graph.to_dict()),
        )

    async def focused(self) -> str | None:
        """Return the id of the node that has the focus."""
        id: str | None = await self.page.evaluate(
            "document.querySelector('run-graph').shadowRoot.activeElement?.dataset.id ?? null"
        )
        return id
