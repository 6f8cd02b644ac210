"""Receivers on loopback: an HTTP server and a mail server that record what they get."""

import json
import socketserver
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

PATIENCE_S = 60.0


@dataclass(frozen=True)
class ReceivedRequest:
    method: str
    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass(frozen=True)
class PlannedReply:
    status: int = 200
    body: Any = field(default_factory=lambda: {"ok": True})
    headers: dict[str, str] = field(default_factory=dict)
    delay_s: float = 0.0


@dataclass
class Receiver:
    """What was received; `replies` are used one after the other, then `reply` answers."""

    url: str = ""
    requests: list[ReceivedRequest] = field(default_factory=list)
    replies: list[PlannedReply] = field(default_factory=list)
    reply: Callable[[ReceivedRequest], PlannedReply] = lambda _: PlannedReply()

    def wait_for(self, count: int) -> list[ReceivedRequest]:
        """Return the requests as soon as there are so many."""
        deadline = time.monotonic() + PATIENCE_S
        while len(self.requests) < count:
            assert time.monotonic() < deadline, f"{len(self.requests)} requests instead of {count}"
            time.sleep(0.01)
        return self.requests


@contextmanager
def receiving() -> Iterator[Receiver]:
    """Run an HTTP server in a block."""
    receiver = Receiver()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def answer(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length", 0)))
            headers = {name.lower(): value for name, value in self.headers.items()}
            request = ReceivedRequest(self.command, self.path, headers, body)
            reply = receiver.replies.pop(0) if receiver.replies else receiver.reply(request)
            receiver.requests.append(request)
            time.sleep(reply.delay_s)
            data = reply.body.encode() if isinstance(reply.body, str) else json.dumps(reply.body).encode()
            self.send_response(reply.status)
            for name, value in {"content-length": str(len(data)), **reply.headers}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(data)

        do_POST = do_GET = answer  # noqa: N815

        def log_message(self, *_: Any) -> None:
            pass

    class Server(ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, *_: Any) -> None:
            pass  # a client that was killed

    with Server(("127.0.0.1", 0), Handler) as server:
        receiver.url = f"http://127.0.0.1:{server.server_address[1]}"
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        try:
            yield receiver
        finally:
            server.shutdown()
            thread.join()


@dataclass
class MailServer:
    """A mail server without encryption, and the mails it has accepted."""

    port: int = 0
    mails: list[bytes] = field(default_factory=list)
    recipients: list[str] = field(default_factory=list)
    refusals: list[bytes] = field(default_factory=list)
    """Replies to the next recipients."""


@contextmanager
def receiving_mail() -> Iterator[MailServer]:
    """Run a mail server in a block."""
    received = MailServer()

    class Handler(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            self.wfile.write(b"220 ready\r\n")
            while line := self.rfile.readline():
                verb = line[:4].upper()
                if verb == b"DATA":
                    self.wfile.write(b"354 go ahead\r\n")
                    data = b""
                    while (part := self.rfile.readline()) != b".\r\n":
                        data += part
                    received.mails.append(data)
                elif verb == b"RCPT":
                    if received.refusals:
                        self.wfile.write(received.refusals.pop(0))
                        continue
                    received.recipients.append(line.decode().strip())
                elif verb == b"QUIT":
                    self.wfile.write(b"221 bye\r\n")
                    return
                self.wfile.write(b"250 ok\r\n")

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        received.port = server.server_address[1]
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        try:
            yield received
        finally:
            server.shutdown()
            thread.join()


def write_config(project: Path, **config: Any) -> None:
    """Write the configuration of a project."""
    (project / ".nerve").mkdir(exist_ok=True)
    (project / ".nerve" / "config.json").write_text(json.dumps(config))
