"""The prompt: key order, completion, history, search, multi-line text and pastes."""

from __future__ import annotations

import pytest
from textual import events

from commander.tui.screens import Screen, shown
from commander.tui.state_fixtures import make_state, review
from nerve.commander.core.completion import Completion


async def paste(screen: Screen, text: str) -> None:
    screen.app.post_message(events.Paste(text))
    await screen.settle()


LONG = "\n".join(f"line {number}" for number in range(12))


async def test_typed_text_is_submitted() -> None:
    async with shown(make_state()) as screen:
        await screen.press(*"hello", "enter")
        assert screen.controller.entered == ["hello"]
        assert screen.app.prompt.text == ""


async def test_fast_keys_are_processed_in_order() -> None:
    async with shown(make_state()) as screen:
        screen.app.prompt.focus()
        for key in ("%", "r", "e", "s", "tab", "x", "backspace", "y", "enter", "n", "e", "x", "t"):
            screen.app.post_message(events.Key(key, key if len(key) == 1 else None))
        await screen.settle()
        assert screen.controller.entered == ["%research_agent y"]
        assert screen.app.prompt.text == "next"


@pytest.mark.requirement("S0-62")
async def test_prefixes_are_completed_while_typing() -> None:
    async with shown(make_state()) as screen:
        await screen.type("%")
        assert [item.text for item in screen.app.popup.items] == [
            "%code_review",
            "%research_agent",
            "%deploy",
        ]
        await screen.press("down", "tab")
        assert screen.app.prompt.text == "%research_agent "
        await screen.type("--m")
        await screen.press("tab")
        assert screen.app.prompt.text.startswith("%research_agent --max")


async def test_enter_completes_a_command_name() -> None:
    async with shown(make_state()) as screen:
        await screen.press(*"/usa", "enter")
        assert screen.controller.entered == ["/usage"]
        await screen.press(*"/sig", "enter")
        assert screen.controller.entered == ["/usage"]
        assert screen.app.prompt.text == "/signal "


async def test_enter_submits_the_typed_name_unless_a_completion_was_selected() -> None:
    async with shown(make_state()) as screen:
        await screen.press(*"%dep", "enter")
        assert screen.controller.entered == ["%dep"]
        await screen.press(*"%dep", "down", "enter")
        assert screen.controller.entered == ["%dep"]
        assert screen.app.prompt.text == "%deploy "


@pytest.mark.parametrize("width", [60, 100, 110, 200])
async def test_each_completion_has_one_row_and_long_ones_are_truncated(width: int) -> None:
    async with shown(make_state(), (width, 30)) as screen:
        await screen.press("/")
        about = "a description of many words " * 9
        screen.app.popup.offer([Completion(text, 0, description=about) for text in ("/one", "/" + "x" * 60)])
        await screen.settle()
        drawn = screen.text.splitlines()
        [first] = [number for number, line in enumerate(drawn) if "❯ /one" in line]
        assert all(line.rstrip(" │").endswith("…") for line in drawn[first : first + 2])
        assert drawn[first + 2].strip().startswith("╰")


async def test_escape_closes_the_popup_and_keeps_the_text() -> None:
    async with shown(make_state()) as screen:
        await screen.press(*"/st", "escape")
        assert screen.app.prompt.text == "/st"
        assert not screen.app.popup.is_open


async def test_clicking_a_completion_accepts_it() -> None:
    async with shown(make_state()) as screen:
        await screen.type("%")
        await screen.pilot.click("#popup", offset=(6, 3))
        await screen.settle()
        assert screen.app.prompt.text == "%deploy "


@pytest.mark.parametrize("key", ["ctrl+j", "alt+enter", "shift+enter"])
async def test_several_keys_insert_a_newline(key: str) -> None:
    async with shown(make_state()) as screen:
        await screen.press("a", key, "b", "enter")
        assert screen.controller.entered == ["a\nb"]


async def test_a_backslash_before_enter_inserts_a_newline() -> None:
    async with shown(make_state()) as screen:
        await screen.press("a", "backslash", "enter", "b", "enter")
        assert screen.controller.entered == ["a\nb"]


async def test_arrows_navigate_the_history_and_keep_the_draft() -> None:
    async with shown(make_state(), past=("first", "second")) as screen:
        await screen.press(*"dra", "up")
        assert screen.app.prompt.text == "second"
        await screen.press("up")
        assert screen.app.prompt.text == "first"
        await screen.press("down", "down")
        assert screen.app.prompt.text == "dra"


async def test_arrows_move_within_multiline_text_first() -> None:
    async with shown(make_state(), past=("before",)) as screen:
        await screen.press("a", "ctrl+j", "b", "up")
        assert screen.app.prompt.text == "a\nb"
        await screen.press("up")
        assert screen.app.prompt.text == "before"


async def test_the_history_is_searched() -> None:
    async with shown(make_state(), past=("run the tests", "deploy to test", "hello")) as screen:
        await screen.press(*"dr", "ctrl+r")
        await screen.press("backspace", "backspace", *"test", "ctrl+r", "enter")
        assert screen.app.prompt.text == "run the tests"
        assert screen.controller.entered == []


async def test_cancelling_a_search_restores_the_draft() -> None:
    async with shown(make_state(), past=("run the tests",)) as screen:
        await screen.press(*"draft", "ctrl+r", "x", "escape")
        assert screen.app.prompt.text == "draft"


async def test_a_long_paste_is_folded_and_submitted_in_full() -> None:
    async with shown(make_state()) as screen:
        await screen.type("see ")
        await paste(screen, LONG)
        assert screen.app.prompt.text == "see [Pasted text #1 +11 lines]"
        await screen.press("enter")
        assert screen.controller.entered == [f"see {LONG}"]


async def test_the_same_paste_again_unfolds_it() -> None:
    async with shown(make_state()) as screen:
        await paste(screen, LONG)
        await paste(screen, LONG)
        assert screen.app.prompt.text == LONG


async def test_queued_text_can_be_taken_back_for_editing() -> None:
    state = make_state()
    state.queue = ["later"]
    async with shown(state) as screen:
        assert "later" in screen.text
        await screen.press("up")
        assert screen.app.prompt.text == "later"
        assert "queued · Up" not in screen.text


async def test_a_question_mark_shows_help_only_on_an_empty_prompt() -> None:
    async with shown(make_state()) as screen:
        await screen.press("question_mark")
        assert "What you type" in screen.text
        await screen.press("escape", "a", "question_mark")
        assert screen.app.prompt.text == "a?"


async def test_editing_the_prompt_in_an_editor_works_or_reports_an_error() -> None:
    async with shown(make_state()) as screen:
        await screen.press("ctrl+g")
        assert "does not support suspending the app" in screen.text


async def test_unbound_letters_go_to_the_prompt() -> None:
    state = make_state()
    review(state)
    async with shown(state) as screen:
        await screen.press("f4", "z", "z")
        assert screen.app.prompt.text == "zz"
        assert screen.app.prompt.has_focus
