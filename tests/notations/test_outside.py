"""Whatever a definition is called and names, loading and running it touch nothing outside of the project."""

import asyncio
import hashlib
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from nerve import Session
from nerve.errors import NerveError
from nerve.notations import NOTATIONS
from nerve.testing import ScriptedProvider
from nerve.text.source import InvalidDefinition

NAMES = [
    *[
        "..",
        ".",
        "a/b",
        "../x",
        "../../outside/x",
        "/",
        "%2e%2e",
        "%2e%2e%2fx",
        "CON",
        "nul.txt",
        "a\\b",
        "C:\\x",
    ],
    *[
        "-rf",
        "--help",
        "~",
        "~root",
        "$HOME",
        "x" * 300,
        "x" * 128,
        "рlan",
        "．．",
        "\u202egnp",
        "a b",
        "a\nb",
        "\ud800",
    ],
    *["a\0b", "a;b", "$(touch x)", ".hidden", "plan.", "ｐｌａｎ", "file://x"],
]
IDS = [ascii(name)[:30] for name in NAMES]


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Path]:
    """A project in a tree that must be the same afterwards."""
    made, outside = tmp_path / "tree/project", tmp_path / "tree/outside"
    (made / ".archon/workflows").mkdir(parents=True)
    outside.mkdir()
    (outside / "secret.md").write_text("the secret")
    (outside / "x.md").write_text("the secret")
    (tmp_path / "tree/x.md").write_text("the secret")
    before = hashed(tmp_path, made)
    yield made
    assert hashed(tmp_path, made) == before


def hashed(root: Path, without: Path) -> str:
    """What stands in a tree, and when it was changed."""
    found = hashlib.sha256()
    for folder, folders, files in os.walk(root):
        folders[:] = [name for name in folders if Path(folder, name) != without]
        for path in sorted(Path(folder, name) for name in [*folders, *files]):
            told = path.lstat()
            found.update(f"{path} {told.st_mode} {told.st_size} {told.st_mtime_ns}".encode())
    return found.hexdigest()


async def attempt(project: Path, data: dict[str, Any], notation: str = "json", **given: Any) -> str:
    """How a workflow in the project's folder ended: refused, or the state and the error of its run."""
    try:
        text = NOTATIONS[notation].write({"name": "w", **data})
        file = project / f".archon/workflows/w{NOTATIONS[notation].suffixes[0]}"
        file.write_text(text)
    except ValueError:
        return "refused: cannot be written"
    provider = ScriptedProvider(lambda call: f"answer to {call.prompt}", "claude")
    async with Session(providers={"claude": provider}, project=project) as session:
        try:
            started = await session.start(session.load(file).id, "go", **given)
            value = await started.wait()
        except (InvalidDefinition, ValueError) as error:
            return f"refused: {error}" if "the secret" not in str(error) else "told the secret"
        except (NerveError, asyncio.CancelledError) as error:
            return f"{started.state.value}: {error}"
        return started.state.value if "the secret" not in json.dumps(value) else "told the secret"


def prompt(**more: Any) -> dict[str, Any]:
    return {"kind": "prompt", "text": "Write $ARTIFACTS_DIR", **more}


@pytest.mark.parametrize("notation", NOTATIONS)
@pytest.mark.parametrize("name", NAMES, ids=IDS)
async def test_a_prompt_of_that_name_is_refused(project: Path, name: str, notation: str) -> None:
    told = await attempt(project, {"body": {"kind": "prompt", "file": name}}, notation)
    assert told.startswith("refused"), told


@pytest.mark.parametrize("name", NAMES, ids=IDS)
async def test_a_workflow_of_that_name_stays_in_its_folder(project: Path, name: str) -> None:
    told = await attempt(project, {"name": name, "body": prompt()})
    assert told == "completed" or told.startswith("refused")


@pytest.mark.parametrize("name", NAMES, ids=IDS)
async def test_steps_threads_and_roles_of_that_name_name_no_files(project: Path, name: str) -> None:
    steps = [
        prompt(id=name, thread=name, role=name, tag=name),
        {"kind": "machine", "states": [{"name": name, "body": prompt(expect=[{"condition": "output"}])}]},
        {"kind": "bash", "id": f"{name}2"[-128:], "command": "true"},
    ]
    told = await attempt(project, {"body": {"kind": "sequence", "steps": steps}})
    assert told == "completed" or told.startswith("refused")


