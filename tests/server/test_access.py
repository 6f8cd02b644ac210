"""Who may do what: every route, every kind of token; a route that is not in the table fails."""

import re
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, get_args

import httpx2
import pytest

from nerve.api import ApiError
from nerve.api.callers import Scope
from nerve.api.operations import OPERATIONS
from nerve.api.permissions import ALLOWED_SCOPES
from nerve.server.auth import Auth
from server.conftest import Served

OPEN = {
    ("GET", "/healthz"),
    ("POST", "/api/sign-in"),
    ("POST", "/hooks/{name}"),  # its signature authenticates it
    ("POST", "/chat/{name}"),  # as well
    ("WEBSOCKET", "/ws"),
}
ADMIN = {
    *(("POST", path) for path in ("/api/triggers", "/api/triggers/{trigger}/remove")),
    *(("POST", f"/api/{name}") for name in ("collect", "definitions", "reload", "launch-codes")),
    ("POST", "/api/runs/{run}/delete"),
    ("GET", "/api/audit"),
    ("GET", "/api/people"),
    ("POST", "/api/people"),
    ("POST", "/api/people/{person}"),
    ("POST", "/api/people/{person}/remove"),
}
ANSWER = {("POST", "/api/answers")}
RUN = {
    ("POST", "/api/runs/{run}/messages"),
    ("POST", "/api/runs/{run}/updates"),
    ("POST", "/api/runs"),
    ("POST", "/api/signals"),
    ("POST", "/api/facts"),
    ("POST", "/api/facts/retract"),
    *(
        ("POST", f"/api/runs/{{run}}/{verb}")
        for verb in ("pause", "resume", "steer", "stop", "fork", "retry", "skip")
    ),
    *(("POST", f"/api/queues/{{queue}}/{verb}") for verb in ("pause", "resume")),
    *(("POST", f"/api/triggers/{{trigger}}/{verb}") for verb in ("pause", "resume", "fire", "backfill")),
    ("POST", "/api/route"),
    ("POST", "/api/notifications/{channel}/test"),
    ("POST", "/test/message"),
}
READ = {
    ("GET", "/api/openapi.json"),
    ("GET", "/api/notifications"),
    ("GET", "/test/messages/{id}"),
    ("POST", "/api/command"),
    ("POST", "/mcp"),
    ("GET", "/events"),
    ("GET", "/events/workflow/{run_id}"),
    ("GET", "/api/workflows"),
    ("GET", "/api/workflows/{workflow}"),
    ("GET", "/api/runs"),
    ("GET", "/api/runs/{run}"),
    ("GET", "/api/runs/{run}/definition"),
    ("GET", "/api/runs/{run}/events"),
    ("GET", "/api/runs/{run}/queries/{query}"),
    ("GET", "/api/gates"),
    ("GET", "/api/queues"),
    ("GET", "/api/chats"),
    ("GET", "/api/triggers"),
    ("GET", "/api/triggers/{trigger}"),
    ("GET", "/api/facts"),
    ("GET", "/api/agents"),
    ("GET", "/api/usage"),
    ("GET", "/api/threads"),
    ("GET", "/api/definitions"),
    ("GET", "/api/sessions"),
    ("GET", "/api/health"),
    ("GET", "/metrics"),
    ("GET", "/api/runs/{run}/fork-preview"),
    ("GET", "/api/usage/history"),
    ("GET", "/api/runs/{run}/artifacts"),
    ("GET", "/api/runs/{run}/artifacts/{name}"),
    ("GET", "/api/runs/{run}/changes"),
}
TABLE = {
    **dict.fromkeys(OPEN, "open"),
    **dict.fromkeys(READ, "read"),
    **dict.fromkeys(ANSWER, "answer"),
    **dict.fromkeys(RUN, "run"),
    **dict.fromkeys(ADMIN, "admin"),
}
GUARDED = sorted(key for key, scope in TABLE.items() if scope != "open")


def path_of(path: str) -> str:
    return re.sub(r"{[^}]+}", "some", path)


