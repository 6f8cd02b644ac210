"""The operations of the API, in this process or over HTTP."""

from typing import TYPE_CHECKING, Any

from nerve.client.server_address import ServerAddress, find_server

if TYPE_CHECKING:
    from nerve.client.client import Client

__all__ = ["Client", "ServerAddress", "find_server"]


def __getattr__(name: str) -> Any:
    """Import Client on first use: the models of the API take long to import."""
    if name != "Client":
        raise AttributeError(f"module 'nerve.client' has no attribute '{name}'")
    from nerve.client.client import Client

    return Client
