"""The client in process, over TCP and over a Unix socket: the same methods, replies and errors."""

import asyncio
import json
import os
import socket
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest

from client.app import TOKEN, Served, serving, told
from nerve.api import OPERATIONS, Api, ApiError, models
from nerve.api.command_protocol import Command, CommandType
from nerve.client.client import Client, OperationMethod
from nerve.client.server_address import ServerAddress, find_server
from nerve.project.ownership import sign_server
from nerve.project.paths import ProjectPaths
from nerve.server.bind import bind_unix
from nerve.session import Session
from nerve.testing.scripted import ScriptedProvider


@pytest.fixture
async def api(tmp_path: Path) -> AsyncIterator[Api]:
    session = Session(project=tmp_path)

    @session.workflow
    async def hello(ctx):
        return f"hello {ctx.input}"

    @session.workflow
    async def asks(ctx):
        for n in range(3):
            ctx.emit("counted", {"n": n})
        return await ctx.gate("Which?", choices=["a", "b"])

    yield Api(session)
    await session.close()


@pytest.fixture
async def served(api: Api) -> Served:
    return Served(api)


@pytest.fixture(params=["in process", "tcp", "unix"])
async def client(request, api: Api, served: Served, tmp_path: Path) -> AsyncIterator[Client]:
    if request.param == "in process":
        yield Client(api)
        return
    at = tmp_path / "private/s" if request.param == "unix" else None
    async with serving(served, at) as url, Client(url, token=TOKEN, socket=str(at or "")) as client:
        yield client


def test_every_operation_is_a_method_with_its_reply() -> None:
    calls = {
        name: call.response_model for name, call in vars(Client).items() if isinstance(call, OperationMethod)
    }
    assert calls == {name: operation.response_model for name, operation in OPERATIONS.items()}


async def test_a_run_is_started_watched_and_answered(client: Client) -> None:
    run = await client.start(workflow="asks", wait=True)
    assert isinstance(run, models.RunResponse)
    assert (run.state, [gate.prompt for gate in run.gates]) == ("waiting", ["Which?"])
    seen = []

    async def watch() -> None:
        seen.extend([event async for event in client.watch(run.run_id[:13])])

    watching = asyncio.create_task(watch())
    [gate] = (await client.gates()).gates
    await client.answer(run=run.run_id, gate=gate.gate_id, answer="b", key="once")
    await asyncio.wait_for(watching, 10)
    assert [event.seq for event in seen] == list(range(1, len(seen) + 1))
    assert seen[-1].event_type == "workflow_completed"
    assert (await client.run(run=run.run_id)).result == "b"
    page = await client.events(run=run.run_id, after=2, limit=1)
    assert ([event.seq for event in page.events], page.more) == ([3], True)


async def test_runs_are_found_by_tags_over_every_transport(client: Client) -> None:
    for customer in ("42", "7"):
        await client.start(workflow="hello", tags={"customer": customer, "paid": True}, wait=True)
    page = await client.runs(tag=["customer=42", "paid=true"], state=["completed", "failed"], since="1h")
    assert [run.tags for run in page.runs] == [{"customer": "42", "paid": "true"}]
    assert len((await client.runs(tag="paid=true", limit=1)).runs) == 1
    with pytest.raises(ApiError, match="Unknown tag 'custmer'") as error:
        await client.runs(tag="custmer=42")
    assert error.value.fix == "Did you mean 'customer'?"


async def test_errors_are_the_same_over_every_transport(client: Client) -> None:
    with pytest.raises(ApiError) as error:
        await client.run(run="gone/../x y")
    assert error.value.to_dict() == {
        "code": "not_found",
        "message": "Workflow run 'gone/../x y' not found",
        "fix": "See the list: nerve runs",
    }
    with pytest.raises(ApiError, match="start: 'nme' is unknown") as error:
        await client.start(workflow="hello", nme="hello")
    assert error.value.code == "bad_request"
    with pytest.raises(ApiError, match="not found"):
        await anext(client.watch("gone"))


