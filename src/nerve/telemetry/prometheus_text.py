"""Metrics in the text format of Prometheus."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from nerve.telemetry.metrics import HistogramValue, Labels, Metric

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
UNIT_SUFFIXES = {"s": "_seconds", "USD": "_usd"}


def format_metrics(metrics: Iterable[Metric]) -> str:
    return "".join(f"{line}\n" for metric in metrics for line in metric_lines(metric))


def metric_lines(metric: Metric) -> Iterator[str]:
    name = prometheus_name(metric)
    yield f"# HELP {name} {metric.help}"
    yield f"# TYPE {name} {metric.kind}"
    for sample in metric.samples:
        if isinstance(sample.value, HistogramValue):
            yield from histogram_lines(name, sample.labels, sample.value)
        else:
            yield f"{name}{format_labels(sample.labels)} {format_number(sample.value)}"


def prometheus_name(metric: Metric) -> str:
    """Return the name that a collector of OpenTelemetry would give to the metric."""
    name = metric.name.replace(".", "_") + UNIT_SUFFIXES.get(metric.unit, "")
    return f"{name}_total" if metric.kind == "counter" else name


def histogram_lines(name: str, labels: Labels, value: HistogramValue) -> Iterator[str]:
    count = 0
    bounds = [*map(format_number, value.bounds), "+Inf"]
    for bound, in_bucket in zip(bounds, value.buckets, strict=True):
        count += in_bucket
        yield f"{name}_bucket{format_labels((*labels, ('le', bound)))} {count}"
    yield f"{name}_sum{format_labels(labels)} {format_number(value.total)}"
    yield f"{name}_count{format_labels(labels)} {count}"


def format_labels(labels: Labels) -> str:
    pairs = ",".join(f'{name}="{escape_label(value)}"' for name, value in labels)
    return f"{{{pairs}}}" if pairs else ""


def escape_label(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def format_number(value: float) -> str:
    return str(int(value)) if value == int(value) else repr(value)
