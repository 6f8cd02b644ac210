"""Python files that are named on the command line."""

import os
import shlex
import sys
from pathlib import Path

import pytest

from nerve import Session
from nerve.cli.session_setup import register_python_file


def test_an_edited_file_is_executed_without_stale_bytecode(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    monkeypatch.setattr(sys, "path", sys.path[:])
    file = tmp_path / "edited_at_once.py"
    for name in ("one", "two"):
        file.write_text(f"def register(session):\n    @session.workflow\n    async def {name}(ctx): ...\n")
        os.utime(file, (1e9, 1e9))
        assert register_python_file(Session(), file) == [name]


def test_a_workflow_of_a_python_file_runs_by_its_name(do, project: Path) -> None:
    done = do("run", "greet", "--with", "flows.py", "--answer", "gate=Ann")
    assert (done.code, done.out) == (0, "Ann {}\n")
    assert "noise\n" in done.err
    again = do("run", "gre", "--with", "flows.py", "--answer", "gate=Bo")
    assert (again.code, again.out) == (0, "Bo {}\n")


def test_an_unknown_name_with_a_python_file_is_one_error_and_creates_no_store(do, project) -> None:
    done = do("run", "gret", "--with", "flows.py")
    assert (done.code, done.out) == (2, "")
    assert "'gret'" in done.err
    assert "Did you mean 'greet'?" in done.err
    assert not (project / ".nerve/nerve.db").exists()


@pytest.mark.parametrize("verb", ["gates", "status"])
def test_the_printed_answer_command_answers_a_gate_of_python_code(verb, do, project) -> None:
    do("start", "greet", "--with", "flows.py")
    line = next(line for line in do(verb).out.splitlines() if "nerve answer" in line)
    words = shlex.split(line[line.index("nerve answer") :])
    assert words[-2:] == ["--with", "flows.py"]
    answered = do(*["Ann" if word == "TEXT" else word for word in words[1:]])
    assert (answered.code, answered.out) == (0, "Ann {}\n")


def test_the_answer_command_of_a_child_gate_names_the_file_of_the_parent(do, project) -> None:
    (project / "nested.py").write_text(
        "def register(session):\n"
        "    @session.workflow\n"
        "    async def child(ctx):\n"
        "        return await ctx.gate('Sure?')\n"
        "    @session.workflow\n"
        "    async def parent(ctx):\n"
        "        return await ctx.run_workflow('child')\n"
    )
    do("start", "parent", "--with", "nested.py")
    assert "--with nested.py" in do("gates").out


def test_an_answer_without_the_python_file_names_the_missing_file(do, project) -> None:
    run = do("start", "greet", "--with", "flows.py", "--json").json["run_id"]
    done = do("answer", run, "Ann")
    assert done.code == 2
    assert "--with flows.py" in done.err


def test_a_file_may_register_with_the_session_that_it_finds_defined(do, project: Path) -> None:
    (project / "plain.py").write_text(
        "from nerve.core.workflow import Workflow\n\n\n"
        "async def greet_all(ctx):\n    return f'Hello, {ctx.input}!'\n\n\n"
        'Workflow(id="greet-all", session=session, fn=greet_all)\n'
    )
    assert do("run", "plain.py", "Ann", "--quiet").out == "Hello, Ann!\n"
    (project / "nothing.py").write_text("x = 1\n")
    assert "does not define register(session)" in do("run", "nothing.py").err
