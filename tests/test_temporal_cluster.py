"""The Temporal server of production keeps what it acknowledged, whatever happens to PostgreSQL below it."""

import json
import subprocess
import time
from pathlib import Path

import pytest

from postgresql_server import ServerMissing
from temporal_cluster import FOLDER_VARIABLE, NOT_FOUND, VERSION, TemporalCluster
from temporal_server import find_program

ROUNDS = 6


def run_cli(cluster: TemporalCluster, namespace: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    where = ["--address", cluster.address, "--namespace", namespace, "--command-timeout", "20s"]
    return subprocess.run([find_program(), *arguments, *where], capture_output=True, text=True, timeout=60)


def read_signals(cluster: TemporalCluster, namespace: str) -> list[str]:
    deadline = time.monotonic() + 60
    command = "workflow", "show", "--workflow-id=w", "--output=json"
    while (shown := run_cli(cluster, namespace, *command)).returncode:  # its shards may not be there yet
        assert time.monotonic() < deadline, shown.stderr
    events = json.loads(shown.stdout)["events"]
    signals = [event.get("workflowExecutionSignaledEventAttributes") for event in events]
    return [signal["signalName"] for signal in signals if signal]


@pytest.mark.full
def test_every_acknowledged_signal_survives_kills_of_postgresql_and_of_the_server(
    temporal_cluster: TemporalCluster,
) -> None:
    namespace = temporal_cluster.create_namespace()
    started = run_cli(
        temporal_cluster, namespace, "workflow", "start", "--type=t", "--task-queue=q", "--workflow-id=w"
    )
    assert started.returncode == 0, started.stderr
    acknowledged = []
    for number in range(ROUNDS):
        name = f"signal-{number}"
        sent = run_cli(temporal_cluster, namespace, "workflow", "signal", "--workflow-id=w", "--name", name)
        if sent.returncode == 0:
            acknowledged.append(name)
        server = temporal_cluster if number % 3 == 2 else temporal_cluster.postgresql
        server.stop() if number % 2 else server.kill()
        server.start()
    signals = read_signals(temporal_cluster, namespace)
    assert set(acknowledged) <= set(signals)
    assert len(signals) == len(set(signals))
    assert len(acknowledged) > ROUNDS / 2


@pytest.mark.full
def test_the_schema_of_the_databases_is_that_of_the_server(temporal_cluster: TemporalCluster) -> None:
    import psycopg

    for database in "temporal", "temporal_visibility":
        with psycopg.connect(temporal_cluster.postgresql.url(database)) as db:
            [(version, oldest)] = db.execute(
                "SELECT curr_version, min_compatible_version FROM schema_version"
            )
            assert (version, oldest) != ("0.0", "0.0")


def test_a_missing_server_has_a_clear_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path))
    with pytest.raises(ServerMissing) as raised:
        TemporalCluster()
    assert str(raised.value) == NOT_FOUND


def test_the_makefile_builds_the_version_that_the_tests_look_for() -> None:
    makefile = Path(__file__).parents[1].joinpath("Makefile").read_text()
    assert f"TEMPORAL_VERSION := {VERSION}\n" in makefile
