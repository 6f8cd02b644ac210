"""Where the server listens, and who can come near it."""

import asyncio
import os
import socket
import stat
import sys
import tempfile
from pathlib import Path

import httpx2
import pytest

from nerve.project.paths import socket_path, token_file
from nerve.server import uvicorn_server
from nerve.server.app import make_app
from nerve.server.bind import UnsafeServerSetup, bind_tcp, bind_unix
from nerve.server.tokens import load_tokens
from nerve.server.uvicorn_server import run_server
from server.conftest import Served, until


def mode(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


# -- tokens --------------------------------------------------------------------------------------------


def test_tokens_are_files_that_only_their_owner_can_read(tmp_path: Path) -> None:
    folder = tmp_path / "private"
    made = load_tokens(folder)
    assert mode(folder) == 0o700
    assert set(made) == {"read", "answer", "run", "admin"}
    assert len(set(made.values())) == 4
    for scope in made:
        assert mode(token_file(folder, scope)) == 0o600
        assert len(made[scope]) == 43
    assert load_tokens(folder) == made
    assert (folder / ".gitignore").read_text() == "*\n"


def test_a_removed_token_file_is_recreated(tmp_path: Path) -> None:
    made = load_tokens(tmp_path / "private")
    token_file(tmp_path / "private", "read").unlink()
    again = load_tokens(tmp_path / "private")
    assert again["read"] != made["read"]
    assert again["admin"] == made["admin"]


@pytest.mark.parametrize("spoil", ["mode", "link", "empty", "short", "folder", "foreign folder"])
def test_a_token_that_other_users_may_know_is_refused(tmp_path: Path, spoil: str) -> None:
    folder = tmp_path / "private"
    path = token_file(folder, "admin")
    if spoil == "folder":
        folder.mkdir(mode=0o755)
    elif spoil == "foreign folder":
        (tmp_path / "real").mkdir(mode=0o700)
        folder.symlink_to(tmp_path / "real")
    else:
        known = load_tokens(folder)["admin"]
        match spoil:
            case "mode":
                path.chmod(0o644)
            case "link":
                (tmp_path / "elsewhere").write_text(known)
                path.unlink()
                path.symlink_to(tmp_path / "elsewhere")
            case _:
                path.write_text("" if spoil == "empty" else "short")
    with pytest.raises(UnsafeServerSetup):
        load_tokens(folder)


# -- sockets -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1"])
def test_a_wide_bind_is_refused_without_the_option(host: str) -> None:
    with pytest.raises(UnsafeServerSetup, match="other machines"):
        bind_tcp(host, 0)


def test_a_wide_bind_works_with_the_option() -> None:
    with bind_tcp("0.0.0.0", 0, wide=True) as bound:
        assert bound.getsockname()[0] == "0.0.0.0"


def test_a_port_in_use_is_reported() -> None:
    with bind_tcp("127.0.0.1", 0) as bound:
        bound.listen()
        with pytest.raises(UnsafeServerSetup, match="Cannot listen"):
            bind_tcp("127.0.0.1", bound.getsockname()[1])


def test_the_socket_and_its_folder_are_private(tmp_path: Path) -> None:
    path = tmp_path / "private" / "socket"
    with bind_unix(path):
        assert mode(path) == 0o600
        assert mode(path.parent) == 0o700


def test_a_stale_socket_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "private" / "socket"
    bind_unix(path).close()
    assert path.exists()
    bind_unix(path).close()


def test_a_socket_in_use_is_not_replaced(tmp_path: Path) -> None:
    path = tmp_path / "private" / "socket"
    with bind_unix(path) as bound:
        bound.listen()
        with pytest.raises(UnsafeServerSetup, match="listening"):
            bind_unix(path)


@pytest.mark.parametrize("there", ["file", "link", "folder", "open folder"])
def test_a_path_that_is_not_a_nerve_socket_is_refused_and_kept(tmp_path: Path, there: str) -> None:
    path = tmp_path / "private" / "socket"
    path.parent.mkdir(mode=0o700)
    match there:
        case "file":
            path.write_text("mine")
        case "link":
            (tmp_path / "target").write_text("mine")
            path.symlink_to(tmp_path / "target")
        case "folder":
            path.mkdir()
        case _:
            path.parent.chmod(0o777)
    with pytest.raises(UnsafeServerSetup):
        bind_unix(path)
    assert there == "open folder" or os.path.lexists(path)


def test_a_socket_with_a_long_path_is_created_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    with tempfile.TemporaryDirectory(dir="/tmp") as runtime:  # the folder of a test may be too long itself
        monkeypatch.setenv("XDG_RUNTIME_DIR", runtime)
        assert socket_path(Path("/short")) == Path("/short/socket")
        found = socket_path(Path("/" + "long" * 40))
        assert found.parent.parent == Path(runtime)
        with bind_unix(found):
            assert mode(found.parent) == 0o700


async def test_the_unix_socket_serves_the_same_api_with_the_same_token(
    served: Served, tmp_path: Path
) -> None:
    path = tmp_path / "private" / "socket"
    async with run_server(make_app(served.api, served.auth), [bind_unix(path)]):
        over = httpx2.AsyncHTTPTransport(uds=str(path))
        async with httpx2.AsyncClient(transport=over, base_url="http://localhost") as client:
            assert (await client.get("/api/runs")).status_code == 401
            client.headers["authorization"] = f"Bearer {served.tokens['read']}"
            assert (await client.get("/api/runs")).status_code == 200
            assert (await client.get("/api/runs", headers={"host": "evil.com"})).status_code == 421


async def test_another_user_cannot_use_the_unix_socket(
    served: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "private" / "socket"
    uid = os.getuid()
    async with run_server(make_app(served.api, served.auth), [bind_unix(path)]):
        monkeypatch.setattr(uvicorn_server.os, "getuid", lambda: uid + 1)
        reader, writer = await asyncio.open_unix_connection(path)
        assert await reader.read() == b""
        writer.close()


# -- connections ---------------------------------------------------------------------------------------


async def test_the_number_of_connections_is_limited(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(served.app, "max_connections", 4)
    held = [await asyncio.open_connection("127.0.0.1", served.port) for _ in range(3)]
    reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
    assert b"503" in await reader.readline()
    for _, each in [*held, (reader, writer)]:
        each.close()
        await each.wait_closed()


async def test_keep_alive_is_longer_than_that_of_clients(served: Served) -> None:
    """With the same time on both sides, some are closed just as they are used again."""
    clients = httpx2.Limits().keepalive_expiry
    assert clients is not None
    assert served.server.config.timeout_keep_alive > 2 * clients


@pytest.mark.parametrize("said", [b"", b"GET /healthz HTTP/1.1\r\nHost: "])
async def test_a_client_that_sends_no_request_is_disconnected(
    served: Served, monkeypatch: pytest.MonkeyPatch, said: bytes
) -> None:
    monkeypatch.setattr(uvicorn_server, "HEAD_TIMEOUT_S", 0.05)
    reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
    writer.write(said)
    async with asyncio.timeout(60):
        assert b"408" in await reader.readline()
    writer.close()
    await writer.wait_closed()


@pytest.mark.parametrize(
    "head",
    [
        "GET /healthz HTTP/1.1\r\n" + "".join(f"X-{n}: {n}\r\n" for n in range(10_000)),
        "POST /api/runs HTTP/1.1\r\nHost: HOST\r\nContent-Length: 1\r\nContent-Length: 2\r\n",
        "POST /api/runs HTTP/1.1\r\nHost: HOST\r\nTransfer-Encoding: chunked\r\n",
    ],
)
async def test_malformed_heads_and_chunks_do_no_harm(served: Served, head: str) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
    writer.write(head.replace("HOST", f"127.0.0.1:{served.port}").encode() + b"\r\nzz\r\n\r\n")
    status = (await reader.readline()).split(b" ")[1]
    assert status in (b"400", b"401")
    writer.close()
    async with served.client() as client:
        assert (await client.get("/api/health")).status_code == 200


def test_sockets_are_not_inherited_by_child_processes() -> None:
    with bind_tcp("127.0.0.1", 0) as bound:
        assert not bound.get_inheritable()
        assert bound.family == socket.AF_INET


async def test_exhausted_tcp_connections_do_not_block_the_unix_socket(served: Served, tmp_path: Path) -> None:
    path, tcp = tmp_path / "private" / "socket", bind_tcp("127.0.0.1", 0)
    port, app = tcp.getsockname()[1], make_app(served.api, served.auth)
    app.max_connections = 4
    async with run_server(app, [tcp, bind_unix(path)]):
        flood = [await asyncio.open_connection("127.0.0.1", port) for _ in range(20)]
        for _, writer in flood:
            writer.write(b"POST /api/runs HTTP/1.1\r\nHost: ")
        over = httpx2.AsyncHTTPTransport(uds=os.fspath(path))
        async with httpx2.AsyncClient(transport=over, base_url="http://localhost") as client:
            assert [(await client.get("/healthz")).status_code for _ in range(5)] == [200] * 5
        for _, writer in flood:
            writer.close()


FLOOD = """
import socket, sys
held = []
for count in range(10**9):
    try:
        one = socket.create_connection(("127.0.0.1", int(sys.argv[1])), 0.2)
        one.sendall(b"GET /healthz HTTP/1.1\\r\\nX: ")
        held.append(one)
    except OSError:
        pass
    if len(held) > 700:
        held.pop(0).close()
    if count == 800:
        print("full", flush=True)
"""


async def test_an_endless_tcp_flood_does_not_starve_the_unix_socket(served: Served, tmp_path: Path) -> None:
    path, tcp = tmp_path / "private" / "socket", bind_tcp("127.0.0.1", 0)
    app = make_app(served.api, served.auth)
    app.max_connections = 272  # fewer than the flood opens
    async with run_server(app, [tcp, bind_unix(path)]) as server:
        over = httpx2.AsyncHTTPTransport(uds=os.fspath(path))
        async with httpx2.AsyncClient(transport=over, base_url="http://localhost", timeout=20) as client:
            flood = await asyncio.create_subprocess_exec(
                sys.executable, "-c", FLOOD, str(tcp.getsockname()[1]), stdout=asyncio.subprocess.PIPE
            )
            try:
                assert flood.stdout is not None
                assert await flood.stdout.readline() == b"full\n"
                for _ in range(5):
                    answer = await client.get("/healthz", headers={"Connection": "close"})
                    assert answer.status_code == 200
            finally:
                flood.kill()
                await flood.wait()
        # The server must have accepted all of them before it stops, or their transports stay open.
        await until(lambda: not server.has_connections())


async def test_a_request_with_two_lengths_closes_the_connection(served: Served) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
    head = f"Host: 127.0.0.1:{served.port}\r\nAuthorization: Bearer {served.tokens['admin']}\r\n"
    first = (
        f"POST /api/runs HTTP/1.1\r\n{head}Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
    )
    writer.write(f"{first}GET /healthz HTTP/1.1\r\n{head}\r\n".encode())
    async with asyncio.timeout(60):
        said = await reader.read()
    assert said.startswith(b"HTTP/1.1 400 ")
    assert said.count(b"HTTP/1.1") == 1
    writer.close()
    await writer.wait_closed()
