"""A stub of an LLM API on a free local port: it records requests and answers as steered."""

from __future__ import annotations

import json
import select
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from agents.stubs.steer import Order, order_of


@dataclass(frozen=True, slots=True)
class Heard:
    """A request."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: Any


class StubServer:
    """Serves until it is closed; `heard` has every request, `holding` counts the blocked ones.

    A subclass implements `answer` for its API.
    """

    def __init__(self) -> None:
        self.heard: list[Heard] = []
        self.holding = 0
        self.order: Order | None = None
        """The order for every prompt, whatever it says."""
        self.closed = threading.Event()
        stub = self

        class Handler(Reply):
            server_of = stub

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._http.daemon_threads = True
        self._http.block_on_close = False
        self.url = f"http://127.0.0.1:{self._http.server_port}"
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.01,), daemon=True)
        self._thread.start()

    def __enter__(self) -> StubServer:
        return self

    def __exit__(self, *_: object) -> None:
        self.closed.set()
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()

    def order_of(self, said: Sequence[str], results: Sequence[str]) -> Order:
        """Return the next order of a conversation."""
        return self.order or order_of(said, results)

    def answer(self, heard: Heard, reply: Reply) -> None:
        raise NotImplementedError

    @property
    def bodies(self) -> str:
        """All request bodies as one string."""
        return "\n".join(json.dumps(heard.body, ensure_ascii=False) for heard in self.heard)


class Reply(BaseHTTPRequestHandler):
    """One answer, as JSON or as a stream of server-sent events."""

    protocol_version = "HTTP/1.1"
    server_of: StubServer

    def log_message(self, format: str, *args: object) -> None:
        pass

    def do_POST(self) -> None:
        data = self.rfile.read(int(self.headers.get("content-length") or 0))
        try:
            body = json.loads(data or b"null")
        except ValueError:
            body = data.decode(errors="replace")
        heard = Heard(self.command, self.path, {k.lower(): v for k, v in self.headers.items()}, body)
        self.server_of.heard.append(heard)
        try:
            self.server_of.answer(heard, self)
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True

    do_GET = do_HEAD = do_POST  # noqa: N815

    def json(self, value: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> None:
        data = b"" if self.command == "HEAD" else json.dumps(value).encode()
        self.send_response(status)
        for name, text in {"content-type": "application/json", **(headers or {})}.items():
            self.send_header(name, text)
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def start_stream(self) -> None:
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("connection", "close")
        self.end_headers()
        self.close_connection = True

    def event(self, name: str | None, data: Any) -> None:
        text = data if isinstance(data, str) else json.dumps(data)
        self.wfile.write((f"event: {name}\n" if name else "").encode() + f"data: {text}\n\n".encode())
        self.wfile.flush()

    def hold(self) -> None:
        """Block the client until it disconnects or the stub closes."""
        self.server_of.holding += 1
        while not self.server_of.closed.is_set():
            if select.select([self.connection], [], [], 0.02)[0]:
                return
