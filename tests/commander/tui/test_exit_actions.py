"""Esc and Ctrl-C: close, copy, clear, stop after confirmation, and quit without stopping runs."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

import pytest

from commander.tui.screens import shown
from commander.tui.state_fixtures import finished, make_state, review, waiting
from nerve.commander.core.state import CommanderState
from nerve.commander.tui import status_bar
from nerve.commander.tui.layout import THEMES


def working() -> CommanderState:
    state = make_state()
    review(state)
    state.focus_run("run_01review")
    return state


async def test_escape_asks_and_enter_stops_the_run() -> None:
    async with shown(working()) as screen:
        await screen.press("escape")
        assert "Stop last commit review? Enter stops it · Esc keeps it" in screen.text
        assert screen.controller.stopped_runs == []
        await screen.press("enter")
        assert screen.controller.stopped_runs == ["run_01review"]


async def test_escape_alone_does_not_stop_the_run() -> None:
    async with shown(working()) as screen:
        await screen.press("escape", "escape", "escape", "escape")
        assert screen.controller.stopped_runs == []


@pytest.mark.parametrize("text", ["draft", "%dep", "/st"])
async def test_escape_twice_clears_the_text_and_does_not_stop_the_run(text: str) -> None:
    async with shown(working()) as screen:
        await screen.press(*text, "escape")
        assert screen.app.prompt.text == text
        assert "Press Esc again to clear the text" in screen.text
        await screen.press("escape")
        assert screen.app.prompt.text == ""
        await screen.press("enter")
        assert screen.controller.stopped_runs == []
        await screen.press("up")
        assert screen.app.prompt.text == text


async def test_a_run_in_the_list_that_has_ended_cannot_be_stopped() -> None:
    state = make_state()
    finished(state)
    async with shown(state) as screen:
        await screen.press("f2", "s")
        assert "Stop " not in screen.text
        assert [each.message for each in screen.app._notifications] == ["research_agent search has ended."]
        await screen.press("enter")
        assert screen.controller.stopped_runs == []


async def test_enter_in_the_list_stops_only_the_run_of_the_question() -> None:
    state = working()
    waiting(state)
    async with shown(state) as screen:
        await screen.press("f2", "s", "down", "enter")
        assert screen.controller.stopped_runs == []
        await screen.press("f2", "s", "enter")
        assert len(screen.controller.stopped_runs) == 1


async def test_typing_withdraws_the_question_to_stop() -> None:
    async with shown(working()) as screen:
        await screen.press("escape", "a", "backspace", "enter")
        assert screen.controller.stopped_runs == []


async def test_the_question_expires(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(status_bar, "QUESTION_TIMEOUT_S", -1.0)
    async with shown(working()) as screen:
        await screen.press("escape")
        await screen.settle()
        assert "Stop" not in screen.text
        await screen.press("enter")
        assert screen.controller.stopped_runs == []


async def test_escape_without_a_run_stops_nothing() -> None:
    async with shown(make_state()) as screen:
        await screen.press("escape", "escape", "escape")
        assert screen.controller.stopped_runs == []


async def test_control_c_clears_the_prompt_and_keeps_the_text_in_the_history() -> None:
    async with shown(make_state()) as screen:
        await screen.press(*"draft", "ctrl+c")
        assert screen.app.prompt.text == ""
        assert "Press Ctrl-C again to quit" in screen.text
        await screen.press("up")
        assert screen.app.prompt.text == "draft"


async def test_control_c_twice_quits_and_stops_nothing() -> None:
    async with shown(working()) as screen:
        await screen.press("ctrl+c")
        assert "Press Ctrl-C again to quit; runs continue" in screen.text
        await screen.pilot.press("ctrl+c")
        await screen.pilot.pause()
        assert screen.app.return_value == "quit"
        assert screen.controller.stopped_runs == []


async def test_control_c_copies_the_selection() -> None:
    async with shown(working()) as screen:
        await screen.pilot.mouse_down("#stream", offset=(4, 2))
        await screen.pilot.hover("#stream", offset=(30, 3))
        await screen.pilot.mouse_up("#stream", offset=(30, 3))
        await screen.settle()
        await screen.press("ctrl+c")
        assert "code_review" in screen.app.clipboard
        assert not screen.app.screen.get_selected_text()


async def test_control_d_quits_only_from_an_empty_prompt() -> None:
    async with shown(make_state()) as screen:
        await screen.press(*"ab", "left", "ctrl+d")
        assert screen.app.prompt.text == "a"
        await screen.press("backspace")
        await screen.pilot.press("ctrl+d")
        await screen.pilot.pause()
        assert screen.app.return_value == "quit"


@pytest.mark.parametrize(("wants", "left"), [({"quit": ""}, "quit"), ({"tui": "plain"}, "plain")])
async def test_commands_can_quit(wants: dict[str, str], left: str) -> None:
    async with shown(make_state()) as screen:
        screen.controller.screen_requests.update(wants)
        screen.app.state.raise_flags("wants")
        screen.app.draw_changes()
        await screen.pilot.pause()
        assert screen.app.return_value == left


async def test_a_command_sets_the_theme() -> None:
    async with shown(make_state()) as screen:
        screen.controller.request_screen("theme", "nord")
        await screen.settle()
        assert screen.app.theme == "nord"


async def test_only_the_themes_of_the_documentation_are_offered() -> None:
    async with shown(make_state()) as screen:
        assert set(screen.app.available_themes) == set(THEMES)


async def test_a_rendering_error_ends_the_app_with_an_error() -> None:
    state = make_state()

    def broken() -> datetime:
        raise RuntimeError("the clock is broken")

    clock: Callable[[], datetime] = broken
    state.is_connected = False
    with pytest.raises(RuntimeError, match="the clock"):
        async with shown(state, clock=clock):
            pass


async def test_a_background_error_is_shown_and_the_app_continues(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def fail(text: str, opened: str | None) -> None:
        raise RuntimeError("no luck")

    async with shown(make_state()) as screen:
        monkeypatch.setattr(screen.controller, "submit", fail)
        await screen.press("a", "enter")
        assert "Unexpected error: RuntimeError: no luck" in screen.text
