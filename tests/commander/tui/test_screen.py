"""The conversation and the list of runs: they follow, stay, fold, fit every size, and cost little."""

from __future__ import annotations

import asyncio
import re

import pytest
from textual.events import MouseScrollUp

from commander.tui.desks import BEGAN, Script, crowd, desk, finished, review, waiting
from commander.tui.screens import SMALL, WIDE, shown
from nerve.api.models import RunResponse
from nerve.commander.core.state import CommanderState
from nerve.commander.tui.conversation_view import MAX_BLOCKS


def working() -> CommanderState:
    made = desk()
    finished(made)
    review(made)
    waiting(made)
    return made


@pytest.mark.requirement("S1-09")
async def test_the_tree_of_a_run_is_live() -> None:
    made = desk()
    run = review(made)
    async with shown(made) as screen:
        for told in ("✓ read", "● review_loop [2/5]", "└─ ● reviewer", "○ summary", "(0.4s)"):
            assert told in screen.text
        run.done("/review_loop/reviewer", "fine", 2.0, usage={"tokens": 5000, "cost": 0.25})
        run.say("node_retrying", "/review_loop", attempt=1)
        await screen.settle()
        for told in ("✓ reviewer", "↻ review_loop", "5.0k tokens", "$0.25"):
            assert told in screen.text


async def test_a_block_that_is_slow_to_draw_shows_the_last_of_its_changes_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("nerve.commander.tui.conversation_view.SLOW_DRAW_S", 0)
    made = desk()
    run = review(made)
    async with shown(made) as screen:
        for words in ("first words", "last words"):
            run.output("/review_loop/reviewer", words)
            screen.app.draw_changes()
        assert screen.app.stream.postponed
        await screen.settle()
        assert "last words" in screen.text


async def test_a_small_screen_says_that_there_are_no_runs_only_when_it_knows() -> None:
    made = desk()
    made.is_connected = False
    async with shown(made, SMALL) as screen:
        made.is_connected = False
        made.raise_flags("connected")
        await screen.settle()
        assert "No runs yet" not in screen.text
        made.is_connected = True
        made.raise_flags("connected")
        await screen.settle()
        assert "No runs yet" in screen.text


async def test_on_a_small_screen_the_logs_of_a_run_are_seen_at_once() -> None:
    async with shown(working(), SMALL) as screen:
        await screen.press("f2", "l")
        assert not screen.app.screen.has_class("-runs")
        assert screen.controller.entered[0].startswith("/logs ")


async def test_runs_of_one_workflow_are_told_apart_in_the_list_and_running_from_waiting() -> None:
    made = desk()
    for n, (state, words) in enumerate((("running", "fix the login"), ("waiting", "fix the logout"))):
        run = RunResponse(run_id=f"0199-aaaa-{n}f00d{n}", workflow="deploy", state=state, input_preview=words)
        made.merge_runs([run])
    async with shown(made) as screen:
        for told in ("● deploy 0f00d0", "fix the login", "⏸ deploy 1f00d1", "fix the logout"):
            assert told in screen.text
        assert "1 running · 1 waiting" in screen.text
    async with shown(made, SMALL) as screen:
        assert "● deploy 0f00d0" in screen.text


@pytest.mark.parametrize("size", [WIDE, SMALL])
async def test_what_can_be_started_is_named_however_long_it_is_described(size: tuple[int, int]) -> None:
    made = desk()
    made.workflows[0] = made.workflows[0].model_copy(update={"description": "Looks around, says hello. " * 9})
    async with shown(made, size) as screen:
        assert "%code_review      Looks around, says" in screen.text
        assert "%research_agent   Search" in screen.text


