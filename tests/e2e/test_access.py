"""Who may do what at a real server: every route, token, name and origin, and hostile texts."""

import json
import stat
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, get_args
from urllib.parse import quote

import httpx2
import pytest
from websockets.exceptions import InvalidStatus

from api.test_queries import INJECTIONS
from e2e.invariants import written_down
from e2e.world import World, ask, at_most
from nerve.api import OPERATIONS
from nerve.api.callers import Scope
from nerve.api.permissions import ALLOWED_SCOPES
from nerve.server.auth import Auth
from server.test_access import GUARDED, MATRIX, TABLE, body, path_of
from spec.hostile import definitions


def expired(world: World) -> str:
    """The cookie of a browser that was signed in long ago."""
    auth = Auth({"admin": world.token()})
    text = "admin.1000000000.abcdefgh"
    return f"nerve_{world.port}={text}.{auth._sign_cookie('admin', text)}"


def strangers(world: World) -> Iterator[dict[str, str]]:
    """All that is no token."""
    token = world.token()
    wrong = [
        "Bearer nothing",
        "Bearer",
        "",
        "null",
        f"Basic {token}",
        token,
        f"Bearer {token[:-1]}",
    ]
    yield {}
    yield {"cookie": expired(world)}
    yield {"cookie": f"nerve_{world.port}={token}"}
    yield from ({"authorization": each} for each in [*wrong, f"Bearer {token[::-1]}", f"Bearer {token}, x"])


async def status(client: httpx2.AsyncClient, method: str, path: str, **options: Any) -> int:
    async with client.stream(method, path_of(path), **body(method), **options) as reply:
        return reply.status_code


@pytest.mark.parametrize("over", ["tcp", "unix"])
async def test_every_route_requires_a_token_of_its_scope(shared: World, over: str) -> None:
    """Every route of the table, which is that of the server; a stream is a route like all others."""
    runs = len((await listed(shared))["runs"])
    async with shared.client(None, over) as client:
        for headers in strangers(shared):
            for method, path in [*GUARDED, ("GET", "/api/unknown"), ("GET", "/../etc/passwd")]:
                assert await status(client.http, method, path, headers=headers) in (401, 429)
    for scope in get_args(Scope):
        may = ALLOWED_SCOPES[scope]
        async with shared.client(scope, over) as client:
            for method, path in GUARDED:
                told = await status(client.http, method, path)
                assert (told != 403) is (TABLE[method, path] in may), (scope, method, path, told)
                assert told != 401
    assert len((await listed(shared))["runs"]) == runs


async def listed(world: World) -> Any:
    async with world.client() as client:
        return await client.get("/api/runs", limit=1000)


async def test_a_websocket_requires_a_token_of_its_scope(shared: World) -> None:
    for headers in strangers(shared):
        if not headers:
            continue
        with pytest.raises(InvalidStatus) as refused:
            async with shared.dial(None, headers=headers):
                pass
        assert refused.value.response.status_code in (401, 403, 429), headers
    for scope in get_args(Scope):
        may = ALLOWED_SCOPES[scope]
        async with shared.dial(scope) as socket:
            for operation in OPERATIONS.values():
                told = await ask(socket, operation.name, nothing="known")
                assert (told["error"]["code"] == "forbidden") is (operation.scope not in may)


async def test_foreign_hosts_and_origins_change_nothing(shared: World) -> None:
    """Every combination, for what starts a run, for a stream, for a page, and for a WebSocket."""
    before = len((await listed(shared))["runs"])
    ways = Counter[int]()
    async with shared.client() as client:
        for host, origin, expected in MATRIX:
            headers = {"host": host.replace("PORT", str(shared.port))}
            if origin is not None:
                headers["origin"] = origin.replace("PORT", str(shared.port))
            for method, path in (
                ("POST", "/api/runs"),
                ("GET", "/events"),
                ("GET", "/"),
                ("POST", "/api/sign-in"),
            ):
                told = await status(client.http, method, path, headers=headers)
                assert (told == expected) if expected != 200 else (told in (200, 400, 401, 403)), (
                    host,
                    origin,
                )
            assert await upgrade(shared, headers) == (101 if expected == 200 else expected), (host, origin)
            ways[expected] += 1
    assert ways.total() >= 40
    assert len((await listed(shared))["runs"]) == before


async def upgrade(world: World, headers: dict[str, str]) -> int:
    """How a WebSocket is answered that says this of itself."""
    reader, writer = await world.raw()
    more = [f"{name}: {value}" for name, value in headers.items()]
    said = [
        "GET /ws HTTP/1.1",
        *more,
        f"Authorization: Bearer {world.token('read')}",
        "Connection: Upgrade",
        "Upgrade: websocket",
        "Sec-WebSocket-Version: 13",
        "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
    ]
    writer.write("\r\n".join([*said, "", ""]).encode())
    line = await reader.readline()
    writer.transport.abort()
    return int(line.split(b" ")[1])


# -- the token and its file ----------------------------------------------------------------------------


