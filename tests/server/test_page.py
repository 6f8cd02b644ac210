"""The page about the server: its commands are run, its tables hold."""

import asyncio
import re
from pathlib import Path
from typing import get_args

from docs.pages import FENCE, page, section
from nerve.api.callers import Scope
from nerve.api.errors import STATUS_BY_CODE
from server.conftest import Served
from server.test_access import TABLE, routes_of
from server.test_serve import ASK, HELLO, program, project

PAGE = page("docs/reference/http.md")


async def test_the_curl_examples_do_what_the_page_says(tmp_path: Path) -> None:
    project(tmp_path, hello=HELLO, ask=ASK)
    commands = "".join(fence[2] for fence in FENCE.finditer(PAGE) if fence[1] == "sh")
    assert commands.count("curl ") >= 9
    async with program(tmp_path) as served:
        script = commands.replace("http://127.0.0.1:7433", served.url)
        shell = await asyncio.create_subprocess_exec(
            "bash",
            "-euo",
            "pipefail",
            "-c",
            f'curl() {{ command curl --fail --silent --show-error "$@"; echo; }}\n{script}',
            cwd=tmp_path,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        async with asyncio.timeout(60):
            told, wrong = (each.decode() for each in await shell.communicate())
    assert (shell.returncode, wrong) == (0, "")
    assert '"result":"hello you"' in told
    assert '"prompt":"Go on?"' in told
    assert "event: gate_answered" in told
    assert '"result":"you said yes"' in told


def test_every_route_is_in_the_table_with_its_scope() -> None:
    told = {}
    for row in re.findall(
        r"^\| (`(?:GET|POST) .+?) \|.*\| ([a-z ]+) \|$", section(PAGE, "Routes"), re.MULTILINE
    ):
        method = base = ""
        for name in re.findall(r"`([^`]+)`", row[0]):
            method, path = name.split(" ") if " " in name else (method, name)
            path = path if path.startswith("/") else base.rpartition("/")[0] + "/" + path
            base = path
            told["WEBSOCKET" if path == "/ws" else method, path] = row[1]
    told["WEBSOCKET", "/ws"] = "open"
    described = {key: scope for key, scope in TABLE.items() if key != ("GET", "/api/openapi.json")}
    configured = ("/sign-in/oidc", "/sign-in/oidc/callback")  # a server without a provider does not have them
    described |= {("GET", path): "open" for path in configured}
    assert told == described


def test_every_code_is_in_the_table_with_its_status() -> None:
    told = re.findall(r"^\| `([a-z_]+)` \| (\d+) \|", section(PAGE, "Routes"), re.MULTILINE)
    assert {code: int(status) for code, status in told} == STATUS_BY_CODE


def test_every_token_is_in_the_table() -> None:
    assert set(re.findall(r"^\| `(\w+)\.token`", PAGE, re.MULTILINE)) == set(get_args(Scope))


async def test_the_table_matches_the_served_routes(served: Served) -> None:
    assert routes_of(served.app) == set(TABLE)
