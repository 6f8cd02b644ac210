"""Two servers with one database: one owns the session, the other takes over when the first is gone."""

import signal
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from server.processes import ServerProcess, is_alive, wait_for_result, wait_until


@pytest.fixture
def two_servers(tmp_path: Path, postgresql_url: str) -> Iterator[tuple[ServerProcess, ServerProcess]]:
    """A server that owns the session, and one that waits to take over."""
    with ExitStack() as stack:
        owner = ServerProcess(tmp_path / "owner", postgresql_url)
        stack.callback(owner.end)
        assert owner.wait_ready()["executes_runs"]
        standby = ServerProcess(tmp_path / "standby", postgresql_url)
        stack.callback(standby.end)
        assert not standby.wait_ready()["executes_runs"]
        standby.wait_for_log("takes over when that process has ended")
        yield owner, standby


async def test_the_other_server_continues_the_runs_of_a_killed_one_in_less_than_ten_seconds(
    two_servers: tuple[ServerProcess, ServerProcess],
) -> None:
    owner, standby = two_servers
    async with owner.client() as client:
        waiting = await client.start(workflow="ask", key="waiting", wait=True)
        answered = await client.start(workflow="ask", key="answered", wait=True)
        await client.answer(run=answered.run_id, answer="yes")  # and the owner dies before it acts on it
    owner.process.kill()
    killed_at = time.monotonic()
    standby.wait_until_owner()
    assert time.monotonic() - killed_at < 10
    async with standby.client() as client:
        assert await wait_for_result(client, answered.run_id) == "yes"
        assert (await client.start(workflow="ask", key="waiting")).run_id == waiting.run_id
        await client.answer(run=waiting.run_id, answer="no")
        assert await wait_for_result(client, waiting.run_id) == "no"
    assert not (standby.folder / "executed").exists(), "no settled step is repeated"
    assert len((owner.folder / "executed").read_text().splitlines()) == 6


async def test_a_stopped_server_that_continues_ends_its_processes_and_itself_and_says_so(
    two_servers: tuple[ServerProcess, ServerProcess],
) -> None:
    owner, standby = two_servers
    async with owner.client() as client:
        await client.start(workflow="long")
    wait_until(lambda: (owner.folder / "pid").exists() and (owner.folder / "pid").read_text())
    pid = int((owner.folder / "pid").read_text())
    owner.process.send_signal(signal.SIGSTOP)
    standby.wait_until_owner()
    assert is_alive(pid)
    owner.process.send_signal(signal.SIGCONT)
    assert owner.process.wait(30) == 1
    assert "Another process has taken over the session" in owner.log.read_text()
    wait_until(lambda: not is_alive(pid))


def test_a_password_appears_nowhere(
    two_servers: tuple[ServerProcess, ServerProcess], postgresql_url: str
) -> None:
    password = postgresql_url.split(":")[2].split("@")[0]
    for server in two_servers:
        command_line = Path(f"/proc/{server.process.pid}/cmdline").read_text()
        files = [path for path in server.folder.rglob("*") if path.is_file()]
        assert password not in command_line + "".join(path.read_text(errors="replace") for path in files)
