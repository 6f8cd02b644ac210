"""The history file: private, and only in the project."""

import os
import stat
from pathlib import Path

import pytest

from nerve.commander.core.history import MAX_HISTORY_ENTRIES
from nerve.commander.history_file import HISTORY_PATH, HistoryFile, open_history


def test_the_history_file_is_private(tmp_path: Path) -> None:
    file = HistoryFile(tmp_path / HISTORY_PATH)
    file.append("before there was a project")
    assert (file.load(), list(tmp_path.iterdir())) == ([], [])
    file.path.parent.mkdir()
    for entry in ("one", "two\nlines"):
        file.append(entry)
    assert file.load() == ["one", "two\nlines"]
    assert stat.S_IMODE(file.path.stat().st_mode) == 0o600


def test_the_oldest_entries_are_dropped(tmp_path: Path) -> None:
    file = HistoryFile(tmp_path / HISTORY_PATH)
    file.path.parent.mkdir()
    file.path.write_text("".join(f'"{number}"\n' for number in range(2 * MAX_HISTORY_ENTRIES + 1)))
    assert len(file.load()) == MAX_HISTORY_ENTRIES
    assert len(file.path.read_text().splitlines()) == MAX_HISTORY_ENTRIES
    assert file.load()[-1] == str(2 * MAX_HISTORY_ENTRIES)


@pytest.mark.parametrize("linked", [HISTORY_PATH, HISTORY_PATH.parent])
def test_a_symbolic_link_is_not_followed(linked: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    target = elsewhere if linked == HISTORY_PATH else elsewhere / HISTORY_PATH.name
    target.parent.mkdir(exist_ok=True)
    target.write_text('"mine"\n')
    target.chmod(0o644)
    link = tmp_path / "project" / linked
    link.parent.mkdir(parents=True)
    link.symlink_to(elsewhere)
    file = HistoryFile(tmp_path / "project" / HISTORY_PATH)
    file.append("secret")
    assert file.load() == []
    assert target.read_text() == '"mine"\n'
    assert stat.S_IMODE(target.stat().st_mode) == 0o644


def test_a_named_pipe_does_not_block(tmp_path: Path) -> None:
    path = tmp_path / HISTORY_PATH
    path.parent.mkdir()
    os.mkfifo(path)
    file = HistoryFile(path)
    file.append("text")
    assert file.load() == []


@pytest.mark.parametrize("config", ["{}", '{"encryption": {"key_env": "KEYS"}}', "not JSON"])
def test_the_history_of_an_encrypted_project_is_not_written(tmp_path: Path, config: str) -> None:
    (tmp_path / ".nerve").mkdir()
    (tmp_path / ".nerve/config.json").write_text(config)
    history = open_history(tmp_path)
    history.add("a secret")
    assert history.entries == ["a secret"]
    assert (tmp_path / HISTORY_PATH).exists() == (config == "{}")
