"""Re-export of `nerve.session.Session` under the documented import path.

The attribute is imported on use: the session is composed of the layers above the core, so the core does not
import it.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

__all__ = ["Session"]


def __getattr__(name: str) -> Any:
    if name in __all__:
        return getattr(import_module("nerve.session"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
