"""WebSockets: the same operations and streams, for the same tokens."""

import asyncio
import json
from typing import Any

import pytest
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from nerve.api import Api
from nerve.api.callers import Caller
from nerve.server import websocket
from nerve.server.event_feed import shared_snapshot
from server.conftest import Served, until


def dial(served: Served, token: str | None = None, **options: Any) -> connect:
    headers = {"authorization": f"Bearer {token}"} if token is not None else {}
    headers |= options.pop("headers", {})
    return connect(f"ws://127.0.0.1:{served.port}/ws", additional_headers=headers, proxy=None, **options)


async def ask(socket: ClientConnection, op: str, id: Any = 1, **args: Any) -> Any:
    await socket.send(json.dumps({"id": id, "op": op, "args": args}))
    return json.loads(await socket.recv())


async def to_the_end(socket: ClientConnection, sent: str | bytes) -> None:
    await socket.send(sent)
    while True:
        await socket.recv()


@pytest.mark.requirement("S1-38")
async def test_operations_work_over_a_websocket(served: Served) -> None:
    async with dial(served, served.tokens["admin"]) as socket:
        run = (await ask(socket, "start", workflow="hello", input="you", wait=True))["result"]
        assert run["result"] == "hello you"
        told = await ask(socket, "run", id="x", run=run["run_id"])
        assert (told["id"], told["result"]["state"]) == ("x", "completed")


@pytest.mark.requirement("S1-36")
async def test_a_run_is_followed_and_answered(served: Served) -> None:
    async with dial(served, served.tokens["admin"]) as socket:
        run = (await ask(socket, "start", workflow="ask", wait=True))["result"]
        assert (await ask(socket, "subscribe", id="s", run=run["run_id"]))["result"] == {"done": True}
        seen: list[dict[str, Any]] = []
        # The reply to the answer may come before or after the events that follow from it.
        while not {("s", True), ("a", False)} <= {(each["id"], "end" in each) for each in seen}:
            seen.append(json.loads(await socket.recv()))
            if seen[-1].get("event") == "gate_waiting":
                given = {"run": run["run_id"], "answer": "yes"}
                await socket.send(json.dumps({"id": "a", "op": "answer", "args": given}))
        events = [each for each in seen if "event" in each]
        assert [int(each["mark"]) for each in events] == list(range(1, len(events) + 1))
        assert events[-1]["event"] == "workflow_completed"
        again = await ask(socket, "subscribe", id="t", run=run["run_id"], after=len(events) - 1)
        assert again["result"] == {"done": True}
        assert json.loads(await socket.recv())["data"] == events[-1]["data"]
        assert json.loads(await socket.recv()) == {"id": "t", "end": True}


async def test_all_runs_are_followed_until_unsubscribe(served: Served) -> None:
    async with dial(served, served.tokens["admin"]) as socket:
        await ask(socket, "subscribe", id="all")
        assert json.loads(await socket.recv())["event"] == "snapshot"
        await served.api.perform("start", {"workflow": "ask"})
        assert json.loads(await socket.recv())["event"] == "workflow_started"
        await socket.send(json.dumps({"id": 2, "op": "unsubscribe", "args": {"id": "all"}}))
        while json.loads(await socket.recv()).get("id") != 2:
            pass
        told = await ask(socket, "unsubscribe", id="all")
        assert told["error"]["code"] == "not_found"


@pytest.mark.parametrize(
    ("message", "code"),
    [
        ({"op": "nothing"}, "not_found"),
        ({"op": 1}, "bad_request"),
        ({}, "bad_request"),
        ({"op": "runs", "args": []}, "bad_request"),
        ({"op": "runs", "args": {"x": 1}}, "bad_request"),
        ({"op": "runs", "more": 1}, "bad_request"),
        ({"op": "run", "args": {"run": "nobody"}}, "not_found"),
        ({"op": "subscribe", "args": {"run": "nobody"}}, "not_found"),
        ({"op": "subscribe", "args": {"x": 1}}, "bad_request"),
        ({"op": "subscribe", "args": {"run": ["x"]}}, "bad_request"),
        ({"op": "subscribe", "args": {"run": ""}}, "bad_request"),
        ({"op": "subscribe", "args": {"run": "x", "after": "abc"}}, "bad_request"),
        ({"op": "subscribe", "args": {"after": [1]}}, "bad_request"),
        ({"op": "subscribe", "args": {"after": True}}, "bad_request"),
        ({"op": "unsubscribe", "args": {"id": {"x": []}}}, "not_found"),
    ],
)
async def test_an_invalid_request_is_an_error_and_the_connection_stays_open(
    served: Served, message: dict[str, Any], code: str
) -> None:
    async with dial(served, served.tokens["admin"]) as socket:
        await socket.send(json.dumps({"id": 7, **message}))
        told = json.loads(await socket.recv())
        assert (told["id"], told["error"]["code"]) == (7, code)
        assert "result" in await ask(socket, "runs")


