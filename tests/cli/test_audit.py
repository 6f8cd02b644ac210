"""`nerve audit`: what it prints, with and without a server, and what it refuses."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from pathlib import Path

from cli.conftest import Said
from nerve.api.callers import current_user_name

GATE = """name: ship
description: Ship
nodes:
  - id: decide
    gate: {prompt: "Ship it?", choices: [approve, reject], approvers: [lead], self_approval: true}
"""


def decide(do: Callable[..., Said], project: Path) -> str:
    """Return a run that a person has approved."""
    (project / "ship.yaml").write_text(GATE)
    do("people", "add", "ann", "--role", "lead", "--contact", f"unix={current_user_name()}")
    run = str(json.loads(do("run", "ship.yaml", "--json").out)["run_id"])
    assert do("approve", run).code == 0
    return run


def test_a_project_without_decisions_says_so(do: Callable[..., Said]) -> None:
    said = do("audit")
    assert (said.code, said.out) == (0, "No decisions.\n")


def test_the_table_says_who_decided_what_and_which_way(do: Callable[..., Said], project: Path) -> None:
    run = decide(do, project)
    said = do("audit")
    rows = [line.split() for line in said.out.splitlines()]
    assert rows[0] == ["time", "who", "way", "action", "run"]
    vote = next(line for line in said.out.splitlines() if " vote " in line)
    assert " ann " in vote
    assert "cli from process" in vote
    assert run[:13] in vote
    assert '"approve", gate ' in vote
    assert ", shown " in vote
    assert "Verified: 1 run with " in said.err


def test_json_is_one_object_a_line_with_what_was_verified_last(
    do: Callable[..., Said], project: Path
) -> None:
    run = decide(do, project)
    lines = [json.loads(line) for line in do("audit", "--json", "--run", run).out.splitlines()]
    assert [line["action"] for line in lines[:-1]] == ["start", "vote", "answer"]
    assert lines[1]["person"] == "ann"
    assert len(lines[1]["hash"]) == 32
    assert lines[-1]["verified"]["runs"] == 1
    assert len(lines[-1]["verified"]["last_change"]) == 64


def test_filters_select_a_person_and_a_time(do: Callable[..., Said], project: Path) -> None:
    decide(do, project)
    assert " vote " in do("audit", "--person", "ann", "--since", "1h").out
    assert do("audit", "--until", "1h").out == "No decisions.\n"
    refused = do("audit", "--since", "soon")
    assert refused.code == 2
    assert "since must be a period or a date, got 'soon'" in refused.err
    assert "Workflow run 'v9' not found" in do("audit", "--run", "v9").err


def test_a_broken_chain_is_one_error_and_nothing_is_listed(do: Callable[..., Said], project: Path) -> None:
    run = decide(do, project)
    with sqlite3.connect(project / ".nerve" / "nerve.db") as db:
        db.execute("UPDATE events SET at = at + 1 WHERE seq = 3")
    db.close()
    for options in ((), ("--json",)):
        said = do("audit", *options)
        assert said.code == 1
        assert f"The hash chain of run '{run}' is broken at event" in (said.out + said.err)
        assert '"approve"' not in said.out
