"""W6: start-up time of a program that uses Nerve, beyond bare Python."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from statistics import median

from bench.measure import CHILDREN, Line, at_most, measure_in_turns, temporary_folder

ROUNDS = 15
HELLO = str(CHILDREN / "hello.py")
EXIT = "import os; os._exit(0)"
IMPORT_NAMES = "from nerve import FunctionNode, Session, Workflow"


def time_interpreter(cache: Path, *arguments: str) -> float:
    """Return the seconds of a new interpreter; its byte code is in `cache`, as after an installation."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    began = time.perf_counter()
    subprocess.run(
        [sys.executable, *arguments], check=True, env=environment | {"PYTHONPYCACHEPREFIX": str(cache)}
    )
    return time.perf_counter() - began


def measure(rounds: int, directory: Path) -> list[Line]:
    cache = directory.resolve() / "byte-code"

    def hello() -> float:
        with temporary_folder(directory) as run_directory:
            return time_interpreter(cache, HELLO, str(run_directory / "store.db"))

    hello()  # writes the byte code
    durations = measure_in_turns(
        max(rounds, ROUNDS),
        lambda: time_interpreter(cache, "-c", EXIT),
        lambda: time_interpreter(cache, "-c", f"import nerve; {EXIT}"),
        lambda: time_interpreter(cache, "-c", f"{IMPORT_NAMES}; {EXIT}"),
        hello,
    )
    bare, *others = ([figure * 1e3 for figure in figures] for figures in durations)
    package, names, first_step = others
    return [
        make_line("import nerve, beyond bare Python", package, bare, 80),
        make_line("its public names imported, beyond bare Python", names, bare, 80),
        make_line("first step of a hello run on disk, beyond bare Python", first_step, bare, 120),
    ]


def make_line(what: str, total: list[float], bare: list[float], bound: float) -> Line:
    beyond = [figure - start for figure, start in zip(total, bare, strict=True)]
    return Line("W6", what, "ms", median(beyond), median(bare), None, at_most(beyond, bound, "ms"))