async def test_the_token_is_in_its_file_and_nowhere_else(world: World) -> None:
    """Not in what is told, logged or seen of the process, whatever is asked with it, and however wrongly."""
    token = world.token()
    said: list[str] = []
    async with world.client() as client:
        http = client.http
        run = await client.start("ask", wait=True)
        for method, path in [*GUARDED, ("GET", "/api/nothing"), ("GET", f"/api/runs?token={token}")]:
            if path.startswith("/events"):
                continue
            reply = await http.request(method, path_of(path), **body(method))
            said += [reply.text, str(reply.headers)]
        said.append((await http.post("/api/runs", content=b"{")).text)
        said.append(str(await client.run(run)))
        code = (await http.post("/api/launch-codes", json={})).json()["code"]
        signed = await http.post("/api/sign-in", json={"code": code}, headers={"x-nerve": "1"})
        said.append(str(signed.headers))
    async with world.dial(None, subprotocols=["nerve", f"nerve.token.{token}"]) as socket:  # type: ignore[list-item]
        said.append(str(socket.response))
    process = Path(f"/proc/{world.pid}")
    said += [(process / name).read_bytes().decode(errors="replace") for name in ("cmdline", "environ")]
    assert [text for text in said if token in text] == []
    private = world.folder / ".nerve/private"
    assert mode(private) == 0o700
    ours = [Path(world.about["socket"]), world.folder / ".nerve/server.json", *private.glob("*.token")]
    assert [mode(each) for each in ours] == [0o600] * 6
    assert world.stop() == 0
    (world.folder / "leak").write_text(token)
    assert list(written_down(world.folder, [token])) == ["a secret stands in leak"]
    (world.folder / "leak").unlink()


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.parametrize("host", ["0.0.0.0", "::"])
def test_a_public_address_requires_the_wide_option(tmp_path: Path, host: str) -> None:
    command = [sys.executable, "-m", "nerve", "serve", "--host", host, "--port", "0"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=30)
    assert done.returncode != 0
    assert "other machines" in done.stderr
    assert not (tmp_path / ".nerve/nerve.db").exists()


# -- texts ---------------------------------------------------------------------------------------------


async def test_sql_injection_is_plain_data_in_every_parameter(shared: World) -> None:
    """Every parameter of every question, over HTTP: nothing is found by accident, nothing breaks."""
    async with shared.client() as client:
        await client.start("hello", input="you", wait=True)
        before = await client.get("/api/runs", limit=1000)
        for operation in OPERATIONS.values():
            if operation.is_command:
                continue
            for name in operation.request_model.model_fields:
                for text in INJECTIONS:
                    path, params = asked(operation.path, name, text)
                    reply = await client.http.get(path, params=params)
                    assert reply.status_code in (200, 400, 404, 409, 422), (name, text, reply.text)
                    assert "SQL" not in reply.text.replace(json.dumps(text)[1:-1], "").replace("Sqlite", "")
        assert await client.get("/api/runs", limit=1000) == before


def asked(path: str, name: str, text: str) -> tuple[str, dict[str, str]]:
    if f"{{{name}}}" in path:
        return path.replace(f"{{{name}}}", quote(text, safe="")), {}
    return path.replace("{run}", "nobody").replace("{workflow}", "hello"), {name: text}


@pytest.mark.parametrize("count", [300, pytest.param(10_000, marks=pytest.mark.full)])
async def test_hostile_definitions_are_parsed_without_side_effects(
    make: Callable[..., World], tmp_path: Path, count: int
) -> None:
    """Defining, showing and listing them starts nothing, connects to nothing and writes no file."""
    watched = tmp_path / "watched"
    world = make(watched=watched)
    async with world.client(at_once=8) as client:
        given = [{"source": text, "notation": notation} for notation, text in definitions(5, count)]
        await at_most(8, [lambda each=each: define(client.http, each) for each in given[:50]])
        await client.get("/api/workflows")
        quiet = watched.read_text()
        told = Counter(await at_most(8, [lambda each=each: define(client.http, each) for each in given]))
        names = [each["id"] for each in (await client.get("/api/workflows"))["workflows"]]
        for name in names[:200]:
            assert await status(client.http, "GET", f"/api/workflows/{name}") == 200
        assert watched.read_text()[len(quiet) :] == ""
        assert set(told) <= {200, 400, 413, 422}
        assert told[200] > 0
        assert told.total() == count


async def define(http: httpx2.AsyncClient, given: dict[str, Any]) -> int:
    try:
        content = json.dumps(given).encode()
    except UnicodeEncodeError:
        content = json.dumps(given, ensure_ascii=True).encode()
    headers = {"content-type": "application/json"}
    return (await http.post("/api/definitions", content=content, headers=headers)).status_code


async def test_the_audit_hook_sees_the_effects_of_a_step(make: Callable[..., World], tmp_path: Path) -> None:
    """The one who watches sees what a step does."""
    watched = tmp_path / "watched"
    world = make(watched=watched)
    source = "name: does\nbody: {kind: bash, command: 'touch seen'}"
    async with world.client() as client:
        assert await define(client.http, {"source": source, "notation": "yaml"}) == 200
        quiet = watched.read_text()
        await client.start("does", wait=True)
    assert "seen" not in quiet
    assert "subprocess.Popen" in watched.read_text() or "posix_spawn" in watched.read_text()
    assert (tmp_path / "seen").exists()
