"""A project that is served: started, stopped, killed, and going on where it was."""

import asyncio
import contextlib
import json
import shutil
import signal
import stat
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
import pytest

from nerve.project.paths import ProjectPaths
from nerve.server.bind import UnsafeServerSetup
from nerve.server.serve import serve
from server.sse import stream

HELLO = """
name: hello
body: {kind: transform, expression: "'hello ' + input"}
"""
ASK = """
name: ask
body:
  kind: sequence
  steps:
    - {kind: gate, id: go, prompt: "Go on?", choices: ["yes", "no"]}
    - {kind: transform, expression: "'you said ' + given"}
"""
SLOW = """
name: slow
body: {kind: bash, command: "exec sleep 600"}
"""


def project(folder: Path, **files: str) -> Path:
    workflows = folder / ".nerve" / "workflows"
    workflows.mkdir(parents=True)
    for name, text in files.items():
        (workflows / f"{name}.yaml").write_text(text)
    return folder


@dataclass
class Program:
    """The program that serves."""

    process: asyncio.subprocess.Process
    folder: Path
    url: str
    told: list[int]

    @property
    def token(self) -> str:
        about = json.loads(ProjectPaths.of(self.folder).server.read_text())
        return Path(about["token_file"]).read_text().strip()

    def client(self) -> httpx2.AsyncClient:
        headers = {"authorization": f"Bearer {self.token}"}
        return httpx2.AsyncClient(base_url=self.url, headers=headers, timeout=30, trust_env=False)

    async def end(self, number: signal.Signals) -> int:
        if self.process.returncode is None:
            self.process.send_signal(number)
        async with asyncio.timeout(20):
            return await self.process.wait()