@pytest.mark.parametrize("id", [1, "1", None, 1.5, [1], {"x": "é"}, True])
async def test_events_carry_the_id_of_the_subscription(served: Served, id: Any) -> None:
    async with dial(served, served.tokens["admin"]) as socket:
        run = (await ask(socket, "start", workflow="ask", wait=True))["result"]["run_id"]
        assert await ask(socket, "subscribe", id=id, run=run) == {"id": id, "result": {"done": True}}
        assert json.loads(await socket.recv())["id"] == id
        await served.api.perform("stop", {"run": run})
        while "end" not in (told := json.loads(await socket.recv())):
            assert told["id"] == id
        assert told == {"id": id, "end": True}


async def test_a_number_and_its_string_are_different_ids(served: Served) -> None:
    async with dial(served, served.tokens["admin"]) as socket:
        run = (await ask(socket, "start", workflow="hello", wait=True))["result"]["run_id"]
        for id in (1, "1"):
            await socket.send(json.dumps({"id": id, "op": "subscribe"}))
        await until(lambda: len(served.api.hub._subscriptions) == 2)
        for id, code in (("1", None), ("1", "not_found"), (1, None)):
            await socket.send(json.dumps({"id": "u", "op": "unsubscribe", "args": {"id": id}}))
            while (told := json.loads(await socket.recv()))["id"] != "u":
                pass
            assert told.get("error", {}).get("code") == code
        assert (await ask(socket, "run", run=run))["result"]["state"] == "completed"


@pytest.mark.parametrize(
    ("sent", "code"), [("no json", "bad_request"), ("[]", "bad_request"), (b"x", "unsupported")]
)
async def test_an_invalid_message_is_an_error_and_running_requests_get_replies(
    served: Served, sent: str | bytes, code: str
) -> None:
    go = asyncio.Event()

    @served.api.session.workflow
    async def slow(context: Any) -> None:
        await go.wait()

    async with dial(served, served.tokens["admin"]) as socket:
        await socket.send(json.dumps({"id": 1, "op": "start", "args": {"workflow": "slow", "wait": True}}))
        await socket.send(sent)
        told = json.loads(await socket.recv())
        assert (told["id"], told["error"]["code"]) == (None, code)
        go.set()
        assert json.loads(await socket.recv())["result"]["state"] == "completed"


async def test_an_oversized_message_closes_the_connection(served: Served) -> None:
    async with dial(served, served.tokens["admin"]) as socket:
        with pytest.raises(ConnectionClosed) as closed:
            await to_the_end(socket, "x" * 2_000_000)
        assert closed.value.rcvd is not None
        assert closed.value.rcvd.code == 1009
    async with dial(served, served.tokens["admin"]) as socket:
        assert "result" in await ask(socket, "runs")


# -- who may ---------------------------------------------------------------------------------------


async def test_the_token_may_be_a_subprotocol_that_is_not_echoed(served: Served) -> None:
    offered = ["nerve", f"nerve.token.{served.tokens['read']}"]
    async with dial(served, subprotocols=offered) as socket:
        assert socket.subprotocol == "nerve"
        assert "result" in await ask(socket, "runs")
        assert (await ask(socket, "start", workflow="hello"))["error"]["code"] == "forbidden"


async def test_the_token_may_be_the_first_message(served: Served) -> None:
    async with dial(served) as socket:
        await socket.send(json.dumps({"id": 0, "token": served.tokens["run"]}))
        assert json.loads(await socket.recv())["result"] == {"done": True}
        assert "result" in await ask(socket, "start", workflow="hello", wait=True)
        assert (await ask(socket, "answer", run="x", answer=1))["error"]["code"] == "forbidden"


@pytest.mark.parametrize(
    "first",
    [{"token": "wrong"}, {"token": None}, {}, {"op": "runs"}, {"op": "start", "args": {"workflow": "ask"}}],
)
async def test_nothing_is_executed_before_the_token(served: Served, first: dict[str, Any]) -> None:
    async with dial(served) as socket:
        await socket.send(json.dumps(first))
        assert json.loads(await socket.recv())["error"]["code"] == "unauthorized"
        with pytest.raises(ConnectionClosed):
            await socket.recv()
    assert served.api.session.list_workflow_runs() == []


async def test_a_client_that_sends_no_token_is_disconnected(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(websocket, "TOKEN_TIMEOUT_S", 0.05)
    async with dial(served) as socket:
        assert json.loads(await socket.recv())["error"]["code"] == "unauthorized"


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"authorization": "Bearer wrong"}, 401),
        ({"origin": "http://evil.com"}, 403),
        ({"origin": "null"}, 403),
        ({"origin": "http://localhost:PORT"}, 403),
        ({"sec-fetch-site": "cross-site"}, 403),
        ({"origin": "http://127.0.0.1:PORT"}, 101),
    ],
)
async def test_an_unauthorized_client_is_refused_before_the_upgrade(
    served: Served, headers: dict[str, str], status: int
) -> None:
    given = {name: value.replace("PORT", str(served.port)) for name, value in headers.items()}
    if status == 101:
        async with dial(served, served.tokens["read"], headers=given) as socket:
            assert "result" in await ask(socket, "runs")
        return
    with pytest.raises(InvalidStatus) as refused:
        async with dial(served, None if "authorization" in given else served.tokens["read"], headers=given):
            pass
    assert refused.value.response.status_code == status