def nested(deep: int) -> object:
    value: list[object] = []
    for _ in range(deep - 1):
        value = [value]
    return value


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (float("nan"), "the number nan at {} cannot be encoded as JSON"),
        (float("inf"), "the number inf at {} cannot be encoded as JSON"),
        ({1, 2}, "a value of type set at {} cannot be encoded as JSON"),
        (b"x", "a value of type bytes at {} cannot be encoded as JSON"),
        (Path("x"), "a value of type PosixPath at {} cannot be encoded as JSON"),
        ({"x": [datetime.now(UTC)]}, r"a value of type datetime at {}.x\[0\] cannot be encoded as JSON"),
        ({1: "a", "1": "b"}, "duplicate key"),
        (
            2**60,
            "1152921504606846976 is beyond ±2\\^53, where JSON readers are not exact; pass it as a string",
        ),
        ([-(2**53) - 1], "the integer -9007199254740993 is beyond"),
        (nested(64), "it has more than 64 levels of nesting"),
        (nested(3000), "levels of nesting"),
    ],
    ids=["nan", "inf", "set", "bytes", "path", "time", "twice", "large", "small", "deep", "very deep"],
)
async def test_arguments_that_are_not_json_are_refused_by_every_transport(
    client: Client, value: object, said: str
) -> None:
    for operation, field, other in (
        (client.start, "input", {"workflow": "hello"}),
        (client.signal, "value", {"label": "x"}),
        (client.answer, "answer", {"run": "x"}),
        (client.assert_fact, "fact", {}),
    ):
        with pytest.raises(ApiError, match=said.format(field)) as error:
            await operation(**other, **{field: value})
        assert (error.value.code, error.value.fix) == ("bad_request", "Pass plain data.")
    assert (await client.runs()).runs == []


@pytest.mark.parametrize(
    "value",
    [None, 2**53, 1.5, (1, 2), {1: 2}, nested(63), "\x00é", {"": []}],
    ids=["nothing", "large", "half", "tuple", "key", "deep", "text", "empty"],
)
async def test_json_arrives_unchanged_over_every_transport(client: Client, value: object) -> None:
    run = await client.start(workflow="hello", input=value)
    assert (await client.run(run=run.run_id)).input == json.loads(json.dumps(value))


@pytest.mark.parametrize("pattern", [5, {"a": 1}, [], [5], "(x", "", True])
async def test_invalid_patterns_are_refused_by_every_transport(
    client: Client, api: Api, pattern: object
) -> None:
    with pytest.raises(ApiError) as here:
        await api.facts(pattern=pattern)
    with pytest.raises(ApiError) as there:
        await client.facts(pattern=pattern)
    assert there.value.to_dict() == here.value.to_dict()


@pytest.mark.parametrize("name", [".", "..", "...", "a/..", "%2E%2E", "?", "#", " ", "é"])
async def test_a_run_with_any_name_is_found_over_every_transport(client: Client, name: str) -> None:
    run = await client.start(workflow="asks", label=name, wait=True)
    assert (await client.run(run=name)).run_id == run.run_id
    assert (await client.events(run=name)).events[0].run_id == run.run_id
    watching = client.watch(name)
    assert (await anext(watching)).run_id == run.run_id
    await watching.aclose()
    assert (await client.stop(run=name)).state == "cancelled"
    with pytest.raises(ApiError, match="not found") as error:
        await client.workflow(workflow=name)
    assert error.value.message == f"Workflow '{name}' not found"


async def test_facts_can_be_sent_as_text_and_as_json(client: Client) -> None:
    await client.assert_fact(fact=["colour", "red"])
    await client.signal(label="go", value={"n": 1})
    assert {"colour", "signal"} <= {fact.record[0] for fact in (await client.facts()).facts}
    assert len((await client.facts(pattern="(colour _)")).facts) == 1
    assert len((await client.facts(pattern=["colour", "?which"])).facts) == 1
    assert len((await client.retract(fact="(colour _)")).facts) == 1


