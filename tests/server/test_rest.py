"""Every operation over HTTP."""

import time

import httpx2
import jsonschema
import pytest

from nerve.api import OPERATIONS
from nerve.server.openapi import openapi_document
from server.conftest import Served


async def test_a_run_is_started_found_and_returned(client: httpx2.AsyncClient) -> None:
    started = await client.post("/api/runs", json={"workflow": "hello", "input": "you", "wait": True})
    assert started.status_code == 200
    run = started.json()
    assert (run["state"], run["result"]) == ("completed", "hello you")
    one = (await client.get(f"/api/runs/{run['run_id']}")).json()
    assert one["input"] == "you"
    listed = (await client.get("/api/runs", params={"workflow": "hello", "limit": 1})).json()
    assert [each["run_id"] for each in listed["runs"]] == [run["run_id"]]
    events = (await client.get(f"/api/runs/{run['run_id']}/events", params={"after": 1})).json()["events"]
    assert events[0]["seq"] == 2
    assert events[-1]["event_type"] == "workflow_completed"


async def test_a_gate_is_answered(client: httpx2.AsyncClient) -> None:
    run = (await client.post("/api/runs", json={"workflow": "ask", "wait": True})).json()
    assert run["state"] == "waiting"
    gate = (await client.get("/api/gates")).json()["gates"][0]
    given = {"gate": gate["gate_id"], "answer": "yes"}
    replies = [await client.post("/api/answers", json=given, headers={"Idempotency-Key": "k"}) for _ in "ab"]
    assert [reply.status_code for reply in replies] == [200, 200]
    assert replies[0].json() == replies[1].json()
    late = await client.post("/api/answers", json={"run": run["run_id"], "answer": "no"})
    assert late.status_code in (409, 410)


async def test_a_name_may_have_a_slash(client: httpx2.AsyncClient) -> None:
    await client.post("/api/runs", json={"workflow": "ask", "label": "feature/42"})
    assert (await client.get("/api/runs/feature%2F42")).json()["label"] == "feature/42"


async def test_an_idempotency_key_starts_one_run(client: httpx2.AsyncClient) -> None:
    runs = [
        (
            await client.post("/api/runs", json={"workflow": "hello"}, headers={"Idempotency-Key": "once"})
        ).json()
        for _ in range(3)
    ]
    assert len({run["run_id"] for run in runs}) == 1


@pytest.mark.parametrize(
    ("method", "path", "sent", "status", "code"),
    [
        ("POST", "/api/runs", {"json": {"workflow": "nobody"}}, 404, "not_found"),
        ("POST", "/api/runs", {"json": {"workflow": "hello", "inptu": 1}}, 400, "bad_request"),
        ("POST", "/api/runs", {"json": ["hello"]}, 400, "bad_request"),
        ("POST", "/api/runs", {"json": {"workflow": "hello", "input": "x" * 1_100_000}}, 413, "too_large"),
        ("POST", "/api/runs", {"data": {"workflow": "hello"}}, 415, "unsupported"),
        ("POST", "/api/runs", {"content": b'{"workflow": "hello"}'}, 415, "unsupported"),
        ("POST", "/api/runs?workflow=hello", {}, 400, "bad_request"),
        ("POST", "/api/runs/one/pause", {"json": {"run": "two"}}, 400, "bad_request"),
        ("GET", "/api/runs/nobody", {}, 404, "not_found"),
        ("GET", "/api/runs?limit=many", {}, 400, "bad_request"),
        ("GET", "/api/runs?limit=1&limit=2", {}, 400, "bad_request"),
        ("GET", "/api/nothing", {}, 404, "not_found"),
        ("GET", "/api/runs/", {}, 404, "not_found"),
        ("DELETE", "/api/runs", {}, 405, "not_allowed"),
    ],
)
async def test_errors_have_one_format(
    client: httpx2.AsyncClient, method: str, path: str, sent: dict, status: int, code: str
) -> None:
    reply = await client.request(method, path, **sent)
    assert (reply.status_code, reply.json()["code"]) == (status, code)
    assert reply.json()["message"]


