"""Gate cards: opened on request, answered by keys and text, always possible to leave."""

from __future__ import annotations

import pytest

from commander.tui.screens import Screen, shown
from commander.tui.state_fixtures import BEGAN, Script, gate, make_state, permission, waiting
from commander.tui.test_snapshots import SCHEMA
from nerve.api.models import RunResponse
from nerve.commander.core.state import CommanderState


def asking() -> CommanderState:
    state = make_state()
    waiting(state, gate(), permission())
    return state


async def test_a_waiting_gate_is_announced_and_opens_only_on_request() -> None:
    async with shown(asking()) as screen:
        assert "2 waiting" in screen.text
        assert not screen.app.gate_card.display
        await screen.press("f3")
        assert "Release v2.1 to production?" in screen.text
        assert screen.app.state.open_gate_id == "g1"
        await screen.press("f3")
        assert screen.app.state.open_gate_id == "g2"


async def test_gates_of_the_focused_run_come_first_and_the_card_names_the_run() -> None:
    state = asking()
    other = Script(state, "run_03ask", "survey", BEGAN).follow().started("well")
    other.say("gate_waiting", "/well/answer", gate_id="g3", prompt="Well?", choices=None, node_id="well")
    state.focus_run("run_03ask")
    async with shown(state) as screen:
        assert (screen.app.state.open_gate_id, screen.app.gate_card.border_title) == (
            "g3",
            "⏸ well · survey _03ask",
        )
        await screen.press("f3")
        assert screen.app.state.open_gate_id == "g1"
        assert screen.app.gate_card.border_title == "⏸ ask · friday · deploy deploy"


async def test_selecting_a_gate_in_the_conversation_opens_that_gate() -> None:
    state = asking()
    async with shown(state) as screen:
        await screen.press("f4", "enter")
        assert state.open_gate_id == "g2" == getattr(state.blocks[-1].gate, "gate_id", "")


async def test_a_label_is_never_parsed_as_markup() -> None:
    state = asking()
    state.runs["run_02deploy"].label = "[red]now[/red]"
    async with shown(state) as screen:
        await screen.press("f3")
        assert "⏸ ask · [red]now[/red] · deploy deploy" in screen.text


async def test_the_gates_command_opens_a_gate() -> None:
    async with shown(asking()) as screen:
        await screen.press(*"/gates", "enter")
        assert screen.app.state.open_gate_id == "g1"


@pytest.mark.requirement("S0-65")
@pytest.mark.parametrize("typed", ["y", "3", "yes, but later"])
async def test_a_typed_answer_counts_only_when_submitted(typed: str) -> None:
    async with shown(asking()) as screen:
        await screen.press("f3", *typed)
        assert (screen.controller.entered, screen.app.prompt.text) == ([], typed)
        await screen.press("enter")
        assert screen.controller.entered == [typed]


@pytest.mark.parametrize(
    ("keys", "answer"), [(["down"], "approve"), (["down", "down"], "reject"), (["up"], "approve")]
)
async def test_arrows_select_an_answer_and_enter_submits_it(keys: list[str], answer: str) -> None:
    async with shown(asking()) as screen:
        await screen.press("f3", *keys, "enter")
        assert screen.controller.answers == [("g1", answer)]


async def test_enter_alone_does_not_answer() -> None:
    async with shown(asking()) as screen:
        await screen.press("f3", "enter")
        assert screen.controller.answers == screen.controller.entered == []
        assert screen.app.gate_card.display


async def test_arrows_move_in_the_text_while_the_prompt_has_text() -> None:
    async with shown(asking()) as screen:
        await screen.press("f3", *"but", "down", "enter")
        assert screen.controller.answers == []
        assert screen.controller.entered == ["but"]


async def test_an_open_gate_does_not_block_the_prompt() -> None:
    async with shown(asking()) as screen:
        await screen.press("f3", *"what is", "enter")
        assert screen.controller.entered == ["what is"]
        assert screen.controller.answers == []


@pytest.mark.requirement("S1-40")
async def test_a_command_can_be_typed_while_a_gate_is_open() -> None:
    async with shown(asking()) as screen:
        await screen.press("f3", *"/status", "enter")
        assert screen.controller.entered == ["/status"]