@pytest.mark.parametrize("name", NAMES, ids=IDS)
async def test_labels_keys_and_conversations_of_that_name_name_no_files(project: Path, name: str) -> None:
    given = {"label": name, "branch": name, "conversation": name, "key": name}
    told = await attempt(project, {"body": prompt()}, **given)
    assert told == "completed" or told.startswith("refused")


@pytest.mark.parametrize("name", NAMES, ids=IDS)
async def test_agents_and_workflows_of_that_name_are_not_there(project: Path, name: str) -> None:
    for body in (
        prompt(agent=name),
        {"kind": "call", "target": name},
        {"kind": "workflow", "workflow": name},
    ):
        told = await attempt(project, {"body": body})
        assert told.startswith("refused"), told


OUTSIDE: dict[str, Callable[[Path], str]] = {
    "above": lambda project: "../outside/secret.md",
    "absolute": lambda project: str(project.parent / "outside/secret.md"),
    "system": lambda project: "/etc/passwd",
    "far above": lambda project: "../" * 20 + "etc/passwd",
    "from below": lambda project: ".archon/../../outside/secret.md",
    "a link": lambda project: "link.md",
    "through a link": lambda project: "links/secret.md",
    "null": lambda project: "a\\u0000b",
    "long": lambda project: "x" * 5000,
}


@pytest.mark.parametrize("where", OUTSIDE)
@pytest.mark.parametrize("written", ["in the file", "by somebody"])
async def test_a_file_outside_is_never_what_was_expected(project: Path, where: str, written: str) -> None:
    (project / "link.md").symlink_to(project.parent / "outside/secret.md")
    (project / "links").symlink_to(project.parent / "outside")
    file = OUTSIDE[where](project)
    source = file if written == "in the file" else f"{{{{ '{file}' }}}}"
    told = await attempt(project, {"body": prompt(expect=[{"file": source}])})
    assert told.startswith(("failed", "refused")), told


async def test_a_file_inside_is_what_was_expected(project: Path) -> None:
    (project / "here.md").write_text("x")
    (project / "link.md").symlink_to("here.md")
    checks = [{"file": "here.md"}, {"file": "link.md"}, {"file": str(project / "here.md")}]
    assert await attempt(project, {"body": prompt(expect=checks)}) == "completed"


@pytest.mark.parametrize("folder", ["artifacts", "logs"])
async def test_folders_that_are_links_out_of_the_project_are_not_written_to(
    project: Path, folder: str, caplog: pytest.LogCaptureFixture
) -> None:
    (project / ".archon" / folder).symlink_to(project.parent / "outside")
    told = await attempt(project, {"body": prompt()})
    if folder == "artifacts":
        assert told.startswith("failed")
        assert "is outside of" in told
    else:
        assert told == "completed"
        assert "is outside of" in caplog.text


@pytest.mark.parametrize("where", ["..", "../outside", "/tmp", "links"])
async def test_a_request_creates_no_folder_outside_the_project(project: Path, where: str) -> None:
    (project / "links").symlink_to(project.parent / "outside")
    asked = {"prompt": "x", "artifacts": f"{where}/made"}
    told = await attempt(project, {"body": {"kind": "call", "target": "claude", "input": asked}})
    assert told.startswith("failed")
    assert not list(project.parent.rglob("made"))


@pytest.mark.parametrize("where", ["..", "../outside", "/", "links", "x/../.."])
async def test_a_requested_folder_must_be_inside_the_project(project: Path, where: str) -> None:
    (project / "links").symlink_to(project.parent / "outside")
    body = {"kind": "bash", "command": "pwd", "cwd": f"{{{{ '{where}' }}}}"}
    told = await attempt(project, {"body": body})
    assert told.startswith("failed")
    assert "is outside of" in told


async def test_an_agent_file_that_is_a_link_out_of_the_project_is_not_read(project: Path) -> None:
    (project / ".archon/agents").mkdir()
    (project / ".archon/agents/secret.md").symlink_to(project.parent / "outside/secret.md")
    told = await attempt(project, {"body": prompt(agent="secret")})
    assert told.startswith("refused: ")
