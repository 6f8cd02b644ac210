"""The api: every command and every query, the one door for all screens, servers and clients."""

from typing import TYPE_CHECKING, Any

from nerve.api.errors import ApiError
from nerve.api.operations import OPERATIONS, Operation

if TYPE_CHECKING:
    from nerve.api.service import Api

__all__ = ["OPERATIONS", "Api", "ApiError", "Operation"]


def __getattr__(name: str) -> Any:
    """The door itself is opened by those who have a session; a client has none."""
    if name != "Api":
        raise AttributeError(f"module 'nerve.api' has no attribute '{name}'")
    from nerve.api.service import Api

    return Api