async def test_an_invalid_answer_is_explained_and_the_gate_stays_open() -> None:
    async with shown(asking()) as screen:
        screen.controller.refusal = "Invalid choice."
        await screen.press("f3", "down", "enter")
        assert "Invalid choice." in screen.text
        assert screen.app.gate_card.display


async def test_an_answer_given_elsewhere_closes_the_card() -> None:
    async with shown(asking()) as screen:
        await screen.press("f3")
        screen.app.state.gates = screen.app.state.gates[1:]
        screen.app.state.raise_flags("gates")
        await screen.settle()
        assert not screen.app.gate_card.display
        assert screen.app.prompt.has_focus
        assert "1 waiting" in screen.text


async def test_escape_defers_the_gate() -> None:
    async with shown(asking()) as screen:
        await screen.press("f3", "escape")
        assert not screen.app.gate_card.display
        assert screen.app.prompt.has_focus
        assert screen.controller.answers == []


async def test_the_exact_action_is_shown() -> None:
    async with shown(asking()) as screen:
        await screen.press("f3", "f3")
        for expected in (
            "Will run Edit",
            "in /home/me/shop",
            "± src/app.py",
            "-debug = True",
            "+debug = False",
        ):
            assert expected in screen.text


async def test_a_long_question_is_shortened_and_shown_in_full_on_request() -> None:
    state = make_state()
    preview = "\n".join(f"line {n}" for n in range(1, 31))
    state.focus_run(waiting(state, gate(input_preview=preview)).run_id)
    async with shown(state, (80, 24)) as screen:
        assert "1  approve" in screen.text
        assert "ask ▸" in screen.text
        assert screen.app.stream.size.height >= 6
        before = screen.text.count("line ")
        await screen.press("ctrl+o")
        assert screen.text.count("line ") > before


async def test_invisible_characters_are_escaped() -> None:
    state = make_state()
    action = {"tool": "Bash", "input": {"command": "echo \x1b[8mrm -rf /\u202e"}}
    waiting(state, gate(prompt="agent wants to use Bash:\n\n    command", action=action))
    async with shown(state) as screen:
        await screen.press("f3")
        assert "echo \\x1b[8mrm -rf /U+202E" in screen.text


async def test_clicking_a_choice_answers() -> None:
    async with shown(asking()) as screen:
        await screen.press("f3")
        await screen.pilot.click("#choices", offset=(6, 1))
        await screen.settle()
        assert screen.controller.answers == [("g1", "reject")]


@pytest.mark.requirement("S1-10")
async def test_a_gate_of_the_focused_run_opens_in_the_empty_prompt_and_shows_its_choices() -> None:
    state = make_state()
    async with shown(state) as screen:
        run = waiting(state)
        await screen.settle()
        assert not screen.app.gate_card.display
        state.focus_run(run.run_id)
        await screen.settle()
        assert screen.app.gate_card.display
        assert "ask ▸ approve · reject · later" in screen.text
        await screen.press(*"approve", "enter")
        assert (screen.controller.entered, screen.controller.entered_for) == (["approve"], ["g1"])


@pytest.mark.requirement("S1-40")
async def test_a_line_being_typed_keeps_its_target() -> None:
    state = make_state()
    state.merge_runs([RunResponse(run_id="run_02deploy", workflow="deploy", state="running")])
    state.focus_run("run_02deploy")
    async with shown(state) as screen:
        await screen.press(*"text")
        waiting(state)
        await screen.settle()
        assert not screen.app.gate_card.display
        await screen.press("enter")
        assert (screen.controller.entered, screen.controller.entered_for) == (["text"], [None])
        assert screen.app.gate_card.display


async def test_the_user_controls_whether_gates_open_automatically() -> None:
    state = make_state()
    async with shown(state) as screen:
        await screen.press("shift+tab")
        assert "gates open on F3 only" in screen.text
        state.focus_run(waiting(state).run_id)
        await screen.settle()
        assert not screen.app.gate_card.display
        await screen.press("shift+tab")
        assert screen.app.gate_card.display


async def test_escape_leaves_the_gate_and_keeps_the_text() -> None:
    state = make_state()
    state.focus_run(waiting(state).run_id)
    async with shown(state) as screen:
        await screen.press(*"perhaps", "escape", "enter")
        assert (screen.controller.entered, screen.controller.entered_for) == (["perhaps"], [None])
        assert not screen.app.gate_card.display


# -- forms -----------------------------------------------------------------------------------------------


