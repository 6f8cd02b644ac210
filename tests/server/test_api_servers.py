"""Several servers with one database: each of them shows the runs, streams their events and takes commands."""

import asyncio
import hashlib
import signal
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, ExitStack, aclosing
from pathlib import Path
from typing import Any

import psycopg
import pytest

from nerve.api import OPERATIONS, ApiError
from nerve.client import Client
from postgresql_server import PostgresqlServer
from server.moving_streams import check_moving_stream
from server.processes import ServerProcess, wait_for_result
from server.sse import stream
from server.test_gate_policies import token_of


class Servers:
    """Servers with one database; the first one started executes the runs."""

    def __init__(self, folder: Path, url: str) -> None:
        self.folder, self.url = folder, url
        self._stack = ExitStack()
        self.all: list[ServerProcess] = []

    def start(self) -> ServerProcess:
        server = ServerProcess(self.folder / f"server{len(self.all)}", self.url)
        self._stack.callback(server.end)
        assert server.wait_ready()["executes_runs"] == (not self.all)
        self.all.append(server)
        return server

    def end(self) -> None:
        self._stack.close()


@pytest.fixture(scope="module")
def shared(
    tmp_path_factory: pytest.TempPathFactory, postgresql_server: PostgresqlServer
) -> Iterator[Servers]:
    """An owner and two other servers, for the tests that end none of them."""
    url = postgresql_server.create_database()
    servers = Servers(tmp_path_factory.mktemp("servers"), url)
    try:
        for _ in range(3):
            servers.start()
        yield servers
    finally:
        servers.end()
    postgresql_server.drop_database(url)


@pytest.fixture
def servers(tmp_path: Path, postgresql_url: str) -> Iterator[Servers]:
    """Servers that the test starts and ends."""
    servers = Servers(tmp_path, postgresql_url)
    try:
        yield servers
    finally:
        servers.end()


@pytest.fixture
async def clients(shared: Servers) -> AsyncIterator[list[Client]]:
    async with AsyncExitStack() as stack:
        yield [await stack.enter_async_context(server.client()) for server in shared.all]


@pytest.fixture
def other(clients: list[Client]) -> Client:
    """A client of a server that does not execute the runs."""
    return clients[1]


async def test_a_run_is_started_answered_and_read_at_three_servers(clients: list[Client]) -> None:
    _, first, second = clients
    started = await first.start(workflow="ask", wait=True, label="everywhere")
    assert started.state == "waiting"
    for client in clients:
        run = await client.run(run="everywhere")
        assert (run.run_id, run.state, len(run.gates)) == (started.run_id, "waiting", 1)
        assert [node.path for node in run.tree] == ["/count", "/count[2]", "/count[3]"]
        assert started.run_id in [gate.run_id for gate in (await client.gates()).gates]
        assert started.run_id in [each.run_id for each in (await client.runs()).runs]
        assert len((await client.events(run=started.run_id)).events) == run.last_seq
    answer = await second.answer(run=started.run_id, answer="yes", reason="seen")
    assert (answer.answer, answer.reason) == ("yes", "seen")
    for client in clients:
        assert await wait_for_result(client, started.run_id) == "yes"


