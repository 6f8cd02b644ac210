"""The api: every command and every query, the one door for all screens, servers and clients."""

from nerve.api.door import Api
from nerve.api.errors import ApiError
from nerve.api.operations import OPERATIONS, Operation

__all__ = ["OPERATIONS", "Api", "ApiError", "Operation"]
