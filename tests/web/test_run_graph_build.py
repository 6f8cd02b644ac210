"""The built element <run-graph>: its size, its contents, and that its source gives the same bytes."""

import gzip
import json
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "frontend" / "run-graph"
STATIC = ROOT / "src" / "nerve" / "web" / "static"
MAX_ELEMENT_BYTES = 30_000
MAX_SCRIPT_BYTES = 70_000


def gzipped_size(path: Path) -> int:
    return len(gzip.compress(path.read_bytes(), 9))


def test_the_element_is_small() -> None:
    assert gzipped_size(STATIC / "run-graph.js") <= MAX_ELEMENT_BYTES


def test_all_scripts_of_a_page_together_are_small() -> None:
    assert sum(map(gzipped_size, STATIC.glob("**/*.js"))) <= MAX_SCRIPT_BYTES


def test_the_element_names_what_it_contains_and_the_licences_are_beside_it() -> None:
    lock = json.loads((SOURCE / "package-lock.json").read_text())["packages"]
    banner = (STATIC / "run-graph.js").read_text(encoding="utf-8").splitlines()[0]
    licences = (STATIC / "run-graph.LICENSE").read_text(encoding="utf-8")
    for name in ("@dagrejs/dagre", "@dagrejs/graphlib"):
        version = lock[f"node_modules/{name}"]["version"]
        assert f"{name} {version} (MIT)" in banner
        assert f"-- {name} {version} --" in licences


def test_the_lock_file_names_no_registry() -> None:
    packages = json.loads((SOURCE / "package-lock.json").read_text())["packages"]
    assert [name for name, package in packages.items() if "resolved" in package] == []
    assert "://" not in (SOURCE / "package-lock.json").read_text()


def test_the_source_gives_the_same_bytes(tmp_path: Path) -> None:
    if shutil.which("npm") is None or shutil.which("node") is None:
        pytest.skip("there is no Node.js")
    folder = tmp_path / "run-graph"
    shutil.copytree(SOURCE, folder, ignore=shutil.ignore_patterns("node_modules"))
    install = ["npm", "ci", "--silent", "--ignore-scripts", "--no-audit", "--no-fund", "--prefer-offline"]
    if subprocess.run(install, cwd=folder, capture_output=True, check=False).returncode != 0:
        pytest.skip("npm cannot install the build tools here")
    subprocess.run(["node", "build.mjs", tmp_path], cwd=folder, check=True)
    for name in ("run-graph.js", "run-graph.LICENSE"):
        assert (tmp_path / name).read_bytes() == (STATIC / name).read_bytes(), f"{name}: run make frontend"
