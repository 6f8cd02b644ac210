"""Measurement on a noisy machine: subjects alternate, and medians are compared."""

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
    """The target of a figure and whether the figure meets it; unclear if the rounds disagree."""

    text: str
    verdict: Literal["met", "missed", "unclear"]


def at_most(figures: Sequence[float], bound: float, unit: str = "x") -> Target:
    return Target(f"<= {bound:g} {unit}", verdict([figure <= bound for figure in quartiles(figures)]))


def at_least(figures: Sequence[float], bound: float, unit: str = "x") -> Target:
    return Target(f">= {bound:g} {unit}", verdict([figure >= bound for figure in quartiles(figures)]))


def quartiles(figures: Sequence[float]) -> list[float]:
    """Return the quartiles, which exclude rounds that other programs disturbed."""
    return quantiles(figures, n=4, method="inclusive")


def verdict(within: list[bool]) -> Literal["met", "missed", "unclear"]:
    return "met" if all(within) else "unclear" if any(within) else "missed"


@dataclass(frozen=True)
class Line:
    """One line of the table; the limit and the target are optional."""

    workload: str
    what: str
    unit: str
    ours: float
    limit: float | None = None
    ratio: float | None = None
    target: Target | None = None


@dataclass(frozen=True)
class Pair:
    """Two subjects measured alternately; the ratio is the median of the ratios of the rounds."""

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


def measure_in_turns(rounds: int, *subjects: Callable[[], float]) -> list[list[float]]:
    """Return the figures of each subject; every round measures each subject once."""
    figures: list[list[float]] = [[] for _ in subjects]
    for _ in range(rounds):
        for subject_figures, subject in zip(figures, subjects, strict=True):
            gc.collect()
            subject_figures.append(subject())
    return figures


def measure_pair(rounds: int, ours: Callable[[], float], limit: Callable[[], float]) -> Pair:
    return Pair(*measure_in_turns(rounds, ours, limit))


def quantile(values: Sequence[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]


@contextmanager
def temporary_folder(parent: Path | None = None) -> Iterator[Path]:
    """Create a folder in TMPDIR or the working directory, and delete it afterwards."""
    path = Path(tempfile.mkdtemp(prefix="bench-", dir=parent or os.environ.get("TMPDIR") or "."))
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


def run_child(name: str, *arguments: object) -> str:
    """Return the output of a script in a new interpreter; the script may kill itself."""
    command = [sys.executable, str(CHILDREN / f"{name}.py"), *map(str, arguments)]
    completed = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    if completed.returncode not in (0, -9):
        raise RuntimeError(f"{' '.join(command)} ended with {completed.returncode}")
    return completed.stdout


def measure_sync_ms(directory: Path) -> float:
    """Return the median time of one small synced write."""
    file = os.open(directory / "sync", os.O_CREAT | os.O_WRONLY)
    durations = []
    for _ in range(100):
        began = time.perf_counter()
        os.write(file, bytes(4096))
        os.fdatasync(file)
        durations.append(time.perf_counter() - began)
    os.close(file)
    return median(durations) * 1000
