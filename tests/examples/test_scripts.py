"""Every example runs as a script, with nothing but the package."""

import subprocess
import sys

import pytest

from nerve.session import Session

from .conftest import EXAMPLES

NAMES = sorted(path.stem for path in EXAMPLES.glob("*.py"))


def test_the_examples_are_there() -> None:
    assert NAMES == ["basic_workflow", "code_review_workflow", "dev_coach_review", "research_agent"]


@pytest.mark.requirement("S0-68")
@pytest.mark.parametrize("name", NAMES)
def test_an_example_runs_as_a_script(name: str) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", EXAMPLES / f"{name}.py"], capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout


@pytest.mark.requirement("S1-16")
@pytest.mark.parametrize("name", NAMES)
def test_an_example_registers_its_workflow(name: str, example) -> None:
    session = Session()
    example(name).register(session)
    [workflow] = session.list_workflows()
    assert name.startswith(workflow)
    assert session.get_workflow(workflow).description
