"""The files that steps have made are listed and read; nothing else of the machine is."""

import os
import socket
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from api.support import refusal, with_workflows
from nerve import Session
from nerve.api import Api
from nerve.api.callers import Caller


@pytest.fixture
async def api(tmp_path: Path) -> AsyncIterator[Api]:
    async with Session(project=tmp_path) as session:
        yield with_workflows(session)


@pytest.fixture
async def run_id(api: Api) -> str:
    return (await api.start(workflow="hello", label="v1", wait=True)).run_id


@pytest.fixture
def folder(tmp_path: Path, run_id: str) -> Path:
    folder = tmp_path / ".nerve/artifacts" / run_id
    folder.mkdir(parents=True)
    return folder


async def read(api: Api, run: str, name: str) -> bytes:
    opened = await api.open_artifact(run, name)
    return b"".join([chunk async for chunk in opened.chunks()])


async def test_artifacts_are_listed_by_name_with_size_type_and_time(
    api: Api, run_id: str, folder: Path
) -> None:
    (folder / "charts").mkdir()
    for name in ("plan.md", "charts/cost.PNG", "page.html", "drawing.svg", "no suffix", "report.pdf"):
        (folder / name).write_text("four")
    os.utime(folder / "plan.md", (0, 1_700_000_000))
    page = await api.artifacts(run="v1")
    assert page.run_id == run_id
    assert [(each.name, each.media_type) for each in page.artifacts] == [
        ("charts/cost.PNG", "image/png"),
        ("drawing.svg", "application/octet-stream"),
        ("no suffix", "application/octet-stream"),
        ("page.html", "application/octet-stream"),
        ("plan.md", "text/markdown"),
        ("report.pdf", "application/pdf"),
    ]
    plan = page.artifacts[4]
    assert (plan.size, plan.modified_at.isoformat()) == (4, "2023-11-14T22:13:20+00:00")
    assert plan.path == f".nerve/artifacts/{run_id}/plan.md"
    assert await read(api, "v1", "charts/cost.PNG") == b"four"


async def test_a_run_without_artifacts_has_an_empty_list(api: Api, run_id: str) -> None:
    page = await api.artifacts(run=run_id)
    assert (page.artifacts, page.more, page.next) == ([], False, None)
    assert (await refusal(api.open_artifact(run_id, "plan.md"))).code == "not_found"
    assert (await refusal(api.artifacts(run="unknown"))).code == "not_found"
    assert (await refusal(api.open_artifact("unknown", "plan.md"))).code == "not_found"


async def test_a_long_list_comes_in_pages(api: Api, run_id: str, folder: Path) -> None:
    for number in range(25):
        (folder / f"{number:02}.txt").touch()
    names, after = [], None
    for _ in range(3):
        page = await api.artifacts(run=run_id, limit=10, after=after)
        names += [each.name for each in page.artifacts]
        after = page.next
    assert names == [f"{number:02}.txt" for number in range(25)]
    assert (after, page.more) == (None, False)


async def test_artifacts_of_every_project_folder_are_found_and_the_first_folder_wins(
    api: Api, run_id: str, tmp_path: Path
) -> None:
    for folder in (".archon", ".nerve"):
        (tmp_path / folder / "artifacts" / run_id).mkdir(parents=True)
        (tmp_path / folder / "artifacts" / run_id / "same.txt").write_text(folder)
    (tmp_path / ".archon/artifacts" / run_id / "other.txt").write_text("other")
    page = await api.artifacts(run=run_id)
    assert [each.path.partition("/")[0] for each in page.artifacts] == [".archon", ".nerve"]
    assert await read(api, run_id, "same.txt") == b".nerve"
    assert await read(api, run_id, "other.txt") == b"other"


