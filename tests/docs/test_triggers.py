"""The page about triggers: the files on it are valid."""

from pathlib import Path

from docs.pages import page, write_files
from nerve.project.trigger_files import discover_triggers


def test_every_trigger_file_of_the_page_is_valid(tmp_path: Path) -> None:
    names = write_files(page("docs/guides/triggers.md"), tmp_path)
    found = discover_triggers(tmp_path)
    assert found.problems == []
    assert {trigger.source for trigger in found.triggers.values()} == set(names)
    assert len(names) >= 4
