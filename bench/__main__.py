"""`python -m bench [NAME …] [--rounds N] [--json]`: Nerve beside the limit, as ratios.

`python -m bench peers` compares Nerve with other libraries, which it installs first.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import platform
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

import apsw

from bench import (
    capacity,
    commander,
    declarative,
    expression,
    gates,
    growth,
    http,
    page,
    postgres,
    replay,
    size,
    start,
    store,
    telemetry,
    temporal,
    typed,
    w1_sequence,
    w2_crowd,
    w3_gate,
    w4_restart,
    w5_parked,
    w6_import,
    watchers,
)
from bench.measure import Line, measure_sync_ms, temporary_folder
from bench.peers.comparison import compare_peers

WORKLOADS: dict[str, Callable[[int, Path], list[Line]]] = {
    "W1": w1_sequence.measure,
    "W2": w2_crowd.measure,
    "W3": w3_gate.measure,
    "W4": w4_restart.measure,
    "W5": w5_parked.measure,
    "W6": w6_import.measure,
    "start": start.measure,
    "typed": typed.measure,
    "growth": growth.measure,
    "gates": gates.measure,
    "size": size.measure,
    "replay": replay.measure,
    "store": store.measure,
    "expr": expression.measure,
    "spec": declarative.measure,
    "http": http.measure,
    "watch": watchers.measure,
    "page": page.measure,
    "postgres": postgres.measure,
    "tui": commander.measure,
    "telemetry": telemetry.measure,
    "temporal": temporal.measure,
    "capacity": capacity.measure,
}
PEERS = "peers"
"""Not part of a run of all workloads, because it installs other libraries."""
MIN_ROUNDS = 5
DEFAULT_ROUNDS = 9
ROW = "{:<7} {:<78} {:>9} {:>9} {:<13} {:>6}  {:<18} {}"


def main() -> None:
    options = parse_options(sys.argv[1:])
    if options.workloads == [PEERS]:
        compare_peers(options.rounds or MIN_ROUNDS, as_json=options.json)
        return
    with temporary_folder() as directory:
        lines: list[Line] = []
        if not options.json:
            print(
                describe_machine(directory),
                ROW.format("", "", "ours", "limit", "", "ratio", "target", ""),
                sep="\n",
            )
        for name in options.workloads or WORKLOADS:
            for line in WORKLOADS[name](options.rounds or DEFAULT_ROUNDS, directory):
                lines.append(line)
                if not options.json:
                    print(format_line(line), flush=True)
    if options.json:
        print(json.dumps([dataclasses.asdict(line) for line in lines], indent=2))
    else:
        print(format_summary(lines))


def parse_options(arguments: list[str]) -> argparse.Namespace:
    names = {name.lower(): name for name in (*WORKLOADS, PEERS)}
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument(
        "workloads",
        nargs="*",
        metavar="NAME",
        type=lambda name: names.get(name.lower(), name),
        help=f"workloads to run, from {', '.join(WORKLOADS)}; default: all of these. "
        f"Or '{PEERS}': W1, W2, W3 and W5 beside Burr, LangGraph and DBOS",
    )
    parser.add_argument(
        "--rounds",
        type=int,
        help="number of rounds in which the subjects alternate; "
        f"default: {DEFAULT_ROUNDS}, and {MIN_ROUNDS} for '{PEERS}'",
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    options = parser.parse_args(arguments)
    if options.rounds is not None and options.rounds < MIN_ROUNDS:
        parser.error(
            f"Fewer than {MIN_ROUNDS} rounds are not meaningful on a machine that runs other programs"
        )
    if PEERS in options.workloads and len(options.workloads) > 1:
        parser.error(f"'{PEERS}' runs alone, because it prints another table")
    if unknown := [name for name in options.workloads if name not in (*WORKLOADS, PEERS)]:
        parser.error(f"Unknown workload: {', '.join(unknown)}. Choose from {', '.join((*WORKLOADS, PEERS))}.")
    return options


def describe_machine(directory: Path) -> str:
    return (
        f"Python {platform.python_version()}, SQLite {apsw.sqlite_lib_version()} FULL, {os.cpu_count()} cores"
        f", load {os.getloadavg()[0]:.1f}, one synced write {measure_sync_ms(directory):.3f} ms"
    )


def format_line(line: Line) -> str:
    target = verdict = ""
    if line.target is not None:
        target, verdict = line.target.text, line.target.verdict
    ratio = "" if line.ratio is None else f"{line.ratio:.2f}"
    limit = "" if line.limit is None else format_figure(line.limit)
    return ROW.format(
        line.workload, line.what, format_figure(line.ours), limit, line.unit, ratio, target, verdict
    ).rstrip()


def format_figure(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.2f}"


def format_summary(lines: Iterable[Line]) -> str:
    targets = [line.target for line in lines if line.target is not None]
    return f"{sum(target.verdict == 'met' for target in targets)} of {len(targets)} targets met"


if __name__ == "__main__":
    main()
