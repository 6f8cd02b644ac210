"""Measuring on a noisy machine: subjects take turns, and medians are compared."""

from __future__ import annotations

import gc
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median, quantiles
from typing import Literal

CHILDREN = Path(__file__).parent / "children"


@dataclass(frozen=True)
class Target:
    """What a figure should be, and whether it is; unclear when the rounds do not agree about it."""

    text: str
    verdict: Literal["met", "missed", "unclear"]


def at_most(figures: Sequence[float], bound: float, unit: str = "x") -> Target:
    return Target(f"<= {bound:g} {unit}", verdict([figure <= bound for figure in middle(figures)]))


def at_least(figures: Sequence[float], bound: float, unit: str = "x") -> Target:
    return Target(f">= {bound:g} {unit}", verdict([figure >= bound for figure in middle(figures)]))


def middle(figures: Sequence[float]) -> list[float]:
    """The quartiles: what other programs did to single rounds is outside of them."""
    return quantiles(figures, n=4, method="inclusive")


def verdict(within: list[bool]) -> Literal["met", "missed", "unclear"]:
    return "met" if all(within) else "unclear" if any(within) else "missed"


@dataclass(frozen=True)
class Line:
    """One line of the table; without a limit beside it, or without a target, it only informs."""

    workload: str
    what: str
    unit: str
    ours: float
    limit: float | None = None
    ratio: float | None = None
    target: Target | None = None


@dataclass(frozen=True)
class Pair:
    """Two subjects measured in turns; the ratio is the median of the rounds' own ratios."""

    ours: list[float]
    limit: list[float]

    @property
    def ratios(self) -> list[float]:
        return [ours / limit for ours, limit in zip(self.ours, self.limit, strict=True)]

    @property
    def ratio(self) -> float:
        return median(self.ratios)

    @property
    def medians(self) -> tuple[float, float]:
        return median(self.ours), median(self.limit)


def in_turns(rounds: int, *subjects: Callable[[], float]) -> list[list[float]]:
    """The figures of each subject, measured one after the other in every round."""
    figures: list[list[float]] = [[] for _ in subjects]
    for _ in range(rounds):
        for kept, subject in zip(figures, subjects, strict=True):
            gc.collect()
            kept.append(subject())
    return figures


def paired(rounds: int, ours: Callable[[], float], limit: Callable[[], float]) -> Pair:
    return Pair(*in_turns(rounds, ours, limit))


def quantile(values: Sequence[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]


@contextmanager
def folder(parent: Path | None = None) -> Iterator[Path]:
    """A folder on the disk we stand on (or in TMPDIR), gone afterwards."""
    path = Path(tempfile.mkdtemp(prefix="bench-", dir=parent or os.environ.get("TMPDIR") or "."))
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


def child(name: str, *arguments: object) -> str:
    """What a script in a fresh interpreter says; it may end by killing itself."""
    command = [sys.executable, str(CHILDREN / f"{name}.py"), *map(str, arguments)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode not in (0, -9):
        raise RuntimeError(f"{' '.join(command)} ended with {done.returncode}")
    return done.stdout


def sync_ms(place: Path) -> float:
    """What one small synced write costs here."""
    file = os.open(place / "sync", os.O_CREAT | os.O_WRONLY)
    taken = []
    for _ in range(100):
        began = time.perf_counter()
        os.write(file, bytes(4096))
        os.fdatasync(file)
        taken.append(time.perf_counter() - began)
    os.close(file)
    return median(taken) * 1000
