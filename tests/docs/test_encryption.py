"""The commands and the configuration of the guide on encryption do what it says."""

import json
from pathlib import Path

import pytest

from docs.pages import FENCE, commands, page
from nerve.cli import execute_command_line
from nerve.project.config import read_config

TEXT = page("docs/guides/encryption.md")


def test_the_commands_print_what_the_guide_shows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    project = tmp_path / "shop"
    (project / ".nerve").mkdir(parents=True)
    monkeypatch.chdir(project)
    configurations = [block for kind, block in FENCE.findall(TEXT) if kind == "json"]
    assert [read_config(text).encryption is not None for text in configurations] == [True, True]
    (project / ".nerve/config.json").write_text(configurations[0])
    for command, printed in commands(TEXT):
        capsys.readouterr()
        assert execute_command_line(command.split()) == 0
        assert capsys.readouterr().out == printed
    [key_file] = json.loads(configurations[0])["encryption"].values()
    assert (project / key_file).stat().st_mode & 0o777 == 0o600
