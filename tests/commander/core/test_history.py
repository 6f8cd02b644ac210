"""The input history and its file."""

import stat

from hypothesis import given
from hypothesis import strategies as st

from nerve.commander.core.history import InputHistory
from nerve.commander.history_file import HistoryFile


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
    monkeypatch.setattr("nerve.commander.history_file.MAX_HISTORY_ENTRIES", 3)
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
