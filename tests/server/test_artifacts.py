"""Artifacts over HTTP: streamed, and harmless in a browser whatever they contain."""

import asyncio
import os
from pathlib import Path

import httpx2
import pytest

from server.conftest import Served, until

SCRIPT = b"<svg xmlns='http://www.w3.org/2000/svg'><script>alert(1)</script></svg>"


@pytest.fixture
async def folder(served: Served, tmp_path: Path) -> Path:
    run = await served.api.start(workflow="hello", wait=True, label="v1")
    folder = tmp_path / ".nerve/artifacts" / run.run_id
    folder.mkdir(parents=True)
    return folder


@pytest.mark.parametrize(
    ("name", "kind", "disposition"),
    [
        ("chart.png", "image/png", "inline"),
        ("photo.JPG", "image/jpeg", "inline"),
        ("plan.md", "text/markdown; charset=utf-8", "inline"),
        ("notes.txt", "text/plain; charset=utf-8", "inline"),
        ("data.json", "application/json", "inline"),
        ("paper.pdf", "application/pdf", "attachment"),
        ("drawing.svg", "application/octet-stream", "attachment"),
        ("page.html", "application/octet-stream", "attachment"),
        ("page.xhtml", "application/octet-stream", "attachment"),
        ("feed.xml", "application/octet-stream", "attachment"),
        ("code.js", "application/octet-stream", "attachment"),
        ("chart.png.html", "application/octet-stream", "attachment"),
        ("tool.exe", "application/octet-stream", "attachment"),
        ("no suffix", "application/octet-stream", "attachment"),
    ],
)
async def test_a_browser_runs_nothing_of_an_artifact(
    client: httpx2.AsyncClient, folder: Path, name: str, kind: str, disposition: str
) -> None:
    (folder / name).write_bytes(SCRIPT)
    reply = await client.get(f"/api/runs/v1/artifacts/{name}")
    assert (reply.status_code, reply.content) == (200, SCRIPT)
    assert reply.headers["content-type"] == kind
    assert reply.headers["content-disposition"].partition(";")[0] == disposition
    assert reply.headers["content-security-policy"] == "sandbox; default-src 'none'"
    assert reply.headers["x-content-type-options"] == "nosniff"
    assert reply.headers["cross-origin-resource-policy"] == "same-origin"
    assert reply.headers["cache-control"] == "no-store"


async def test_a_name_may_have_folders_and_any_character(client: httpx2.AsyncClient, folder: Path) -> None:
    name = 'é "x"\r\nset-cookie: a=b; #?%2e.txt'
    (folder / "charts").mkdir()
    (folder / "charts" / name).write_text("found")
    (listed,) = (await client.get("/api/runs/v1/artifacts")).json()["artifacts"]
    assert (listed["name"], listed["size"]) == (f"charts/{name}", 5)
    quoted = "".join(f"%{byte:02X}" for byte in name.encode())
    for slash in ("/", "%2F"):
        reply = await client.get(f"/api/runs/v1/artifacts/charts{slash}{quoted}")
        assert reply.text == "found"
        assert "set-cookie" not in reply.headers
        assert reply.headers["content-disposition"].isascii()


@pytest.mark.parametrize(
    "path",
    [
        "../secret.txt",
        "..%2Fsecret.txt",
        "%2e%2e/%2e%2e/%2e%2e/secret.txt",
        "..%252Fsecret.txt",
        "%2e%2e%2f%2e%2e%2f%2e%2e%2fsecret.txt",
        "..%5C..%5Csecret.txt",
        "%2Fetc%2Fpasswd",
        "/etc/passwd",
        "link.txt",
        "project/secret.txt",
        "pipe",
        "notes.txt%00.png",
        "notes.txt/",
        ".",
        "%ff",
        "x" * 3000,
        "..;/secret.txt",
        "notes.txt/../../../../secret.txt",
        "",
    ],
)
async def test_no_path_leads_out_of_the_folder(
    served: Served, folder: Path, tmp_path: Path, path: str
) -> None:
    for place in (tmp_path, tmp_path / ".nerve", tmp_path / ".nerve/artifacts"):
        (place / "secret.txt").write_text("secret")
    (folder / "notes.txt").write_text("notes")
    (folder / "link.txt").symlink_to(tmp_path / "secret.txt")
    (folder / "project").symlink_to(tmp_path, target_is_directory=True)
    os.mkfifo(folder / "pipe")
    status, text = await send_raw(served, f"/api/runs/v1/artifacts/{path}")
    assert status == 404
    assert "secret" not in text.partition("\r\n\r\n")[2].replace("secret.txt", "")


async def send_raw(served: Served, path: str) -> tuple[int, str]:
    """Send a path as it is: clients would remove dots from it."""
    reader, writer = await asyncio.open_connection("127.0.0.1", served.port)
    head = f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{served.port}\r\nConnection: close\r\n"
    writer.write(f"{head}Authorization: Bearer {served.tokens['read']}\r\n\r\n".encode())
    text = (await reader.read()).decode("latin-1")
    writer.close()
    return int(text.split(" ", 2)[1]), text


async def test_a_huge_file_is_streamed_and_closed_when_the_client_leaves(
    served: Served, client: httpx2.AsyncClient, folder: Path
) -> None:
    size = 50 * 2**30
    with (folder / "huge.bin").open("wb") as file:
        file.truncate(size)  # takes no space on the disk
    async with client.stream("GET", "/api/runs/v1/artifacts/huge.bin") as reply:
        assert reply.headers["content-length"] == str(size)
        assert await anext(reply.aiter_bytes(65_536)) == bytes(65_536)
        assert is_open(folder / "huge.bin")
        assert (await client.get("/healthz")).status_code == 200
    await until(lambda: not is_open(folder / "huge.bin"))


def is_open(path: Path) -> bool:
    links = [f"/proc/self/fd/{number}" for number in os.listdir("/proc/self/fd")]
    return any(os.path.realpath(link) == os.path.realpath(path) for link in links)


async def test_head_returns_the_size_without_the_bytes(client: httpx2.AsyncClient, folder: Path) -> None:
    (folder / "notes.txt").write_text("notes")
    reply = await client.head("/api/runs/v1/artifacts/notes.txt")
    assert (reply.status_code, reply.headers["content-length"], reply.content) == (200, "5", b"")
    assert not is_open(folder / "notes.txt")


async def test_a_signed_in_browser_reads_artifacts_of_this_server_only(served: Served, folder: Path) -> None:
    (folder / "chart.png").write_bytes(b"image")
    async with served.client(None) as browser:
        assert (await browser.get("/api/runs/v1/artifacts/chart.png")).status_code == 401
        code = {"code": served.auth.create_launch_code("read")}
        reply = await browser.post("/api/sign-in", json=code, headers={"x-nerve": "1"})
        browser.cookies.update(reply.cookies)
        for site, status in (("same-origin", 200), ("none", 200), ("cross-site", 403), ("same-site", 403)):
            headers = {"sec-fetch-site": site, "sec-fetch-dest": "image"}
            reply = await browser.get("/api/runs/v1/artifacts/chart.png", headers=headers)
            assert reply.status_code == status, site


async def test_the_route_is_described(client: httpx2.AsyncClient) -> None:
    document = (await client.get("/api/openapi.json")).json()
    route = document["paths"]["/api/runs/{run}/artifacts/{name}"]["get"]
    assert [parameter["name"] for parameter in route["parameters"]] == ["run", "name"]
