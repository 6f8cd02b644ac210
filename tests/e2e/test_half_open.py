"""Peers that vanish without a word: their machine has lost its power, or its cable."""

import asyncio
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from e2e.world import World, tell

IDLE = Path(__file__).with_name("idle.py")
SERVER, CLIENT = "10.213.0.1", "10.213.0.2"


def in_net(net: subprocess.Popen[bytes], *command: str) -> list[str]:
    return ["nsenter", "-t", str(net.pid), "-n", *command]


def cable() -> str:
    """Why there is no network of our own to cut; empty if there is."""
    if not all(map(shutil.which, ("unshare", "nsenter", "ip"))):
        return "unshare, nsenter or ip is not there"
    tried = subprocess.run(
        ["unshare", "-n", "ip", "link", "add", "near", "type", "veth", "peer", "name", "far"],
        capture_output=True,
    )
    return tried.stderr.decode().strip()


@contextmanager
def two_networks() -> Iterator[tuple[subprocess.Popen[bytes], subprocess.Popen[bytes]]]:
    """Two machines, as far as the network goes, and a cable between them."""
    nets = [subprocess.Popen(["unshare", "-n", "cat"], stdin=subprocess.PIPE) for _ in range(2)]
    try:
        one, other = nets
        deadline = time.monotonic() + 10
        own = Path("/proc/self/ns/net").readlink()
        while any(Path(f"/proc/{net.pid}/ns/net").readlink() == own for net in nets):
            assert time.monotonic() < deadline
            time.sleep(0.01)
        run = lambda net, *words: subprocess.run(in_net(net, "ip", *words), check=True)  # noqa: E731
        run(one, "link", "add", "near", "type", "veth", "peer", "name", "far", "netns", str(other.pid))
        for net, end, address in ((one, "near", SERVER), (other, "far", CLIENT)):
            run(net, "addr", "add", f"{address}/24", "dev", end)
            run(net, "link", "set", end, "up")
            run(net, "link", "set", "lo", "up")
        yield one, other
    finally:
        for net in nets:
            net.kill()
            net.communicate()


def follow(net: subprocess.Popen[bytes], world: World, run: str) -> subprocess.Popen[bytes]:
    """A program on the other machine that follows a run a hundred times."""
    address, token = f"{SERVER}:{world.port}", world.token("read")
    idle = [sys.executable, str(IDLE), address, token, run, "50", "50"]
    reading = subprocess.Popen(in_net(net, *idle), stdout=subprocess.PIPE)
    assert reading.stdout is not None
    assert reading.stdout.readline() == b"ready\n"
    return reading


def pull(net: subprocess.Popen[bytes]) -> None:
    """Pull the cable out."""
    subprocess.run(in_net(net, "ip", "link", "set", "far", "down"), check=True)


def peers(world: World) -> int:
    """Connections from the other machine that the server holds open."""
    lines = Path(f"/proc/{world.pid}/net/tcp").read_text().splitlines()[1:]
    other = "".join(f"{int(part):02X}" for part in reversed(CLIENT.split(".")))
    return sum(words[2].startswith(other) and words[3] == "01" for words in map(str.split, lines))


@pytest.mark.full
@pytest.mark.skipif(bool(cable()), reason=f"no network can be made here: {cable()}")
async def test_peers_that_vanish_are_dropped_within_a_minute(make: Callable[..., World]) -> None:
    with two_networks() as (one, other):
        world = make("--host", SERVER, "--wide", under=tuple(in_net(one)))
        async with world.client(over="unix") as client:
            run = await client.start("ask", wait=True)
            reading = follow(other, world, run["run_id"])
            assert peers(world) == 100
            pull(other)
            began = time.monotonic()
            while peers(world):
                assert time.monotonic() - began < 70
                await asyncio.sleep(0.2)
            tell(peers=100, seconds=time.monotonic() - began)
            assert time.monotonic() - began <= 60
            reading.kill()
            reading.communicate()
            assert (await client.get("/api/health"))["status"] == "ok"