async def test_people_vote_at_different_servers_and_the_gate_is_decided_once(
    clients: list[Client], shared: Servers
) -> None:
    """The servers are those that do not execute the run; each of them knows the people and the votes."""
    owner, *others = clients
    names = [f"lead-{number}" for number in range(8)]
    for name in names:
        token_hash = hashlib.sha256(token_of(name).encode()).hexdigest()
        await owner.add_person(person=name, roles=["lead"], token_hash=token_hash)
    run = await others[0].start(workflow="agree", wait=True)
    [gate] = run.gates

    async def answer(number: int, choice: str) -> tuple[int, Any]:
        async with shared.all[1 + number % 2].http("answer", token_of(names[number])) as http:
            body = {"run": run.run_id, "gate": gate.gate_id, "answer": choice, "hash": gate.hash}
            reply = await http.post("/api/answers", json=body)
            return reply.status_code, reply.json()

    assert (await answer(0, "approve"))[0] == 200
    for client in clients:
        [shown] = (await client.run(run=run.run_id)).gates
        assert [vote["by"] for vote in shown.votes] == ["person:lead-0"]
        assert (shown.missing, shown.hash) == ("1 person of lead", gate.hash)
    changed = {"overrides": {gate.path: {"input": "approve"}}}
    forked = await others[1].fork(run=run.run_id, **changed)
    assert (await others[0].run(run=forked.run_id)).state in ("running", "waiting")
    replies = await asyncio.gather(*(answer(number, "reject") for number in range(1, 8)))
    assert await wait_for_result(owner, run.run_id) == "reject"
    told = [status for status, _ in replies]
    assert sorted(told) == [200, 200, *[409] * 5]
    assert {body["details"]["winner"]["answer"] for status, body in replies if status == 409} == {"reject"}
    events = (await others[1].events(run=run.run_id)).events
    voted = [event.data["person"] for event in events if event.event_type == "gate_voted"]
    [answered] = [event for event in events if event.event_type == "gate_answered"]
    assert len(voted) == 2
    assert len(answered.data["votes"]) == 2
    assert {vote["person"] for vote in answered.data["votes"]} == {
        names[number] for number in range(1, 8) if told[number - 1] == 200
    }


async def test_every_command_is_executed_by_the_owner(other: Client, shared: Servers) -> None:
    talk = (await other.start(workflow="talk", key="talk")).run_id
    assert (await other.start(workflow="talk", key="talk")).run_id == talk
    assert (await other.update(run=talk, update="add", value=2)).result == 2
    assert (await other.update(run=talk, update="add", value=3)).result == 5
    assert (await other.query(run=talk, query="total")).result == 5
    assert (await other.pause(run=talk)).state == "paused"
    assert (await other.resume(run=talk)).state in ("running", "waiting")
    await other.send(run=talk, channel="end", value=1)
    assert await wait_for_result(other, talk) == 5
    listen = (await other.start(workflow="listen")).run_id
    await other.signal(label="shipped", value=7)
    assert await wait_for_result(other, listen) == 7
    failed = await other.start(workflow="fail", wait=True)
    assert failed.state == "failed"
    (shared.all[0].folder / "mended").touch()
    retried = await other.retry(run=failed.run_id)
    assert await wait_for_result(other, retried.run_id) == ""
    preview = await other.preview_fork(run=talk)
    assert preview.run_id == talk
    forked = await other.fork(run=talk, key="fork")
    assert (await other.fork(run=talk, key="fork")).run_id == forked.run_id
    waiting = await other.start(workflow="ask", wait=True)
    stopped = await other.stop(run=waiting.run_id, reason="enough")
    assert (stopped.state, stopped.error) == ("cancelled", "enough")
    long = (await other.start(workflow="long")).run_id
    with pytest.raises(ApiError, match="agent"):
        await other.steer(run=long, text="faster")
    await other.stop(run=long)
    with pytest.raises(ApiError, match="only a held run"):
        await other.skip(run=failed.run_id, path="/broken")


async def test_facts_definitions_queues_and_lists_are_those_of_the_owner(clients: list[Client]) -> None:
    owner, first, second = clients
    fact = await first.assert_fact(fact=["order", 5])
    for client in clients:
        assert fact.id in [each.id for each in (await client.facts(pattern=["order", 5])).facts]
    assert len((await second.retract(fact=["order", 5])).facts) == 1
    assert (await first.facts(pattern=["order", 5])).facts == []
    source = "name: greet\ndescription: Greets\nbody: {kind: bash, id: hello, command: echo hello}\n"
    await first.define(source=source)
    for client in clients:
        assert "greet" in [workflow.id for workflow in (await client.workflows()).workflows]
    assert (await second.start(workflow="greet", wait=True)).state == "completed"
    assert (await first.pause_queue(queue="mail")).paused
    for client in clients:
        assert [queue.paused for queue in (await client.queues()).queues] == [True]
    await second.resume_queue(queue="mail")
    about = [await client.health() for client in clients]
    assert {health.owner for health in about} == {about[0].owner}
    assert str(about[0].owner).startswith("process ")
    assert about[0].runs == about[1].runs != {}
    for name in ("definitions", "sessions", "usage", "usage_history", "agents", "threads"):
        here, there = [await client.perform(name, {}) for client in (owner, second)]
        assert here.model_dump() == there.model_dump(), name


