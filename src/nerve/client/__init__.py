"""The operations of the API, in this process or over HTTP."""

from nerve.client.client import Client, ServerAddress, find_server

__all__ = ["Client", "ServerAddress", "find_server"]
