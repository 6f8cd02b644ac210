"""A process that is killed at any point loses no message, and repeats one only with the same id."""

import random
import subprocess
import sys
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from notifications.receiver import PATIENCE_S, PlannedReply, ReceivedRequest, Receiver

PROGRAM = Path(__file__).parent / "working_program.py"


def list_messages(receiver: Receiver) -> list[ReceivedRequest]:
    return list(receiver.requests)


def kill_while_working(project: Path, seconds: float, runs: int) -> list[str]:
    """Kill the program some time after its first output; return the runs that it has completed."""
    command = [sys.executable, str(PROGRAM), str(project), str(runs)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        completed = [process.stdout.readline().strip()]
        assert completed[0], "the program has ended by itself"
        time.sleep(seconds)
        process.kill()
        completed += process.stdout.read().split()
    return completed


def check_no_message_is_lost(project: Path, receiver: Receiver, kills: int) -> None:
    chance = random.Random(7)
    replies = [PlannedReply(), PlannedReply(503), PlannedReply(delay_s=0.2), PlannedReply(429)]
    receiver.reply = lambda _: chance.choice(replies)
    completed: set[str] = set()
    total = 0
    for _ in range(kills):
        total += 4
        completed.update(kill_while_working(project, chance.uniform(0.0, 1.5), total))
    receiver.reply = lambda _: PlannedReply()
    # The last process only sends what is left.
    command = [sys.executable, str(PROGRAM), str(project), str(total)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as last:
        deadline = time.monotonic() + 3 * PATIENCE_S
        while count_events(receiver) < len(completed) and time.monotonic() < deadline:
            time.sleep(0.05)
        last.kill()
    assert count_events(receiver) >= len(completed)
    contents: dict[str, set[bytes]] = defaultdict(set)
    for request in list_messages(receiver):
        contents[request.headers["nerve-message-id"]].add(request.body)
    assert all(len(bodies) == 1 for bodies in contents.values())


def count_events(receiver: Receiver) -> int:
    """Return the number of events in different messages."""
    messages: dict[str, Any] = {request.json["id"]: request.json for request in list_messages(receiver)}
    return sum(message["count"] for message in messages.values())


def test_a_killed_process_loses_no_message(project: Path, receiver: Receiver) -> None:
    check_no_message_is_lost(project, receiver, 4)


@pytest.mark.full
def test_a_process_that_is_killed_100_times_loses_no_message(project: Path, receiver: Receiver) -> None:
    check_no_message_is_lost(project, receiver, 100)