async def test_the_reply_of_the_owner_is_an_error_with_its_code_and_fix(clients: list[Client]) -> None:
    errors = []
    for client in clients:
        with pytest.raises(ApiError) as failure:
            await client.stop(run="missing")
        errors.append(failure.value.to_dict())
    assert errors[0] == errors[1] == errors[2]
    assert errors[0]["code"] == "not_found"


async def test_a_scope_is_checked_and_the_caller_recorded_where_the_request_arrives(shared: Servers) -> None:
    server = shared.all[1]
    async with server.http("read") as reader:
        denied = await reader.post("/api/runs", json={"workflow": "ask"})
        assert (denied.status_code, denied.json()["code"]) == (403, "forbidden")
    async with server.http("run") as runner, server.client() as client:
        started = (await runner.post("/api/runs", json={"workflow": "ask"})).json()
        run = await client.run(run=started["run_id"])
        assert run.started_by == "token:run"
        assert run.started_via == "http"
        await client.stop(run=run.run_id)
    with psycopg.connect(shared.url) as db:
        assert db.execute("SELECT count(*) FROM nerve.commands").fetchone() == (0,)


async def test_fifty_answers_at_three_servers_have_one_winner_and_the_others_are_told(
    clients: list[Client],
) -> None:
    run = await clients[0].start(workflow="ask", wait=True)
    answers = [
        clients[number % 3].answer(run=run.run_id, gate=run.gates[0].gate_id, answer=f"answer {number}")
        for number in range(50)
    ]
    outcomes = await asyncio.gather(*answers, return_exceptions=True)
    winners = [outcome for outcome in outcomes if not isinstance(outcome, BaseException)]
    refused = [outcome for outcome in outcomes if isinstance(outcome, ApiError)]
    assert (len(winners), len(refused)) == (1, 49)
    for error in refused:
        assert error.code == "conflict", error
        assert error.details["winner"]["answer"] == winners[0].answer
    assert await wait_for_result(clients[2], run.run_id) == winners[0].answer


async def test_a_stream_moves_from_server_to_server_without_a_gap(shared: Servers) -> None:
    await check_moving_stream(shared.all)


async def test_the_stream_of_one_run_ends_with_the_run_at_every_server(clients: list[Client]) -> None:
    run = await clients[1].start(workflow="ask", wait=True)

    async def watch(client: Client) -> list[int]:
        return [event.seq async for event in client.watch(run.run_id)]

    watching = [asyncio.create_task(watch(client)) for client in clients]
    await clients[2].answer(run=run.run_id, answer="go on")
    async with asyncio.timeout(20):
        streams = await asyncio.gather(*watching)
    assert streams[0] == streams[1] == streams[2] == list(range(1, len(streams[0]) + 1))


async def test_every_operation_answers_alike_at_every_server(shared: Servers) -> None:
    """No operation fails for the only reason that its server does not execute the runs."""
    async with shared.all[0].http("admin") as owner, shared.all[1].http("admin") as other:
        for operation in OPERATIONS.values():
            path = operation.path
            for name in ("run", "query", "queue", "trigger", "workflow"):
                path = path.replace(f"{{{name}}}", "missing")
            if operation.name == "collect":
                continue
            replies = [
                await (http.get(path) if operation.method == "GET" else http.post(path, json={}))
                for http in (owner, other)
            ]
            assert replies[0].status_code == replies[1].status_code, operation.name
            if replies[0].is_error:
                assert replies[0].json() == replies[1].json(), operation.name


