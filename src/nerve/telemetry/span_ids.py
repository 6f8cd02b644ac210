"""Ids of traces and spans, derived from runs and paths: the same after a restart."""

from __future__ import annotations

from hashlib import sha256

RUN_SPAN = "run"


def trace_id_of_run(run_id: str) -> int:
    """Return the trace id of a run that continues no other trace."""
    return hash_number(16, "trace", run_id)


def span_id_of_run(run_id: str) -> int:
    return hash_number(8, RUN_SPAN, run_id)


def span_id_of_call(run_id: str, call_key: str) -> int:
    """Return the span id of a call or a wait; a call that is reset has another key, and another span."""
    return hash_number(8, "call", run_id, call_key)


def span_id_of_event(run_id: str, seq: int) -> int:
    """Return the id of a span that one event starts, such as the use of a tool."""
    return hash_number(8, "event", run_id, str(seq))


def hash_number(size: int, *parts: str) -> int:
    """Return a number of `size` bytes that is never 0, which the standard does not allow."""
    digest = sha256("\n".join(parts).encode("utf-8", "surrogatepass")).digest()[:size]
    return int.from_bytes(digest, "big") or 1