@pytest.mark.parametrize(
    ("text", "status"),
    [
        ('{"workflow": "hello", "input": NaN}', 400),
        ('{"workflow": "hello", "workflow": "ask"}', 400),
        ('{"workflow": "hello", "input": "\\ud800"}', 422),
        ('{"workflow": "hello", "input": ' + "[" * 70 + "]" * 70 + "}", 400),
        ("[" * 100_000, 400),
        ("{", 400),
        ("\xff", 400),
    ],
)
async def test_malformed_json_is_refused(
    served: Served, client: httpx2.AsyncClient, text: str, status: int
) -> None:
    json = {"Content-Type": "application/json"}
    reply = await client.post("/api/runs", content=text.encode("latin-1"), headers=json)
    assert reply.status_code == status
    assert (await client.get("/api/runs")).json()["runs"] == []


@pytest.mark.parametrize(
    ("text", "status"), [(b"", 200), (b" \t\r\n", 400), (b"\x0c", 400), (b"\x0b\x0c", 400)]
)
async def test_only_an_empty_body_is_an_empty_object(
    client: httpx2.AsyncClient, text: bytes, status: int
) -> None:
    json = {"Content-Type": "application/json"}
    assert (await client.post("/api/reload", content=text, headers=json)).status_code == status


async def test_a_chunked_body_is_limited_while_it_is_read(client: httpx2.AsyncClient) -> None:
    async def endless():
        for _ in range(100):
            yield b" " * 65536

    json = {"Content-Type": "application/json"}
    reply = await client.post("/api/runs", content=endless(), headers=json)
    assert reply.status_code == 413


async def test_the_openapi_document_lists_every_operation_and_matches_replies(
    client: httpx2.AsyncClient,
) -> None:
    told = (await client.get("/api/openapi.json")).json()
    assert told == openapi_document()
    assert told["openapi"].startswith("3.1")
    named = {each["operationId"] for path in told["paths"].values() for each in path.values()}
    assert named == {*OPERATIONS, "read_artifact"}
    schema = told["paths"]["/api/runs"]["post"]["responses"]["200"]["content"]["application/json"]["schema"]
    run = (await client.post("/api/runs", json={"workflow": "hello", "wait": True})).json()
    jsonschema.validate(run, schema | {"components": told["components"]})


async def test_every_reference_in_the_openapi_document_resolves() -> None:
    told = openapi_document()

    def walk(value):
        if isinstance(value, dict):
            if isinstance(ref := value.get("$ref"), str):
                found = told
                for part in ref.removeprefix("#/").split("/"):
                    found = found[part]
            for each in value.values():
                walk(each)
        elif isinstance(value, list):
            for each in value:
                walk(each)

    walk(told)


async def test_the_health_check_needs_no_token(served: Served) -> None:
    async with served.client(None) as anybody:
        assert (await anybody.get("/healthz")).json() == {"status": "ok"}


async def test_every_error_has_a_fix(served: Served) -> None:
    async with served.client() as client:
        run = (await client.post("/api/runs", json={"workflow": "ask", "wait": True})).json()["run_id"]
        answers = {"run": run, "answer": "perhaps"}
        refused = [
            await client.get("/api/nowhere"),
            await client.delete("/api/runs"),
            await client.get("/api/runs", headers={"origin": "http://elsewhere"}),
            await client.post("/api/answers", json=answers),
            await client.post("/api/answers", json={**answers, "answer": "yes"}),
            await client.post("/api/answers", json={**answers, "answer": "no"}),
            await client.post(f"/api/runs/{run}/pause", json={}),
        ]
        told = [(each.status_code, each.json().get("fix")) for each in refused]
    assert [status for status, _ in told] == [404, 405, 403, 422, 200, 409, 409]
    assert all(fix for status, fix in told if status != 200), told
    assert told[0][1] == "See the routes: GET /api/openapi.json"
    assert told[1][1] == "Use: GET, HEAD, POST"
    assert refused[1].headers["allow"] == "GET, HEAD, POST"


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-8-sig", "latin-1"])
async def test_a_body_in_another_encoding_is_refused(client: httpx2.AsyncClient, encoding: str) -> None:
    body = '{"workflow": "hello", "input": "grüß"}'.encode(encoding)
    reply = await client.post("/api/runs", content=body, headers={"content-type": "application/json"})
    assert (reply.status_code, reply.json()["code"]) == (400, "bad_request")
    assert "UTF-8" in reply.json()["message"]