@pytest.mark.parametrize(("size", "listed"), [(WIDE, "   friday  {}  ▕"), (SMALL, " ⏸ friday {}")])
async def test_a_paused_run_with_an_open_gate_is_listed_as_paused(size: tuple[int, int], listed: str) -> None:
    made = desk()
    run = waiting(made)
    async with shown(made, size) as screen:
        run.say("workflow_paused", "")
        await screen.settle()
        lines = [re.sub(r"(?<=friday) {2,}", "  ", line) for line in screen.text.splitlines()]
        assert any(line.startswith(listed.format("paused")) for line in lines)
        run.say("workflow_resumed", "")
        await screen.settle()
        assert "⏸ 1 waiting" in screen.text


async def test_of_a_result_that_nobody_would_read_the_beginning_is_shown_at_once() -> None:
    made = desk()
    run = Script(made, "run_05large", "code_review").follow().started("count")
    run.began("/count").done("/count", "counted", 0.1)
    async with shown(made) as screen:
        run.say("workflow_completed", result="* [one]\n" * 300_000)
        async with asyncio.timeout(10):
            await screen.settle()
        screen.app.submit_line("hello")
        await screen.settle()
        assert "… 2,380,000 more characters; /export writes" in screen.text


async def test_what_a_command_lists_is_shown_from_its_beginning() -> None:
    async with shown(working()) as screen:
        screen.app.state.add_block("text", "\n".join(f"- entry {n}" for n in range(90)), name="/help")
        await screen.settle()
        assert "entry 0" in screen.text
        screen.app.submit_line("hello")
        await screen.settle()
        assert "❯ hello" in screen.text


@pytest.mark.requirement("S0-05")
async def test_what_a_workflow_emits_is_shown_in_its_block_line_by_line() -> None:
    made = desk()
    run = Script(made, "run_05emits", "code_review").follow().started("reviewer")
    run.say("review_complete", review="fine").say("merged", commits=3)
    async with shown(made) as screen:
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
    made = desk()
    run = review(made)
    async with shown(made) as screen:
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
        assert drawn <= 2  # the time may be drawn, too


async def test_the_end_is_followed_until_somebody_scrolls_up() -> None:
    made = desk()
    async with shown(made) as screen:
        for number in range(60):
            made.add_block("note", f"note {number}")
        await screen.settle()
        assert "note 59" in screen.text
        await screen.press("pageup")
        made.add_block("note", "unseen")
        await screen.settle()
        assert "unseen" not in screen.text
        await screen.press("ctrl+end")
        assert "unseen" in screen.text


async def test_old_blocks_are_shown_to_who_goes_up() -> None:
    made = desk()
    for number in range(MAX_BLOCKS + 50):
        made.add_block("note", f"note {number}")
    async with shown(made) as screen:
        stream = screen.app.stream
        assert len(stream.rendered_blocks) == MAX_BLOCKS
        while stream.hidden_above or stream.scroll_y > 0:
            await screen.press("pageup")
        assert "note 0" in screen.text


async def test_a_block_is_referred_to_and_copied() -> None:
    async with shown(working()) as screen:
        await screen.press("f4", "home", "down", "c")
        assert "Rayleigh scattering" in screen.app.clipboard
        await screen.press("r")
        assert screen.app.prompt.text == "::1 "


async def test_what_others_write_cannot_steer_the_terminal() -> None:
    made = desk()
    run = Script(made, "run_x", "flow").follow().started("say").began("/say")
    run.output("/say", "\x1b[2J\x1b]0;owned\x07 hello", "assistant")
    made.add_block("input", "\x1b[31mred")
    async with shown(made) as screen:
        assert "\x1b" not in screen.text
        assert "\\x1b[2J" in screen.text


async def test_runs_are_listed_looked_at_and_steered() -> None:
    async with shown(working()) as screen:
        await screen.press("f2", "down", "p")
        assert screen.controller.entered[0].startswith("/pause run_")
        await screen.press("enter")
        assert screen.controller.followed
        assert screen.app.prompt.has_focus


async def test_a_run_in_the_list_is_stopped_only_when_the_user_confirms_it() -> None:
    async with shown(working()) as screen:
        await screen.press("f2", "s")
        assert screen.controller.pause == []
        await screen.press("escape", "enter")
        assert screen.controller.pause == []
        await screen.press("f2", "s", "enter")
        assert len(screen.controller.pause) == 1