async def ask(client: httpx2.AsyncClient, method: str, path: str, **headers: str) -> int:
    """The status for a request that has everything but, perhaps, the right to be heard."""
    async with client.stream(method, path_of(path), headers=headers, **body(method)) as reply:
        return reply.status_code


def body(method: str) -> dict:
    return {"json": {"nothing": "known"}} if method == "POST" else {}


def routes_of(app: Any) -> set[tuple[str, str]]:
    """What is really routed for programs, whatever the list of ways says; tests/web has the pages."""
    found: set[tuple[str, str]] = set()
    pages = {id(route) for route in app.site.routes}
    for route in app._router.routes:
        if id(route) in pages:
            continue
        for method in getattr(route, "methods", None) or {"WEBSOCKET"}:
            if method != "HEAD":
                found.add((method, route.path.replace(":path}", "}")))
    return found


async def test_every_route_is_in_the_table(served: Served) -> None:
    assert routes_of(served.app) == set(TABLE)


@pytest.mark.parametrize(
    "given",
    [
        "",
        "Bearer",
        "Bearer nothing",
        "Bearer null",
        "Basic YTpi",
        "Bearer é",
        "TOKEN",
        "Bearer TOKENx",
    ],
)
async def test_no_route_answers_without_a_token(served: Served, given: str) -> None:
    token = served.tokens["admin"]
    headers = {"authorization": given.replace("TOKEN", token).encode()} if given else {}
    async with served.client(None) as client:
        for method, path in [
            *GUARDED,
            ("GET", "/api/unknown"),
            ("GET", "/nothing"),
            ("OPTIONS", "/api/runs"),
        ]:
            reply = await client.request(method, path_of(path), headers=headers, **body(method))
            assert reply.status_code in (401, 429), (method, path)
            assert "access-control-allow-origin" not in reply.headers


@pytest.mark.parametrize("scope", get_args(Scope))
async def test_a_token_does_what_its_scope_says_and_no_more(served: Served, scope: str) -> None:
    async with served.client(scope) as client:
        for method, path in GUARDED:
            may = TABLE[method, path] in ALLOWED_SCOPES[scope]
            status = await ask(client, method, path)
            assert (status != 403) is may, (method, path, status)
            assert status != 401


def test_the_operations_declare_the_same_scopes() -> None:
    for operation in OPERATIONS.values():
        assert TABLE[operation.method, operation.path] == operation.scope


async def test_a_client_cannot_choose_its_own_scope(served: Served) -> None:
    async with served.client("read") as client:
        claims = {"x-scope": "admin", "scope": "admin", "x-forwarded-user": "root"}
        assert await ask(client, "POST", "/api/runs", **claims) == 403


LISP = '(workflow "evil" (state start (assert done)))'
DEFINES = [
    ["workflow-definition", {"id": "evil", "notation": "lisp", "source": LISP}],
    ["workflow/definition", {"id": "evil", "source": LISP}],
    '(workflow-definition :id evil :source "(workflow)")',
    "_",
    ["_", "..."],
    ["?label", "..."],
]


@pytest.mark.parametrize("path", ["/api/facts", "/api/facts/retract"])
async def test_facts_that_define_workflows_require_the_define_scope(served: Served, path: str) -> None:
    async with served.client("run") as client:
        seen = [(await client.post(path, json={"fact": fact})).status_code for fact in DEFINES]
        assert seen == [403] * len(DEFINES)
        assert (await client.post(path, json={"fact": ["done", 1]})).status_code == 200
    assert "evil" not in served.api.session.list_workflows()


async def test_token_guessing_is_rate_limited_without_blocking_others(served: Served) -> None:
    async with served.client(None) as guesser, served.client() as owner:
        begun = time.monotonic()
        seen = [await ask(guesser, "GET", "/api/runs", authorization=f"Bearer {n}") for n in range(40)]
        if time.monotonic() - begun < 1:
            assert seen.count(429) == 30
        assert set(seen) == {401, 429}
        assert await ask(owner, "GET", "/api/runs") == 200


