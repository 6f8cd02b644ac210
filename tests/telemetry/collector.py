"""A collector on loopback: an HTTP server that decodes what an exporter sends by OTLP."""

import gzip
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest


@dataclass(frozen=True)
class ReceivedSpan:
    """A span as the collector got it."""

    name: str
    trace_id: str
    span_id: str
    parent_id: str
    start: int
    end: int
    attributes: dict[str, Any]
    events: list[tuple[str, dict[str, Any]]]
    links: list[tuple[str, str, dict[str, Any]]]
    has_failed: bool
    message: str
    service: str


@dataclass
class Collector:
    """What was received."""

    url: str = ""
    status: int = 200
    """With what it answers; it keeps what it answers with 200."""
    spans: list[ReceivedSpan] = field(default_factory=list)
    metrics: list[Any] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)

    def named(self, name: str) -> list[ReceivedSpan]:
        return [span for span in self.spans if span.name == name]

    def one(self, name: str) -> ReceivedSpan:
        [span] = self.named(name)
        return span

    @property
    def names(self) -> list[str]:
        return sorted(span.name for span in self.spans)


def plain_value(value: Any) -> Any:
    kind = value.WhichOneof("value")
    return (
        [plain_value(item) for item in value.array_value.values]
        if kind == "array_value"
        else getattr(value, kind)
    )


def plain_attributes(pairs: Any) -> dict[str, Any]:
    return {pair.key: plain_value(pair.value) for pair in pairs}


def decode_spans(body: bytes) -> Iterator[ReceivedSpan]:
    for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
        service = plain_attributes(resource.resource.attributes)["service.name"]
        for span in (span for scope in resource.scope_spans for span in scope.spans):
            yield ReceivedSpan(
                span.name,
                span.trace_id.hex(),
                span.span_id.hex(),
                span.parent_span_id.hex(),
                span.start_time_unix_nano,
                span.end_time_unix_nano,
                plain_attributes(span.attributes),
                [(event.name, plain_attributes(event.attributes)) for event in span.events],
                [
                    (link.trace_id.hex(), link.span_id.hex(), plain_attributes(link.attributes))
                    for link in span.links
                ],
                span.status.code == 2,
                span.status.message,
                service,
            )


@contextmanager
def collecting(status: int = 200) -> Iterator[Collector]:
    """A collector that answers every request with a status."""
    collector = Collector(status=status)

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            if self.headers.get("content-encoding") == "gzip":
                body = gzip.decompress(body)
            collector.headers.append(dict(self.headers))
            if collector.status == 200 and self.path == "/v1/traces":
                collector.spans += decode_spans(body)
            elif collector.status == 200 and self.path == "/v1/metrics":
                collector.metrics.append(ExportMetricsServiceRequest.FromString(body))
            self.send_response(collector.status)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    collector.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield collector
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
