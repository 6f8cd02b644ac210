"""`Session` under the name that the design documents import; `nerve.session` defines it.

The attribute is looked up when it is used: the session is composed from the layers above the core, so the
core does not import it.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

__all__ = ["Session"]


def __getattr__(name: str) -> Any:
    if name in __all__:
        return getattr(import_module("nerve.session"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
