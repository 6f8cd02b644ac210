"""Lists of the command line: what one run cannot show does not hide the others."""

from pathlib import Path

import apsw
import pytest

ASK = "name: ask\nbody: {kind: gate, id: which, prompt: Which one?}\n"


def damage(project: Path, which: str) -> str:
    """Change a character of the first or the last event of the oldest run; return its id."""
    db = apsw.Connection(str(project / ".nerve/nerve.db"))
    run: str = db.execute("SELECT run FROM journals WHERE id = 1").get
    id, data = next(
        db.execute(
            f"SELECT id, data FROM events WHERE id = (SELECT {which}(id) FROM events WHERE journal = 1)"
        )
    )
    changed = data[:-2] + chr(ord(data[-2]) ^ 1) + data[-1]
    db.execute("UPDATE events SET data = ? WHERE id = ?", (changed, id))
    db.close()
    return run


@pytest.mark.parametrize("which", ["min", "max"])
@pytest.mark.parametrize("command", ["gates", "status", "runs"])
def test_a_run_with_a_damaged_journal_does_not_break_a_list(
    do, project: Path, caplog: pytest.LogCaptureFixture, command: str, which: str
) -> None:
    (project / ".nerve/workflows/ask.yaml").write_text(ASK)
    do("run", "ask", "--label", "damaged")
    do("run", "ask", "--label", "whole")
    run = damage(project, which)
    listed = do(command)
    assert listed.code == 0, listed.err
    assert f"unreadable: Run {run}: event" in caplog.text
    if command != "runs":
        assert listed.out.count("Which one?") == 1


FAILING = """
from nerve import Retry
from nerve.core.nodes import FunctionNode

def charge(context):
    raise LookupError("no card")

def register(session):
    FunctionNode("charge", session, charge, retry=Retry(2, delay=0))

    @session.workflow
    async def pay(ctx):
        return (await ctx.run("charge"))["output"]
"""
STEP_TRACE = (
    '  File "pay.py", line 6, in charge\n      raise LookupError("no card")\n  LookupError: no card\n'
)
RUN_TRACE = '  File "pay.py", line 13, in pay\n      return (await ctx.run("charge"))["output"]\n'


@pytest.fixture
def failed_run(do, project: Path) -> str:
    (project / "pay.py").write_text(FAILING)
    run: str = do("run", "pay", "--with", "pay.py", "--json").json["run_id"]
    return run


def test_a_failed_run_names_the_place_and_prints_the_tracebacks(do, project: Path) -> None:
    (project / "pay.py").write_text(FAILING)
    failed = do("run", "pay", "--with", "pay.py")
    assert failed.code == 1
    assert failed.out == ""
    assert "[charge] ↻ retrying after: LookupError: no card (pay.py:6 in charge)" in failed.err
    assert "[charge] ✗ LookupError: no card (pay.py:6 in charge)" in failed.err
    assert "failed: LookupError: no card (pay.py:13 in pay)" in failed.err
    assert STEP_TRACE in failed.err
    assert RUN_TRACE in failed.err
    assert "src/nerve" not in failed.err


def test_the_status_of_a_failed_run_shows_the_tracebacks(do, failed_run: str) -> None:
    status = do("status", failed_run).out
    assert "error: LookupError: no card (pay.py:13 in pay)\n" in status
    assert "  step /charge:\n" in status
    assert STEP_TRACE in status
    assert RUN_TRACE in status
    response = do("status", failed_run, "--json").json
    assert (response["error_type"], response["location"]) == ("LookupError", "pay.py:13 in pay")
    assert response["traceback"].startswith("Traceback (most recent call last):\n")
    (step,) = response["tree"]
    assert (step["error_type"], step["location"]) == ("LookupError", "pay.py:6 in charge")


def test_the_log_of_a_failed_run_shows_the_traceback_of_every_attempt(do, failed_run: str) -> None:
    log = do("logs", failed_run).out
    assert log.count(STEP_TRACE) == 2
    assert RUN_TRACE in log


WAITING = """
def register(session):
    @session.workflow
    async def listen(ctx):
        return await ctx.wait_signal("shipped", key="42")

    @session.workflow
    async def call(ctx):
        return await ctx.run_workflow("listen")
"""


def test_lists_and_status_say_what_a_run_waits_for(do, project: Path) -> None:
    (project / "waits.py").write_text(WAITING)
    run = do("start", "call", "--with", "waits.py", "--json").json["run_id"]
    do("start", "parent")
    child, ask = (each["waiting_for"] for each in do("runs", "--json").json)
    assert child.startswith("for child run ")
    assert child.endswith(" (for signal shipped (key 42))")
    assert ask.endswith('(for gate "Which colour?")')
    assert f"{child}\n" in do("runs").out
    assert f"{run}  waiting {child}\n" in do("status", run).out
    assert do("status", run, "--json").json["waiting_for"] == child
