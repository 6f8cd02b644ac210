"""The conversation and the run list: scrolling, folding, sizes and drawing cost."""

from __future__ import annotations

import asyncio
import re

import pytest
from textual.events import MouseScrollUp

from commander.tui.screens import SMALL, WIDE, shown
from commander.tui.state_fixtures import BEGAN, Script, crowd, finished, make_state, review, waiting
from nerve.api.models import RunResponse
from nerve.commander.core.state import CommanderState
from nerve.commander.tui.conversation_view import MAX_BLOCKS


def working() -> CommanderState:
    state = make_state()
    finished(state)
    review(state)
    waiting(state)
    return state


@pytest.mark.requirement("S1-09")
async def test_the_tree_of_a_run_is_live() -> None:
    state = make_state()
    run = review(state)
    async with shown(state) as screen:
        for expected in ("✓ read", "● review_loop [2/5]", "└─ ● reviewer", "○ summary", "(0.4s)"):
            assert expected in screen.text
        run.done("/review_loop/reviewer", "fine", 2.0, usage={"tokens": 5000, "cost": 0.25})
        run.say("node_retrying", "/review_loop", attempt=1)
        await screen.settle()
        for expected in ("✓ reviewer", "↻ review_loop", "5.0k tokens", "$0.25"):
            assert expected in screen.text