@contextlib.asynccontextmanager
async def program(folder: Path) -> AsyncIterator[Program]:
    script = str(Path(__file__).with_name("project.py"))
    process = await asyncio.create_subprocess_exec(
        sys.executable, script, str(folder), stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    async with asyncio.timeout(30):
        url, *told = (await process.stdout.readline()).decode().split()
    found = Program(process, folder, url, [int(each) for each in told])
    try:
        yield found
    finally:
        await found.end(signal.SIGKILL)
        process._transport.close()


async def start(client: httpx2.AsyncClient, workflow: str, **given: Any) -> dict[str, Any]:
    reply = await client.post("/api/runs", json={"workflow": workflow, **given})
    assert reply.status_code == 200, reply.text
    found: dict[str, Any] = reply.json()
    return found


async def test_a_project_is_served_with_all_its_definitions(tmp_path: Path) -> None:
    project(tmp_path, hello=HELLO, ask=ASK, broken="name: [")
    async with program(tmp_path) as served, served.client() as client:
        assert served.told == [2, 0, 1]
        run = await start(client, "hello", input="you", wait=True)
        assert run["result"] == "hello you"


async def test_the_server_info_is_a_private_file(tmp_path: Path) -> None:
    project(tmp_path, hello=HELLO)
    places = ProjectPaths.of(tmp_path)
    async with program(tmp_path) as served:
        assert stat.S_IMODE(places.server.stat().st_mode) == 0o600
        about = json.loads(places.server.read_text())
        assert about["url"] == served.url
        assert about["pid"] == served.process.pid
        assert served.token not in places.server.read_text()
        over = httpx2.AsyncHTTPTransport(uds=about["socket"])
        async with httpx2.AsyncClient(transport=over, base_url="http://localhost") as client:
            assert (await client.get("/healthz")).status_code == 200
        assert await served.end(signal.SIGTERM) == 0
    assert not places.server.exists()
    assert not (places.private / "socket").exists()


async def test_a_stop_parks_the_runs_and_the_next_start_resumes_them(tmp_path: Path) -> None:
    project(tmp_path, ask=ASK, slow=SLOW)
    async with program(tmp_path) as served, served.client() as client:
        run = await start(client, "ask", wait=True)
        waiting = asyncio.create_task(client.post("/api/runs", json={"workflow": "slow", "wait": True}))
        async with asyncio.timeout(20):
            while len((await client.get("/api/runs")).json()["runs"]) < 2:  # noqa: ASYNC110
                await asyncio.sleep(0.05)
        stream_open = stream(client, f"/events/workflow/{run['run_id']}")
        await anext(stream_open)
        begun = time.monotonic()
        assert await served.end(signal.SIGTERM) == 0
        assert time.monotonic() - begun < 15
        assert (await waiting).json()["code"] == "busy"
        await stream_open.aclose()
    async with program(tmp_path) as served, served.client() as client:
        assert served.told[1] >= 1
        await client.post("/api/answers", json={"run": run["run_id"], "answer": "yes"})
        told = [each async for each in stream(client, f"/events/workflow/{run['run_id']}")]
        assert told[-1].data["result"] == "you said yes"


async def test_changed_definitions_are_reloaded_and_open_runs_keep_theirs(tmp_path: Path) -> None:
    project(tmp_path, ask=ASK)
    async with program(tmp_path) as served, served.client() as client:
        run = await start(client, "ask", wait=True)
        before = (await client.get("/api/workflows/ask")).json()["hash"]
        workflows = tmp_path / ".nerve" / "workflows"
        (workflows / "broken.yaml").write_text("name: [")
        (workflows / "ask.yaml").write_text(ASK.replace("you said", "now you said"))
        async with asyncio.timeout(20):
            while (await client.get("/api/workflows/ask")).json()["hash"] == before:  # noqa: ASYNC110
                await asyncio.sleep(0.05)
        newer = await start(client, "ask", wait=True)
        results = []
        for each in (run, newer):
            await client.post("/api/answers", json={"run": each["run_id"], "answer": "yes"})
            told = [each async for each in stream(client, f"/events/workflow/{each['run_id']}")]
            results.append(told[-1].data["result"])
        assert results == ["you said yes", "now you said yes"]


async def test_created_and_recreated_folders_are_loaded_and_watched(tmp_path: Path) -> None:
    async with program(tmp_path) as served, served.client() as client:

        async def described(name: str, told: str | None) -> None:
            async with asyncio.timeout(20):
                while (  # noqa: ASYNC110
                    await client.get(f"/api/workflows/{name}")
                ).json().get("description") != told:
                    await asyncio.sleep(0.05)

        workflows = tmp_path / ".nerve" / "workflows"
        elsewhere = tmp_path / ".claude" / "workflows"
        for number, folder in enumerate((workflows, elsewhere, workflows)):
            folder.mkdir(parents=True)
            for told in ("first", "then", "at last"):
                (folder / "hello.yaml").write_text(f"description: {told} {number}{HELLO}")
                await described("hello", f"{told} {number}")
            shutil.rmtree(folder)
            await described("hello", None)


async def test_a_second_server_of_the_project_is_refused(tmp_path: Path) -> None:
    project(tmp_path, hello=HELLO)
    async with program(tmp_path) as served:
        with pytest.raises(UnsafeServerSetup, match="already"):
            await asyncio.to_thread(refused, tmp_path)
        async with served.client() as client:
            assert (await client.get("/api/health")).status_code == 200


def refused(folder: Path) -> None:
    from nerve.server.bind import bind_unix

    bind_unix(ProjectPaths.of(folder).socket)


@pytest.mark.parametrize("name", [".nerve", ".nerve/private", ".nerve/nerve.db"])
def test_a_project_with_symlinks_is_not_served(name: str, tmp_path: Path) -> None:
    elsewhere, folder = tmp_path / "elsewhere", tmp_path / "project"
    elsewhere.mkdir(mode=0o700)
    (folder / name).parent.mkdir(parents=True)
    (folder / name).symlink_to(elsewhere if name != ".nerve/nerve.db" else elsewhere / "file")
    with pytest.raises(UnsafeServerSetup, match="is a symbolic link"):
        serve(folder, port=0)
    assert [*elsewhere.iterdir()] == []


def test_a_wide_bind_does_not_start(tmp_path: Path) -> None:
    with pytest.raises(UnsafeServerSetup, match="other machines"):
        serve(project(tmp_path), "0.0.0.0", 0)
    assert not (tmp_path / ".nerve" / "nerve.db").exists()


async def test_a_defined_workflow_survives_a_kill(tmp_path: Path) -> None:
    project(tmp_path, hello=HELLO)
    given = {"source": HELLO.replace("hello", "later"), "key": "k"}
    async with program(tmp_path) as served, served.client() as client:
        told = await client.post("/api/definitions", json=given)
        assert told.status_code == 200
        await served.end(signal.SIGKILL)
    async with program(tmp_path) as served, served.client() as client:
        assert (await start(client, "later", input="you", wait=True))["result"] == "later you"
        again = await client.post("/api/definitions", json=given)
        assert (again.status_code, again.json()) == (200, told.json())


@pytest.mark.parametrize(
    ("hard", "connections", "allowed"), [(20_000, 4096, 4096), (2000, 4096, 1000), (1000, 4096, 500)]
)
def test_a_low_limit_of_open_files_lowers_the_connections_with_a_warning(
    hard: int, connections: int, allowed: int
) -> None:
    code = f"""
import resource
from nerve.server.serve import reserve_files
resource.setrlimit(resource.RLIMIT_NOFILE, (256, {hard}))
print(reserve_files({connections}), resource.getrlimit(resource.RLIMIT_NOFILE)[0])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout.split() == [str(allowed), str(min(hard, connections + 1024))]
    assert (f"accepts {allowed} connections instead of {connections}" in done.stderr) == (
        allowed < connections
    )