async def test_links_devices_pipes_sockets_and_folders_are_no_artifacts(
    api: Api, run_id: str, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = tmp_path / "secret.txt"
    secret.write_text("secret")
    (folder / "plan.md").write_text("plan")
    (folder / "out.txt").symlink_to(secret)
    (folder / "in.txt").symlink_to("plan.md")
    (folder / "zero").symlink_to("/dev/zero")
    (folder / "project").symlink_to(tmp_path, target_is_directory=True)
    (folder / "loop").symlink_to(".", target_is_directory=True)
    os.mkfifo(folder / "pipe")
    monkeypatch.chdir(folder)  # the path of a socket is short
    with socket.socket(socket.AF_UNIX) as unix:
        unix.bind("socket")
        assert [each.name for each in (await api.artifacts(run=run_id)).artifacts] == ["plan.md"]
        names = [
            "out.txt",
            "in.txt",
            "zero",
            "project/secret.txt",
            "loop/plan.md",
            "pipe",
            "socket",
            "project",
        ]
        for name in names:
            assert (await refusal(api.open_artifact(run_id, name))).code == "not_found", name


@pytest.mark.parametrize(
    "name",
    [
        "",
        "/",
        ".",
        "..",
        "../plan.md",
        "a/../plan.md",
        "./plan.md",
        "plan.md/",
        "//plan.md",
        "a//b",
        "/etc/passwd",
        "../../nerve.db",
        "plan.md\x00.png",
        "\x00",
        "x" * 5000,
        "plan.md/..",
        "�",
    ],
)
async def test_a_name_that_is_no_plain_path_is_not_found(
    api: Api, run_id: str, folder: Path, name: str
) -> None:
    (folder / "plan.md").write_text("plan")
    assert (await refusal(api.open_artifact(run_id, name))).code == "not_found"


@pytest.mark.parametrize("linked", [".nerve", ".nerve/artifacts", ".nerve/artifacts/RUN"])
async def test_a_linked_artifacts_folder_is_not_read(
    api: Api, run_id: str, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, linked: str
) -> None:
    """A project may come from anywhere, and have a link to another folder."""
    path, elsewhere = linked.replace("RUN", run_id), tmp_path_factory.mktemp("elsewhere")
    inner = f".nerve/artifacts/{run_id}".removeprefix(path).lstrip("/")
    (elsewhere / inner).mkdir(parents=True, exist_ok=True)
    (elsewhere / inner / "plan.md").write_text("plan")
    (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / path).symlink_to(elsewhere, target_is_directory=True)
    assert (await api.artifacts(run=run_id)).artifacts == []
    assert (await refusal(api.open_artifact(run_id, "plan.md"))).code == "not_found"


async def test_hostile_names_times_and_depths_do_not_break_the_list(
    api: Api, run_id: str, folder: Path
) -> None:
    for name in ("<b>.txt", "new\nline.txt", 'quote".txt', " "):
        (folder / name).write_text("x")
    os.mknod(bytes(folder) + b"/\xff.txt")  # not UTF-8
    os.utime(folder / "<b>.txt", (0, 2**40))
    deep = folder.joinpath(*"d" * 60)
    deep.mkdir(parents=True)
    (deep / "deep.txt").touch()
    page = await api.artifacts(run=run_id)
    assert [each.name for each in page.artifacts] == [" ", "<b>.txt", "new\nline.txt", 'quote".txt']
    assert page.model_dump_json()
    assert await read(api, run_id, "new\nline.txt") == b"x"


async def test_what_a_step_appends_meanwhile_is_not_sent(api: Api, run_id: str, folder: Path) -> None:
    (folder / "run.log").write_text("first")
    opened = await api.open_artifact(run_id, "run.log")
    (folder / "run.log").write_text("first and second")
    assert [chunk async for chunk in opened.chunks()] == [b"first"]


async def test_a_deleted_run_has_no_artifacts(api: Api, run_id: str, folder: Path) -> None:
    (folder / "plan.md").write_text("plan")
    await api.delete(run=run_id)
    assert run_id not in os.listdir(folder.parent)
    assert (await refusal(api.artifacts(run=run_id))).code == "not_found"


async def test_every_scope_may_read_artifacts(api: Api, run_id: str, folder: Path) -> None:
    (folder / "plan.md").write_text("plan")
    for scope in ("read", "answer", "run", "admin"):
        caller = api.as_caller(Caller("token", "http", scope))
        assert len((await caller.artifacts(run=run_id)).artifacts) == 1
        assert await read(caller, run_id, "plan.md") == b"plan"
