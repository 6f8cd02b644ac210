"""Sends metrics by OTLP."""

from __future__ import annotations

import os
from typing import Any

from nerve.telemetry.metrics import HistogramValue, Metric
from nerve.telemetry.span_exporter import exporter_name, make_resource, nanoseconds

DEFAULT_INTERVAL_S = 60.0


def metric_interval_s() -> float:
    """Return the seconds between two exports."""
    try:
        return max(0.01, float(os.environ["OTEL_METRIC_EXPORT_INTERVAL"]) / 1000)
    except (KeyError, ValueError):
        return DEFAULT_INTERVAL_S


class MetricExport:
    """The exporter of the metrics of one session."""

    def __init__(self, started_at: float) -> None:
        self._resource, self._started_ns = make_resource(), nanoseconds(started_at)
        self._exporter = make_metric_exporter()

    def send(self, metrics: list[Metric], at: float) -> None:
        """Send the metrics as they were at a time; blocks until they are sent or have failed."""
        from opentelemetry.sdk.metrics.export import MetricsData, ResourceMetrics, ScopeMetrics
        from opentelemetry.sdk.util.instrumentation import InstrumentationScope

        converted = [self._convert(metric, nanoseconds(at)) for metric in metrics if metric.samples]
        scope = ScopeMetrics(InstrumentationScope("nerve"), converted, "")
        self._exporter.export(MetricsData([ResourceMetrics(self._resource, [scope], "")]))

    def close(self) -> None:
        self._exporter.shutdown()

    def _convert(self, metric: Metric, now_ns: int) -> Any:
        from opentelemetry.sdk.metrics import export

        points = [
            export.HistogramDataPoint(
                dict(labels),
                self._started_ns,
                now_ns,
                sum(value.buckets),
                value.total,
                value.buckets,
                value.bounds,
                None,  # type: ignore[arg-type] # the least and the largest value are not kept
                None,  # type: ignore[arg-type]
            )
            if isinstance(value, HistogramValue)
            else export.NumberDataPoint(dict(labels), self._started_ns, now_ns, value)
            for labels, value in metric.samples
        ]
        cumulative = export.AggregationTemporality.CUMULATIVE
        data: Any
        match metric.kind:
            case "histogram":
                data = export.Histogram(points, cumulative)  # type: ignore[arg-type]
            case "counter":
                data = export.Sum(points, cumulative, True)  # type: ignore[arg-type]
            case _:
                data = export.Gauge(points)  # type: ignore[arg-type]
        return export.Metric(metric.name, metric.help, metric.unit, data)


def make_metric_exporter() -> Any:
    if exporter_name("METRICS") == "console":
        from opentelemetry.sdk.metrics.export import ConsoleMetricExporter

        return ConsoleMetricExporter()
    from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter

    return OTLPMetricExporter()
