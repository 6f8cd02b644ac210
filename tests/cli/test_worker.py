"""`nerve worker`: executes leaves of a project until a signal comes, and says what is missing."""

import asyncio
import json
import os
import re
import signal
import socket
import uuid
from contextlib import closing
from pathlib import Path
from urllib.parse import urlsplit

import httpx2
import pytest
from prometheus_client.parser import text_string_to_metric_families
from temporalio.client import Client
from temporalio.worker import Worker

from engine.temporal.leaf_workers import WORKFLOW_QUEUE, ExecuteLeaf
from nerve.engine.temporal.messages import LeafInput
from nerve.project.engine_url import TemporalAddress, parse_engine_url
from nerve.store.port import Append, EventRow
from nerve.store.postgres import PostgresStore
from nerve.store.postgres_projection import PostgresProjection
from nerve.testing.store_contract import run_row
from nerve_processes import Process
from temporal_server import TemporalServer

GUIDE = Path(__file__).parents[2] / "docs/guides/observability.md"
PYTHON = """
import logging
from nerve import FunctionNode

def register(session):
    FunctionNode("upper", session, upper)

    FunctionNode("fail", session, fail)

def fail(context):
    raise ValueError("card declined")

def upper(context):
    print("printed")
    logging.getLogger("shop").warning("logged")
    return str(context.input).upper()
"""


def nerve(*arguments: str, cwd: Path, **variables: str) -> Process:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("NERVE_")}
    return Process(*arguments, cwd=cwd, environment={**kept, "NERVE_HOME": str(cwd / "home"), **variables})


async def test_a_worker_executes_the_steps_of_its_project_and_stops_on_a_signal(
    tmp_path: Path, temporal_url: str, postgresql_url: str
) -> None:
    (tmp_path / "steps.py").write_text(PYTHON)
    metrics = f"127.0.0.1:{find_free_port()}"
    options = ("--leaves", "bash", "--with", "steps.py", "--json", "--quiet", "--host-name", "my-host")
    options = (*options, "--log-json", "--metrics", metrics)
    process = nerve("worker", *options, cwd=tmp_path, NERVE_ENGINE=temporal_url, NERVE_STORE=postgresql_url)
    ready = await asyncio.to_thread(process.stdout.readline)
    assert ready, process.communicate()[1]
    assert "queues" in ready, ready
    queues = json.loads(ready)["queues"]
    assert queues == ["nerve-default-leaves", "nerve-default-host-my-host"]
    start = Append("r", 0, [EventRow(1, 1.0, "workflow_started", "", None, "{}")], run_row("r"))
    with closing(PostgresProjection(postgresql_url, "default", temporal_url)) as projection:
        projection.append("r", [start])  # as the body worker does, without which no step begins
    address = urlsplit(temporal_url)
    client = await Client.connect(address.netloc, namespace=address.path.strip("/"))
    async with Worker(client, task_queue=WORKFLOW_QUEUE, workflows=[ExecuteLeaf]):
        for queue in queues:
            leaf = LeafInput("default", "r", "flow", f"/{queue}", "upper", {"name": "upper"}, 1, "a")
            done = await client.execute_workflow(
                "execute-leaf", args=[leaf.to_data(), queue], id=str(uuid.uuid4()), task_queue=WORKFLOW_QUEUE
            )
            assert (done["result"]["output"], done["host"]) == ("A", "my-host")
        leaf = LeafInput("default", "r", "flow", "/fail", "fail", {"name": "fail"}, 1)
        arguments = [leaf.to_data(), queues[0]]
        await client.execute_workflow(
            "execute-leaf", args=arguments, id=str(uuid.uuid4()), task_queue=WORKFLOW_QUEUE
        )
    async with httpx2.AsyncClient(trust_env=False) as http:
        text = (await http.get(f"http://{metrics}/metrics")).text
    families = {family.name: family for family in text_string_to_metric_families(text)}
    executed = families["temporal_activity_execution_latency_seconds"].samples
    assert {sample.labels["task_queue"] for sample in executed} == set(queues)
    # Those of workflows are metrics of body workers.
    documented = re.findall(r"`(temporal_(?!workflow|sticky)\w+)`", GUIDE.read_text())
    assert len(documented) == 4
    assert set(documented) <= families.keys()
    process.send_signal(signal.SIGTERM)
    _, errors = await asyncio.to_thread(process.communicate)
    assert process.returncode == 0, errors
    records = [json.loads(line) for line in errors.splitlines()]
    logged = [(each["run"], each["path"], each["message"]) for each in records if each["logger"] == "shop"]
    assert logged == [("r", f"/{queue}", "logged") for queue in queues]
    [failure] = [each for each in records if each.get("path") == "/fail"]
    assert failure["run"] == "r"
    assert failure["message"].startswith("run r of 'flow': step /fail failed: ValueError: card declined (")
    assert "in fail" in failure["message"]
    with closing(PostgresStore(postgresql_url, None)) as store:
        events = [(row.type, row.path, row.data) for row in store.events("r")]
    for queue in queues:
        of_step = {type: data for type, path, data in events if path == f"/{queue}"}
        assert "printed" in of_step["output_chunk"]
        assert "logged" in of_step["log"]


def find_free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
    return port