async def test_a_slow_block_still_shows_its_last_change(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("nerve.commander.tui.conversation_view.SLOW_DRAW_S", 0)
    state = make_state()
    run = review(state)
    async with shown(state) as screen:
        for words in ("first words", "last words"):
            run.output("/review_loop/reviewer", words)
            screen.app.draw_changes()
        assert screen.app.stream.postponed
        await screen.settle()
        assert "last words" in screen.text


async def test_a_small_screen_shows_no_runs_only_when_connected() -> None:
    state = make_state()
    state.is_connected = False
    async with shown(state, SMALL) as screen:
        state.is_connected = False
        state.raise_flags("connected")
        await screen.settle()
        assert "No runs yet" not in screen.text
        state.is_connected = True
        state.raise_flags("connected")
        await screen.settle()
        assert "No runs yet" in screen.text


async def test_a_small_screen_shows_the_logs_of_a_run_immediately() -> None:
    async with shown(working(), SMALL) as screen:
        await screen.press("f2", "l")
        assert not screen.app.screen.has_class("-runs")
        assert screen.controller.entered[0].startswith("/logs ")


async def test_the_list_distinguishes_runs_of_one_workflow_and_running_from_waiting() -> None:
    state = make_state()
    for n, (run_state, words) in enumerate((("running", "fix the login"), ("waiting", "fix the logout"))):
        run = RunResponse(
            run_id=f"0199-aaaa-{n}f00d{n}", workflow="deploy", state=run_state, input_preview=words
        )
        state.merge_runs([run])
    async with shown(state) as screen:
        for expected in ("● deploy 0f00d0", "fix the login", "⏸ deploy 1f00d1", "fix the logout"):
            assert expected in screen.text
        assert "1 running · 1 waiting" in screen.text
    async with shown(state, SMALL) as screen:
        assert "● deploy 0f00d0" in screen.text


@pytest.mark.parametrize("size", [WIDE, SMALL])
async def test_workflow_names_are_shown_next_to_long_descriptions(size: tuple[int, int]) -> None:
    state = make_state()
    state.workflows[0] = state.workflows[0].model_copy(
        update={"description": "Looks around, says hello. " * 9}
    )
    async with shown(state, size) as screen:
        assert "%code_review      Looks around, says" in screen.text
        assert "%research_agent   Search" in screen.text


@pytest.mark.parametrize(("size", "listed"), [(WIDE, "   friday  {}  ▕"), (SMALL, " ⏸ friday {}")])
async def test_a_paused_run_with_an_open_gate_is_listed_as_paused(size: tuple[int, int], listed: str) -> None:
    state = make_state()
    run = waiting(state)
    async with shown(state, size) as screen:
        run.say("workflow_paused", "")
        await screen.settle()
        lines = [re.sub(r"(?<=friday) {2,}", "  ", line) for line in screen.text.splitlines()]
        assert any(line.startswith(listed.format("paused")) for line in lines)
        run.say("workflow_resumed", "")
        await screen.settle()
        assert "⏸ 1 waiting" in screen.text


async def test_only_the_start_of_a_very_long_result_is_shown() -> None:
    state = make_state()
    run = Script(state, "run_05large", "code_review").follow().started("count")
    run.began("/count").done("/count", "counted", 0.1)
    async with shown(state) as screen:
        run.say("workflow_completed", result="* [one]\n" * 300_000)
        async with asyncio.timeout(60):
            await screen.settle()
        screen.app.submit_line("hello")
        await screen.settle()
        assert "… 2,380,000 more characters; /export writes" in screen.text


async def test_a_command_listing_is_shown_from_its_start() -> None:
    async with shown(working()) as screen:
        screen.app.state.add_block("text", "\n".join(f"- entry {n}" for n in range(90)), name="/help")
        await screen.settle()
        assert "entry 0" in screen.text
        screen.app.submit_line("hello")
        await screen.settle()
        assert "❯ hello" in screen.text


@pytest.mark.requirement("S0-05")
async def test_user_events_are_shown_as_lines_in_the_block() -> None:
    state = make_state()
    run = Script(state, "run_05emits", "code_review").follow().started("reviewer")
    run.say("review_complete", review="fine").say("merged", commits=3)
    async with shown(state) as screen:
        lines = screen.text.split("\n")
        at = next(n for n, line in enumerate(lines) if "[review_complete] fine" in line)
        assert "[merged] commits 3" in lines[at + 1]


async def test_streamed_text_is_markdown_and_tools_are_folded() -> None:
    async with shown(working()) as screen:
        await screen.press("f4", "up", "up")
        assert "The change is good, with two remarks:" in screen.text
        assert "+12 lines" in screen.text
        await screen.press("enter")
        assert screen.text.count("line") > 10


async def test_many_changes_are_drawn_once() -> None:
    state = make_state()
    run = review(state)
    async with shown(state) as screen:
        drawn = 0
        draw = screen.app.stream._draw_block

        def counting(each: object) -> None:
            nonlocal drawn
            drawn += 1
            draw(each)  # type: ignore[arg-type]

        screen.app.stream._draw_block = counting  # type: ignore[method-assign,assignment]
        for number in range(500):
            run.output("/review_loop/reviewer", f"word {number} ", "partial")
        screen.app.draw_changes()
        assert drawn <= 2  # the elapsed time may be drawn, too


async def test_the_view_follows_the_end_until_the_user_scrolls_up() -> None:
    state = make_state()
    async with shown(state) as screen:
        for number in range(60):
            state.add_block("note", f"note {number}")
        await screen.settle()
        assert "note 59" in screen.text
        await screen.press("pageup")
        state.add_block("note", "unseen")
        await screen.settle()
        assert "unseen" not in screen.text
        await screen.press("ctrl+end")
        assert "unseen" in screen.text


async def test_scrolling_up_shows_older_blocks() -> None:
    state = make_state()
    for number in range(MAX_BLOCKS + 50):
        state.add_block("note", f"note {number}")
    async with shown(state) as screen:
        stream = screen.app.stream
        assert len(stream.rendered_blocks) == MAX_BLOCKS
        while stream.hidden_above or stream.scroll_y > 0:
            await screen.press("pageup")
        assert "note 0" in screen.text


async def test_a_block_can_be_referenced_and_copied() -> None:
    async with shown(working()) as screen:
        await screen.press("f4", "home", "down", "c")
        assert "Rayleigh scattering" in screen.app.clipboard
        await screen.press("r")
        assert screen.app.prompt.text == "::1 "


async def test_untrusted_text_cannot_control_the_terminal() -> None:
    state = make_state()
    run = Script(state, "run_x", "flow").follow().started("say").began("/say")
    run.output("/say", "\x1b[2J\x1b]0;owned\x07 hello", "assistant")
    state.add_block("input", "\x1b[31mred")
    async with shown(state) as screen:
        assert "\x1b" not in screen.text
        assert "\\x1b[2J" in screen.text


async def test_runs_are_listed_focused_and_controlled() -> None:
    async with shown(working()) as screen:
        await screen.press("f2", "down", "p")
        assert screen.controller.entered[0].startswith("/pause run_")
        await screen.press("enter")
        assert screen.controller.followed
        assert screen.app.prompt.has_focus


async def test_a_run_in_the_list_is_stopped_only_when_the_user_confirms_it() -> None:
    async with shown(working()) as screen:
        await screen.press("f2", "s")
        assert screen.controller.stopped_runs == []
        await screen.press("escape", "enter")
        assert screen.controller.stopped_runs == []
        await screen.press("f2", "s", "enter")
        assert len(screen.controller.stopped_runs) == 1


async def test_a_key_focuses_the_next_run() -> None:
    async with shown(working()) as screen:
        await screen.press("alt+down")
        await screen.press("alt+down")
        assert len(set(screen.controller.followed)) == 2


async def test_a_small_screen_shows_runs_in_one_line_and_the_list_on_a_key() -> None:
    async with shown(working(), SMALL) as screen:
        assert "last commit 42s" in screen.text.split("\n")[0]
        await screen.press("f2")
        assert "Earlier" in screen.text
        await screen.press("escape")
        assert "Earlier" not in screen.text


async def test_the_conversation_keeps_the_focus_when_it_replaces_the_run_list() -> None:
    async with shown(working(), SMALL) as screen:
        screen.app.action_runs()
        screen.app.action_blocks()
        screen.app.screen._refresh_layout()  # a frame may come before the events of the focus
        await screen.settle()
        assert screen.app.stream.has_focus
        assert "Earlier" not in screen.text


async def test_the_run_list_stays_open_when_the_prompt_had_the_focus_for_a_moment() -> None:
    async with shown(working(), SMALL) as screen:
        await screen.press("f4")
        screen.app.action_cancel()
        screen.app.action_runs()
        await screen.settle()
        assert screen.app.runs.has_focus
        assert "Earlier" in screen.text


@pytest.mark.parametrize("size", [(20, 6), (40, 10), (60, 16), (89, 17), (90, 18), (300, 90)])
async def test_any_screen_size_works(size: tuple[int, int]) -> None:
    state = working()
    crowd(state, 50)
    async with shown(state) as screen:
        await screen.press("f3")
        await screen.pilot.resize_terminal(*size)
        await screen.settle()
        await screen.press("escape", "/", "escape", "f2", "f4", "escape", *"typed")
        assert screen.app.prompt.text == "/typed"


async def test_the_list_shows_two_hundred_runs() -> None:
    state = make_state()
    crowd(state, 200)
    async with shown(state) as screen:
        await screen.press("f2")
        for _ in range(199):
            screen.app.runs.action_move(1)
        await screen.settle()
        assert screen.app.runs.cursor_run_id == screen.app.runs.run_ids[199]
        assert screen.app.runs.run_ids[199] in {run_id for run_id, _ in screen.app.runs.rows}


async def test_the_conversation_starts_again_when_it_is_cleared() -> None:
    state = working()
    async with shown(state) as screen:
        state.blocks.clear()
        state.raise_flags("cleared")
        state.add_block("note", "fresh")
        await screen.settle()
        assert "fresh" in screen.text
        assert "deploy  friday" not in screen.text


async def test_the_palette_runs_commands_and_prefills_those_with_required_arguments() -> None:
    async with shown(make_state()) as screen:
        await screen.press("ctrl+p", *"usage")
        await screen.press("enter")
        assert screen.controller.entered == ["/usage"]
        await screen.press("ctrl+p", *"signal")
        await screen.press("enter")
        assert screen.app.prompt.text == "/signal "
        assert screen.controller.entered == ["/usage"]


async def test_clicking_the_badge_opens_the_gate() -> None:
    async with shown(working()) as screen:
        line = screen.text.split("\n")[29]
        await screen.pilot.click(offset=(line.index("waiting"), 29))
        await screen.settle()
        assert screen.app.gate_card.display


async def test_clicking_a_run_focuses_it() -> None:
    async with shown(working(), SMALL) as screen:
        await screen.pilot.click(offset=(6, 0))
        await screen.settle()
        assert screen.controller.followed


async def test_the_wheel_scrolls_the_conversation() -> None:
    state = make_state()
    for number in range(60):
        state.add_block("note", f"note {number}")
    async with shown(state) as screen:
        for _ in range(4):
            await screen.pilot._post_mouse_events([MouseScrollUp], "#stream", offset=(5, 5))
        state.add_block("note", "unseen")
        await screen.settle()
        assert "unseen" not in screen.text


def test_durations_and_costs_are_short() -> None:
    from datetime import timedelta

    from nerve.ui.formatting import format_cost, format_duration_between, format_token_count

    spans = {0.42: "0.4s", 42: "42s", 185: "3m 05s", 7800: "2h 10m", 400_000: "4d"}
    assert {
        each: format_duration_between(BEGAN, None, BEGAN + timedelta(seconds=each)) for each in spans
    } == spans
    assert [format_cost(cost) for cost in (0, 0.001, 0.5, 12)] == ["", "<1¢", "$0.50", "$12.00"]
    assert [format_token_count(count) for count in (12, 1240, 2_500_000)] == ["12", "1.2k", "2.5M"]
