"""Random schedules of faults: the same seed gives the same faults at the same times."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping
from typing import NamedTuple


class Fault(NamedTuple):
    """What happens to a target, and for how long."""

    at: float
    target: str
    name: str
    seconds: float


class PlayedFault(NamedTuple):
    """When a fault has begun and ended, in seconds since the epoch."""

    target: str
    name: str
    began: float
    ended: float


class Effect(NamedTuple):
    """How a fault begins and how it ends."""

    begin: Callable[[], object]
    end: Callable[[], object]


Targets = Mapping[str, Mapping[str, Effect]]
"""For each target, the faults that it can have, by name."""

FAULTS = 2, 5
SHORT_S = 0.05, 3.0
LONG_S = 6.0, 13.0
"""Longer than the lease of an owner, and around the timeout of a heartbeat."""
LONG_SHARE = 0.15
PAUSE_S = 0.2
"""Seconds between two faults of one target."""


def draw_schedule(seed: int, targets: Targets, seconds: float) -> list[Fault]:
    """Return some faults within a time; those of one target do not overlap, those of several may."""
    rng = random.Random(seed)
    free_at = dict.fromkeys(targets, 0.0)
    faults = []
    for at in sorted(rng.uniform(0, seconds) for _ in range(rng.randint(*FAULTS))):
        target = rng.choice(sorted(targets))
        begins_at = max(at, free_at[target])
        duration = rng.uniform(*(LONG_S if rng.random() < LONG_SHARE else SHORT_S))
        fault = Fault(begins_at, target, rng.choice(sorted(targets[target])), duration)
        free_at[target] = begins_at + fault.seconds + PAUSE_S
        faults.append(fault)
    return faults


def play_schedule(faults: list[Fault], targets: Targets, on_idle: Callable[[], object]) -> list[PlayedFault]:
    """Let the faults begin and end at their times, and return when they did; in between, call `on_idle`."""
    actions = [(fault.at, fault, True) for fault in faults]
    actions += [(fault.at + fault.seconds, fault, False) for fault in faults]
    began: dict[Fault, float] = {}
    played = []
    start = time.monotonic()
    for at, fault, is_begin in sorted(actions, key=lambda action: action[0]):
        while (left := start + at - time.monotonic()) > 0:
            on_idle()
            time.sleep(min(left, 0.05))
        effect = targets[fault.target][fault.name]
        if is_begin:
            began[fault] = time.time()
            effect.begin()
        else:
            effect.end()
            played.append(PlayedFault(fault.target, fault.name, began[fault], time.time()))
    return played
