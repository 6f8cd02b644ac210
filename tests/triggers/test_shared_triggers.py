"""Triggers and notifications of several servers with one database: one server at a time starts and sends."""

from __future__ import annotations

import asyncio
import json
import signal
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager
from datetime import datetime, timedelta
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import httpx2
import pytest
from starlette.applications import Starlette

from nerve import Session, WorkflowContext
from nerve.api import Api, ApiError
from nerve.api.models import RunResponse
from nerve.api.service import execute_operation
from nerve.api.shared_session import SharedSession
from nerve.client import Client
from nerve.project.engine_url import TemporalAddress, parse_engine_url
from nerve.server.webhook_routes import build_webhook_routes
from nerve.session.body_worker import open_body_worker
from nerve.triggers.webhook_signatures import sign_request
from nerve_processes import Process
from notifications.receiver import Receiver, receiving
from server.processes import ServerProcess

SECRET = "a secret for tests"
PERIOD_S = 3
TRIGGERS: dict[str, dict[str, Any]] = {
    "tick": {"schedule": {"every": PERIOD_S, "overlap": "allow", "catch_up": "1h"}, "label": "{{ time }}"},
    "hook": {"webhook": {"signature": "standard", "secret": {"file": "secret"}}, "input": "{{ body.n }}"},
    "order": {"fact": "(order ?n)", "input": "{{ captures.n }}"},
    "ended": {
        "run": {"workflow": "echo"},
        "when": "run.tags.trigger == 'hook' || run.tags.trigger == 'order'",
        "input": "{{ run.result }}",
    },
}
FILES = {
    "secret": SECRET,
    **{
        f".nerve/triggers/{name}.json": json.dumps({"workflow": "echo", **definition})
        for name, definition in TRIGGERS.items()
    },
}


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with receiving() as receiver:
        yield receiver


def write_project(folder: Path, receiver: Receiver) -> None:
    """Write what `ServerProcess` writes into the folder of a server."""
    for name, text in {**FILES, ".nerve/config.json": json.dumps(make_config(receiver))}.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


def make_config(receiver: Receiver) -> dict[str, Any]:
    channel = {"kind": "webhook", "url": receiver.url, "secret": {"file": "secret"}}
    rule = {"events": ["run_completed"], "to": ["ops"], "tags": {"trigger": "ended"}}
    return {"notify": {"channels": {"ops": channel}, "rules": [rule]}}


