"""Programs that a test kills, pauses and starts again, as a service manager does."""

from __future__ import annotations

import signal
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from faults.schedule import Effect
from nerve_processes import Process
from postgresql_server import PostgresqlServer
from temporal_cluster import TemporalCluster
from temporal_server import TemporalServer


class Program:
    """A command of `nerve` in a folder of its own, as on another machine."""

    def __init__(
        self,
        folder: Path,
        arguments: Sequence[str],
        environment: Mapping[str, str],
        module: str | None = None,
    ) -> None:
        """`module` executes the command line, if it is not the usual one."""
        self.folder, self._module = folder, module
        self._arguments = arguments
        self._environment = environment
        self.process: Process | None = None
        self._is_wanted = False
        folder.mkdir()

    @property
    def log(self) -> Path:
        return self.folder / "log"

    def start(self) -> None:
        self._is_wanted = True
        with self.log.open("ab") as log:
            streams = 0, log.fileno(), log.fileno()
            self.process = Process(
                *self._arguments,
                streams=streams,
                cwd=self.folder,
                module=self._module,
                **self._environment,
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
