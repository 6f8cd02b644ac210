"""Telemetry: traces, metrics and logs, read from what the engine has written. Traces need `nerve[otel]`."""