async def test_the_next_run_is_a_key_away() -> None:
    async with shown(working()) as screen:
        await screen.press("alt+down")
        await screen.press("alt+down")
        assert len(set(screen.controller.followed)) == 2


async def test_a_small_screen_has_the_runs_in_a_line_and_the_list_behind_a_key() -> None:
    async with shown(working(), SMALL) as screen:
        assert "last commit 42s" in screen.text.split("\n")[0]
        await screen.press("f2")
        assert "Earlier" in screen.text
        await screen.press("escape")
        assert "Earlier" not in screen.text


@pytest.mark.parametrize("size", [(20, 6), (40, 10), (60, 16), (89, 17), (90, 18), (300, 90)])
async def test_no_size_breaks_it(size: tuple[int, int]) -> None:
    made = working()
    crowd(made, 50)
    async with shown(made) as screen:
        await screen.press("f3")
        await screen.pilot.resize_terminal(*size)
        await screen.settle()
        await screen.press("escape", "/", "escape", "f2", "f4", "escape", *"typed")
        assert screen.app.prompt.text == "/typed"


async def test_two_hundred_runs_are_in_the_list() -> None:
    made = desk()
    crowd(made, 200)
    async with shown(made) as screen:
        await screen.press("f2")
        for _ in range(199):
            screen.app.runs.action_move(1)
        await screen.settle()
        assert screen.app.runs.cursor_run_id == screen.app.runs.run_ids[199]
        assert screen.app.runs.run_ids[199] in {run_id for run_id, _ in screen.app.runs.rows}


async def test_the_conversation_starts_again_when_it_is_cleared() -> None:
    made = working()
    async with shown(made) as screen:
        made.blocks.clear()
        made.raise_flags("cleared")
        made.add_block("note", "fresh")
        await screen.settle()
        assert "fresh" in screen.text
        assert "deploy  friday" not in screen.text


async def test_the_palette_does_commands_and_begins_those_that_need_more() -> None:
    async with shown(desk()) as screen:
        await screen.press("ctrl+p", *"usage")
        await screen.press("enter")
        assert screen.controller.entered == ["/usage"]
        await screen.press("ctrl+p", *"signal")
        await screen.press("enter")
        assert screen.app.prompt.text == "/signal "
        assert screen.controller.entered == ["/usage"]


async def test_a_click_on_the_badge_opens_the_gate() -> None:
    async with shown(working()) as screen:
        line = screen.text.split("\n")[29]
        await screen.pilot.click(offset=(line.index("waiting"), 29))
        await screen.settle()
        assert screen.app.gate_card.display


async def test_a_click_on_a_run_looks_at_it() -> None:
    async with shown(working(), SMALL) as screen:
        await screen.pilot.click(offset=(6, 0))
        await screen.settle()
        assert screen.controller.followed


async def test_the_wheel_scrolls_the_conversation() -> None:
    made = desk()
    for number in range(60):
        made.add_block("note", f"note {number}")
    async with shown(made) as screen:
        for _ in range(4):
            await screen.pilot._post_mouse_events([MouseScrollUp], "#stream", offset=(5, 5))
        made.add_block("note", "unseen")
        await screen.settle()
        assert "unseen" not in screen.text


def test_times_and_sums_are_short() -> None:
    from datetime import timedelta

    from nerve.ui.formatting import format_cost, format_duration_between, format_token_count

    spans = {0.42: "0.4s", 42: "42s", 185: "3m 05s", 7800: "2h 10m", 400_000: "4d"}
    assert {
        each: format_duration_between(BEGAN, None, BEGAN + timedelta(seconds=each)) for each in spans
    } == spans
    assert [format_cost(cost) for cost in (0, 0.001, 0.5, 12)] == ["", "<1¢", "$0.50", "$12.00"]
    assert [format_token_count(count) for count in (12, 1240, 2_500_000)] == ["12", "1.2k", "2.5M"]