async def test_all_runs_are_watched_from_now_on(client: Client) -> None:
    await client.start(workflow="hello", wait=True)
    events = client.watch()
    first = asyncio.ensure_future(anext(events))
    run = None
    async with asyncio.timeout(60):
        while not first.done():  # the stream may still be opening
            run = await client.start(workflow="hello", wait=True)
            await asyncio.wait([first], timeout=0.05)
    assert run is not None
    assert first.result().event_type == "workflow_started"
    await events.aclose()


async def test_a_broken_stream_continues_where_it_was(api: Api, served: Served) -> None:
    run = await api.start(workflow="asks", wait=True)
    served.cuts, served.refusing = [1, 2, 0, 1], 1
    async with serving(served) as url, Client(url, token=TOKEN) as client:
        watching = asyncio.ensure_future(collected(client, run.run_id))
        await until(lambda: len(served.asked) == 5)
        await api.answer(run=run.run_id, answer="a")
        seqs = await asyncio.wait_for(watching, 10)
    assert seqs == list(range(1, len(seqs) + 1))
    assert served.asked[:4] == ["", "1", "3", "3"]


async def test_a_restarted_server_is_found_again(api: Api, served: Served, tmp_path) -> None:
    run = await api.start(workflow="asks", wait=True)
    told(tmp_path, os.getpid())
    async with serving(served, ProjectPaths.of(tmp_path).socket):
        client = Client.of_project(tmp_path)
        assert client is not None
        assert (await client.health()).status == "ok"
        watching = asyncio.ensure_future(collected(client, run.run_id))
        await until(lambda: bool(served.asked))
    async with serving(Served(api), ProjectPaths.of(tmp_path).socket):
        assert (await client.answer(run=run.run_id, answer="a")).run_id == run.run_id
        seqs = await asyncio.wait_for(watching, 10)
    await client.close()
    assert seqs == list(range(1, len(seqs) + 1))


async def test_events_of_all_runs_missed_during_a_restart_are_reported_as_a_gap(
    api: Api, served: Served, tmp_path: Path
) -> None:
    told(tmp_path, os.getpid())
    at = ProjectPaths.of(tmp_path).socket
    async with serving(served, at):
        client = Client.of_project(tmp_path)
        assert client is not None
        events = client.watch()
        first = asyncio.ensure_future(anext(events))
        while not first.done():  # the stream may still be opening
            await api.start(workflow="hello", wait=True)
            await asyncio.wait([first], timeout=0.05)
        assert first.result().event_type == "workflow_started"
    missed = await api.start(workflow="hello", wait=True)
    waits = await api.start(workflow="asks", wait=True)
    async with serving(Served(Api(api.session)), at), asyncio.timeout(60):
        async for event in events:
            if event.event_type == "gap":
                break
        assert (event.run_id, event.seq) == ("", 0)
        assert missed.run_id in [run["run_id"] for run in event.data["runs"]]
        assert [gate["run_id"] for gate in event.data["gates"]] == [waits.run_id]
        later = await client.start(workflow="hello", wait=True)
        assert (await anext(events)).run_id == later.run_id
    await events.aclose()
    await client.close()


async def test_a_number_that_a_run_has_not_reached_is_reported_as_a_gap(api: Api, served: Served) -> None:
    run = await api.start(workflow="hello", wait=True)
    async with serving(served) as url, Client(url, token=TOKEN) as client:
        [gap] = [event async for event in client.watch(run.run_id, after=99)]
    assert (gap.event_type, gap.run_id, gap.data["state"]) == ("gap", run.run_id, "completed")


