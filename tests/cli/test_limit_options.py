"""Limits at the command line."""

import pytest

from nerve.cli.limit_options import parse_limit_options

SPENDER = """
from nerve import FunctionNode

def register(session):
    def spend(context):
        return {"output": "spent", "attributes": {"usage": {"input_tokens": 100, "output_tokens": 0}}}

    FunctionNode("spender", session, spend)

    @session.workflow
    async def twice(ctx):
        await ctx.run("spender", 1)
        await ctx.run("spender", 2, limits={"tokens": 1000})
        return "done"
"""


def test_limits_of_a_run_and_of_steps_are_parsed() -> None:
    given = ["tokens=5000", "/dev:cost=2.5", "/dev:turns=3"]
    assert parse_limit_options(given) == {"tokens": 5000, "/dev": {"cost": 2.5, "turns": 3}}


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ("tokens", "--limit tokens: use NAME=NUMBER, or /STEP:NAME=NUMBER for one step."),
        ("tokens=many", "--limit tokens=many: 'many' is not a number"),
        ("dev:tokens=5", "--limit dev:tokens=5: use NAME=NUMBER"),
        ("money=5", "money"),
    ],
)
def test_an_invalid_limit_is_refused_before_the_run_starts(wrong, message, do, project) -> None:
    (project / "spend.py").write_text(SPENDER)
    done = do("run", "spend.py", "--limit", wrong)
    assert (done.code, done.out) == (2, "")
    assert message in done.err
    assert not (project / ".nerve/nerve.db").exists()


def test_a_run_over_budget_prints_how_to_raise_it_and_then_resumes(do, project) -> None:
    (project / "spend.py").write_text(SPENDER)
    held = do("run", "spend.py", "--limit", "tokens=100")
    assert held.code == 4
    run = held.err.split("Resume with: nerve resume ")[1].split()[0]
    assert f"Resume with: nerve resume {run} --with spend.py --limit tokens=NUMBER" in held.err
    done = do("resume", run, "--with", "spend.py", "--limit", "tokens=1000")
    assert (done.code, done.out) == (0, "done\n")