async def test_no_body_is_read_without_a_token(served: Served) -> None:
    sent = 0

    async def endless():
        nonlocal sent
        while sent < 1 << 30:
            sent += 65536
            yield b" " * 65536

    async with served.client(None) as client:
        try:
            reply = await client.post("/api/runs", content=endless())
            assert reply.status_code == 401
        except (httpx2.ReadError, httpx2.WriteError):
            pass  # the server closed while we were still sending
    assert sent < 1 << 28


# -- browsers ------------------------------------------------------------------------------------------

OURS = "http://127.0.0.1:PORT"


MATRIX: list[tuple[str, str | None, int]] = [
    ("127.0.0.1:PORT", None, 200),
    ("localhost:PORT", None, 200),
    ("LOCALHOST:PORT", None, 200),
    ("[::1]:PORT", None, 200),
    ("127.0.0.1:PORT", OURS, 200),
    ("localhost:PORT", "http://localhost:PORT", 200),
    ("[::1]:PORT", "http://[::1]:PORT", 200),
    *(
        (host, None, 421)
        for host in (
            "evil.com",
            "evil.com:PORT",
            "localhost.evil.com:PORT",
            "127.0.0.1.nip.io:PORT",
            "127.0.0.1",
            "localhost",
            "127.0.0.1:1",
            "localhost:PORT0",
            "0.0.0.0:PORT",
            "[::]:PORT",
            "::1:PORT",
            "127.1:PORT",
            "2130706433:PORT",
            "127.0.0.2:PORT",
            "localhost.:PORT",
            "user@127.0.0.1:PORT",
            "127.0.0.1:PORT, evil.com",
            "null",
            "",
        )
    ),
    *(
        ("127.0.0.1:PORT", origin, 403)
        for origin in (
            "http://evil.com",
            "https://evil.com",
            "http://evil.com:PORT",
            "http://localhost.evil.com:PORT",
            "http://127.0.0.1.nip.io:PORT",
            "null",
            "",
            "http://127.0.0.1",
            "http://127.0.0.1:1",
            "https://127.0.0.1:PORT",
            "http://localhost:PORT",
            "http://[::1]:PORT",
            "http://0.0.0.0:PORT",
            "HTTP://127.0.0.1:PORT",
            "http://127.0.0.1:PORT/",
            "http://127.0.0.1:PORT http://evil.com",
            "file://",
            "chrome-extension://abc",
            "127.0.0.1:PORT",
        )
    ),
    ("evil.com:PORT", "http://evil.com:PORT", 421),
    ("localhost:PORT", OURS, 403),
]


async def test_only_allowed_hosts_and_origins_are_accepted(served: Served) -> None:
    started = 0
    async with served.client() as client:
        for host, origin, status in MATRIX:
            headers = {"host": host.replace("PORT", str(served.port))}
            if origin is not None:
                headers["origin"] = origin.replace("PORT", str(served.port))
            reply = await client.post("/api/runs", json={"workflow": "ask"}, headers=headers)
            assert reply.status_code == status, (host, origin)
            assert "access-control-allow-origin" not in reply.headers
            assert (await client.get("/healthz", headers=headers)).status_code == status
            started += status == 200
        assert len((await client.get("/api/runs")).json()["runs"]) == started == 7


@pytest.mark.parametrize(
    ("site", "status"), [("none", 200), ("same-origin", 200), ("same-site", 403), ("cross-site", 403)]
)
async def test_a_page_on_another_port_is_detected_by_sec_fetch_site(
    served: Served, site: str, status: int
) -> None:
    async with served.client() as client:
        assert await ask(client, "GET", "/api/runs", **{"sec-fetch-site": site}) == status


@asynccontextmanager
async def signed_in(served: Served) -> AsyncIterator[httpx2.AsyncClient]:
    code = served.auth.create_launch_code()
    async with served.client(None) as browser:
        await sign_in(served, browser, code)
        yield browser