def test_a_worker_without_temporal_logs_that_once_and_stops_on_a_signal(
    tmp_path: Path, temporal_server: TemporalServer, postgresql_url: str
) -> None:
    options = ["--bodies", "--leaves", "bash", "--json", "--quiet", "--log-json"]
    with type(temporal_server)() as server:
        url = server.url(server.create_namespace())
        process = nerve("worker", *options, cwd=tmp_path, NERVE_ENGINE=url, NERVE_STORE=postgresql_url)
        assert process.stdout.readline()
        server.kill()
        lines = []
        while "Temporal does not answer (" not in (lines or [""])[-1]:
            lines.append(process.stderr.readline())
            assert lines[-1], lines
        process.send_signal(signal.SIGTERM)
        lines += process.communicate(timeout=60)[1].splitlines()
    assert process.returncode == 0, lines
    messages = [json.loads(line)["message"] for line in lines]
    assert sum("Temporal does not answer" in message for message in messages) == 1, messages


def test_a_worker_says_why_it_cannot_serve_metrics(
    tmp_path: Path, temporal_url: str, postgresql_url: str
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        variables = {"NERVE_ENGINE": temporal_url, "NERVE_STORE": postgresql_url}
        process = nerve("worker", "--leaves", "bash", "--metrics", address, cwd=tmp_path, **variables)
        _, errors = process.communicate()
    assert process.returncode == 2, errors
    assert f"Cannot serve metrics on {address}" in errors
    assert "Traceback" not in errors


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--leaves", " , "], "--leaves must be names such as claude,bash, got ' , '."),
        ([], "A worker needs something to execute: --leaves claude,bash, or --bodies."),
        (["--leaves", "bash", "--promote"], "--promote needs --bodies: only bodies have builds."),
        (["--leaves", "bash"], "The engine is missing: --engine temporal://HOST:7233/NAMESPACE"),
        (["--leaves", "bash", "--engine", "temporal://h"], "A worker needs a database: --store postgresql:"),
        (
            ["--leaves", "bash", "--engine", "http://h", "--store", "postgresql://h/d"],
            "The engine must be a URL such as temporal://HOST:7233/NAMESPACE, got 'http://h'.",
        ),
        (
            ["--leaves", "cloude", "--engine", "temporal://h", "--store", "postgresql://h/d"],
            "Unknown provider 'cloude'. Write bash for all steps that are not agents.",
        ),
    ],
)
def test_a_worker_says_what_is_wrong(tmp_path: Path, arguments: list[str], message: str) -> None:
    process = nerve("worker", *arguments, cwd=tmp_path)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 2
    assert message in errors


def test_code_with_a_step_that_no_other_worker_can_find_is_refused(tmp_path: Path) -> None:
    (tmp_path / "steps.py").write_text(
        "from nerve import FunctionNode, Graph\n\n"
        "def register(session):\n"
        "    Graph('flow', session).add_step(FunctionNode('inner', None, str))\n"
    )
    process = nerve(
        *("worker", "--leaves", "bash", "--with", "steps.py", "--engine", "temporal://h"),
        cwd=tmp_path,
        NERVE_STORE="postgresql://h/d",
    )
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 2
    assert "A worker cannot find the step 'inner' (FunctionNode), which has no name of its own." in errors
    assert "Create it with an id and the session." in errors


def test_a_cluster_that_cannot_be_reached_is_named(tmp_path: Path, postgresql_url: str) -> None:
    process = nerve(
        *("worker", "--leaves", "bash", "--engine", "temporal://127.0.0.1:9/team"),
        cwd=tmp_path,
        NERVE_STORE=postgresql_url,
    )
    _, errors = process.communicate(timeout=60)
    assert process.returncode != 0
    assert "Cannot use temporal://127.0.0.1:9/team: " in errors
    assert "Start Temporal there, or select another address." in errors


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("temporal://h", ("h:7233", "default")),
        ("temporal://h:9/", ("h:9", "default")),
        ("temporal://[::1]:9/team", ("[::1]:9", "team")),
    ],
)
def test_an_address_has_a_default_port_and_namespace(url: str, address: tuple[str, str]) -> None:
    assert parse_engine_url(url) == address
    assert parse_engine_url(str(TemporalAddress(*address))) == address


@pytest.mark.parametrize("url", ["", "h:7233", "temporal:///team", "temporal://h:x", "temporal://h/a/b"])
def test_an_address_that_is_not_valid_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match="must be a URL such as temporal://HOST:7233/NAMESPACE, got "):
        parse_engine_url(url)


@pytest.mark.parametrize("arguments", [["worker", "--bodies"], ["worker", "--leaves", "bash"], ["serve"]])
def test_no_server_and_no_worker_of_a_cluster_ignores_the_encryption_of_a_project(
    tmp_path: Path, temporal_url: str, postgresql_url: str, arguments: list[str]
) -> None:
    (tmp_path / ".nerve").mkdir()
    (tmp_path / ".nerve/config.json").write_text('{"encryption": {"key_env": "KEYS"}}')
    variables = {"NERVE_ENGINE": temporal_url, "NERVE_STORE": postgresql_url}
    process = nerve(*arguments, cwd=tmp_path, **variables)
    _, errors = process.communicate(timeout=60)
    assert process.returncode != 0
    message = "config.json has 'encryption', and runs in Temporal are not encrypted. Remove it there"
    assert message in errors