@pytest.fixture
def cluster(
    tmp_path: Path,
    postgresql_url: str,
    temporal_url: str,
    receiver: Receiver,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[list[ServerProcess]]:
    """Two servers whose runs a cluster executes, the first of which starts the runs of triggers; a worker."""
    monkeypatch.setenv("NERVE_STORE", postgresql_url)
    monkeypatch.setenv("NERVE_ENGINE", temporal_url)
    with ExitStack() as stack:
        servers = start_servers(stack, tmp_path, postgresql_url, temporal_url, receiver)
        arguments = ["worker", "--bodies", "--with", "work.py", "--quiet"]
        with (tmp_path / "worker.log").open("w") as log:
            worker = Process(*arguments, cwd=servers[0].folder, stderr=log)
        stack.callback(worker.communicate)
        stack.callback(worker.send_signal, signal.SIGTERM)
        yield servers


@pytest.fixture
def owner_and_standby(
    tmp_path: Path, postgresql_url: str, receiver: Receiver
) -> Iterator[list[ServerProcess]]:
    """A server that executes the runs, and one that passes commands on to it."""
    with ExitStack() as stack:
        yield start_servers(stack, tmp_path, postgresql_url, None, receiver)


def start_servers(
    stack: ExitStack, folder: Path, store: str, engine: str | None, receiver: Receiver
) -> list[ServerProcess]:
    servers = []
    for name in ("alpha", "beta"):
        server = ServerProcess(folder / name, store, engine, config=make_config(receiver), files=FILES)
        stack.callback(server.end)
        server.wait_ready()
        servers.append(server)
    return servers


async def send_webhook(http: httpx2.AsyncClient, number: int) -> str:
    """Send a delivery until it is accepted, as senders do; return the run that it has started."""
    body = json.dumps({"n": number}).encode()
    while True:
        signed = sign_request("standard", SECRET, body, time.time(), f"d{number}")
        headers = {"content-type": "application/json", **signed}
        reply = await http.post("/hooks/hook", content=body, headers=headers)
        if reply.status_code == 202:
            return str(reply.json()["run_id"])
        assert reply.status_code == 503, reply.text
        await asyncio.sleep(0.1)


async def list_runs(client: Client, trigger: str) -> list[RunResponse]:
    runs = (await client.runs(workflow="echo", limit=500)).runs
    return [run for run in runs if run.tags.get("trigger") == trigger]


async def wait_for_runs(client: Client, trigger: str, count: int) -> list[RunResponse]:
    """Return the runs of a trigger when as many have been completed; a database may be slow for some time."""
    async with asyncio.timeout(90):
        while True:
            try:
                runs = await list_runs(client, trigger)
            except ApiError as error:
                if error.code != "busy":
                    raise
                continue
            if sum(run.state == "completed" for run in runs) >= count:
                return runs
            await asyncio.sleep(0.2)


class DoorServer(NamedTuple):
    """A server as the tests use it; `end` ends it in the way of the test."""

    client: Client
    http: httpx2.AsyncClient
    end: Callable[[], Awaitable[object]]


async def check_take_over(first: DoorServer, second: DoorServer, receiver: Receiver) -> None:
    """Start runs by all kinds at both servers, end the first one, and go on with the second one."""
    client = second.client
    await wait_for_runs(first.client, "tick", 1)
    assert await send_webhook(second.http, 1) == await send_webhook(first.http, 1)
    await client.assert_fact(fact="(order 1)")
    await wait_for_runs(client, "ended", 2)
    # The second server passes it on to the first one, whose state of the trigger counts.
    assert (await client.pause_trigger(trigger="order")).paused
    assert (await first.client.trigger(trigger="order")).paused
    assert not (await first.client.resume_trigger(trigger="order")).paused
    await asyncio.to_thread(receiver.wait_for, 1)

    await first.end()
    await send_webhook(second.http, 2)
    await client.assert_fact(fact="(order 2)")
    assert len(await wait_for_runs(client, "ended", 4)) == 4
    assert len(await list_runs(client, "hook")) == len(await list_runs(client, "order")) == 2
    await client.pause_trigger(trigger="tick")
    ticks = sorted(datetime.fromisoformat(run.label or "") for run in await list_runs(client, "tick"))
    period = timedelta(seconds=PERIOD_S)
    assert [later - tick for tick, later in pairwise(ticks)] == [period] * (len(ticks) - 1)
    await check_messages(receiver, 4)


async def check_messages(receiver: Receiver, events: int) -> None:
    """Wait until messages have reported each event, and no other."""
    async with asyncio.timeout(60):
        while True:
            messages = {request.json["id"]: request.json for request in list(receiver.requests)}
            if sum(message["count"] for message in messages.values()) >= events:
                break
            await asyncio.sleep(0.1)
    reported = [event["run"] for message in messages.values() for event in message["events"]]
    assert len(reported) == len(set(reported)) == events


def register(session: Session) -> None:
    @session.workflow
    async def echo(ctx: WorkflowContext, value: Any) -> Any:
        return value


@asynccontextmanager
async def open_server(project: Path, store: str, engine: TemporalAddress) -> AsyncIterator[DoorServer]:
    """A server of a cluster in this process."""
    async with AsyncExitStack() as stack:
        shared = SharedSession(store, project, execute_operation, register, engine=engine, is_server=True)
        api = Api(await stack.enter_async_context(shared.open()))
        transport = httpx2.ASGITransport(Starlette(routes=build_webhook_routes(api)))
        http = httpx2.AsyncClient(transport=transport, base_url="http://localhost")
        yield DoorServer(Client(api), await stack.enter_async_context(http), stack.aclose)


async def test_another_server_of_a_cluster_takes_the_triggers_and_messages_over(
    tmp_path: Path, postgresql_url: str, temporal_url: str, receiver: Receiver
) -> None:
    write_project(tmp_path, receiver)
    engine, bodies = parse_engine_url(temporal_url), Session(project=tmp_path)
    register(bodies)
    async with (
        open_body_worker(bodies, engine, postgresql_url),
        open_server(tmp_path, postgresql_url, engine) as first,
        open_server(tmp_path, postgresql_url, engine) as second,
    ):
        await check_take_over(first, second, receiver)


@pytest.mark.full
async def test_another_server_of_a_cluster_takes_over_after_a_kill(
    cluster: list[ServerProcess], receiver: Receiver
) -> None:
    await check_take_over_after_kill(cluster, receiver)


@pytest.mark.full
async def test_the_server_that_takes_the_runs_over_takes_the_triggers_and_messages_over(
    owner_and_standby: list[ServerProcess], receiver: Receiver
) -> None:
    await check_take_over_after_kill(owner_and_standby, receiver)


def kill(server: ServerProcess) -> None:
    server.process.kill()
    server.process.wait()


async def check_take_over_after_kill(servers: list[ServerProcess], receiver: Receiver) -> None:
    async with AsyncExitStack() as stack:
        found = [
            DoorServer(
                await stack.enter_async_context(server.client()),
                await stack.enter_async_context(server.http("read")),
                partial(asyncio.to_thread, kill, server),
            )
            for server in servers
        ]
        await check_take_over(*found, receiver)