def form() -> CommanderState:
    state = make_state()
    waiting(state, gate(choices=None, form=SCHEMA))
    return state


async def test_a_gate_with_a_schema_shows_a_form() -> None:
    async with shown(form()) as screen:
        await screen.press("f3")
        await screen.press("3", "tab", "enter", "down", "down", "enter", "tab", "4", "ctrl+s")
        expected = {"version": "3", "target": "production", "count": 4, "notify": True}
        assert screen.controller.answers == [("g1", expected)]


async def test_a_form_answer_is_shown_as_json() -> None:
    state = make_state()
    run = Script(state, "run_03ask", "survey", BEGAN).follow().started("well")
    run.say("gate_waiting", "/well/answer", gate_id="g3", prompt="Well?", choices=None, form=SCHEMA)
    run.say("gate_answered", "/well/answer", gate_id="g3", answer={"version": "3", "notify": True})
    async with shown(state) as screen:
        assert '{"version": "3", "notify": true}' in screen.text


async def test_a_form_reports_missing_and_invalid_fields() -> None:
    async with shown(form()) as screen:
        await screen.press("f3", "ctrl+s")
        assert "'target' is required." in screen.text
        assert screen.controller.answers == []


async def test_a_checkbox_is_empty_unless_ticked() -> None:
    async with shown(form()) as screen:
        await screen.press("f3")
        assert "▐X▌ Tell everybody" in screen.text
        await screen.press("tab", "tab", "tab", "space")
        assert "▐ ▌ Tell everybody" in screen.text


async def test_escape_leaves_a_form() -> None:
    async with shown(form()) as screen:
        await screen.press("f3", "escape")
        assert not screen.app.gate_card.display
        await screen.type("hello")
        assert screen.app.prompt.text == "hello"


async def test_a_deferred_form_keeps_its_values() -> None:
    state = form()
    waiting(state, gate("g5", run_id="run_02deploy", path="/other/answer"))
    async with shown(state) as screen:
        await screen.press("f3", "7", "escape", "f3", "f3", "f3")
        assert screen.app.state.open_gate_id == "g1"
        await screen.press("tab", "enter", "down", "down", "enter", "ctrl+s")
        [(answered, values)] = screen.controller.answers
        assert (answered, values["version"], values["target"]) == ("g1", "7", "production")
        await screen.settle()
        assert screen.app.gate_card.forms == {}


async def test_with_a_form_the_prompt_is_hidden() -> None:
    async with shown(form()) as screen:
        await screen.press("f3")
        assert not screen.app.prompt_box.display
        assert "type an answer" not in screen.text
        await screen.press("f2", "x")
        assert screen.app.prompt.text == ""
        assert screen.app.gate_card.has_focus_within
        await screen.press("escape")
        assert screen.app.prompt_box.display
        assert screen.app.prompt.has_focus


async def test_an_automatically_opened_gate_does_not_take_the_focus_from_the_run_list() -> None:
    state = make_state()
    state.merge_runs([RunResponse(run_id="run_02deploy", workflow="deploy", state="running")])
    state.focus_run("run_02deploy")
    async with shown(state) as screen:
        await screen.press("f2")
        waiting(state)
        await screen.settle()
        assert screen.app.gate_card.display
        assert screen.app.runs.has_focus


async def answered(screen: Screen) -> None:
    await screen.press("f3", "down", "enter")


async def test_the_card_closes_after_an_answer_and_the_next_gate_waits() -> None:
    async with shown(asking()) as screen:
        await answered(screen)
        assert not screen.app.gate_card.display
        assert screen.app.prompt.has_focus
        assert "1 waiting" in screen.text


@pytest.mark.parametrize("size", [(40, 10), (60, 16), (100, 12)])
@pytest.mark.parametrize("choices", [["yes", "no"], [f"option {number}" for number in range(12)]])
async def test_an_open_gate_leaves_room_for_prompt_and_status_on_a_small_screen(
    size: tuple[int, int], choices: list[str]
) -> None:
    state = make_state()
    waiting(state, gate(choices=choices))
    async with shown(state, size) as screen:
        await screen.press("f3")
        lines = screen.text.splitlines()
        assert "waiting" in lines[-1]
        assert any("ask ▸" in line for line in lines)
        assert not screen.app.screen.show_vertical_scrollbar
        await screen.press("end")
        assert choices[0] in screen.text
