"""`python -m bench peers`: install other libraries, and measure them and Nerve in turns."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from statistics import median

from bench.measure import temporary_folder
from bench.peers.subject import CONCURRENCY, PARKED_RUNS, RUNS, STEPS, STEPS_PER_RUN

PROGRAMS = Path(__file__).parent
ENVIRONMENTS = PROGRAMS.parent.parent / ".venv-peers"
MAX_MEMORY_ROUNDS = 3
"""Memory hardly differs between rounds, and thousands of parked runs take long to start."""
TIMEOUT_S = 300


@dataclass(frozen=True)
class Peer:
    """A library with its pinned requirements; peers of the same environment share it."""

    name: str
    program: str
    environment: str = ""
    requirements: tuple[str, ...] = ()

    @property
    def title(self) -> str:
        pinned = self.requirements[0].partition("==")[2] if self.requirements else version("nerve")
        return f"{self.name} {pinned}"


NERVE = Peer("Nerve", "run_nerve.py")
BURR = ("burr==0.42.0", "aiosqlite==0.22.1")
PEERS = (
    Peer("Burr", "run_burr.py", "burr", BURR),
    Peer("Burr async", "run_burr_async.py", "burr", BURR),
    Peer(
        "LangGraph",
        "run_langgraph.py",
        "langgraph",
        ("langgraph==1.2.20", "langgraph-checkpoint-sqlite==3.1.2", "aiosqlite==0.22.1"),
    ),
    Peer("DBOS", "run_dbos.py", "dbos", ("dbos==3.3.0",)),
)


class PeerUnavailable(Exception):
    """The peer could not be installed or run; the message is one line."""


@dataclass(frozen=True)
class Table:
    """One table of the output: a figure of a workload, and the CPU time beside it if it is a time."""

    workload: str
    figure: str
    what: str
    unit: str


TABLES = (
    Table("W1", "wall", f"{STEPS} sequential steps in one run", "µs a step"),
    Table("W2", "wall", f"{RUNS} runs of {STEPS_PER_RUN} steps, {CONCURRENCY} at a time", "µs a run"),
    Table("W3", "start", "from the start of a run to its gate (CPU: whole run)", "µs a run"),
    Table("W3", "finish", "from the answer to the end of the run (CPU: whole run)", "µs a run"),
    Table("W5", "memory", f"memory of {PARKED_RUNS} runs that wait at a gate", "KiB a run"),
)
WORKLOADS = tuple(dict.fromkeys(table.workload for table in TABLES))


@dataclass
class Measurement:
    """The figures of one peer, by workload: one entry for each round."""

    peer: Peer
    python: Path
    durability: str = ""
    rounds: dict[str, list[dict[str, float]]] = field(default_factory=dict)

    def figures(self, workload: str, figure: str) -> list[float]:
        return [entry[figure] for entry in self.rounds.get(workload, ()) if figure in entry]


def compare_peers(rounds: int, environments: Path = ENVIRONMENTS, as_json: bool = False) -> None:
    """Print Nerve beside every peer that can be installed."""
    subjects = [Measurement(NERVE, Path(sys.executable)), *install_peers(environments)]
    if len(subjects) == 1:
        raise SystemExit("No peer could be installed")
    with temporary_folder() as directory:
        for subject in subjects:
            subject.durability = str(run_program(subject, "durability", directory))
        subjects = measure_rounds(subjects, rounds, directory)
    if as_json:
        print(json.dumps({subject.peer.title: subject.rounds for subject in subjects}, indent=2))
        return
    print_durability(subjects)
    for table in TABLES:
        print_table(table, subjects)


# -- environments ------------------------------------------------------------------------------------


def install_peers(environments: Path) -> list[Measurement]:
    """Return the peers that are installed now; print one line for each one that is not."""
    installed = []
    for peer in PEERS:
        try:
            installed.append(Measurement(peer, install_peer(peer, environments)))
        except PeerUnavailable as error:
            print(f"{peer.name} is left out: {error}", file=sys.stderr)
    return installed


def install_peer(peer: Peer, environments: Path) -> Path:
    """Install the requirements with pip, from the index that the machine is configured for.

    Returns the interpreter of the environment.
    """
    folder = environments / peer.environment
    python, stamp = folder / "bin" / "python", folder / "requirements.txt"
    requirements = "\n".join(peer.requirements)
    if stamp.is_file() and stamp.read_text() == requirements:
        return python
    print(f"Installing {peer.title} into {folder}", file=sys.stderr)
    run_command([sys.executable, "-m", "venv", str(folder)])
    run_command(
        [str(python), "-m", "pip", "install", "-q", "--disable-pip-version-check", *peer.requirements]
    )
    stamp.write_text(requirements)
    return python


def run_command(command: Sequence[str], folder: Path | None = None) -> str:
    """Return the output of a command; the last line of its error output becomes the message of a failure."""
    # The packages of this environment must not be visible to a peer.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    try:
        completed = subprocess.run(
            command,
            capture_output=True,
            text=True,
            cwd=folder,
            env=environment,
            timeout=TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise PeerUnavailable(str(error)) from None
    if completed.returncode != 0:
        lines = completed.stderr.strip().splitlines() or [f"exit code {completed.returncode}"]
        raise PeerUnavailable(lines[-1])
    return completed.stdout


# -- measurement -------------------------------------------------------------------------------------


def measure_rounds(subjects: list[Measurement], rounds: int, directory: Path) -> list[Measurement]:
    """Measure each workload of each subject in every round; leave out peers that fail."""
    for number in range(rounds):
        for workload in WORKLOADS:
            if workload == "W5" and number >= MAX_MEMORY_ROUNDS:
                continue
            for subject in list(subjects):
                try:
                    figures = run_program(subject, workload, directory)
                except PeerUnavailable as error:
                    if subject.peer is NERVE:
                        raise SystemExit(f"{workload} failed: {error}") from None
                    print(f"{subject.peer.name} is left out: {workload} failed: {error}", file=sys.stderr)
                    subjects.remove(subject)
                else:
                    subject.rounds.setdefault(workload, []).append(figures)
        print(f"round {number + 1} of {rounds}", file=sys.stderr)
    return subjects


def run_program(subject: Measurement, workload: str, directory: Path) -> dict[str, float]:
    with temporary_folder(directory) as folder:
        program = str(PROGRAMS / subject.peer.program)
        output = run_command([str(subject.python), program, workload, str(folder.resolve())], folder)
    figures: dict[str, float] = json.loads(output.splitlines()[-1])
    return figures


# -- output ------------------------------------------------------------------------------------------


def print_durability(subjects: Sequence[Measurement]) -> None:
    print("\nWhat survives, with the settings that were measured:")
    for subject in subjects:
        print(f"  {subject.peer.title:<18} {subject.durability}")


def print_table(table: Table, subjects: Sequence[Measurement]) -> None:
    """Print medians and ranges; "x Nerve" is the median and range of the ratios of the rounds."""
    print(f"\n{table.workload}  {table.what}, {table.unit}")
    print(
        f"  {'':<18} {table.figure:>8} {'range':<20} {'x Nerve':>8} {'range':<14} {'CPU':>8} {'x Nerve':>8}"
    )
    ours = subjects[0].figures(table.workload, table.figure)
    our_cpu = subjects[0].figures(table.workload, "cpu")
    for subject in subjects:
        figures = subject.figures(table.workload, table.figure)
        cpu = subject.figures(table.workload, "cpu")
        cells = [f"{median(figures):>8,.0f} {format_range(figures, 0):<20}"]
        ratios = [figure / our for figure, our in zip(figures, ours, strict=True)]
        cells.append(f"{median(ratios):>8.2f} {format_range(ratios, 1):<14}")
        if cpu:
            cells.append(f"{median(cpu):>8,.0f} {median(cpu) / median(our_cpu):>8.2f}")
        print(f"  {subject.peer.title:<18} {' '.join(cells)}".rstrip())


def format_range(figures: Sequence[float], digits: int) -> str:
    return f"({min(figures):,.{digits}f} to {max(figures):,.{digits}f})"
