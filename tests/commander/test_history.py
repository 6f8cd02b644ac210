"""The input history and its file."""

import os
import stat
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nerve.commander.history import (
    HISTORY_PATH,
    MAX_HISTORY_ENTRIES,
    HistoryFile,
    InputHistory,
    open_history,
)


def test_up_and_down_navigate_the_entries_and_return_to_the_draft():
    history = InputHistory(entries=["one", "two"])
    assert history.previous_entry("beg") == "two"
    assert history.previous_entry("two") == "one"
    assert history.previous_entry("one") is None
    assert history.next_entry("one") == "two"
    assert history.next_entry("two") == "beg"
    assert history.next_entry("beg") is None


def test_consecutive_duplicates_and_entries_that_start_with_a_space_are_not_stored():
    history = InputHistory()
    for entry in ("one", "one", " secret", "", "two", "one"):
        history.add(entry)
    assert history.entries == ["one", "two", "one"]


def test_a_search_returns_unique_entries_newest_first():
    history = InputHistory(entries=["%ship it", "/runs", "%ship that", "%ship it", "/gates"])
    assert history.search("ship") == ["%ship it", "%ship that"]
    assert history.search("rns") == ["/runs"]
    assert history.search("")[0] == "/gates"


def test_the_file_is_private(tmp_path):
    path = tmp_path / ".nerve" / "commander_history"
    path.parent.mkdir()
    history = InputHistory(HistoryFile(path))
    history.add("several\nlines")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    path.chmod(0o644)
    history.add("more")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert InputHistory(HistoryFile(path)).entries == ["several\nlines", "more"]


def test_invalid_lines_of_the_file_are_ignored(tmp_path):
    path = tmp_path / "history"
    path.write_bytes(b'"good"\n"torn\n\xff\n7\n"better"\n')
    assert InputHistory(HistoryFile(path)).entries == ["good", "better"]


def test_an_unwritable_file_is_not_an_error(tmp_path):
    (tmp_path / "taken").write_text("")
    history = InputHistory(HistoryFile(tmp_path / "taken" / "history"))
    history.add("one")
    assert history.entries == ["one"]


def test_a_file_that_is_too_long_is_truncated(tmp_path, monkeypatch):
    monkeypatch.setattr("nerve.commander.history.MAX_HISTORY_ENTRIES", 3)
    file = HistoryFile(tmp_path / "history")
    for n in range(7):
        file.append(f"entry {n}")
    assert file.load() == ["entry 4", "entry 5", "entry 6"]
    assert len(file.path.read_text().splitlines()) == 3


@given(st.lists(st.text(alphabet=st.characters(exclude_categories=[]), min_size=1)))
def test_any_entry_round_trips(tmp_path_factory, entries):
    file = HistoryFile(tmp_path_factory.mktemp("history") / "history")
    for entry in entries:
        file.append(entry)
    assert file.load() == entries


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
