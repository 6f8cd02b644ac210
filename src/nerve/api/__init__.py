"""The API: every command and query, shared by all user interfaces, servers and clients."""

from typing import TYPE_CHECKING, Any

from nerve.api.errors import ApiError
from nerve.api.operations import OPERATIONS, Operation

if TYPE_CHECKING:
    from nerve.api.service import Api

__all__ = ["OPERATIONS", "Api", "ApiError", "Operation"]


def __getattr__(name: str) -> Any:
    """Import Api on first use: it needs a session, which a client does not have."""
    if name != "Api":
        raise AttributeError(f"module 'nerve.api' has no attribute '{name}'")
    from nerve.api.service import Api

    return Api
