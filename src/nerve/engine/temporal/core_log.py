"""The log of the core of the Temporal SDK, as records of Python's logging."""

from __future__ import annotations

import logging
import re
import time
from contextlib import suppress
from functools import cache

from temporalio.runtime import (
    LogForwardingConfig,
    LoggingConfig,
    PrometheusConfig,
    Runtime,
    TelemetryConfig,
)

core_log = logging.getLogger("temporalio.core")
RETRY_TARGET = "temporalio_client::retry"
REPORT_INTERVAL_S = 60.0
"""Seconds between two records that say that Temporal does not answer."""


class RetryFilter(logging.Filter):
    """Passes one record in a minute for the calls that the core repeats, several a second for each worker."""

    def __init__(self) -> None:
        super().__init__()
        self._next_report = 0.0

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether the log gets a record; one about repeated calls gets a message of its own."""
        entry = getattr(record, "temporal_log", None)
        if entry is None or entry.target != RETRY_TARGET:
            return True
        if time.monotonic() < self._next_report:
            return False
        self._next_report = time.monotonic() + REPORT_INTERVAL_S
        problem = str(entry.fields.get("error", ""))
        found = re.search(r'message: "(.*?)"', problem)
        record.msg = (
            f"Temporal does not answer ({found[1] if found else problem}); calls are repeated until it does"
        )
        return True


def make_runtime(metrics: PrometheusConfig | None = None) -> Runtime:
    """Return a runtime of the SDK that logs through Python; RuntimeError if it cannot serve its metrics."""
    if not core_log.filters:
        core_log.addFilter(RetryFilter())
    forwarding = LogForwardingConfig(core_log, append_target_to_name=False, prepend_target_on_message=False)
    log_config = LoggingConfig(LoggingConfig.default.filter, forwarding)
    return Runtime(telemetry=TelemetryConfig(logging=log_config, metrics=metrics))


@cache
def forward_core_log() -> None:
    """Let the SDK log through Python in this process, unless it has a runtime already."""
    with suppress(RuntimeError):
        Runtime.set_default(make_runtime())
