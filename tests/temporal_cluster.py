"""The Temporal server of production with its history in PostgreSQL, for the tests with full settings.

`make temporal-cluster` builds its programs with Go. Run as a program, this prints their folder.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import socket
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Any

from postgresql_server import USER, PostgresqlServer, ServerMissing
from temporal_server import START_TIMEOUT_S, TemporalServer

FOLDER_VARIABLE = "NERVE_TEST_TEMPORAL_CLUSTER"
"""The environment variable that selects the folder of `temporal-server` and `temporal-sql-tool`."""

VERSION = "1.32.1"
NOT_FOUND = (
    "No Temporal server of production was found. Run `make temporal-cluster`, which needs Go,"
    f" or set {FOLDER_VARIABLE} to the folder of temporal-server and temporal-sql-tool."
)

SCHEMAS = {"temporal": "postgresql/v12/temporal", "temporal_visibility": "postgresql/v12/visibility"}
SERVICES = "frontend", "history", "matching", "worker"
SHARDS = 4
CONNECTIONS = 20
LOW_PORTS = 10_000, 2**15 - 1


def find_folder() -> Path:
    """Return the folder with the programs of the server, or raise ServerMissing."""
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    folder = Path(os.environ.get(FOLDER_VARIABLE) or Path(cache, f"nerve/temporal-{VERSION}"))
    if all(os.access(folder / name, os.X_OK) for name in ("temporal-server", "temporal-sql-tool")):
        return folder
    raise ServerMissing(NOT_FOUND)


def choose_low_port() -> int:
    """Return a free port that fits into the column of PostgreSQL in which the server notes it, a smallint."""
    while True:
        with (
            contextlib.suppress(OSError),
            socket.create_server(("127.0.0.1", random.randint(*LOW_PORTS))) as listener,
        ):
            port: int = listener.getsockname()[1]
            return port


class TemporalCluster(TemporalServer):
    """The four services of a cluster in one process, above a PostgreSQL server of their own."""

    def __init__(self, **settings: str) -> None:
        super().__init__(**settings)
        self._programs = find_folder()
        self.postgresql = PostgresqlServer()

    def __enter__(self) -> TemporalCluster:
        self.postgresql.__enter__()
        try:
            for database, schema in SCHEMAS.items():
                self._run_sql_tool(database, "create-database")
                self._run_sql_tool(database, "setup-schema", "--version", "0.0")
                self._run_sql_tool(database, "update-schema", "--schema-name", schema)
            super().__enter__()
        except BaseException:
            self.postgresql.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        super().__exit__(kind, error, trace)
        self.postgresql.__exit__(kind, error, trace)

    def keep_running(self) -> None:
        self.postgresql.keep_running()
        super().keep_running()

    def _choose_port(self) -> int:
        return choose_low_port()

    def _name_spare_namespaces(self) -> list[str]:
        return []  # this server creates none by itself

    def _run_sql_tool(self, database: str, *command: str) -> None:
        connection = f"--plugin postgres12 --endpoint 127.0.0.1 --port {self.postgresql.port} --user {USER}"
        default = ["--defaultdb", "postgres"] if command == ("create-database",) else []
        tool: list[str | Path] = [
            self._programs / "temporal-sql-tool",
            *connection.split(),
            "--database",
            database,
        ]
        result = subprocess.run(
            [*tool, *command, *default],
            env={"SQL_PASSWORD": self.postgresql.password, "PATH": os.environ["PATH"]},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=START_TIMEOUT_S,
        )
        if result.returncode:
            raise RuntimeError(f"temporal-sql-tool {command[0]} failed: {result.stdout.strip()[-1000:]}")

    def _write_command(self) -> list[str]:
        dynamic = {name: [{"value": json.loads(value)}] for name, value in self._settings.items()}
        (self.folder / "dynamic.yaml").write_text(json.dumps(dynamic))
        (self.folder / "server.yaml").write_text(json.dumps(self._write_config()))
        config = ["--config-file", str(self.folder / "server.yaml")]
        return [str(self._programs / "temporal-server"), *config, "--allow-no-auth", "start"]

    def _write_config(self) -> dict[str, Any]:
        services = {
            name: {
                "rpc": {
                    "grpcPort": choose_low_port(),
                    "membershipPort": choose_low_port(),
                    "bindOnIP": "127.0.0.1",
                }
            }
            for name in SERVICES
        }
        services["frontend"]["rpc"]["grpcPort"] = self.port
        cluster = {
            "enabled": True,
            "initialFailoverVersion": 1,
            "rpcName": "frontend",
            "rpcAddress": self.address,
        }
        return {
            "log": {"stdout": True, "level": "error"},
            "persistence": {
                "defaultStore": "temporal",
                "visibilityStore": "temporal_visibility",
                "numHistoryShards": SHARDS,
                "datastores": {name: {"sql": self._describe_database(name)} for name in SCHEMAS},
            },
            "global": {"membership": {"maxJoinDuration": "30s", "broadcastAddress": "127.0.0.1"}},
            "services": services,
            "clusterMetadata": {
                "failoverVersionIncrement": 10,
                "masterClusterName": "active",
                "currentClusterName": "active",
                "clusterInformation": {"active": cluster},
            },
            "dynamicConfigClient": {"filepath": str(self.folder / "dynamic.yaml"), "pollInterval": "10s"},
        }

    def _describe_database(self, name: str) -> dict[str, Any]:
        return {
            "pluginName": "postgres12",
            "databaseName": name,
            "connectAddr": f"127.0.0.1:{self.postgresql.port}",
            "connectProtocol": "tcp",
            "user": USER,
            "password": self.postgresql.password,
            "maxConns": CONNECTIONS,
            "maxIdleConns": CONNECTIONS,
            "maxConnLifetime": "1h",
        }

    def create_namespace(self) -> str:
        """Create an empty namespace, wait until all services know it, and return its name."""
        name = super().create_namespace()
        self.wait_for_namespace(name)
        return name


if __name__ == "__main__":
    try:
        sys.stdout.write(f"{find_folder()}\n")
    except ServerMissing as error:
        sys.exit(str(error))
