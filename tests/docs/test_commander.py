"""docs/guides/commander.md: its tables match the code. UPDATE_SNAPSHOTS=1 rewrites them."""

import os
import re
import shlex
import textwrap
import tomllib
from pathlib import Path

import pytest

from docs.pages import FENCE, ROOT, page, section
from nerve.commander import project_server
from nerve.commander.core.command_table import COMMANDS, PREFIX_HELP
from nerve.commander.core.input_parser import InputType, parse_input
from nerve.commander.history import HISTORY_PATH
from nerve.commander.tui.keymap import KEYS, SCOPE_TITLES, format_keys, keymap_paths, read_keymap
from nerve.commander.tui.layout import THEMES, preferred_theme

NAME = "docs/guides/commander.md"
PIPE = "\\|"


def commands() -> str:
    rows = ["| command | what it does |", "|---|---|"]
    for group in dict.fromkeys(command.group for command in COMMANDS):
        rows.append(f"| **{group}** | |")
        for each in COMMANDS:
            if each.group == group:
                also = "".join(f", `/{name}`" for name in each.aliases)
                example = f" `{each.example}`" if each.example else ""
                cells = [f"`{each.usage}`{also}", f"{each.summary}{example}"]
                rows.append(f"| {' | '.join(cell.replace('|', PIPE) for cell in cells)} |")
    return "\n".join(rows)


def keys() -> str:
    rows = ["| key | what it does | name |", "|---|---|---|"]
    for scope, title in SCOPE_TITLES.items():
        rows.append(f"| **{title}** | | |")
        for key in KEYS:
            if key.scope == scope:
                names = ", ".join(format_keys(each) for each in key.keys.split(","))
                rows.append(f"| {names} | {key.description} | `{key.id}` |")
    return "\n".join(rows)


def themes() -> str:
    return textwrap.fill(f"{', '.join(f'`{theme}`' for theme in THEMES)}.", 99, break_on_hyphens=False)


TABLES = {"commands": commands, "keys": keys, "themes": themes}


def kept(text: str, name: str) -> re.Match[str]:
    found = re.search(rf"<!-- {name} -->\n(.*?)\n?<!-- end -->", text, re.DOTALL)
    assert found is not None
    return found


@pytest.mark.parametrize("name", TABLES)
def test_a_table_matches_the_code(name: str) -> None:
    text, made = page(NAME), TABLES[name]()
    if os.environ.get("UPDATE_SNAPSHOTS"):
        found = kept(text, name)
        text = text[: found.start()] + f"<!-- {name} -->\n{made}\n<!-- end -->" + text[found.end() :]
        (ROOT / NAME).write_text(text, encoding="utf-8")
    assert kept(text, name)[1] == made


def test_every_input_prefix_is_described() -> None:
    shown = section(page(NAME), "What you type") + section(page(NAME), "References")
    for typed, _ in PREFIX_HELP:
        for each in typed.split("  "):
            assert each in shown, each
    for line in re.findall(r"`([%@#/][^`]*)`", shown):
        assert parse_input(line).type is not InputType.REFERENCE


def test_the_keymap_example_can_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shown = section(page(NAME), "Keymap")
    [text] = [fence[2] for fence in FENCE.finditer(shown) if fence[1] == "toml"]
    file = tmp_path / "keymap.toml"
    file.write_text(text)
    keymap, problems = read_keymap([file])
    assert problems == []
    assert keymap.keys() == tomllib.loads(text)["keys"].keys()
    monkeypatch.setenv("XDG_CONFIG_HOME", "/config")
    everywhere, here = keymap_paths("")
    assert f"`{everywhere.relative_to('/config')}` in `$XDG_CONFIG_HOME`" in shown
    assert f"`{here}` in the project" in shown


def test_the_default_theme_is_the_documented_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NERVE_THEME", raising=False)
    monkeypatch.setenv("COLORFGBG", "0;15")
    assert preferred_theme() == "ansi-light"
    monkeypatch.delenv("COLORFGBG")
    assert preferred_theme() == "ansi-dark"
    monkeypatch.setenv("NERVE_THEME", "nord")
    assert preferred_theme() == "nord"


def test_the_files_have_the_documented_paths() -> None:
    shown = section(page(NAME), "The server")
    for file in (HISTORY_PATH, project_server.SERVER_LOG_PATH):
        assert f"`{file}`" in shown
    assert project_server.IDLE_TIMEOUT_S == 300
    assert "after five minutes" in shown


def test_the_example_of_a_pipe_is_a_shell_command() -> None:
    [line] = [fence[2] for fence in FENCE.finditer(section(page(NAME), "Plain lines")) if fence[1] == "sh"]
    assert shlex.split(line)[2:4] == ["%greet Ann", "approve"]
