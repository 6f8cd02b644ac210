"""A program in TypeScript uses the API by types that are generated from the document of the server."""

import json
import os
import shutil
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

FOLDER = Path(sys.prefix) / "typescript"
MISSING = (
    "" if (FOLDER / "ready").exists() else "TypeScript is not installed; `make typescript` installs it by npm"
)
SOURCES = Path(__file__).parent / "typescript"

pytestmark = pytest.mark.skipif(bool(MISSING), reason=MISSING or "installed")


class Server:
    """A real server of a project with the workflow `greet`."""

    def __init__(self, folder: Path) -> None:
        subprocess.run(
            [sys.executable, "-m", "nerve", "init", folder], check=True, capture_output=True, timeout=120
        )
        command = [sys.executable, "-m", "nerve", "serve", "--port", "0", "--json", "--quiet"]
        self.process = subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        ready = json.loads(self.process.stdout.readline())
        self.url, self.token = ready["url"], Path(folder, ready["token_file"]).read_text().strip()

    def openapi(self) -> bytes:
        headers = {"Authorization": f"Bearer {self.token}"}
        with urllib.request.urlopen(
            urllib.request.Request(f"{self.url}/api/openapi.json", headers=headers)
        ) as reply:
            document: bytes = reply.read()
        return document

    def stop(self) -> None:
        self.process.terminate()
        self.process.communicate(timeout=60)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    server = Server(tmp_path / "project")
    yield server
    server.stop()


@pytest.fixture
def work(tmp_path: Path) -> Path:
    work = tmp_path / "work"
    shutil.copytree(SOURCES, work)
    (work / "node_modules").symlink_to(FOLDER / "node_modules")
    return work


def run_node(work: Path, *arguments: str, **env: str) -> str:
    done = subprocess.run(
        ["node", *arguments], cwd=work, env={**os.environ, **env}, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_a_typescript_program_runs_a_workflow_with_generated_types(server: Server, work: Path) -> None:
    (work / "openapi.json").write_bytes(server.openapi())
    run_node(work, "node_modules/openapi-typescript/bin/cli.js", "openapi.json", "-o", "schema.d.ts")
    run_node(work, "node_modules/typescript/bin/tsc", "-p", ".")
    out = json.loads(run_node(work, "out/program.js", NERVE_URL=server.url, NERVE_TOKEN=server.token))
    assert out.pop("result").startswith("This is in the folder:")
    assert out == {
        "steps": ["look", "hello", "well"],
        "question": "Well said?",
        "problems": [],
        "isHeld": False,
        "code": "refused",
        "answer": "yes",
        "tags": {"from": "typescript", "number": "1"},
        "tree": ["completed"] * 3,
        "events": ["gate_answered", "workflow_completed"],
    }
