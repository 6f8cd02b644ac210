"""Every screen as a picture, on a usual terminal and on the smallest."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from textual.color import Color

from commander.tui.desks import crowd, desk, finished, gate, permission, review, waiting
from commander.tui.screens import SMALL, WIDE, Screen, difference, shown
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
    """Texts that are told elsewhere may change without this picture."""
    told = (
        ("@node text", "ask a node"),
        ("%workflow --name=value text", "start a workflow; -- ends the options"),
    )
    monkeypatch.setattr("nerve.commander.tui.key_help.PREFIX_HELP", told)


def working() -> CommanderState:
    made = desk()
    finished(made)
    review(made)
    waiting(made)
    made.focus_run("run_01review")
    return made


def talked() -> CommanderState:
    made = desk()
    made.add_block("input", "/workflows")
    made.add_block(
        "text", "# Two of them\n\n| name | steps |\n|---|---|\n| `deploy` | 3 |\n\n> and a *quote*"
    )
    made.add_block("error", "Unknown workflow 'reviw'. Did you mean 'code_review'?")
    made.add_block("note", "Paused code_review.")
    made.queue = ["and then the tests", "also the docs, please"]
    made.raise_flags("queue")
    return made


def asking() -> CommanderState:
    made = desk()
    waiting(made, gate(), permission())
    return made


def form() -> CommanderState:
    made = desk()
    waiting(made, gate(choices=None, form=SCHEMA))
    return made


def many() -> CommanderState:
    made = desk()
    crowd(made)
    finished(made)
    return made


def away() -> CommanderState:
    made = working()
    made.is_connected = False
    return made


def press(*keys: str) -> Callable[[Screen], Awaitable[None]]:
    return lambda screen: screen.press(*keys)


async def lost(screen: Screen) -> None:
    screen.app.state.is_connected = False
    screen.app.state.raise_flags("connected")
    await screen.settle()


SCREENS: dict[str, tuple[Callable[[], CommanderState], Any]] = {
    "welcome": (desk, press()),
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
async def test_a_screen_is_as_it_was_when_somebody_looked_at_it(name: str, size: tuple[int, int]) -> None:
    make, do = SCREENS[name]
    async with shown(make(), size, past=("run the tests", "%deploy to test", "hello")) as screen:
        await do(screen)
        await screen.settle()
        screen.app.clear_notifications()
        await screen.settle()
        assert difference(screen.app, f"{name}-{size[0]}x{size[1]}") == ""


@pytest.mark.parametrize("theme", ["ansi-light", "nord", "textual-light"])
async def test_a_theme_colours_everything(theme: str) -> None:
    async with shown(asking()) as screen:
        screen.app.theme = theme
        await screen.press("f3")
        assert difference(screen.app, f"theme-{theme}") == ""


async def test_without_colour_nothing_is_coloured(monkeypatch: pytest.MonkeyPatch) -> None:
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
