"""Programs that a test kills, pauses and starts again, as a service manager does."""

from __future__ import annotations

import functools
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from faults.schedule import Effect
from postgresql_server import PostgresqlServer, stop_with_parent
from temporal_cluster import TemporalCluster
from temporal_server import TemporalServer


class Program:
    """A Python program in a folder of its own, as on another machine."""

    def __init__(self, folder: Path, arguments: Sequence[str], environment: Mapping[str, str]) -> None:
        self.folder = folder
        self._arguments = arguments
        self._environment = environment
        self.process: subprocess.Popen[bytes] | None = None
        self._is_wanted = False
        folder.mkdir()

    @property
    def log(self) -> Path:
        return self.folder / "log"

    def start(self) -> None:
        self._is_wanted = True
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, *self._arguments],
                cwd=self.folder,
                env={**os.environ, **self._environment},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                preexec_fn=functools.partial(stop_with_parent, signal.SIGKILL),
            )

    def keep_running(self) -> None:
        """Start the program again if it has ended by itself."""
        if self._is_wanted and self.process is not None and self.process.poll() is not None:
            self.start()

    def kill(self) -> None:
        self.end(signal.SIGKILL)

    def end(self, number: signal.Signals = signal.SIGTERM) -> None:
        self._is_wanted = False
        process, self.process = self.process, None
        if process is not None:
            process.send_signal(number)
            process.wait(60)

    def pause(self) -> None:
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        self._signal(signal.SIGCONT)

    def _signal(self, number: signal.Signals) -> None:
        if self.process is not None:
            self.process.send_signal(number)

    def faults(self) -> dict[str, Effect]:
        return {"kill": Effect(self.kill, self.start), "pause": Effect(self.pause, self.resume)}


class ClusterFaults:
    """The faults of a Temporal cluster and of its database, without which it cannot start."""

    def __init__(self, cluster: TemporalCluster) -> None:
        self._cluster = cluster
        self._is_down = False

    def targets(self) -> dict[str, dict[str, Effect]]:
        database = self._cluster.postgresql
        return {
            "temporal": {
                "kill": Effect(lambda: self._end(self._cluster.kill), self._start),
                "stop": Effect(lambda: self._end(self._cluster.stop), self._start),
            },
            "database of temporal": {
                "kill": Effect(database.kill, self._start_database),
                "stop": Effect(database.stop, self._start_database),
            },
        }

    def _end(self, end: Callable[[], None]) -> None:
        self._is_down = True
        end()

    def _start(self) -> None:
        self._is_down = False
        if self._cluster.postgresql.is_running:
            self._cluster.start()

    def _start_database(self) -> None:
        self._cluster.postgresql.start()
        if not self._is_down:
            self._cluster.keep_running()


def faults_of_server(server: PostgresqlServer | TemporalServer) -> dict[str, Effect]:
    return {"kill": Effect(server.kill, server.start), "stop": Effect(server.stop, server.start)}
