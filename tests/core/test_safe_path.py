"""Paths that are built from user input."""

from pathlib import Path

import pytest

from nerve.core.safe_path import resolve_inside


@pytest.mark.parametrize("path", ["a", "a/../b", ".", "", "link/x", "a/b/c"])
def test_a_path_inside_of_the_root_is_returned(tmp_path: Path, path: str) -> None:
    (tmp_path / "here").mkdir()
    (tmp_path / "link").symlink_to("here")
    found = resolve_inside(tmp_path, path)
    assert found == (tmp_path / path).resolve()
    assert resolve_inside(tmp_path, found) == found


@pytest.mark.parametrize("path", ["..", "a/../..", "/", "/etc/passwd", "out", "out/x", "../rooted", "a\0b"])
def test_a_path_outside_of_the_root_is_rejected(tmp_path: Path, path: str) -> None:
    root = tmp_path / "root"
    root.mkdir()
    (tmp_path / "rooted").mkdir()
    (root / "out").symlink_to(tmp_path / "rooted")
    with pytest.raises(ValueError):
        resolve_inside(root, path)