async def test_the_host_must_be_allowed_and_other_paths_require_a_token(served: Served) -> None:
    for url, status in (
        (f"ws://localhost.evil.com:{served.port}/ws", 421),
        (f"ws://127.0.0.1:{served.port}/other", 401),
    ):
        with pytest.raises(InvalidStatus) as refused:
            async with connect(url, host="127.0.0.1", port=served.port, proxy=None):
                pass
        assert refused.value.response.status_code == status


async def test_a_cookie_opens_a_websocket_only_from_the_same_origin(served: Served) -> None:
    async with served.client(None) as browser:
        code = {"code": served.auth.create_launch_code("read")}
        reply = await browser.post("/api/sign-in", json=code, headers={"X-Nerve": "1"})
    cookie = {"cookie": reply.headers["set-cookie"].partition(";")[0]}
    with pytest.raises(InvalidStatus):
        async with dial(served, headers=cookie):
            pass
    async with dial(served, headers=cookie | {"origin": served.url}) as socket:
        assert "result" in await ask(socket, "runs")


async def test_every_operation_requires_its_scope(served: Served) -> None:
    from nerve.api import OPERATIONS
    from nerve.api.permissions import ALLOWED_SCOPES

    for scope, may in ALLOWED_SCOPES.items():
        if scope == "member":  # only people have it
            continue
        async with dial(served, served.tokens[scope]) as socket:
            for operation in OPERATIONS.values():
                told = await ask(socket, operation.name, nothing="known")
                refused = told.get("error", {}).get("code") == "forbidden"
                assert refused is (operation.scope not in may), (scope, operation.name)


async def test_concurrent_callers_share_a_snapshot(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    perform = Api.perform

    async def counted(api: Api, name: str, given: dict[str, Any]) -> Any:
        asked.append(name)
        return await perform(api, name, given)

    monkeypatch.setattr(Api, "perform", counted)
    callers = [served.api.as_caller(Caller(f"token:{number}", "ws")) for number in range(20)]
    told = await asyncio.gather(*map(shared_snapshot, callers))
    assert told == told[:1] * 20
    assert asked == ["runs", "gates"]


async def test_waiting_for_one_run_does_not_block_other_requests(served: Served) -> None:
    async with dial(served, served.tokens["admin"]) as socket:
        for id in range(3):
            args = {"workflow": "ask", "key": str(id)}
            await socket.send(json.dumps({"id": id, "op": "start", "args": args}))
        async with asyncio.timeout(60):
            told = [json.loads(await socket.recv()) for _ in range(3)]
        assert {each["id"] for each in told} == {0, 1, 2}


async def test_a_client_over_the_concurrency_limit_is_not_timed_out(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While a socket is not read, the replies to pings are not read either."""
    monkeypatch.setattr(websocket, "MAX_CONCURRENT_MESSAGES", 1)
    served.server.config.ws_ping_interval = served.server.config.ws_ping_timeout = 0.05
    go, loop = asyncio.Event(), asyncio.get_running_loop()

    @served.api.session.workflow
    async def slow(context: Any) -> None:
        await go.wait()

    async with dial(served, served.tokens["admin"]) as socket:
        for number in range(4):
            message = {"id": number, "op": "start", "args": {"workflow": "slow", "wait": True}}
            await socket.send(json.dumps(message))
        [frames] = served.server.server_state.connections
        began = loop.time()
        await until(lambda: frames.ping_sent_at > began + 0.3 or socket.close_code is not None)
        go.set()
        assert [json.loads(await socket.recv())["id"] for _ in range(4)] == [0, 1, 2, 3]


async def test_a_client_without_pongs_and_messages_is_disconnected(served: Served) -> None:
    served.server.config.ws_ping_interval = served.server.config.ws_ping_timeout = 0.05
    async with dial(served, served.tokens["admin"], close_timeout=0.1) as socket:
        socket.transport.pause_reading()
        await until(lambda: not served.server.server_state.connections)


async def test_a_busy_client_that_disconnects_logs_no_error(
    served: Served, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(websocket, "MAX_CONCURRENT_MESSAGES", 1)
    served.server.config.ws_ping_interval = served.server.config.ws_ping_timeout = 0.05
    go, state = asyncio.Event(), served.server.server_state

    @served.api.session.workflow
    async def slow(context: Any) -> None:
        await go.wait()

    async with dial(served, served.tokens["admin"]) as socket:
        for number in range(3):
            message = {"id": number, "op": "start", "args": {"workflow": "slow", "wait": True}}
            await socket.send(json.dumps(message))
        await until(lambda: bool(served.api.session.list_workflow_runs()))
        socket.transport.abort()
        await until(lambda: not state.connections)
        go.set()
        await until(lambda: not state.tasks)
    assert [each for each in caplog.records if each.levelname == "ERROR"] == []
