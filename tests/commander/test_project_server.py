"""The server of a project: found, started once, and stopped when idle."""

import asyncio
import os
import signal
import stat
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from commander.scene import Scene
from commander.served import alive, at_home, end_server, project, server_pid
from nerve.api import ApiError
from nerve.client import Client
from nerve.commander import WorkflowController
from nerve.commander.project_server import (
    SERVER_LOG_PATH,
    ProjectServer,
    ServerNotStarted,
    client_for_url,
    is_project_server_url,
)
from nerve.project.paths import ProjectPaths
from nerve.server.bind import bind_unix


@pytest.fixture
async def folder(tmp_path: Path) -> AsyncIterator[Path]:
    yield project(tmp_path)
    await end_server(tmp_path)


async def test_a_server_is_started_in_its_own_session_and_found_again(folder: Path) -> None:
    home = ProjectServer(folder)
    assert home.endpoint is None
    await home.start_if_needed()
    pid = server_pid(folder)
    await home.start_if_needed()
    await ProjectServer(folder).start_if_needed()
    assert server_pid(folder) == pid
    async with home.client() as client:
        assert (await client.health()).status == "ok"
    assert pid is not None
    assert os.getsid(pid) == pid
    assert stat.S_IMODE((folder / SERVER_LOG_PATH).stat().st_mode) == 0o600
    assert "code=" not in (folder / SERVER_LOG_PATH).read_text()


async def test_a_project_module_does_not_shadow_a_module_of_the_server(folder: Path) -> None:
    for name in ("apsw", "uvicorn", "nerve", "sitecustomize"):
        await asyncio.to_thread((folder / f"{name}.py").write_text, "open('executed', 'w')\n")
    await ProjectServer(folder).start_if_needed()
    assert not (folder / "executed").exists()


async def test_concurrent_starts_share_one_server(folder: Path) -> None:
    homes = [ProjectServer(folder), ProjectServer(folder)]
    await asyncio.gather(*(home.start_if_needed() for home in homes))
    assert homes[0].endpoint == homes[1].endpoint


async def test_a_failed_server_start_is_explained(tmp_path: Path) -> None:
    private = tmp_path / ".nerve" / "private"
    private.mkdir(parents=True, mode=0o755)
    private.chmod(0o755)
    with pytest.raises(ServerNotStarted, match="is accessible to other users"):
        await ProjectServer(tmp_path).start_if_needed()
    controller = WorkflowController(
        Client(lambda: None), restart_server=ProjectServer(tmp_path).start_if_needed
    )
    await controller.open()
    assert not controller.state.is_connected
    assert ["is accessible to other users" in block.text for block in controller.state.blocks] == [True]
    await controller.close()


@pytest.mark.parametrize("name", [".nerve", SERVER_LOG_PATH])
async def test_the_server_log_does_not_follow_a_symbolic_link(name: str | Path, tmp_path: Path) -> None:
    elsewhere, folder = tmp_path / "elsewhere", tmp_path / "project"
    (folder / name).parent.mkdir(parents=True)
    (folder / name).symlink_to(elsewhere)
    with pytest.raises(ServerNotStarted, match="link"):
        await ProjectServer(folder).start_if_needed()
    assert not elsewhere.exists()


async def test_an_old_log_line_does_not_hide_an_error(tmp_path: Path) -> None:
    private = tmp_path / ".nerve" / "private"
    private.mkdir(parents=True)
    private.chmod(0o755)
    (tmp_path / SERVER_LOG_PATH).write_text("A server is already listening on socket\n")
    async with asyncio.timeout(60):
        with pytest.raises(ServerNotStarted, match="is accessible to other users") as raised:
            await ProjectServer(tmp_path).start_if_needed()
    assert "already" not in str(raised.value)


async def test_a_server_is_started_after_one_that_is_shutting_down(folder: Path) -> None:
    path = ProjectPaths.of(folder).socket
    with bind_unix(path):
        ensured = asyncio.create_task(ProjectServer(folder).start_if_needed())
        async with asyncio.timeout(60):
            while "already" not in server_log(folder):  # noqa: ASYNC110 - a file sends no event
                await asyncio.sleep(0.02)
        path.unlink()
    await ensured
    assert server_pid(folder) is not None


def server_log(folder: Path) -> str:
    return (folder / SERVER_LOG_PATH).read_text() if (folder / SERVER_LOG_PATH).exists() else ""


