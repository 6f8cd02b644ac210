"""`POST /hooks/NAME`: signatures authenticate it, and 202 means that the run is stored."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest

from nerve import Session
from nerve.api import Api
from nerve.client import Client
from nerve.core.workflow.context import WorkflowContext
from nerve.server.app import make_app
from nerve.server.auth import Auth
from nerve.triggers import triggers_of
from nerve.triggers.webhook_signatures import sign_request

SECRET = "a secret for tests"
TOKEN = "t" * 40


@asynccontextmanager
async def webhook_server(
    tmp_path: Path, definition: dict[str, Any] | None = None, signature: str = "github", **webhook: Any
) -> AsyncIterator[tuple[Session, httpx2.AsyncClient]]:
    """Serve a project with one webhook, `issues`, whose secret is in a file."""
    (tmp_path / "secret").write_text(SECRET + "\n")
    session = Session(store=tmp_path / "nerve.db", project=tmp_path)

    @session.workflow
    async def triage(ctx: WorkflowContext, issue: Any) -> Any:
        return issue

    options = {"signature": signature, "secret": {"file": "secret"}, **webhook}
    session.trigger("issues", "triage", webhook=options, **(definition or {}))
    async with session:
        app = make_app(Api(session), Auth({"admin": TOKEN}, ["nerve.test"]))
        transport = httpx2.ASGITransport(app)
        async with httpx2.AsyncClient(transport=transport, base_url="http://nerve.test") as client:
            yield session, client


async def send(
    client: httpx2.AsyncClient,
    body: Any,
    *,
    name: str = "issues",
    scheme: str = "github",
    secret: str = SECRET,
    delivery: str = "1",
    kind: str = "application/json",
    query: str = "",
    now: float | None = None,
    **headers: str,
) -> httpx2.Response:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    signed = sign_request(scheme, secret, data, time.time() if now is None else now, delivery)
    return await client.post(
        f"/hooks/{name}{query}", content=data, headers={"content-type": kind, **signed, **headers}
    )


def runs_of(session: Session) -> list[Any]:
    rows = session.engine.store.runs(session=session.name, tags={"trigger": "issues"})
    return [session.engine.run_handle(row).input for row in rows]


async def test_a_signed_request_starts_a_run_that_is_stored_when_202_is_sent(tmp_path: Path) -> None:
    definition = {"input": {"n": "{{ body.number }}", "event": "{{ headers['x-github-event'] }}"}}
    async with webhook_server(tmp_path, definition) as (session, client):
        response = await send(client, {"number": 7}, **{"X-GitHub-Event": "issues"})
        assert response.status_code == 202
        run_id = response.json()["run_id"]
        row = session.engine.store.run(run_id)
        assert row is not None
        assert row.key == "trigger:issues:delivery:1"
        assert runs_of(session) == [{"n": 7, "event": "issues"}]
        summary = json.loads(row.summary or "{}")
        assert (summary["started_by"], summary["started_via"]) == ("trigger:issues", "webhook")


async def test_a_delivery_that_is_repeated_starts_one_run(tmp_path: Path) -> None:
    async with webhook_server(tmp_path) as (session, client):
        responses = await asyncio.gather(*(send(client, {"n": 1}, delivery="same") for _ in range(10)))
        assert {response.status_code for response in responses} == {202}
        assert len({response.json()["run_id"] for response in responses}) == 1
        assert (await send(client, {"n": 1}, delivery="other")).status_code == 202
        assert len(runs_of(session)) == 2


async def test_a_delivery_that_is_repeated_after_its_run_was_deleted_starts_none(tmp_path: Path) -> None:
    async with webhook_server(tmp_path) as (session, client):
        started = await send(client, {"n": 1}, delivery="old")
        await session.get_workflow_run(started.json()["run_id"]).wait()
        deleted = await Client(Api(session)).delete(run=started.json()["run_id"])
        assert (deleted.runs, runs_of(session)) == (1, [])
        repeated = await send(client, {"n": 1}, delivery="old")
        reason = "the run of this delivery was deleted"
        assert (repeated.status_code, repeated.json()) == (200, {"started": False, "reason": reason})
        assert runs_of(session) == []
        assert (await send(client, {"n": 1}, delivery="new")).status_code == 202


@pytest.mark.parametrize("scheme", ["github", "gitlab", "slack", "stripe", "standard", "telegram", "generic"])
async def test_every_signature_is_accepted_and_none_without_the_secret(tmp_path: Path, scheme: str) -> None:
    async with webhook_server(tmp_path, signature=scheme) as (session, client):
        wrong = await send(client, {"n": 1}, scheme=scheme, secret="wrong")
        assert wrong.status_code == 401
        assert wrong.json()["code"] == "unauthorized"
        assert SECRET not in wrong.text
        assert (await client.post("/hooks/issues", json={})).status_code == 401
        assert runs_of(session) == []
        assert (await send(client, {"n": 1}, scheme=scheme)).status_code == 202
        assert runs_of(session) == [{"n": 1}]
        refused = triggers_of(session).refusals["issues"]
        assert len(refused) == 2


async def test_an_old_request_is_refused_also_with_a_valid_signature(tmp_path: Path) -> None:
    async with webhook_server(tmp_path, signature="stripe") as (session, client):
        old = await send(client, {"id": "evt_1"}, scheme="stripe", now=time.time() - 3600)
        assert old.status_code == 401
        assert "away from the time of this machine" in old.json()["message"]
        assert runs_of(session) == []


async def test_a_condition_that_is_false_answers_200_and_starts_nothing(tmp_path: Path) -> None:
    definition = {"when": "body.action == 'opened' && query.branch == 'main'"}
    async with webhook_server(tmp_path, definition) as (session, client):
        closed = await send(client, {"action": "closed"}, query="?branch=main")
        assert (closed.status_code, closed.json()) == (200, {"started": False, "reason": "when is false"})
        opened = await send(client, {"action": "opened"}, query="?branch=main", delivery="2")
        assert opened.status_code == 202
        assert len(runs_of(session)) == 1


@pytest.mark.parametrize(
    ("name", "status"), [("issue", 404), ("issues/more", 404), ("%2e%2e", 404), ("issues%00", 404)]
)
async def test_an_unknown_name_is_not_found(tmp_path: Path, name: str, status: int) -> None:
    async with webhook_server(tmp_path) as (_, client):
        response = await send(client, {}, name=name)
        assert response.status_code == status
        assert response.json()["code"] == "not_found"


async def test_a_trigger_of_another_kind_is_no_webhook(tmp_path: Path) -> None:
    async with webhook_server(tmp_path) as (session, client):
        session.trigger("nightly", "triage", schedule="0 3 * * *")
        assert (await send(client, {}, name="nightly")).status_code == 404


async def test_another_method_is_not_allowed(tmp_path: Path) -> None:
    async with webhook_server(tmp_path) as (_, client):
        response = await client.get("/hooks/issues")
        assert (response.status_code, response.json()["code"]) == (405, "not_allowed")


async def test_a_body_above_the_limit_is_refused_before_it_is_read(tmp_path: Path) -> None:
    async with webhook_server(tmp_path, max_bytes=1000) as (session, client):
        assert (await send(client, {"text": "x" * 2000})).status_code == 413

        async def chunks() -> AsyncIterator[bytes]:
            for _ in range(100):
                yield b"x" * 100

        response = await client.post(
            "/hooks/issues", content=chunks(), headers={"content-type": "application/json"}
        )
        assert response.status_code == 413
        assert runs_of(session) == []


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (b"<a/>", "application/xml"),
        (b"{", "application/json"),
        (b"x", ""),
        (b'{"a":1,"a":2}', "application/json"),
    ],
)
async def test_a_body_that_is_neither_json_nor_a_form_is_unsupported(
    tmp_path: Path, body: bytes, kind: str
) -> None:
    async with webhook_server(tmp_path) as (session, client):
        response = await send(client, body, kind=kind)
        assert (response.status_code, response.json()["code"]) == (415, "unsupported")
        assert runs_of(session) == []


async def test_a_form_is_read_as_its_fields(tmp_path: Path) -> None:
    async with webhook_server(tmp_path, signature="slack") as (session, client):
        form = b"command=%2Fship&text=now"
        response = await send(client, form, scheme="slack", kind="application/x-www-form-urlencoded")
        assert response.status_code == 202
        assert runs_of(session) == [{"command": "/ship", "text": "now"}]


async def test_slack_gets_its_challenge_back_only_with_a_valid_signature(tmp_path: Path) -> None:
    body = {"type": "url_verification", "challenge": "c-1"}
    async with webhook_server(tmp_path, signature="slack") as (session, client):
        assert (await send(client, body, scheme="slack", secret="wrong")).status_code == 401
        response = await send(client, body, scheme="slack")
        assert (response.status_code, response.json()) == (200, {"challenge": "c-1"})
        assert runs_of(session) == []


async def test_headers_that_may_be_secret_are_not_part_of_the_event(tmp_path: Path) -> None:
    definition = {"input": "{{ headers }}"}
    async with webhook_server(tmp_path, definition, signature="gitlab") as (session, client):
        await send(client, {}, scheme="gitlab", Cookie="a=b", Authorization="Basic x", **{"X-Event": "push"})
        (headers,) = runs_of(session)
        assert headers["x-event"] == "push"
        assert not {"x-gitlab-token", "cookie", "authorization"} & headers.keys()
        assert SECRET not in json.dumps([event.data for event in session.runs()[0].events])


async def test_a_paused_webhook_answers_409_so_that_the_sender_tries_again(tmp_path: Path) -> None:
    async with webhook_server(tmp_path) as (session, client):
        await triggers_of(session).pause("issues")
        response = await send(client, {})
        assert response.status_code == 409
        assert "nerve triggers resume issues" in response.json()["fix"]


async def test_a_missing_secret_accepts_nothing_and_is_in_the_log_only(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with webhook_server(tmp_path, secret={"env": "NOT_SET_HERE"}) as (_, client):
        response = await send(client, {})
        assert response.status_code == 503
        assert "NOT_SET_HERE" not in response.text
        assert "NOT_SET_HERE with the secret is not set" in caplog.text


async def test_wrong_signatures_are_limited_and_right_ones_are_not(tmp_path: Path) -> None:
    async with webhook_server(tmp_path) as (_, client):
        codes = [(await send(client, {}, secret="wrong")).status_code for _ in range(15)]
        assert codes[:10] == [401] * 10
        assert set(codes[10:]) <= {401, 429}
        assert 429 in codes
        assert (await send(client, {})).status_code == 202


async def test_a_start_that_is_refused_is_an_error_with_the_reason(tmp_path: Path) -> None:
    async with webhook_server(tmp_path) as (session, client):
        session.trigger("lost", "nowhere", webhook={"signature": "github", "secret": {"file": "secret"}})
        response = await send(client, {}, name="lost")
        assert (response.status_code, response.json()["code"]) == (422, "refused")
        assert "workflow 'nowhere' not found" in triggers_of(session).refusals["lost"][0][1]


async def test_a_page_of_another_origin_cannot_call_a_webhook(tmp_path: Path) -> None:
    async with webhook_server(tmp_path) as (_, client):
        assert (await send(client, {}, Origin="https://evil.test")).status_code == 403
        assert (await send(client, {}, Host="evil.test")).status_code == 421


async def test_hundreds_of_requests_at_the_same_time_lose_none(tmp_path: Path) -> None:
    async with webhook_server(tmp_path) as (session, client):
        sent = [send(client, {"n": number}, delivery=str(number)) for number in range(300)]
        responses = await asyncio.gather(*sent)
        assert {response.status_code for response in responses} == {202}
        stored = {row.run for row in session.engine.store.runs(session=session.name)}
        assert {response.json()["run_id"] for response in responses} == stored
        assert len(stored) == 300
