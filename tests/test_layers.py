"""The import contracts of pyproject.toml."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
CONTRACT = """
import sys
from importlinter.cli import lint_imports
sys.exit(lint_imports(config_filename={config!r}))
"""


def lint(config: Path, path: Path = ROOT / "src") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", CONTRACT.format(config=str(config))],
        cwd=config.parent,
        env={"PYTHONPATH": str(path), "PATH": ""},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_the_import_contracts_are_kept() -> None:
    done = lint(ROOT / "pyproject.toml")
    assert done.returncode == 0, done.stdout
    assert "0 broken" in done.stdout


@pytest.mark.parametrize(
    ("file", "line"),
    [
        ("nerve/core/result.py", "import nerve.engine.local_engine"),
        ("nerve/core/nodes/graph.py", "import nerve.process"),
        ("nerve/store/memory.py", "import nerve.core.events"),
        ("nerve/engine/run_executor.py", "import nerve.store.sqlite"),
        ("nerve/core/workflow/run.py", "import nerve.session"),
        ("nerve/spec/models.py", "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import nerve.api"),
    ],
)
def test_a_forbidden_import_is_detected(tmp_path: Path, file: str, line: str) -> None:
    source = tmp_path / "src"
    for original in (ROOT / "src").rglob("*.py"):
        copy = source / original.relative_to(ROOT / "src")
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_text(original.read_text())
    with (source / file).open("a") as module:
        module.write(f"\n{line}\n")
    (tmp_path / "pyproject.toml").write_text((ROOT / "pyproject.toml").read_text())
    done = lint(tmp_path / "pyproject.toml", source)
    assert done.returncode == 1, done.stdout + done.stderr