async def test_commands_that_are_queued_when_the_owner_is_killed_are_executed_once_by_the_next(
    servers: Servers,
) -> None:
    owner, other = servers.start(), servers.start()
    async with other.client() as client, other.http("read") as http:
        waiting = [(await client.start(workflow="ask", wait=True)).run_id for _ in range(4)]
        owner.process.send_signal(signal.SIGSTOP)  # what it has not begun stays in the queue
        commands = [client.start(workflow="ask", label=f"queued-{number}") for number in range(10)]
        commands += [client.answer(run=run, answer="in time") for run in waiting]  # type: ignore[misc]
        sending = asyncio.gather(*commands)
        await wait_for_commands(servers.url, len(commands))
        numbers: list[int] = []

        async def watch() -> None:
            async with aclosing(stream(http, f"/events/workflow/{waiting[0]}")) as messages:
                numbers.extend([message.data["seq"] async for message in messages])

        watching = asyncio.create_task(watch())
        owner.process.kill()
        replies = await sending
        other.wait_until_owner()
        started = [reply.run_id for reply in replies[:10]]
        assert len(set(started)) == 10
        labels = [run.label for run in (await client.runs(limit=100)).runs if run.label]
        assert sorted(labels) == sorted(f"queued-{number}" for number in range(10))
        for run in waiting:
            assert await wait_for_result(client, run) == "in time"
            events = [event.event_type async for event in client.history(run)]
            assert events.count("gate_answered") == 1
        await watching  # the stream continues at the server that takes over, and ends with the run
        assert numbers == list(range(1, numbers[-1] + 1))
    with psycopg.connect(servers.url) as db:
        assert db.execute("SELECT count(*) FROM nerve.commands").fetchone() == (0,)


async def wait_for_commands(url: str, number: int) -> None:
    deadline = time.monotonic() + 20
    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as db:
        while True:
            row = await (await db.execute("SELECT count(*) FROM nerve.commands")).fetchone()
            if row == (number,):
                return
            assert time.monotonic() < deadline, row
            await asyncio.sleep(0.05)


@pytest.mark.full
async def test_a_command_that_was_begun_by_a_killed_owner_is_executed_once(servers: Servers) -> None:
    owner, other = servers.start(), servers.start()
    async with other.client() as client:
        starting = asyncio.create_task(client.start(workflow="ask", wait=True, label="begun"))
        deadline = time.monotonic() + 20
        while not (await client.runs()).runs:  # the process dies between the effect and the reply
            assert time.monotonic() < deadline
        owner.process.kill()
        run = await starting
        assert (run.state, run.label) == ("waiting", "begun")
        assert len((await client.runs()).runs) == 1


@pytest.mark.full
async def test_without_an_owner_reads_work_and_a_command_says_that_it_was_not_executed(
    servers: Servers,
) -> None:
    owner, other = servers.start(), servers.start()
    async with other.client() as client:
        run = await client.start(workflow="ask", wait=True)
        # Nobody can take the session over while this test holds its lease.
        owner.process.kill()
        with psycopg.connect(servers.url, autocommit=True) as db:
            db.execute("UPDATE nerve.leases SET renewed = clock_timestamp() + interval '1 hour'")
            assert (await client.run(run=run.run_id)).state == "waiting"
            began = time.monotonic()
            with pytest.raises(ApiError, match=r"executes the runs.*'answer' was not executed"):
                await client.answer(run=run.run_id, answer="too early")
            assert time.monotonic() - began < 25
            assert db.execute("SELECT count(*) FROM nerve.commands").fetchone() == (0,)
            db.execute("UPDATE nerve.leases SET renewed = '-infinity'")
        other.wait_until_owner()
        await client.answer(run=run.run_id, answer="now")
        assert await wait_for_result(client, run.run_id) == "now"
