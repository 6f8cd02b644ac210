"""`python -m bench peers`: the comparison is listed, and a library that is not available gives one line."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def run_python(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=ROOT,
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_the_help_names_the_comparison() -> None:
    shown = run_python("-m", "bench", "--help")
    assert shown.returncode == 0
    assert "'peers': W1, W2, W3 and W5 beside Burr, LangGraph and DBOS" in " ".join(shown.stdout.split())


def test_the_comparison_runs_alone() -> None:
    refused = run_python("-m", "bench", "peers", "W1")
    assert refused.returncode == 2
    assert "'peers' runs alone" in refused.stderr


def test_a_library_that_cannot_be_installed_gives_one_line(tmp_path: Path) -> None:
    code = (
        "from bench.peers import comparison as c; from pathlib import Path;"
        "c.PEERS = (c.Peer('Absent', 'run_absent.py', 'absent', ('nerve-absent-library==1.0',)),);"
        f"c.compare_peers(5, Path({str(tmp_path)!r}))"
    )
    ended = run_python("-c", code, PIP_NO_INDEX="1")
    assert ended.returncode == 1
    assert ended.stdout == ""
    lines = ended.stderr.splitlines()
    assert lines[0] == f"Installing Absent 1.0 into {tmp_path / 'absent'}"
    assert lines[1].startswith("Absent is left out: ERROR: No matching distribution found for")
    assert lines[2:] == ["No peer could be installed"]


def test_every_program_of_the_comparison_exists() -> None:
    code = (
        "from bench.peers.comparison import NERVE, PEERS, PROGRAMS;"
        "print([peer.program for peer in (NERVE, *PEERS) if not (PROGRAMS / peer.program).is_file()])"
    )
    assert run_python("-c", code).stdout == "[]\n"
