"""The core: nodes, workflows and values. It decides what is executed; only leaves have side effects."""

from typing import Any


def __getattr__(name: str) -> Any:
    """Return what a name of upstream Nerve is here, or raise an error that says what to use."""
    from nerve.upstream_names import find_upstream_name

    return find_upstream_name(__name__, name)
