"""Every pattern continues after two kill -9: it prints what it promises, and no completed step runs again."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from runpy import run_path

import apsw
import pytest

PATTERNS = Path(__file__).parents[2] / "examples/patterns"
KILLER = Path(__file__).with_name("killed_program.py")
PATCH = 'if ctx.patched("fraud-check"):'


@dataclass(frozen=True)
class Pattern:
    """A program, the two events at which its process is killed, and what it does in spite of that."""

    name: str
    kills: tuple[tuple[str, str], tuple[str, str]]
    printed: str
    log: tuple[str, ...]


SEQUENTIAL = [
    Pattern(
        "saga",
        (("node_completed", "/book[2]"), ("node_completed", "/cancel")),
        "nothing is booked: sold out\n",
        ("book car", "book hotel", "book museum", "cancel museum-7", "cancel hotel-7", "cancel car-7"),
    ),
    Pattern(
        "polling",
        (("node_completed", "/read_progress[2]"), ("timer_started", "/sleep[3]")),
        "export-orders is ready after 4 polls\n",
        ("start export of orders", *(f"export-orders: {percent}%" for percent in (25, 50, 75, 100))),
    ),
    Pattern(
        "mailbox",
        (("node_completed", "/pack"), ("node_completed", "/pack[3]")),
        "7 pieces in 4 orders, closed for lunch\n",
        ("pack 2 tea", "pack 1 milk", "pack 3 sugar", "pack 1 tea"),
    ),
    Pattern(
        "query_update",
        (("node_completed", "/reserve"), ("node_completed", "/reserve[3]")),
        "1\n2\n3\nUpdate 'add_item' was rejected: the cart has 3 items already\n"
        + 2 * "['tea-7', 'milk-7', 'sugar-7']\n",
        ("reserve tea", "reserve milk", "reserve sugar"),
    ),
    Pattern(
        "cancellation",
        (("gate_waiting", "/gate"), ("node_completed", "/save_disk")),
        "cancelled: the project has ended\n",
        ("rent large", "save disk of large-7", "return large-7"),
    ),
    Pattern(
        "escalation",
        (("gate_waiting", "/gate"), ("node_completed", "/notify[3]")),
        "director says yes\n",
        tuple(f"notify {person} about new laptop" for person in ("team lead", "manager", "director")),
    ),
    Pattern(
        "long_loop",
        (("node_completed", "/read_meter[249]"), ("workflow_started", "")),
        "5000 readings, 22500 in total\n",
        tuple(f"reading {number}" for number in range(5000)),
    ),
    Pattern(
        "search_attributes",
        (("gate_waiting", "/gate"), ("node_completed", "/send_offer")),
        "['sugar', 'tea']\n['milk']\n",
        (
            *(f"write offer for {item}" for item in ("tea", "milk", "sugar")),
            *(f"send offer for {item}" for item in ("sugar", "tea")),
        ),
    ),
    Pattern(
        "mutex",
        (("node_completed", "/read_balance"), ("node_completed", "/write_balance")),
        "[10, 20, 30]\n",
        tuple(
            line
            for name, balance in (("ada", 0), ("bob", 10), ("eve", 20))
            for line in (f"{name} reads {balance}", f"{name} writes {balance + 10}")
        ),
    ),
    Pattern(
        "rate_limit",
        (("node_completed", "/send_email"), ("node_completed", "/send_email")),
        "3 emails, one per second\n",
        ("email to ada", "email to bob", "email to eve"),
    ),
    Pattern(
        "encryption",
        (("gate_waiting", "/gate"), ("node_completed", "/prescribe")),
        "Ada Lovelace has a cold and drinks green tea\n['consult']\n",
        ("examine Ada Lovelace", "prescribe green tea"),
    ),
    Pattern(
        "time_skipping",
        (("timer_started", "/sleep"), ("node_completed", "/send_email[2]")),
        "bob: no answer\n",
        ("to bob: your trial has started", "to bob: your trial has ended"),
    ),
]

ONLY_LOCAL = {
    "long_loop": "has 5,000 steps",
    "time_skipping": "sets the clock",
    "encryption": "reads the file of its store",
    "rate_limit": "measures the time between its steps, which begin some time after their slots",
}
"""The patterns that are not run in Temporal, and why."""
QUICK_IN_TEMPORAL = ("saga", "query_update")


def run_program(folder: Path, *arguments: str | Path) -> tuple[int, str]:
    """Run Python in a folder; return the exit status and what it printed."""
    done = subprocess.run(
        [sys.executable, "-W", "error", *arguments], cwd=folder, capture_output=True, text=True, timeout=120
    )
    return done.returncode, done.stdout + done.stderr


def run_and_kill(folder: Path, program: Path, event_type: str, path: str) -> None:
    """Run a program until an event is on disk, and kill its process there."""
    status, printed = run_program(folder, KILLER, program, event_type, path)
    assert status == -signal.SIGKILL, printed


def read_log(folder: Path, name: str) -> list[str]:
    return (folder / f"{name}.log").read_text().splitlines()


def test_every_pattern_has_a_test_and_20_to_60_lines() -> None:
    names = {pattern.name for pattern in SEQUENTIAL} | {"sliding_window", "patched_workflow"}
    assert {path.stem for path in PATTERNS.glob("*.py")} == names
    for path in PATTERNS.glob("*.py"):
        assert 20 <= len(path.read_text().splitlines()) <= 60, path.name


def test_every_pattern_is_named_on_a_page_for_users_of_another_library() -> None:
    pages = "".join(path.read_text() for path in (PATTERNS.parents[1] / "docs/coming-from").glob("*.md"))
    for path in PATTERNS.glob("*.py"):
        assert f"(../../examples/patterns/{path.name})" in pages


@pytest.mark.parametrize("pattern", SEQUENTIAL, ids=lambda pattern: pattern.name)
def test_a_pattern_continues_after_two_kills_and_repeats_no_step(pattern: Pattern, tmp_path: Path) -> None:
    program = PATTERNS / f"{pattern.name}.py"
    for event_type, path in pattern.kills:
        run_and_kill(tmp_path, program, event_type, path)
    assert run_program(tmp_path, program) == (0, pattern.printed)
    assert read_log(tmp_path, pattern.name) == list(pattern.log)
    status, printed = run_program(tmp_path, program)
    assert (status, printed.splitlines()[-1]) == (0, pattern.printed.splitlines()[-1])
    assert read_log(tmp_path, pattern.name) == list(pattern.log)


@pytest.mark.usefixtures("temporal_sessions")
@pytest.mark.parametrize(
    "pattern",
    [
        pytest.param(each, id=each.name, marks=[] if each.name in QUICK_IN_TEMPORAL else pytest.mark.full)
        for each in SEQUENTIAL
        if each.name not in ONLY_LOCAL
    ],
)
async def test_a_pattern_does_the_same_in_temporal(
    pattern: Pattern, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    await run_path(str(PATTERNS / f"{pattern.name}.py"))["main"]()
    assert capsys.readouterr().out == pattern.printed
    assert read_log(tmp_path, pattern.name) == list(pattern.log)


def test_a_run_that_passed_the_place_of_a_patch_keeps_the_old_branch_after_two_kills(tmp_path: Path) -> None:
    program = PATTERNS / "patched_workflow.py"
    old_program = tmp_path / "old_program.py"
    assert PATCH in program.read_text()
    old_program.write_text(program.read_text().replace(PATCH, "if False:"))
    run_and_kill(tmp_path, old_program, "node_completed", "/charge")
    run_and_kill(tmp_path, program, "node_completed", "/check_fraud")
    assert run_program(tmp_path, program) == (0, "receipt of tea\nreceipt of milk\n")
    lines = ["charge tea", "ship tea", "check milk", "charge milk", "ship milk"]
    assert read_log(tmp_path, "patched_workflow") == lines


def test_a_sliding_window_continues_after_two_kills_and_repeats_no_completed_child(tmp_path: Path) -> None:
    program = PATTERNS / "sliding_window.py"
    written: list[str] = []
    for path in ("/convert_image[100]", "/convert_image[200]"):
        run_and_kill(tmp_path, program, "node_completed", path)
        completed, before = completed_images(tmp_path), written
        written = read_log(tmp_path, "sliding_window")
        assert 0 < len(completed) < 300
        assert len(set(written[len(before) :])) == len(written) - len(before)
    assert run_program(tmp_path, program) == (0, "4485000 bytes\n")
    last_lines = read_log(tmp_path, "sliding_window")[len(written) :]
    assert sorted(last_lines) == sorted(f"resize {image}" for image in set(range(300)) - completed)
    assert count_open_children(tmp_path) == 10


def journal_rows(folder: Path, sql: str) -> list[tuple[str, str, str]]:
    connection = apsw.Connection(str(folder / "sliding_window.db"))
    try:
        return list(connection.execute(sql))
    finally:
        connection.close()


def completed_images(folder: Path) -> set[int]:
    """Return the images whose step is recorded as completed."""
    rows = journal_rows(folder, "select run, type, data from journal where path = '/resize'")
    completed = {run for run, event_type, _ in rows if event_type == "node_completed"}
    return {
        json.loads(data)["input"]["image"]
        for run, event_type, data in rows
        if event_type == "node_started" and run in completed
    }


def count_open_children(folder: Path) -> int:
    """Return how many child runs were open at once, at most."""
    rows = journal_rows(
        folder,
        "select type, path, '' from journal where path like '/convert_image%'"
        " and type in ('node_started', 'node_completed') order by seq",
    )
    open_paths: set[str] = set()
    most = 0
    for event_type, path, _ in rows:
        if event_type == "node_started":
            open_paths.add(path)
        else:
            open_paths.remove(path)
        most = max(most, len(open_paths))
    return most
