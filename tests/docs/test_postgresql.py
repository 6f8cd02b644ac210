"""The commands of the guide on PostgreSQL do what it says."""

from pathlib import Path

import pytest

from docs.pages import commands, page
from nerve.cli import execute_command_line

TEXT = page("docs/guides/postgresql.md")


def test_the_commands_print_what_the_guide_shows(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    postgresql_url: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("NERVE_STORE", postgresql_url)
    shown = commands(TEXT)
    assert len(shown) == 3
    for command, printed in shown:
        capsys.readouterr()
        assert execute_command_line(command.split()) == 0
        assert capsys.readouterr().out == printed
    assert not (tmp_path / ".nerve/nerve.db").exists()
