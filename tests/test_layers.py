"""The import contracts of pyproject.toml, and which code may use what others keep to themselves."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from nerve.core.workflow.run import RunState

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


COLLECTION_CHANGES = {"append", "clear", "pop", "remove", "update"}
STATE_CHANGES = {name for name in dir(RunState) if name[0] != "_"} - {"gates", "wait_for_change"}


def changes_of_run_state(code: str) -> list[str]:
    """Return what the code assigns to or calls to change a part of a `run_state`."""
    changed: list[ast.expr] = []
    for node in ast.walk(ast.parse(code)):
        match node:
            case ast.Assign(targets=targets) | ast.Delete(targets=targets):
                changed += targets
            case ast.AugAssign(target=target) | ast.AnnAssign(target=target):
                changed.append(target)
            case ast.Call(func=ast.Attribute(attr=method)) if method in COLLECTION_CHANGES | STATE_CHANGES:
                changed.append(node.func)
    parts = [part for target in changed for part in ast.walk(target) if isinstance(part, ast.Attribute)]
    return [ast.unparse(part) for part in parts if ast.unparse(part.value).endswith("run_state")]


def test_only_the_engine_changes_the_state_of_a_run() -> None:
    assert {"set_held", "close_gate", "mark_ended"} <= STATE_CHANGES
    found = {
        f"{file.relative_to(ROOT)}: {change}"
        for file in (ROOT / "src").rglob("*.py")
        if "engine" not in file.parts
        for change in changes_of_run_state(file.read_text())
    }
    assert found == set()


@pytest.mark.parametrize(
    "statement",
    [
        "run.run_state.status = held",
        "self.run_state.children['/call'] = child",
        "del run.run_state.gates[path]",
        "run.run_state.error, other = 1, 2",
        "run.run_state.gates.pop(path)",
        "run.run_state.set_held(data)",
    ],
)
def test_a_change_of_the_state_of_a_run_is_detected(statement: str) -> None:
    assert changes_of_run_state(statement)


MAX_PRIVATE_ACCESSES = 60


def test_few_private_attributes_are_used_from_outside() -> None:
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            *["ruff", "check", "--isolated", "--select", "SLF001", "--output-format", "concise"],
            "src",
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    found = [line for line in done.stdout.splitlines() if "SLF001" in line]
    assert 0 < len(found) < MAX_PRIVATE_ACCESSES, done.stdout + done.stderr
