"""The key table and keymap files."""

from __future__ import annotations

from pathlib import Path

import pytest

from commander.tui.screens import shown
from commander.tui.state_fixtures import make_state
from nerve.commander.tui.keymap import KEYS, SCOPE_TITLES, read_keymap
from nerve.commander.tui.layout import THEMES, preferred_theme


def project(folder: Path, text: str) -> str:
    (folder / ".nerve").mkdir()
    (folder / ".nerve/keymap.toml").write_text(text)
    return str(folder)


@pytest.fixture(autouse=True)
def _no_own_keymap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))


def test_every_key_has_a_unique_id_and_a_scope() -> None:
    assert len({key.id for key in KEYS}) == len(KEYS)
    assert {key.scope for key in KEYS} == set(SCOPE_TITLES)


def test_keys_are_unique_within_a_scope() -> None:
    for scope in SCOPE_TITLES:
        keys = [each for key in KEYS if key.scope == scope for each in key.keys.split(",")]
        assert len(set(keys)) == len(keys)


async def test_a_keymap_file_changes_keys(tmp_path: Path) -> None:
    state = make_state()
    state.project = project(tmp_path, '[app]\nhelp = "f5"\n[prompt]\nenter = "f6"\n')
    async with shown(state) as screen:
        await screen.press(*"hello", "f6")
        assert screen.controller.entered == ["hello"]
        await screen.press("f5")
        assert "What you type" in screen.text
        assert "F5" in screen.text


async def test_invalid_keymap_entries_are_reported_and_the_rest_applies(tmp_path: Path) -> None:
    state = make_state()
    state.project = project(tmp_path, '"app.halp" = "f5"\n"app.runs" = 3\n"app.gates" = ["f7", "f8"]\n')
    async with shown(state) as screen:
        first, second = (block.text for block in state.blocks)
        assert "unknown action 'app.halp'. Did you mean 'app.help'?" in first
        assert "'app.runs' must be a string" in second
        assert screen.app.keymap == {"app.gates": "f7,f8"}


@pytest.mark.parametrize(
    "text",
    [
        '"app.cancel" = "f9"',
        '"app.interrupt" = "f9"',
        '"app.leave" = "f9"',
        '"app.help" = "ctrl+c"',
        '"prompt.enter" = ["enter", "f9, escape"]',
    ],
)
def test_a_project_keymap_cannot_change_the_keys_to_stop_and_quit(tmp_path: Path, text: str) -> None:
    project_file = Path(project(tmp_path, text)) / ".nerve/keymap.toml"
    user_file = tmp_path / "keymap.toml"
    user_file.write_text(text)
    assert len(read_keymap([user_file])[0]) == 1
    keymap, [problem] = read_keymap([project_file])
    assert keymap == {}
    assert "a project may not change the keys" in problem
    assert read_keymap([user_file, project_file])[0] == read_keymap([user_file])[0]


def test_an_unreadable_keymap_file_is_reported(tmp_path: Path) -> None:
    broken = tmp_path / "keymap.toml"
    broken.write_text("= nothing")
    keymap, problems = read_keymap([broken, tmp_path / "none.toml"])
    assert keymap == {}
    assert len(problems) == 1
    assert "cannot be read" in problems[0]


async def test_all_themes_are_available() -> None:
    async with shown(make_state()) as screen:
        assert set(THEMES) <= set(screen.app.available_themes)


@pytest.mark.parametrize(
    ("name", "value", "theme"),
    [
        ("COLORFGBG", "0;15", "ansi-light"),
        ("COLORFGBG", "15;0", "ansi-dark"),
        ("NERVE_THEME", "nord", "nord"),
    ],
)
def test_the_terminal_background_selects_the_theme(
    name: str, value: str, theme: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for each in ("COLORFGBG", "NERVE_THEME"):
        monkeypatch.delenv(each, raising=False)
    monkeypatch.setenv(name, value)
    assert preferred_theme() == theme