async def test_an_idle_server_exits_and_waiting_runs_are_kept(folder: Path) -> None:
    async with at_home(folder, idle=0.5) as at:
        await at.enter("%ship it")
        await at.until(lambda: at.state.gates)
        pid = server_pid(folder)
        assert pid is not None
    async with asyncio.timeout(30):
        while alive(pid):  # noqa: ASYNC110 - not a child process
            await asyncio.sleep(0.02)
    assert server_pid(folder) is None
    async with at_home(folder) as again:
        await again.enter("/approve")
        run_id = next(iter(again.state.runs))
        await again.until(lambda: again.state.runs[run_id].has_ended)
        assert again.state.runs[run_id].result == "shipped it"


async def test_a_remote_server_receives_the_token_of_the_environment_or_the_project(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = ProjectServer(folder)
    await home.start_if_needed()
    url = (
        (await asyncio.to_thread((folder / ".nerve/server.json").read_text))
        .split('"url": "')[1]
        .split('"')[0]
    )
    async with client_for_url(url, folder) as client:
        assert (await client.health()).status == "ok"
    for other in (url.replace("127.0.0.1", "127.0.0.2"), "http://127.0.0.1:9", f"{url}00", "https://x"):
        assert not is_project_server_url(other, folder)
    assert is_project_server_url(url.replace("127.0.0.1", "localhost"), folder)
    monkeypatch.setenv("NERVE_TOKEN", "wrong")
    async with client_for_url(url, folder) as client:
        with pytest.raises(ApiError) as refused:
            await client.health()
        assert refused.value.code == "unauthorized"


async def test_the_project_token_is_sent_only_to_the_project_server(folder: Path) -> None:
    requests: list[bytes] = []

    async def heard(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        requests.append(await reader.readuntil(b"\r\n\r\n"))
        writer.close()

    await ProjectServer(folder).start_if_needed()
    async with await asyncio.start_server(heard, "127.0.0.1") as other:
        url = f"http://127.0.0.1:{other.sockets[0].getsockname()[1]}"
        async with client_for_url(url, folder) as client:
            with pytest.raises(ApiError):
                await client.health()
    assert requests
    assert b"authorization" not in requests[0].lower()


async def test_no_server_is_started_for_a_remote_url(tmp_path: Path) -> None:
    controller = WorkflowController(Client("http://127.0.0.1:9"))
    await controller.open()
    assert "Cannot reach the server" in controller.state.blocks[0].text
    assert len(controller.state.blocks) == 1
    assert not (tmp_path / ".nerve").exists()
    await controller.close()


async def test_a_killed_server_is_restarted_with_the_same_modules(folder: Path) -> None:
    code = folder / "code.py"
    code.write_text(
        "from nerve import MockNode\n\ndef register(session):\n    MockNode('parrot', session, ['hi'])\n"
    )
    await ProjectServer(folder, modules=[code]).start_if_needed()
    home = ProjectServer(folder)
    await home.start_if_needed()
    first = server_pid(folder)
    assert first is not None
    os.kill(first, signal.SIGKILL)
    while home.endpoint is not None:  # noqa: ASYNC110 - a killed process sends no event
        await asyncio.sleep(0.01)
    await end_server(folder)  # reap it: other tests check for unreaped processes
    await home.start_if_needed()
    async with home.client() as client:
        assert (await client.start(workflow="parrot", wait=True)).result == "hi"


async def test_a_restarted_server_gets_the_modules_of_one_started_elsewhere(folder: Path) -> None:
    code = folder / "code.py"
    code.write_text("def register(session):\n    pass\n")
    await ProjectServer(folder, modules=[code]).start_if_needed()
    home = ProjectServer(folder)
    async with home.client() as client:
        await client.runs()
    assert home.modules == [str(code)]


async def test_in_an_empty_directory_no_server_is_started_until_there_is_a_project(tmp_path: Path) -> None:
    home = ProjectServer(tmp_path)
    controller = WorkflowController(home.client(), restart_server=home.start_if_needed)
    await controller.open()
    assert [(block.kind, "nerve init" in block.text) for block in controller.state.blocks] == [("note", True)]
    assert (controller.state.is_project_missing, os.listdir(tmp_path)) == (True, [])
    project(tmp_path)
    try:
        await Scene(controller).until(lambda: controller.state.is_connected, 30)
        assert not controller.state.is_project_missing
        await controller.submit("%hello you")
        await Scene(controller).ended()
    finally:
        await controller.close()
        await controller.client.close()
        await end_server(tmp_path)


@pytest.mark.parametrize("name", [".nerve", ".archon", ".claude", ".agents"])
def test_a_directory_with_any_workflow_directory_is_a_project(name: str, tmp_path: Path) -> None:
    assert ProjectServer(tmp_path).is_empty
    assert not ProjectServer(tmp_path, modules=[tmp_path / "flows.py"]).is_empty
    (tmp_path / name).mkdir()
    assert not ProjectServer(tmp_path).is_empty