async def test_an_unreachable_server_is_one_clear_error(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
        async with Client(url, patience=0) as client:
            for done in (client.health(), anext(client.watch("x"))):
                with pytest.raises(ApiError, match="Cannot reach the server") as error:
                    await done
                assert (error.value.code, error.value.fix) == ("busy", "Start it: nerve serve")


async def test_a_silent_server_times_out() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        async with Client(f"http://127.0.0.1:{silent.getsockname()[1]}", timeout=0.1) as client:
            with pytest.raises(ApiError, match=r"no answer within 0\.1 seconds"):
                await client.health()


async def test_routing_by_an_agent_has_no_timeout(api: Api, tmp_path: Path) -> None:
    (tmp_path / ".nerve").mkdir()
    (tmp_path / ".nerve/config.json").write_text('{"router": "slow"}')
    api.session.project = tmp_path
    api.session.providers["slow"] = ScriptedProvider([[{"delay": 0.6}, "WORKFLOW: hello"]])
    async with serving(Served(api)) as url, Client(url, token=TOKEN, timeout=0.3) as client:
        assert (await client.route(text="greet me")).by == "agent"


@pytest.mark.parametrize("when", ["before", "after"])
async def test_a_command_retried_after_a_closed_connection_runs_once(when: str, served: Served) -> None:
    """A server closes idle connections, possibly at the moment one is used."""
    async with serving(served) as url, Client(url, token=TOKEN) as client:
        await client.health()
        served.drops = [when]
        run = await client.start(workflow="asks", wait=True)
        assert served.peers[-1] not in served.peers[:-1]
        served.drops = [when]
        assert (await client.answer(run=run.run_id, answer="a")).answer == "a"
        served.drops = [when]
        assert (await client.run(run=run.run_id)).run_id == run.run_id
        served.drops = [when]
        await client.signal(label="go", key="mine", value=1)
        [signal] = [fact.record for fact in (await client.facts()).facts if fact.record[0] == "signal"]
        assert signal == ["signal", "go", {"key": "mine", "value": 1}]
        served.drops = [when]
        copy = await client.fork(run=run.run_id)
        assert {each.run_id for each in (await client.runs()).runs} == {run.run_id, copy.run_id}


async def test_a_repeatedly_closed_connection_is_one_clear_error(served: Served) -> None:
    async with serving(served) as url, Client(url, token=TOKEN) as client:
        served.drops = ["before"] * 3
        with pytest.raises(ApiError, match=r"Cannot reach the server: \w") as error:
            await client.health()
        assert error.value.code == "busy"
        assert served.drops == ["before"]


async def test_a_run_is_found_by_a_label_that_looks_like_a_path(client: Client) -> None:
    run = await client.start(workflow="hello", label="feature/../42", wait=True)
    assert (await client.run(run="feature/../42")).run_id == run.run_id
    assert [event async for event in client.watch("feature/../42")]


async def test_a_finished_run_that_was_fully_read_is_not_watched_again(client: Client) -> None:
    run = await client.start(workflow="hello", wait=True)
    seen = [event async for event in client.watch(run.run_id)]
    assert [event async for event in client.watch(run.run_id, after=seen[-1].seq)] == []


async def test_a_token_is_required(served: Served) -> None:
    async with serving(served) as url, Client(url, token="wrong") as client:
        with pytest.raises(ApiError, match="A valid token is required") as error:
            await client.runs()
        assert error.value.code == "unauthorized"


@pytest.mark.parametrize("text", ["", "{", "[]", '{"pid": "x"}', '{"socket": "x", "pid": 4194305}'])
def test_a_project_without_a_server_has_no_client(text: str, tmp_path: Path) -> None:
    assert Client.of_project(tmp_path) is None
    told(tmp_path, os.getpid())
    assert Client.of_project(tmp_path) is None
    (tmp_path / ".nerve/server.json").write_text(text)
    assert Client.of_project(tmp_path) is None


def forged(tmp_path: Path, how: str) -> None:
    """Make a project in which one file differs from what a server writes."""
    places, other = ProjectPaths.of(tmp_path), tmp_path / "other"
    told(tmp_path, 0 if how == "nobody's number" else os.getpid())
    match how:
        case "others may write it":
            places.server.chmod(0o644)
        case "a link to a secret":
            other.write_text("a secret of the user\n")
            other.chmod(0o600)
            places.token.unlink()
            places.token.symlink_to(other)
        case "a token that others may read":
            places.token.chmod(0o644)
        case "a private folder elsewhere":
            places.private.rename(other)
            places.private.symlink_to(other)
        case "a folder elsewhere":
            places.folder.rename(other)
            places.folder.symlink_to(other)


@pytest.mark.parametrize(
    ("how", "believed"),
    [
        ("as it is", True),
        ("nobody's number", False),
        ("others may write it", False),
        ("a link to a secret", False),
        ("a token that others may read", False),
        ("a private folder elsewhere", False),
        ("a folder elsewhere", False),
    ],
)
def test_a_server_is_trusted_only_at_the_expected_socket_path(
    how: str, believed: bool, tmp_path: Path
) -> None:
    told(tmp_path, os.getpid())
    with bind_unix(ProjectPaths.of(tmp_path).socket):
        forged(tmp_path, how)
        assert (find_server(tmp_path) is not None) == believed


def test_a_token_or_socket_named_by_a_project_is_not_used(tmp_path: Path) -> None:
    told(tmp_path, os.getpid())
    places = ProjectPaths.of(tmp_path)
    about = {"pid": os.getpid(), "socket": str(tmp_path / "evil"), "token_file": "/etc/hostname"}
    with bind_unix(places.socket):
        places.server.write_text(json.dumps(about))
        assert find_server(tmp_path) is None
        places.server.write_text(json.dumps(sign_server(places.server, {**about})))
        assert find_server(tmp_path) == ServerAddress("http://localhost", TOKEN, str(places.socket))


async def collected(client: Client, run: str) -> list[int]:
    return [event.seq async for event in client.watch(run)]


async def until(true: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not true():  # noqa: ASYNC110
            await asyncio.sleep(0.01)


async def test_a_query_after_the_end_event_returns_the_final_state(client: Client) -> None:
    for _ in range(20):
        run = await client.start(workflow="hello", input="you")
        async for _ in client.watch(run.run_id):
            pass
        reply = await client.run(run=run.run_id)
        assert (reply.state, reply.result) == ("completed", "hello you")


@pytest.mark.requirement("S1-46")
async def test_commands_are_sent_by_name(client: Client) -> None:
    started = await client.send_command(
        Command(type=CommandType.START_WORKFLOW, params={"workflow_id": "hello", "input": "you"})
    )
    assert started.success
    shown = await client.send_command(
        Command(CommandType.EXECUTE_WORKFLOW, {"workflow_id": "hello", "input": "you", "wait": True})
    )
    assert (shown.data["state"], shown.data["result"]) == ("completed", "hello you")
    listed = await client.send_command({"type": "list_workflow_runs"})
    assert started.data["run_id"] in [run["run_id"] for run in listed.data["runs"]]


@pytest.mark.parametrize(
    ("command", "error"),
    [
        ({"type": "START_WORKFLOW", "params": {"workflow_id": "nope"}}, "'nope' not found"),
        ({"type": "sing"}, "Unknown command 'sing'"),
        ({"type": "LIST_WORKFLOWS", "params": {"x": 1}}, "Unknown parameter 'x'"),
    ],
)
async def test_a_refused_command_has_an_error(client: Client, command: dict, error: str) -> None:
    reply = await client.send_command(command)
    assert (reply.success, reply.data) == (False, {})
    assert error in str(reply.error)


async def test_an_artifact_is_read_in_parts(client: Client, tmp_path: Path) -> None:
    run = await client.start(workflow="hello", wait=True, label="a/b")
    folder = tmp_path / ".nerve/artifacts" / run.run_id / "charts"
    folder.mkdir(parents=True)
    content = os.urandom(600_000)
    (folder / "cost #1.png").write_bytes(content)
    (folder / "empty").touch()
    page = await client.artifacts(run="a/b")
    assert [artifact.name for artifact in page.artifacts] == ["charts/cost #1.png", "charts/empty"]
    chunks = [chunk async for chunk in client.read_artifact("a/b", "charts/cost #1.png")]
    assert b"".join(chunks) == content
    assert max(map(len, chunks)) < len(content)
    assert [chunk async for chunk in client.read_artifact("a/b", "charts/empty")] == []
    for run_name, name in (("a/b", "gone"), ("a/b", ".."), ("gone", "charts/empty")):
        with pytest.raises(ApiError) as caught:
            await anext(client.read_artifact(run_name, name))
        assert caught.value.code == "not_found"
