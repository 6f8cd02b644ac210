"""`python -m bench [NAME …] [--rounds N] [--json]`: ours and the limit side by side."""

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
    commander,
    declarative,
    expression,
    growth,
    http,
    replay,
    w1_sequence,
    w2_crowd,
    w3_gate,
    w4_restart,
    w5_parked,
    w6_import,
)
from bench.measure import Line, folder, sync_ms

WORKLOADS: dict[str, Callable[[int, Path], list[Line]]] = {
    "W1": w1_sequence.measure,
    "W2": w2_crowd.measure,
    "W3": w3_gate.measure,
    "W4": w4_restart.measure,
    "W5": w5_parked.measure,
    "W6": w6_import.measure,
    "growth": growth.measure,
    "replay": replay.measure,
    "expr": expression.measure,
    "spec": declarative.measure,
    "http": http.measure,
    "tui": commander.measure,
}
FEWEST = 5
ROW = "{:<7} {:<78} {:>9} {:>9} {:<13} {:>6}  {:<18} {}"


def main() -> None:
    options = parse(sys.argv[1:])
    with folder() as place:
        lines: list[Line] = []
        if not options.json:
            print(machine(place), ROW.format("", "", "ours", "limit", "", "ratio", "target", ""), sep="\n")
        for name in options.workloads or WORKLOADS:
            for line in WORKLOADS[name](options.rounds, place):
                lines.append(line)
                if not options.json:
                    print(shown(line), flush=True)
    if options.json:
        print(json.dumps([dataclasses.asdict(line) for line in lines], indent=2))
    else:
        print(summary(lines))


def parse(arguments: list[str]) -> argparse.Namespace:
    names = {name.lower(): name for name in WORKLOADS}
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument(
        "workloads",
        nargs="*",
        metavar="NAME",
        type=lambda given: names.get(given.lower(), given),
        help=f"which of {', '.join(WORKLOADS)}; all if none is named",
    )
    parser.add_argument("--rounds", type=int, default=9, help="how often ours and the limit take turns")
    parser.add_argument("--json", action="store_true", help="say it as JSON")
    options = parser.parse_args(arguments)
    if options.rounds < FEWEST:
        parser.error(f"fewer than {FEWEST} rounds say nothing on a machine that does other things too")
    if unknown := [name for name in options.workloads if name not in WORKLOADS]:
        parser.error(f"no workload {', '.join(unknown)}; there are {', '.join(WORKLOADS)}")
    return options


def machine(place: Path) -> str:
    return (
        f"Python {platform.python_version()}, SQLite {apsw.sqlite_lib_version()} FULL, {os.cpu_count()} cores"
        f", load {os.getloadavg()[0]:.1f}, one synced write {sync_ms(place):.3f} ms"
    )


def shown(line: Line) -> str:
    target = verdict = ""
    if line.target is not None:
        target, verdict = line.target.text, line.target.verdict
    ratio = "" if line.ratio is None else f"{line.ratio:.2f}"
    limit = "" if line.limit is None else figure(line.limit)
    return ROW.format(
        line.workload, line.what, figure(line.ours), limit, line.unit, ratio, target, verdict
    ).rstrip()


def figure(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.2f}"


def summary(lines: Iterable[Line]) -> str:
    targets = [line.target for line in lines if line.target is not None]
    return f"{sum(target.verdict == 'met' for target in targets)} of {len(targets)} targets met"


if __name__ == "__main__":
    main()
