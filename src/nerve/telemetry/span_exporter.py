"""Sends spans by the SDK of OpenTelemetry, as the variables OTEL_* configure it."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import contextmanager
from functools import partial
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, cast

from nerve.core.trace_context import TraceParent
from nerve.errors import NerveError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from opentelemetry.trace import SpanContext

    from nerve.telemetry.run_spans import SpanRecord

INSTALL_FIX = "Install it: pip install '.[otel]' in the clone of Nerve."
DEFAULT_SERVICE_NAME = "nerve"
EXPORTERS = ("otlp", "console", "none")
PROTOCOL = "http/protobuf"
DEFAULT_EXPORT_INTERVAL_S = 5.0


class TelemetryUnavailable(NerveError):
    """Telemetry is switched on, and cannot work; the message says why."""


def check_installation() -> None:
    """Raise TelemetryUnavailable unless the extra is installed and its configuration is supported."""
    try:
        is_installed = find_spec("opentelemetry.sdk") and find_spec("opentelemetry.exporter.otlp.proto.http")
    except ModuleNotFoundError:
        is_installed = None
    if not is_installed:
        raise TelemetryUnavailable(f"Telemetry needs the OpenTelemetry SDK. {INSTALL_FIX}")
    for signal in ("TRACES", "METRICS"):
        exporter_name(signal)
        for variable in ("OTEL_EXPORTER_OTLP_PROTOCOL", f"OTEL_EXPORTER_OTLP_{signal}_PROTOCOL"):
            if (protocol := os.environ.get(variable, PROTOCOL)) != PROTOCOL:
                raise TelemetryUnavailable(
                    f"{variable} must be '{PROTOCOL}', got '{protocol}'. Collectors accept it on port 4318."
                )


def is_sdk_disabled() -> bool:
    """Return whether OTEL_SDK_DISABLED switches all telemetry off."""
    return os.environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true"


def exporter_name(signal: str) -> str:
    """Return the exporter that OTEL_TRACES_EXPORTER or OTEL_METRICS_EXPORTER names."""
    variable = f"OTEL_{signal}_EXPORTER"
    name = os.environ.get(variable, "otlp").strip() or "otlp"
    if name not in EXPORTERS:
        raise TelemetryUnavailable(f"{variable} must be one of {', '.join(EXPORTERS)}, got '{name}'.")
    return name


def make_resource() -> Any:
    """Return the resource that the environment describes; the service is `nerve` unless it is named."""
    from opentelemetry.sdk.resources import Resource

    described = Resource.create()
    if str(described.attributes.get("service.name", "")).startswith("unknown_service"):
        return described.merge(Resource({"service.name": DEFAULT_SERVICE_NAME}))
    return described


class SpanExport:
    """The provider, the queue and the exporter of the spans of one session.

    Spans are created one at a time on the event loop, with ids that are given. The queue is bounded; a thread
    of the SDK sends its content, and drops it if the collector does not accept it.
    """

    def __init__(self, on_sent: Callable[[float, int], None], on_failed: Callable[[int], None]) -> None:
        """`on_sent` gets the end of the last span of each batch that was sent, and their number.

        `on_failed` gets the number of spans of a batch that was not. Both are called in a thread.
        """
        from importlib.metadata import version  # takes long to import

        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor

        self._next_ids = GivenIds()
        self._provider = TracerProvider(
            resource=make_resource(), id_generator=cast("Any", self._next_ids), shutdown_on_exit=False
        )
        if (exporter := make_span_exporter()) is not None:
            self._processor = BatchSpanProcessor(watch_exporter(exporter, on_sent, on_failed))
            self._provider.add_span_processor(self._processor)
        self._tracer = self._provider.get_tracer("nerve", version("nerve"))

    def is_sampled(self, trace_id: int, foreign: TraceParent | None) -> bool:
        """Return whether the spans of a trace are exported, as the sampler of the environment decides."""
        return is_sampled(self._provider, trace_id, foreign)

    def send(self, record: SpanRecord) -> None:
        """Queue a span that has ended."""
        from opentelemetry.trace import Link, Status, StatusCode

        if not record.span.is_sampled:
            return
        self._next_ids.trace_id, self._next_ids.span_id = record.span.trace_id, record.span.span_id
        parent = record.parent
        span = self._tracer.start_span(
            record.name,
            context_of(parent, record.is_parent_foreign) if parent is not None else empty_context(),
            attributes=record.attributes,
            links=[Link(span_context(span), {"nerve.link": why}) for why, span in record.links],
            start_time=nanoseconds(record.start),
        )
        for event in record.events:
            span.add_event(event.name, event.attributes, nanoseconds(event.at))
        if record.error is not None:
            span.set_status(Status(StatusCode.ERROR, record.error))
        span.end(nanoseconds(max(record.start, record.end)))

    def flush(self) -> None:
        """Send what is queued; blocks until it was sent or has failed."""
        self._provider.force_flush()

    def close(self) -> None:
        self._provider.shutdown()


def is_sampled(provider: Any, trace_id: int, foreign: TraceParent | None) -> bool:
    context = None if foreign is None else context_of(foreign, is_remote=True)
    decision = provider.sampler.should_sample(context, trace_id, "invoke_workflow").decision
    return bool(decision.is_sampled())


def make_sampling() -> Callable[[int, TraceParent | None], bool]:
    """Return the decision of the sampler of the environment, for a process that sends no spans."""
    from opentelemetry.sdk.trace import TracerProvider

    return partial(is_sampled, TracerProvider(shutdown_on_exit=False))


class GivenIds:
    """An id generator of the SDK that returns the ids that were set."""

    trace_id = 1
    span_id = 1

    def generate_trace_id(self) -> int:
        return self.trace_id

    def generate_span_id(self) -> int:
        return self.span_id

    def is_trace_id_random(self) -> bool:
        """Whether trace ids are uniformly distributed, which those of a hash are."""
        return True


def export_interval_s() -> float:
    """Return the seconds for which spans wait for others."""
    try:
        return max(0.0, float(os.environ["OTEL_BSP_SCHEDULE_DELAY"]) / 1000)
    except (KeyError, ValueError):
        return DEFAULT_EXPORT_INTERVAL_S


def make_span_exporter() -> Any:
    """Return the exporter that the environment names; None for none."""
    name = exporter_name("TRACES")
    if name == "console":
        from opentelemetry.sdk.trace.export import ConsoleSpanExporter

        return ConsoleSpanExporter()
    if name == "none":
        return None
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

    return OTLPSpanExporter()


def watch_exporter(
    exporter: Any, on_sent: Callable[[float, int], None], on_failed: Callable[[int], None]
) -> Any:
    """Return an exporter that reports what the collector has accepted."""
    from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

    class WatchedExporter(SpanExporter):
        def export(self, spans: Sequence[Any]) -> Any:
            result = exporter.export(spans)
            if result is SpanExportResult.SUCCESS:
                on_sent(max(span.end_time for span in spans) / 1e9, len(spans))
            else:
                on_failed(len(spans))
            return result

        def shutdown(self) -> None:
            exporter.shutdown()

    return WatchedExporter()


# -- contexts ------------------------------------------------------------------------------------------


def span_context(span: TraceParent, is_remote: bool = False) -> SpanContext:
    from opentelemetry.trace import SpanContext, TraceFlags

    return SpanContext(span.trace_id, span.span_id, is_remote, TraceFlags(span.flags & 0xFF))


def empty_context() -> Any:
    from opentelemetry.context import Context

    return Context()


def context_of(span: TraceParent, is_remote: bool = False) -> Any:
    """Return a context in which a span is current."""
    from opentelemetry.trace import NonRecordingSpan, set_span_in_context

    return set_span_in_context(NonRecordingSpan(span_context(span, is_remote)), empty_context())


@contextmanager
def attach_span(span: TraceParent) -> Iterator[None]:
    """Make a span current in a block, in addition to what the context has."""
    from opentelemetry import context
    from opentelemetry.trace import NonRecordingSpan, set_span_in_context

    token = context.attach(set_span_in_context(NonRecordingSpan(span_context(span))))
    try:
        yield
    finally:
        context.detach(token)


def current_traceparent() -> str | None:
    """Return the span that the code of the caller runs in; None without one."""
    from opentelemetry.trace import get_current_span

    found = get_current_span().get_span_context()
    if not found.is_valid:
        return None
    return str(TraceParent(found.trace_id, found.span_id, int(found.trace_flags)))


def nanoseconds(seconds: float) -> int:
    return int(seconds * 1e9)
