"""Snapshots of every screen at a usual and a small size."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from textual.color import Color

from commander.tui.screens import SMALL, WIDE, Screen, difference, shown
from commander.tui.state_fixtures import crowd, finished, gate, make_state, permission, review, waiting
from nerve.commander.core.state import CommanderState

BLACK = Color(0, 0, 0)

SCHEMA = {
    "type": "object",
    "required": ["version", "target"],
    "properties": {
        "version": {"type": "string", "title": "Version", "default": "2.1"},
        "target": {"enum": ["staging", "production"], "description": "where it goes"},
        "count": {"type": "integer"},
        "notify": {"type": "boolean", "title": "Tell everybody", "default": True},
    },
}


@pytest.fixture(autouse=True)
def _own_words(monkeypatch: pytest.MonkeyPatch) -> None:
    """Use fixed texts, so that changes of the real ones do not affect the snapshots."""
    prefix_help = (
        ("@node text", "ask a node"),
        ("%workflow --name=value text", "start a workflow; -- ends the options"),
    )
    monkeypatch.setattr("nerve.commander.tui.key_help.PREFIX_HELP", prefix_help)


def working() -> CommanderState:
    state = make_state()
    finished(state)
    review(state)
    waiting(state)
    state.focus_run("run_01review")
    return state


def talked() -> CommanderState:
    state = make_state()
    state.add_block("input", "/workflows")
    state.add_block(
        "text", "# Two of them\n\n| name | steps |\n|---|---|\n| `deploy` | 3 |\n\n> and a *quote*"
    )
    state.add_block("error", "Unknown workflow 'reviw'. Did you mean 'code_review'?")
    state.add_block("note", "Paused code_review.")
    state.queue = ["and then the tests", "also the docs, please"]
    state.raise_flags("queue")
    return state


def asking() -> CommanderState:
    state = make_state()
    waiting(state, gate(), permission())
    return state


def form() -> CommanderState:
    state = make_state()
    waiting(state, gate(choices=None, form=SCHEMA))
    return state


def many() -> CommanderState:
    state = make_state()
    crowd(state)
    finished(state)
    return state


def away() -> CommanderState:
    state = working()
    state.is_connected = False
    return state


def press(*keys: str) -> Callable[[Screen], Awaitable[None]]:
    return lambda screen: screen.press(*keys)


async def lost(screen: Screen) -> None:
    screen.app.state.is_connected = False
    screen.app.state.raise_flags("connected")
    await screen.settle()


SCREENS: dict[str, tuple[Callable[[], CommanderState], Any]] = {
    "welcome": (make_state, press()),
    "working": (working, press()),
    "talked": (talked, press()),
    "completion": (working, press("/", "s")),
    "workflows": (working, press("%")),
    "search": (working, press("ctrl+r", "t", "e")),
    "gate": (asking, press("f3")),
    "permission": (asking, press("f3", "f3")),
    "form": (form, press("f3")),
    "runs": (many, press("f2", "down")),
    "block": (working, press("f4", "up", "up")),
    "details": (working, press("ctrl+o")),
    "keys": (working, press("question_mark")),
    "palette": (working, press("ctrl+p", "s", "t", "o")),
    "stop": (working, press("escape")),
    "lost": (working, lost),
}


@pytest.mark.parametrize("size", [WIDE, SMALL], ids=["100x30", "60x16"])
@pytest.mark.parametrize("name", SCREENS)
async def test_a_screen_matches_its_snapshot(name: str, size: tuple[int, int]) -> None:
    make, do = SCREENS[name]
    async with shown(make(), size, past=("run the tests", "%deploy to test", "hello")) as screen:
        await do(screen)
        await screen.settle()
        screen.app.clear_notifications()
        await screen.settle()
        assert difference(screen.app, f"{name}-{size[0]}x{size[1]}") == ""


@pytest.mark.parametrize("theme", ["ansi-light", "nord", "textual-light"])
async def test_a_theme_matches_its_snapshot(theme: str) -> None:
    async with shown(asking()) as screen:
        screen.app.theme = theme
        await screen.press("f3")
        assert difference(screen.app, f"theme-{theme}") == ""


async def test_no_color_disables_all_colours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    async with shown(asking()) as screen:
        await screen.press("f3")
        assert "1  approve" in screen.text
        lines = screen.app.screen._compositor.render_strips()
        segments = [
            segment for line in lines for segment in line.apply_filter(screen.app._filters[-1], BLACK)
        ]
        colours = {
            colour for each in segments if each.style for colour in (each.style.color, each.style.bgcolor)
        }
        assert all(colour is None or colour.is_default for colour in colours)
