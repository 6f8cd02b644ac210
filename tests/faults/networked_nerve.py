"""The command line `nerve`, which reaches Temporal at an address that only this process uses.

The URL of an engine names a cluster and is the same everywhere; the networks of two machines to it are not.
"""

from __future__ import annotations

import os
import sys
from typing import Any

from temporalio.client import Client

from nerve.cli import execute_command_line

ADDRESS_VARIABLE = "NERVE_TEST_TEMPORAL_ADDRESS"


def use_own_network() -> None:
    """Let this process connect to the address of the variable, whatever the URL of the engine is."""
    connect = Client.connect

    async def connect_over_network(target_host: str, **settings: Any) -> Client:
        return await connect(os.environ[ADDRESS_VARIABLE], **settings)

    setattr(Client, "connect", staticmethod(connect_over_network))  # noqa: B010 - mypy refuses to replace a method


if __name__ == "__main__":
    use_own_network()
    sys.exit(execute_command_line(sys.argv[1:]))