async def sign_in(served: Served, browser: httpx2.AsyncClient, code: str) -> None:
    reply = await browser.post("/api/sign-in", json={"code": code}, headers={"X-Nerve": "1"})
    assert reply.status_code == 200
    told = reply.headers["set-cookie"]
    assert "HttpOnly" in told
    assert "SameSite=Strict" in told
    assert code not in told
    assert all(token not in told for token in served.tokens.values())
    again = await browser.post("/api/sign-in", json={"code": code}, headers={"X-Nerve": "1"})
    assert again.status_code == 401


async def test_the_sign_in_page_runs_only_the_script_of_the_server(served: Served) -> None:
    async with served.client(None) as browser:
        shown = await browser.get("/")
        policy = shown.headers["content-security-policy"]
        assert "default-src 'none'; script-src 'self'; style-src 'self'" in policy
        assert "unsafe" not in policy
        assert shown.headers["referrer-policy"] == "same-origin"
        (address,) = re.findall(r'<script src="([^"]*)"></script>', shown.text)
        assert shown.text.count("<script") == 1
        script = await browser.get(address)
        assert script.headers["content-type"].startswith("text/javascript")
        assert "innerHTML" not in script.text


async def test_a_launch_code_signs_in_one_browser_once(served: Served) -> None:
    async with signed_in(served) as browser:
        assert await ask(browser, "GET", "/api/runs") == 200


async def test_a_cookie_changes_state_only_with_the_x_nerve_header(served: Served) -> None:
    async with signed_in(served) as browser:
        run = {"json": {"workflow": "hello"}}
        assert (await browser.post("/api/runs", **run)).status_code == 403
        assert (await browser.post("/api/runs", headers={"X-Nerve": "1"}, **run)).status_code == 200
        form = {"content": '{"workflow": "hello"}', "headers": {"X-Nerve": "1", "content-type": "text/plain"}}
        assert (await browser.post("/api/runs", **form)).status_code == 415


async def test_a_new_token_invalidates_cookies(served: Served) -> None:
    async with signed_in(served) as browser:
        served.auth._tokens["admin"] = "a new token"
        assert await ask(browser, "GET", "/api/runs") == 401


async def test_a_forged_cookie_is_rejected(served: Served) -> None:
    code = served.auth.create_launch_code("read")
    async with served.client(None) as browser:
        reply = await browser.post("/api/sign-in", json={"code": code}, headers={"X-Nerve": "1"})
        name, _, value = reply.headers["set-cookie"].partition(";")[0].partition("=")
        browser.cookies.clear()
        level, until, *rest = value.split(".")
        assert await ask(browser, "GET", "/api/runs", cookie=f"{name}={value}") == 200
        for forged in (
            ".".join(["admin", until, *rest]),
            ".".join([level, until + "0", *rest]),
            value[:-1],
            "",
            "....",
            "read.x.y.z",
        ):
            assert await ask(browser, "GET", "/api/runs", cookie=f"{name}={forged}") == 401


async def test_sign_in_requires_a_code_and_the_header(served: Served) -> None:
    async with served.client(None) as browser:
        code = served.auth.create_launch_code()
        assert (await browser.post("/api/sign-in", json={"code": code})).status_code == 403
        for wrong in ({"code": "x"}, {"code": ""}, {"code": None}, {}):
            reply = await browser.post("/api/sign-in", json=wrong, headers={"X-Nerve": "1"})
            assert reply.status_code == 401


async def test_a_token_in_the_url_is_not_accepted(served: Served) -> None:
    async with served.client(None) as client:
        assert await ask(client, "GET", f"/api/runs?token={served.tokens['admin']}") == 401


def test_an_empty_token_is_refused() -> None:
    with pytest.raises(ValueError, match="empty"):
        Auth({"admin": ""})


def test_each_refusal_is_a_new_error_object() -> None:
    auth = Auth({"admin": "right"})
    refusals = []
    for _ in range(2):
        with pytest.raises(ApiError) as caught:
            auth.find_holder("wrong")
        refusals.append(caught.value)
    assert refusals[0] is not refusals[1]
