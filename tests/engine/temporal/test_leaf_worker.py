"""Leaves on workers: executed, stopped, killed and cut off, with a real Temporal server and PostgreSQL."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from temporalio.client import Client, WorkflowFailureError, WorkflowHandle
from temporalio.exceptions import ActivityError
from temporalio.exceptions import TimeoutError as TemporalTimeout
from temporalio.worker import Worker

from engine.temporal.leaf_project import SESSION, open_project
from engine.temporal.leaf_workers import (
    HEARTBEAT_S,
    WORKFLOW_QUEUE,
    ExecuteLeaf,
    WorkerProcess,
    until,
)
from faults.tcp_proxy import TcpProxy
from nerve import BashNode
from nerve.engine.leaf_references import describe_leaf
from nerve.engine.temporal.leaf_activity import LeafExecutor
from nerve.engine.temporal.leaf_worker import LeafWorker, queues_of
from nerve.engine.temporal.messages import LeafInput, LeafResult
from nerve.store.port import Append, EventRow, WaitRow
from nerve.store.postgres import PostgresStore
from nerve.store.postgres_projection import PostgresProjection
from nerve.testing.store_contract import run_row

RUN = "r"
QUEUE = "leaves"


class Setting:
    """A namespace, a database and a project, with a client."""

    def __init__(self, client: Client, address: str, store: str, project: Path) -> None:
        self.client, self.address, self.store, self.project = client, address, store, project
        self.session = open_project(project)

    def leaf(self, node: Any, input: Any = None, **more: Any) -> LeafInput:
        name = node if isinstance(node, str) else None
        reference = {"name": name} if name else describe_leaf(node, self.session)
        rows = [EventRow(1, 1.0, "workflow_started", "", None, '{"input":null}')]
        journal = [Append(RUN, 0, rows, run_row(RUN, state="running")._replace(session=SESSION))]
        return LeafInput(SESSION, RUN, "flow", "/a", "a", reference, 1, input, journal=journal, **more)

    async def start(self, leaf: LeafInput, queue: str = QUEUE) -> WorkflowHandle[Any, Any]:
        return await self.client.start_workflow(
            "execute-leaf", args=[leaf.to_data(), queue], id=str(uuid.uuid4()), task_queue=WORKFLOW_QUEUE
        )

    async def execute(self, leaf: LeafInput, queue: str = QUEUE) -> LeafResult:
        handle = await self.start(leaf, queue)
        return LeafResult.from_data(await asyncio.wait_for(handle.result(), 60))

    def worker(self, *queues: str) -> WorkerProcess:
        namespace = self.client.namespace
        return WorkerProcess(self.address, namespace, self.store, self.project, *(queues or (QUEUE,)))

    @asynccontextmanager
    async def worker_here(self, host: str | None = None) -> AsyncIterator[LeafExecutor]:
        """Execute leaves in this process."""
        with (
            closing(PostgresProjection(self.store, SESSION, "temporal://test")) as projection,
            closing(PostgresStore(self.store, None)) as reader,
        ):
            executor = LeafExecutor(self.session, self.client, projection, reader, host)
            async with LeafWorker(self.client, executor, [QUEUE], heartbeat_timeout=HEARTBEAT_S).running():
                yield executor

    def pids(self) -> list[int]:
        """Return the processes that the commands of the tests have noted."""
        file = self.project / "pids"
        return [int(line) for line in file.read_text().splitlines()] if file.exists() else []

    def chunks(self) -> list[str]:
        return [data["text"] for _, data in self.events("output_chunk")]

    def write_first(self) -> None:
        with closing(PostgresProjection(self.store, SESSION, "temporal://test")) as projection:
            projection.append(RUN, self.leaf("upper").journal)

    def write(self, number: int, type: str, path: str, data: dict[str, Any], wait: str = "") -> None:
        """Write a row of the body, as the workflow does."""
        row = EventRow(number, 1.0, type, path, path if type == "gate_answered" else None, json.dumps(data))
        with closing(PostgresProjection(self.store, SESSION, "temporal://test")) as projection:
            waits = [WaitRow(SESSION, RUN, path, wait, 1.0, "{}")] if wait else []
            run = run_row(RUN, state="running")._replace(session=SESSION)
            projection.append(RUN, [Append(RUN, number - 1, [row], run, waits=waits)])

    def events(self, type: str | None = None) -> list[tuple[str, Any]]:
        with closing(PostgresStore(self.store, None)) as store:
            rows = store.events(RUN)
        return [(row.type, json.loads(row.data)) for row in rows if type is None or row.type == type]


@pytest.fixture
async def setting(temporal_url: str, postgresql_url: str, tmp_path: Path) -> AsyncIterator[Setting]:
    parts = urlsplit(temporal_url)
    client = await Client.connect(parts.netloc, namespace=parts.path.strip("/"))
    async with Worker(client, task_queue=WORKFLOW_QUEUE, workflows=[ExecuteLeaf]):
        yield Setting(client, parts.netloc, postgresql_url, tmp_path)


def write_pid(name: str) -> str:
    return f"echo $$ > {name}.new; mv {name}.new {name}; sleep 600"


def is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[-1].split()[0] != "Z"


async def test_leaves_are_executed_and_failures_are_results(setting: Setting, tmp_path: Path) -> None:
    async with setting.worker_here():
        done = await setting.execute(setting.leaf("upper", "a"))
        assert (done.result["output"], done.settlement, done.host) == ("A", "completed", None)
        done = await setting.execute(replace(setting.leaf("fail"), started=2))
        assert (done.result["success"], done.result["error"], done.settlement) == (
            False,
            "it broke",
            "completed",
        )
        assert "leaf_project.py" in str(done.location)
        done = await setting.execute(replace(setting.leaf("object"), started=3))
        assert done.result["error_type"] == "NotJson"
        done = await setting.execute(replace(setting.leaf("sleep", 30), started=4, timeout=0.2))
        assert (done.settlement, done.timeout_seconds) == ("timeout", 0.2)
        done = await setting.execute(replace(setting.leaf("talk", "no"), started=5, idle_timeout=0.2))
        assert (done.settlement, done.result["error"]) == ("timeout", "silent for 0.2 s")
        leaf = setting.leaf("describe", params={"p": 1}, overrides={"x": 2})
        assert (await setting.execute(replace(leaf, started=6))).result["output"] == {
            "path": "/a",
            "run": RUN,
            "workflow": "flow",
            "params": {"p": 1},
            "overrides": {"x": 2},
            "project": str(tmp_path),
            "is_restarted": False,
        }
        command = BashNode("b", None, 'echo "$PWD $NERVE_RUN_ID $NERVE_IDEMPOTENCY_KEY"')
        first = await setting.execute(replace(setting.leaf(command), started=7))
        again = await setting.execute(replace(setting.leaf(command), started=8))
        assert first.result["output"] == again.result["output"]
        assert first.result["output"].startswith(f"{tmp_path} {RUN} ")
        (tmp_path / "sub").mkdir()
        inside = await setting.execute(replace(setting.leaf(command), started=9, folder="sub"))
        assert inside.result["output"].startswith(f"{tmp_path}/sub ")


async def test_the_rows_of_a_running_step_are_in_the_store_while_it_runs(
    setting: Setting, tmp_path: Path
) -> None:
    with setting.worker():
        handle = await setting.start(setting.leaf("talk", "go"))
        await until(lambda: setting.events("said") == [("said", {"text": "first"})])
        (tmp_path / "go").touch()
        assert (await handle.result())["result"]["output"] == "done"
        assert setting.events() == [
            ("workflow_started", {"input": None}),
            ("said", {"text": "first"}),
            ("said", {"text": "second"}),
        ]


async def test_a_cancelled_step_has_ended_its_processes_when_the_cancellation_is_acknowledged(
    setting: Setting, tmp_path: Path
) -> None:
    with setting.worker():
        handle = await setting.start(setting.leaf(BashNode("b", None, write_pid("pid"))))
        await until((tmp_path / "pid").exists)
        pid = int((tmp_path / "pid").read_text())
        assert is_running(pid)
        await handle.cancel()
        with pytest.raises(WorkflowFailureError):
            await handle.result()
        assert not is_running(pid)


async def test_a_step_of_a_killed_worker_runs_again_on_another_one(setting: Setting, tmp_path: Path) -> None:
    command = BashNode("b", None, "echo $$ >> pids; test -e go || sleep 600")
    with setting.worker() as first:
        handle = await setting.start(setting.leaf(command))
        [pid] = await until(setting.pids)
        first.signal(signal.SIGKILL)
        await until(lambda: not is_running(pid))
        (tmp_path / "go").touch()
        with setting.worker():
            assert (await asyncio.wait_for(handle.result(), 60))["result"]["success"]
    assert len(setting.pids()) == 2


async def test_a_step_with_effect_once_of_a_killed_worker_is_in_doubt(setting: Setting) -> None:
    command = BashNode("b", None, "echo $$ >> pids; sleep 600")
    with setting.worker() as first:
        handle = await setting.start(setting.leaf(command, effect="once"))
        await until(setting.pids)
        with setting.worker():
            first.signal(signal.SIGKILL)
            with pytest.raises(WorkflowFailureError) as failure:
                await asyncio.wait_for(handle.result(), 60)
    lost = failure.value.cause
    assert isinstance(lost, ActivityError)
    assert isinstance(lost.cause, TemporalTimeout)
    assert len(setting.pids()) == 1


async def test_a_worker_that_wakes_up_ends_its_step_and_writes_nothing_more(
    setting: Setting, tmp_path: Path
) -> None:
    command = "echo $$ >> pids; while ! test -e go; do echo $$; sleep 0.1; done; echo end"
    with setting.worker() as first:
        handle = await setting.start(setting.leaf(BashNode("b", None, command)))
        await until((tmp_path / "pids").exists)
        first.signal(signal.SIGSTOP)
        with setting.worker():
            [old, new] = await until(lambda: len(pids := setting.pids()) == 2 and pids)
            first.signal(signal.SIGCONT)
            await until(lambda: not is_running(old))
            chunks = await until(
                lambda: any(str(new) in text for text in setting.chunks()) and setting.chunks()
            )
            taken_over = next(number for number, text in enumerate(chunks) if str(new) in text)
            assert not [text for text in chunks[taken_over:] if str(old) in text]
            assert is_running(new)
            (tmp_path / "go").touch()
            assert (await asyncio.wait_for(handle.result(), 60))["result"]["output"].endswith("end\n")


async def test_a_step_that_a_worker_does_not_know_is_executed_by_another_one(
    setting: Setting, tmp_path: Path
) -> None:
    async with setting.worker_here() as executor:
        node = setting.session.nodes.pop("upper")
        handle = await setting.start(setting.leaf("upper", "a"))
        history = await until_failed(handle)
        assert "No step or agent 'upper' on this worker" in history
        setting.session.nodes["upper"] = node
        assert (await asyncio.wait_for(handle.result(), 60))["result"]["output"] == "A"
        assert executor.running_count == 0


async def until_failed(handle: WorkflowHandle[Any, Any]) -> str:
    """Return the failure of the pending activity."""
    while True:
        description = await handle.describe()
        for pending in description.raw_description.pending_activities:
            if pending.last_failure.message:
                return pending.last_failure.message
        await asyncio.sleep(0.02)


async def test_leaves_that_a_stopping_worker_interrupts_go_to_another_one_or_are_in_doubt(
    setting: Setting, tmp_path: Path
) -> None:
    command = BashNode("b", None, "echo $$ >> pids; test -e go || sleep 600")
    async with setting.worker_here():
        normal = await setting.start(setting.leaf(command))
        once = await setting.start(replace(setting.leaf(command, effect="once"), path="/once"))
        await until(lambda: len(setting.pids()) == 2)
        (tmp_path / "go").touch()
    assert not [pid for pid in setting.pids() if is_running(pid)]
    doubtful = LeafResult.from_data(await once.result())
    assert (doubtful.settlement, doubtful.result["error"]) == ("timeout", "interrupted: the worker stops")
    async with setting.worker_here():
        assert (await asyncio.wait_for(normal.result(), 60))["result"]["success"]


async def test_the_leaves_of_a_worker_that_is_cut_off_end_before_others_get_them(setting: Setting) -> None:
    command = BashNode("b", None, "echo $$ >> pids; test -e go || sleep 600")
    with TcpProxy(int(setting.address.rpartition(":")[2])) as proxy:
        cut_off = replace_address(setting, f"127.0.0.1:{proxy.port}")
        with cut_off.worker():
            handle = await setting.start(setting.leaf(command))
            [pid] = await until(setting.pids)
            proxy.cut()
            await until(lambda: not is_running(pid), HEARTBEAT_S)
            (setting.project / "go").touch()
            with setting.worker():
                assert (await asyncio.wait_for(handle.result(), 60))["result"]["success"]


def replace_address(setting: Setting, address: str) -> Setting:
    return Setting(setting.client, address, setting.store, setting.project)


async def test_a_leaf_asks_a_person_and_gets_the_answer_from_the_journal(setting: Setting) -> None:
    async with setting.worker_here():
        handle = await setting.start(setting.leaf("ask"))
        [command] = await until_received(handle)
        assert (command["verb"], command["run_id"], command["arguments"]["path"]) == ("open_gate", RUN, "/a")
        gate = command["arguments"]["gate"]
        assert (gate["path"], gate["prompt"], gate["choices"]) == ("/a/question", "Go on?", ["yes", "no"])
        setting.write(2, "gate_answered", "/a/question", {"answer": "yes"})
        assert (await asyncio.wait_for(handle.result(), 60))["result"]["output"] == "yes"


async def test_a_leaf_that_is_stopped_while_it_asks_closes_its_gate(setting: Setting) -> None:
    async with setting.worker_here():
        handle = await setting.start(setting.leaf("ask", effect="once"))
        await until_received(handle)
    assert [command["verb"] for command in await until_received(handle, 2)] == ["open_gate", "close_gate"]


async def until_received(handle: WorkflowHandle[Any, Any], count: int = 1) -> list[dict[str, Any]]:
    """Return the commands that the workflow has received."""
    received: list[dict[str, Any]] = []
    while len(received) < count:
        received = await handle.query("received")
        await asyncio.sleep(0)
    return received


async def test_messages_of_users_reach_the_running_leaf_once(setting: Setting) -> None:
    async with setting.worker_here():
        handle = await setting.start(setting.leaf("listen", 2))
        await until(lambda: setting.events("listening"))
        setting.write(2, "steered", "/a", {"text": "first", "by": "ada"})
        setting.write(3, "steered", "/b", {"text": "for another step", "by": "ada"})
        setting.write(4, "steered", "/a", {"text": "second", "by": "ada"})
        assert (await asyncio.wait_for(handle.result(), 60))["result"]["output"] == ["first", "second"]


async def test_an_agent_resumes_its_conversation_on_another_worker(setting: Setting, tmp_path: Path) -> None:
    setting.write_first()
    thread = {"thread": "t-1", "provider": "scripted", "totals": {}, "usage": {"turns": 1, "agents": 1}}
    setting.write(2, "node_started", "/a", {"node_id": "writer", "hash": "h", "input": "x"})
    setting.write(3, "agent_thread", "/a", thread)
    setting.write(4, "steered", "/a", {"text": "be brief", "by": "ada"})
    setting.write(5, "gate_waiting", "/a/permission", {"gate_id": "1"}, "leaf_gate")
    async with setting.worker_here():
        leaf = replace(
            setting.leaf("writer", "Go"), started=5, is_restarted=True, node_id="writer", journal=()
        )
        handle = await setting.start(leaf)
        done = LeafResult.from_data(await asyncio.wait_for(handle.result(), 60))
    received = {command["verb"]: command["arguments"] for command in await until_received(handle, 2)}
    assert received == {
        "close_gate": {"path": "/a/permission"},
        "day_budget": {"path": "/a", "problem": None},  # an earlier attempt may have held the run
    }
    assert done.result["attributes"]["thread"] == "t-1"
    assert "You were interrupted" in done.result["output"]
    assert "be brief" in done.result["output"]
    assert done.result["attributes"]["usage"]["turns"] == 2
    assert [data["thread"] for _, data in setting.events("agent_thread")] == ["t-1", "t-1"]


def test_a_worker_polls_the_queues_of_its_leaves_and_of_its_host() -> None:
    assert queues_of("team", ["claude", "bash", "claude"], "h") == [
        *("nerve-team-leaves-claude", "nerve-team-leaves", "nerve-team-host-h"),
    ]
