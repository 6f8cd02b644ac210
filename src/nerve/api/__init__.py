"""The API: every command and query, shared by all user interfaces, servers and clients."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from nerve.api.errors import ApiError

if TYPE_CHECKING:
    from nerve.api.operations import OPERATIONS, Operation
    from nerve.api.service import Api

__all__ = ["OPERATIONS", "Api", "ApiError", "Operation"]

_MODULES = {
    "OPERATIONS": "nerve.api.operations",
    "Operation": "nerve.api.operations",
    "Api": "nerve.api.service",
}


def __getattr__(name: str) -> Any:
    """Import a name on first use: the models take long to import, and Api needs a session."""
    if name not in _MODULES:
        raise AttributeError(f"module 'nerve.api' has no attribute '{name}'")
    return getattr(import_module(_MODULES[name]), name)
