"""The lint of names and wording that `make check` runs."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


def run_lint(root: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(root / "tools" / "check_language.py")],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_the_project_has_no_problems() -> None:
    completed = run_lint(ROOT)
    assert (completed.returncode, completed.stdout) == (0, "Names and language: no problems.\n")


@pytest.mark.parametrize(
    ("file", "text", "problem"),
    [
        ("src/nerve/new.py", "def told() -> None: ...\n", "function told() is a bare participle"),
        (
            "src/nerve/new.py",
            "async def _waiting() -> None: ...\n",
            "function _waiting() is a bare participle",
        ),
        ("src/nerve/new.py", "class Session: ...\n", "class Session is defined 2 times"),
        ("src/nerve/new.py", 'MESSAGE = "that is no number"\n', '"is no" in'),
        ("src/nerve/new.py", "# nobody waits here\n", '"nobody" in'),
        ("src/nerve/new.py", '"""A run that\ngoes on with its steps."""\n', '"goes on with" in'),
        ("README.md", "What stands behind the comma.\n", '"stands behind" in'),
        ("docs/guides/new.md", "word " * 30 + "\n", "wrap at 100"),
    ],
)
def test_a_new_problem_is_reported(tmp_path: Path, file: str, text: str, problem: str) -> None:
    shutil.copytree(ROOT / "tools", tmp_path / "tools")
    (tmp_path / "src" / "nerve").mkdir(parents=True)
    (tmp_path / "src" / "nerve" / "session.py").write_text("class Session: ...\n")
    (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / file).write_text(text)
    completed = run_lint(tmp_path)
    assert completed.returncode == 1
    assert problem in completed.stdout


def test_code_blocks_and_tables_may_be_long(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "tools", tmp_path / "tools")
    (tmp_path / "src" / "nerve").mkdir(parents=True)
    long_line = "word " * 30
    (tmp_path / "README.md").write_text(f"```sh\n{long_line}\n```\n\n| {long_line} |\n")
    assert run_lint(tmp_path).returncode == 0
