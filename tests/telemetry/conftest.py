"""A collector, and the variables that send there."""

from collections.abc import Iterator

import pytest

from telemetry.collector import Collector, collecting


@pytest.fixture
def collector(monkeypatch: pytest.MonkeyPatch) -> Iterator[Collector]:
    with collecting() as received:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", received.url)
        monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "20")
        yield received