async def test_a_charset_that_is_not_utf_8_is_refused(client: httpx2.AsyncClient) -> None:
    for charset, status in {"utf-8": 200, '"UTF-8"': 200, "utf-16": 415, "latin-1": 415}.items():
        kind = f"application/json; charset={charset}"
        reply = await client.post(
            "/api/runs", content=b'{"workflow": "hello"}', headers={"content-type": kind}
        )
        assert reply.status_code == status, charset


async def cpu_seconds(client: httpx2.AsyncClient, body: dict[str, object]) -> float:
    """The CPU time of the server and the client for one request: the least of three."""
    taken = []
    for _ in range(3):
        begun = time.process_time()
        await client.post("/api/runs", json=body)
        taken.append(time.process_time() - begun)
    return min(taken)


@pytest.mark.parametrize("place", ["", "limits", "nested"])
async def test_thousands_of_wrong_entries_are_refused_quickly(client: httpx2.AsyncClient, place: str) -> None:
    many = {f"unknown{number}": "x" for number in range(40_000)}
    given = {"": many, "limits": {"limits": many}, "nested": {"limits": {"a": many}}}[place]
    accepted = await cpu_seconds(client, {"workflow": "hello", "input": many})
    refused = await cpu_seconds(client, {"workflow": "hello", **given})
    assert refused < 2 * accepted  # naming each entry took twenty times as long
    reply = await client.post("/api/runs", json={"workflow": "hello", **given})
    assert reply.status_code == (413 if place else 400)
    assert "unknown0" in reply.text or "limits" in reply.text


async def test_a_start_with_a_traceparent_belongs_to_that_trace(served: Served) -> None:
    sent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
    async with served.client() as client:
        for header, recorded in ((sent, sent), ("nonsense", None)):
            started = await client.post(
                "/api/runs", json={"workflow": "hello"}, headers={"traceparent": header}
            )
            run = served.api.session.get_workflow_run(started.json()["run_id"])
            assert run is not None
            assert run.events[0].data.get("traceparent") == recorded
        refused = await client.post("/api/runs", json={"workflow": "hello", "traceparent": "nonsense"})
        assert refused.status_code == 400


async def test_a_routed_start_with_a_traceparent_belongs_to_that_trace(served: Served) -> None:
    sent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
    async with served.client() as client:
        started = await client.post(
            "/api/route", json={"text": "hello", "start": True}, headers={"traceparent": sent}
        )
        run = served.api.session.get_workflow_run(started.json()["run"]["run_id"])
        assert run is not None
        assert run.events[0].data["traceparent"] == sent
        refused = await client.post("/api/route", json={"text": "hello", "traceparent": "nonsense"})
        assert refused.status_code == 400


async def test_a_repeated_start_with_another_traceparent_is_the_same_run(served: Served) -> None:
    async with served.client() as client:
        runs = [
            await client.post(
                "/api/runs",
                json={"workflow": "hello", "key": "once"},
                headers={"traceparent": f"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b{digit}-01"},
            )
            for digit in (1, 2)
        ]
        assert runs[0].json()["run_id"] == runs[1].json()["run_id"]
