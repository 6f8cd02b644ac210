"""W6: how soon a program that uses us is there, beyond bare Python."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from statistics import median

from bench.measure import CHILDREN, Line, at_most, folder, in_turns

ROUNDS = 15
HELLO = str(CHILDREN / "hello.py")
LEAVE = "import os; os._exit(0)"
NAMES = "from nerve import FunctionNode, Session, Workflow"


def seconds(cache: Path, *arguments: str) -> float:
    """How long a fresh interpreter takes; as after an installation, it finds its byte code in `cache`."""
    ours = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    began = time.perf_counter()
    subprocess.run([sys.executable, *arguments], check=True, env=ours | {"PYTHONPYCACHEPREFIX": str(cache)})
    return time.perf_counter() - began


def measure(rounds: int, place: Path) -> list[Line]:
    cache = place.resolve() / "byte-code"

    def hello() -> float:
        with folder(place) as here:
            return seconds(cache, HELLO, str(here / "store.db"))

    hello()  # has the byte code written
    taken = in_turns(
        max(rounds, ROUNDS),
        lambda: seconds(cache, "-c", LEAVE),
        lambda: seconds(cache, "-c", f"import nerve; {LEAVE}"),
        lambda: seconds(cache, "-c", f"{NAMES}; {LEAVE}"),
        hello,
    )
    bare, *others = ([figure * 1e3 for figure in figures] for figures in taken)
    package, names, first_step = others
    return [
        line("import nerve, beyond bare Python", package, bare, 80),
        line("its public names imported, beyond bare Python", names, bare, 80),
        line("first step of a hello run on disk, beyond bare Python", first_step, bare, 120),
    ]


def line(what: str, whole: list[float], bare: list[float], bound: float) -> Line:
    beyond = [figure - start for figure, start in zip(whole, bare, strict=True)]
    return Line("W6", what, "ms", median(beyond), median(bare), None, at_most(beyond, bound, "ms"))
