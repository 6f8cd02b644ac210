"""The controller with a real in-process API: every kind of input and its effects."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from commander.scene import Scene, scene
from nerve import Queue, WorkflowContext
from nerve.api import ApiError
from nerve.commander import WorkflowController
from nerve.commander.command_handlers import COMMAND_HANDLERS
from nerve.commander.core.command_table import COMMANDS
from nerve.commander.reports import RUN_STATES
from workspaces.repositories import make_repository


@pytest.fixture
async def at() -> AsyncIterator[Scene]:
    async with scene() as found:
        yield found


async def test_opening_loads_workflows_runs_and_gates(tmp_path: Path) -> None:
    async with scene(tmp_path) as first:
        await first.enter("%ask", "%hello you")
        await first.ended(first.runs[1])
    async with scene(tmp_path) as again:
        assert again.state.is_connected
        assert {each.id for each in again.state.workflows} >= {"hello", "ask"}
        assert again.state.nodes == ["shout"]
        assert [card.workflow for card in again.state.runs.values()] == ["hello", "ask"]
        assert [gate.prompt for gate in again.state.gates] == ["Go on?"]
        assert again.state.blocks == []


@pytest.mark.requirement("S1-08")
@pytest.mark.requirement("S1-41")
async def test_a_workflow_is_started_with_its_options_and_shown_to_its_end(at: Scene) -> None:
    await at.enter("%hello --max-rounds=5 --strict you there")
    block = at.runs[0]
    assert at.state.focused_run_id == block.run_id
    await at.ended()
    assert block.value == {"said": "hello you there", "params": {"max_rounds": 5, "strict": True}}
    assert block.lines == ["[workflow] hello started"]


async def test_a_node_can_be_called_repeatedly(at: Scene) -> None:
    await at.enter("@shout hey", "@shout you")
    await at.ended()
    assert [block.value for block in at.runs] == ["HEY", "YOU"]
    assert [block.name for block in at.runs] == ["shout", "shout"]


async def test_several_runs_are_active_at_once_without_blocking(at: Scene) -> None:
    await at.enter("%ask", "%open_question", "%hello you")
    await at.ended(at.runs[2])
    await at.until(lambda: len(at.state.gates) == 2)
    assert [card.state for card in at.state.runs.values()] == ["completed", "waiting", "waiting"]
    assert [block.done for block in at.runs] == [False, False, True]


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("%helo you", "Unknown workflow 'helo'. Did you mean 'hello'?"),
        ("%h --x", None),
        ("@shuot x", "Unknown node 'shuot'. Did you mean 'shout'?"),
        ("#nothing x", "Unknown graph 'nothing'."),
        ("%", "Workflow name is missing"),
        ("%hello --a=1 --a=2", "Option --a is given twice."),
        ("%hello ::7", "Result ::7 not found"),
        ("/stopp", "Unknown command /stopp"),
        ("/stop", "No run is focused"),
        ("/stop zzz", "Workflow run 'zzz' not found."),
        ("/answer yes", "No gate is open"),
        ("/approve", "No gate is open"),
        ("/runs strange", "Unknown state 'strange'."),
        ("/target %zzz", "Unknown workflow 'zzz'"),
        ("/tui", "Choose a mode"),
        ("/export", "/export requires one file"),
        ("/export talk.txt", "must end in .md or .json"),
        ("/import nowhere.json", "nowhere.json"),
        ("/import /dev/zero", "/dev/zero is not a regular file."),
        ("/export /", "must end in .md or .json"),
        ("/help zzz", "Unknown command /zzz"),
        ("/signal", "Signal name is missing"),
        ("/workflow strange", "Usage:"),
    ],
)
async def test_invalid_input_is_one_error_and_starts_nothing(at: Scene, line: str, why: str | None) -> None:
    await at.enter(line)
    if why is None:
        assert at.errors == []
        return
    assert len(at.errors) == 1
    assert why in at.errors[0]
    assert at.state.runs == {}


async def test_references_are_resolved_on_submit(at: Scene) -> None:
    await at.enter("@shout hey")
    await at.ended()
    await at.enter("%hello ::last", "@shout again")
    await at.ended()
    assert at.runs[1].value["said"] == "hello HEY"
    await at.enter("::hello[said]")
    assert (at.last.kind, at.last.text) == ("text", "hello HEY")


async def test_command_output_is_not_a_result(at: Scene) -> None:
    await at.enter("@shout hey")
    await at.ended()
    await at.enter("/runs", "::last")
    assert at.last.value == "HEY"


# -- gates -----------------------------------------------------------------------------------------------


async def asking(at: Scene, workflow: str = "ask") -> None:
    await at.enter(f"%{workflow}")
    await at.until(lambda: at.state.gates)


@pytest.mark.requirement("D1-1")
@pytest.mark.requirement("S1-40")
async def test_an_open_gate_is_answered_by_the_next_line_and_commands_take_precedence(at: Scene) -> None:
    await asking(at)
    await at.enter("/gates 1", "/runs")
    assert at.state.open_gate_id == at.state.gates[0].gate_id
    await at.enter("1")
    await at.ended()
    assert (at.runs[0].value, at.state.open_gate_id, at.state.gates) == ("you said yes", None, [])
    assert not [block for block in at.state.blocks if "elsewhere" in block.text]


async def test_gates_that_wait_for_the_user_are_listed_apart(at: Scene) -> None:
    assert at.api is not None

    @at.api.session.workflow
    async def ask_boss(ctx: WorkflowContext) -> object:
        return await ctx.gate("Ship?", choices=["yes", "no"], approvers=["boss"])

    await asking(at)
    await at.api.start(workflow="ask_boss")
    await at.until(lambda: len(at.state.gates) == 2)
    await at.enter("/gates", "/gates mine")
    everything, own = [block.text for block in at.state.blocks if block.name == "/gates"]
    assert "Go on?" in everything
    assert "Ship?" in everything
    assert "Go on?" in own
    assert "Ship?" not in own


async def test_two_slashes_send_an_answer_that_starts_with_a_slash(at: Scene) -> None:
    await asking(at, "open_question")
    await at.enter("/gates 1", "//stop")
    await at.ended()
    assert at.runs[0].value == "/stop"


@pytest.mark.parametrize("line", ["@shout hey", "%hello --loud hey", "%hel hey"])
async def test_workflows_can_be_started_while_a_gate_is_open(at: Scene, line: str) -> None:
    await asking(at, "open_question")
    await at.enter(line)
    assert (at.state.open_gate_id, len(at.state.gates)) == (None, 1)  # another run is focused now
    await at.ended(at.runs[1])
    assert at.runs[1].name == at.state.runs[at.runs[1].run_id or ""].workflow != "open_question"


@pytest.mark.parametrize(("line", "said"), [(r"\@shout hey", "@shout hey"), (r"\#1 is best", "#1 is best")])
async def test_an_escaped_prefix_belongs_to_the_answer(at: Scene, line: str, said: str) -> None:
    await asking(at, "open_question")
    await at.enter(line)
    await at.ended()
    assert at.runs[0].value == said


@pytest.mark.requirement("D1-1")
@pytest.mark.parametrize("line", ["%helo you", "@bob, go", "#1 is best", "/aprove"])
async def test_a_prefix_takes_precedence_over_a_gate_and_an_unknown_name_is_rejected(
    at: Scene, line: str
) -> None:
    await asking(at, "open_question")
    await at.enter(line)
    assert len(at.errors) == 1
    assert len(at.state.gates) == 1
    if line[0] != "/":
        assert f"\\{line[0]}" in at.errors[0]


@pytest.mark.requirement("D1-4")
async def test_an_invalid_answer_is_explained_and_the_gate_stays_open(at: Scene) -> None:
    await asking(at)
    await at.enter("/gates 1", "perhaps")
    assert [text.startswith("Invalid choice 'perhaps'. Must be one of: ") for text in at.errors] == [True]
    assert at.state.open_gate_id == at.state.gates[0].gate_id
    assert at.controller.waiting_for_gate is not None
    await at.enter("no")
    await at.ended()
    assert at.runs[0].value == "you said no"


@pytest.mark.requirement("S1-40")
@pytest.mark.requirement("S1-45")
@pytest.mark.parametrize("workflow", ["ask", "nested"])
async def test_the_next_line_answers_the_gate_of_the_focused_run(at: Scene, workflow: str) -> None:
    await asking(at, workflow)
    await at.enter("perhaps", "yes")
    await at.ended()
    assert at.runs[0].value == "you said yes"
    assert "Must be one of: ['yes', 'no']" in at.errors[0]


async def test_plain_text_never_answers_a_gate_of_an_unfocused_run(at: Scene) -> None:
    await asking(at)
    await at.enter("%hello you", "yes")
    assert len(at.state.gates) == 1
    assert at.last.name == "router"
    assert f"/answer {at.state.gates[0].gate_id} yes" in at.last.text


async def test_a_line_entered_before_the_gate_opened_does_not_answer_it(at: Scene) -> None:
    await asking(at)
    await at.controller.submit("yes", None)
    assert len(at.state.gates) == 1


async def test_a_line_for_a_gate_that_closed_is_not_sent(at: Scene) -> None:
    await asking(at)
    gate = at.state.gates[0].gate_id
    await at.client.answer(gate=gate, answer="no")
    await at.ended()
    await at.controller.submit("%", gate)
    await at.controller.submit("hello", gate)
    assert at.errors[-1] == "Gate 'gate' is closed: the line was not sent."
    assert len(at.runs) == 1


@pytest.mark.requirement("S1-40")
@pytest.mark.parametrize("text", ["ask me again", "yes", "hello there"])
async def test_the_router_names_the_waiting_gate_instead_of_starting_a_run(at: Scene, text: str) -> None:
    await asking(at)
    at.state.defer_gate()
    await at.enter(text)
    assert len(at.runs) == 1
    answer = "yes" if text == "yes" else "…"
    assert "'Go on?' (yes or no) of ask" in at.last.text
    assert f"/answer {at.state.gates[0].gate_id} {answer}" in at.last.text


@pytest.mark.parametrize(("line", "said"), [("/approve", "yes"), ("/reject", "no"), ("/answer 2", "no")])
async def test_a_command_answers_a_gate(at: Scene, line: str, said: str) -> None:
    await asking(at)
    await at.enter(line)
    await at.ended()
    assert at.runs[0].value == f"you said {said}"


async def test_an_approval_can_have_a_reason(at: Scene) -> None:
    await asking(at)
    await at.enter("/approve it looks good")
    await at.ended()
    run_id = at.runs[0].run_id
    (answered,) = [
        event for event in (await at.client.events(run=run_id)).events if event.event_type == "gate_answered"
    ]
    assert (answered.data["answer"], answered.data["reason"]) == ("yes", "it looks good")


@pytest.mark.requirement("D0-12")
async def test_an_answer_given_elsewhere_closes_the_gate_here(at: Scene) -> None:
    await asking(at)
    await at.enter("/gates 1")
    gate = at.state.gates[0]
    await at.client.answer(gate=gate.gate_id, answer="no")
    await at.until(lambda: not at.state.gates)
    assert at.state.open_gate_id is None
    assert at.state.blocks[2].value == "no"
    assert "already answered" in await at.controller.answer_gate(gate, "yes")


async def test_the_gate_of_a_child_run_is_answered_in_its_parent(at: Scene) -> None:
    await asking(at, "nested")
    assert [card.workflow for card in at.state.runs.values()] == ["nested"]
    assert at.controller.waiting_for_gate == at.state.gates[0].gate_id
    await at.enter("/approve")
    await at.ended()
    assert at.runs[0].value == "you said yes"


# -- runs ------------------------------------------------------------------------------------------------


@pytest.mark.requirement("S1-11")
async def test_a_run_is_paused_resumed_and_stopped(at: Scene) -> None:
    await asking(at)
    card = at.state.runs[at.runs[0].run_id or ""]
    await at.enter("/pause")
    await at.until(lambda: card.state == "paused")
    await at.enter("/resume")
    await at.until(lambda: card.state == "waiting")
    await at.enter("/stop")
    await at.until(lambda: card.state == "cancelled")
    assert (card.error, at.state.gates) == ("stopped in the Commander", [])


async def test_escape_stops_only_the_focused_run(at: Scene) -> None:
    await at.enter("%ask", "%open_question")
    await at.until(lambda: len(at.state.gates) == 2)
    await at.controller.stop_run()
    await at.until(lambda: len(at.state.gates) == 1)
    assert [card.state for card in at.state.runs.values()] == ["cancelled", "waiting"]
    await at.controller.stop_run()
    assert at.errors == []


async def test_a_run_started_elsewhere_appears_and_can_be_watched(at: Scene) -> None:
    told = await at.client.start(workflow="ask", label="theirs")
    await at.until(lambda: at.state.gates)
    card = at.state.runs[told.run_id]
    assert (card.label, card.state, card.tree, at.state.blocks) == ("theirs", "waiting", None, [])
    await at.enter("/watch theirs")
    assert card.tree is not None
    assert (at.state.focused_run_id, at.runs[0].lines) == (
        told.run_id,
        ["[workflow] ask started", "[gate] Go on? (yes or no)"],
    )
    await at.enter("/approve")
    await at.ended()


async def test_watching_a_run_again_shows_it_once(at: Scene) -> None:
    await asking(at)
    await at.enter("%hello you", f"/watch {at.runs[0].run_id}")
    assert len(at.runs) == 2
    assert at.state.focused_run_id == at.runs[0].run_id


async def test_a_run_with_much_output_is_shown_completely_and_in_order(at: Scene) -> None:
    await at.enter("%chatty 3000")
    await at.ended()
    (part,) = at.runs[0].parts
    assert part.text == "".join(f"{number} " for number in range(3000))


async def test_following_a_run_while_it_produces_output_misses_nothing(at: Scene) -> None:
    told = await at.client.start(workflow="chatty", input=2000)
    await at.until(lambda: told.run_id in at.state.runs)
    await asyncio.gather(at.enter(f"/watch {told.run_id}"), at.enter(f"/watch {told.run_id}"))
    await at.ended()
    assert at.runs[0].parts[0].text == "".join(f"{number} " for number in range(2000))


async def test_a_run_is_forked_and_retried(at: Scene) -> None:
    await asking(at)
    await at.enter("/approve")
    await at.ended()
    await at.enter(f"/fork {at.runs[0].run_id} gate")
    await at.until(lambda: at.state.gates)
    assert len({block.run_id for block in at.runs}) == 2
    await at.enter("%broken")
    await at.ended(at.runs[2])
    await at.enter("/retry")
    await at.until(lambda: len({block.run_id for block in at.runs}) == 4)


async def test_the_logs_status_and_usage_of_a_run_are_shown(at: Scene) -> None:
    await at.enter("%hello you")
    await at.ended()
    await at.enter("/logs", "/status", "/usage", "/agents", "/facts", "/gates", "/workflows")
    told = {block.name: block.text for block in at.state.blocks if block.kind == "text"}
    assert "[workflow] hello started" in told["/logs"]
    assert told["/status"].startswith("✓ **hello**")
    assert told["/usage"] == "Today: nothing spent"
    assert told["/gates"] == "No open gates."
    assert "- `%hello`: Greets." in told["/workflows"]
    assert at.errors == []


async def test_a_signal_resumes_a_run(at: Scene) -> None:
    await at.enter("%wait_for deployed")
    card = at.state.runs[at.runs[0].run_id or ""]
    await at.until(lambda: card.state == "waiting")
    await at.enter('/signal deployed {"version": 3}')
    await at.ended()
    assert at.runs[0].value == {"version": 3}


async def test_two_hundred_runs_have_cards_only(at: Scene) -> None:
    for number in range(200):
        await at.client.start(workflow="ask", label=f"run {number}")
    await at.until(lambda: len(at.state.gates) == 200)
    assert len(at.state.runs) == 200
    assert all(card.tree is None for card in at.state.runs.values())
    assert at.state.blocks == []
    changed = at.state.changes.drain()
    assert len(changed.runs) == 200


# -- conversation ----------------------------------------------------------------------------------------


@pytest.mark.requirement("S3-17")
@pytest.mark.requirement("S3-27")
async def test_plain_text_goes_to_the_router(at: Scene) -> None:
    await at.enter("start hello for me")
    await at.ended()
    assert at.runs[0].name == "hello"
    assert [part.text for part in at.runs[0].parts] == [
        "**Starting workflow**: hello\n\nGreets.",
        "**Workflow complete**: hello",
    ]
    told = await at.client.runs(conversation=at.controller.conversation_id)
    assert [run.run_id for run in told.runs] == [at.runs[0].run_id]


async def test_a_workflow_chosen_by_keywords_is_noted(at: Scene) -> None:
    await at.enter("start hello for me")
    await at.ended()
    [note] = [block for block in at.state.blocks if block.kind == "note" and block.name == "router"]
    assert note.text.startswith("Router: decided offline, by words: 'hello' has ")


async def test_the_router_asks_a_question(at: Scene) -> None:
    await at.enter("xyzzy")
    assert (at.last.kind, at.last.name) == ("text", "router")
    assert "Which workflow do you mean" in at.last.text


async def test_plain_text_goes_to_the_target(at: Scene) -> None:
    await at.enter("/target @shout", "hey", "//slash")
    await at.ended()
    await at.until(lambda: len(at.runs) == 2 and at.runs[1].done)
    assert [block.value for block in at.runs] == ["HEY", "/SLASH"]
    await at.enter("/target", "/target router")
    assert at.state.target is None
    assert at.last.text == "Plain text goes to the router from now on."


async def test_text_entered_during_a_turn_is_queued_visibly(at: Scene) -> None:
    await at.enter("/target %chatty")
    await asyncio.gather(at.enter("300"), at.enter("200"), at.enter("100"))
    assert at.state.queue == ["200", "100"]
    assert at.controller.unqueue() == "100"
    await at.enter("%hello you")
    await at.until(lambda: len(at.runs) == 3 and not at.state.queue)
    await at.ended()
    assert [block.value for block in at.runs if block.name == "chatty"] == [300, 200]
    assert (at.state.queue, at.controller.unqueue()) == ([], "")


async def test_a_failed_turn_does_not_block_the_next(at: Scene) -> None:
    await asyncio.gather(at.enter("xyzzy"), at.enter("hello"), at.enter("what is ::99"))
    await at.until(lambda: at.runs)
    await at.ended()
    assert [block.name for block in at.runs] == ["hello"]
    assert at.errors == ["Result ::99 not found. No results yet."]


async def test_references_in_queued_text_are_resolved_on_submit(at: Scene) -> None:
    await at.enter("@shout first")
    await at.ended()
    await at.enter("/target @shout")
    await asyncio.gather(at.enter("second"), at.enter("after ::last"))
    await at.until(lambda: len(at.runs) == 3)
    await at.ended()
    assert [block.value for block in at.runs] == ["FIRST", "SECOND", "AFTER FIRST"]


# -- commands --------------------------------------------------------------------------------------------


def test_every_command_in_the_table_has_a_handler() -> None:
    assert {command.name for command in COMMANDS} == set(COMMAND_HANDLERS)


@pytest.mark.requirement("S1-42")
async def test_the_required_commands_exist(at: Scene) -> None:
    await asking(at)
    await at.enter("/workflows", "/status", "/pause", "/resume", "/stop")
    assert at.errors == []


@pytest.mark.requirement("S3-24")
async def test_workflows_are_listed_and_reloaded(tmp_path: Path) -> None:
    folder = tmp_path / ".nerve" / "workflows"
    folder.mkdir(parents=True)
    async with scene(tmp_path) as at:
        (folder / "new.yaml").write_text(
            "name: new\ndescription: Is new\nbody:\n  kind: sequence\n"
            "  steps: [{kind: bash, id: say, command: echo}, {kind: bash, id: again, command: echo}]\n"
        )
        (folder / "torn.yaml").write_text("name: [")
        await at.enter("/workflow reload")
        texts = [block.text for block in at.state.blocks if block.kind == "text"]
        assert texts == [f"Reloaded {len(at.state.workflows)} workflow(s)."]
        assert "torn.yaml" in at.errors[0]
        await at.enter("/workflow ls")
        assert "**new**\n  Is new\n  Steps: say → again" in at.last.text


@pytest.mark.requirement("S3-26")
async def test_help_has_all_commands_and_a_section_about_workflows(at: Scene) -> None:
    await at.enter("/help")
    for command in COMMANDS:
        assert f"`/{command.name}" in at.last.text
    assert "/workflow reload - Reload workflow definitions" in at.last.text
    assert "Note: Workflows are YAML files in .archon/workflows/" in at.last.text
    await at.enter("/help watch")
    assert "Follow a run" in at.last.text


async def test_screen_commands_become_screen_requests(at: Scene) -> None:
    await at.enter("/theme nord", "/tui plain", "/quit")
    assert at.controller.screen_requests == {"theme": "nord", "tui": "plain", "quit": ""}
    assert "wants" in at.state.changes.flags


async def test_a_conversation_is_exported_and_imported(at: Scene, tmp_path: Path) -> None:
    await at.enter("%hello you", "@shout ```code```")
    await at.ended()
    await at.enter(f"/export {tmp_path}/talk.json", f"/export '{tmp_path}/my talk.md'")
    assert {each.stat().st_mode & 0o777 for each in (tmp_path / "talk.json", tmp_path / "my talk.md")} == {
        0o600
    }
    told = json.loads((tmp_path / "talk.json").read_text())
    assert [block["kind"] for block in told["blocks"]][:2] == ["input", "run"]
    text = (tmp_path / "my talk.md").read_text()
    assert "## `%hello you`" in text
    assert '"said": "hello you"' in text
    async with scene() as other:
        await other.enter(f"/import {tmp_path}/talk.json", "@shout ::hello[said]")
        await other.ended()
        assert other.runs[-1].value == "HELLO YOU"
        assert other.errors == []


async def test_large_results_are_omitted_from_the_list_and_loaded_when_a_run_is_followed(at: Scene) -> None:
    large = "x" * 100_000
    assert at.api is not None
    told = await at.api.start(workflow="hello", input=large, wait=True)
    other = WorkflowController(at.client)
    await other.open()
    try:
        assert other.state.runs[told.run_id].result is None
        there = Scene(other)
        await there.enter(f"/watch {told.run_id}", "::hello[said]")
        assert there.last.text == f"hello {large}"
        await there.enter("/status")
        assert there.errors == []
    finally:
        await other.close()


@pytest.mark.parametrize("name", ["notes.md", "package.json"])
async def test_a_file_that_is_not_an_export_is_not_overwritten(at: Scene, tmp_path: Path, name: str) -> None:
    file, other = tmp_path / name, tmp_path / f"talk{Path(name).suffix}"
    file.write_text('{"name": "mine"}\n')
    await at.enter(f"/export {file}")
    assert at.errors == [f"{file} already exists and is not an exported conversation. Choose another file."]
    assert file.read_text() == '{"name": "mine"}\n'
    await at.enter(f"/export {other}", "%hello you", f"/export {other}")
    assert len(at.errors) == 1
    assert "%hello you" in other.read_text()


async def test_a_workflow_is_defined_from_a_file(at: Scene, tmp_path: Path) -> None:
    file = tmp_path / "twice.yaml"
    file.write_text("name: twice\nbody: {kind: transform, expression: 'input + input'}\n")
    await at.enter(f"/import {file}", "%twice ab")
    await at.ended()
    assert at.runs[0].value == "abab"


async def test_completion_offers_the_known_names(at: Scene) -> None:
    await asking(at)
    offered = {
        text: [each.text for each in at.controller.complete(text, len(text))]
        for text in ("%he", "@sh", "/app")
    }
    assert offered["%he"][0] == "%hello"
    assert offered["@sh"] == ["@shout"]
    assert "/approve" in offered["/app"]
    assert at.controller.complete("/answer ", 8)


async def test_the_exit_message_lists_active_runs_and_how_to_reopen(at: Scene) -> None:
    assert at.controller.exit_message() == []
    await asking(at)
    run_id = at.runs[0].run_id
    assert at.controller.exit_message() == [
        "Running in the background:",
        f"  ⏸ ask waiting: Go on?  nerve watch {run_id}",
        "Reopen with: nerve",
    ]
    await at.enter("/approve")
    await at.ended()
    assert at.controller.exit_message() == []


async def test_a_run_whose_events_cannot_be_loaded_at_first_is_shown_to_its_end() -> None:
    async with scene() as at:
        line, failed = at.client._transport, 0
        perform = line.perform

        async def flaky(operation: Any, given: dict[str, Any]) -> Any:
            nonlocal failed
            if operation.name == "events" and failed < 2:
                failed += 1
                async with asyncio.timeout(60):
                    while not all(run.ended_at for run in (await at.client.runs()).runs):  # noqa: ASYNC110
                        await asyncio.sleep(0.01)
                raise ApiError("busy", "the store is busy")
            return await perform(operation, given)

        line.perform = flaky  # type: ignore[method-assign]
        await at.enter("%hello you")
        await at.ended()
        assert failed == 2
        assert at.runs[0].value == {"said": "hello you", "params": {}}
        assert at.errors == []


# -- signals ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "key", "value"),
    [
        ("/signal shipped --key K", "K", None),
        ("/signal shipped done --key K", "K", "done"),
        ("/signal shipped --key=K done and done", "K", "done and done"),
        ('/signal shipped {"a": [1, 2]} --key "v 2"', "v 2", {"a": [1, 2]}),
        ("/signal shipped look at --key now please", None, "look at --key now please"),
    ],
)
async def test_a_signal_is_sent_with_its_key(at: Scene, line: str, key: str | None, value: object) -> None:
    assert at.api is not None
    sent: list[dict[str, object]] = []
    perform = at.client.perform

    async def note(operation: str, given: dict[str, object]) -> object:
        if operation == "signal":
            sent.append(given)
        return await perform(operation, given)

    at.client.perform = note  # type: ignore[method-assign]
    await at.enter(line)
    assert at.errors == []
    assert [(each["label"], each["key"], each["value"]) for each in sent] == [("shipped", key, value)]


async def test_a_signal_key_option_requires_a_value(at: Scene) -> None:
    await at.enter("/signal shipped done --key")
    assert at.errors == ["Value of --key is missing: /signal NAME [VALUE] --key KEY."]


# -- names and numbers -----------------------------------------------------------------------------------


async def test_runs_of_one_workflow_are_distinguished_by_input_and_short_id(at: Scene) -> None:
    await at.enter("%ask first thing", "%ask second thing", "/runs")
    first, second = (run.run_id or "" for run in at.runs)
    assert first[:8] == second[:8]
    for run_id, about in ((first, "first thing"), (second, "second thing")):
        assert f"`{run_id[-6:]}` ask *{about}*" in at.last.text
    await at.enter(f"/stop {first[-6:]}")
    await at.until(lambda: at.state.runs[first].has_ended)
    assert not at.state.runs[second].has_ended


async def test_the_input_preview_survives_a_restart(tmp_path: Path) -> None:
    async with scene(tmp_path) as first:
        await first.enter("%hello   you\nand you", "%ask " + "word " * 100)
        await first.until(lambda: first.state.gates)
    async with scene(tmp_path) as again:
        abouts = {card.workflow: card.input_preview for card in again.state.runs.values()}
    assert abouts == {"hello": "you and you", "ask": ("word " * 100)[:80].rstrip()}


async def test_result_numbers_have_no_gaps(at: Scene) -> None:
    await at.enter("%hello one", "/runs", "%ask", "%hello two", "%nothing", "%hello three")
    await at.until(lambda: sum(block.done for block in at.runs) == 3)
    assert [block.number for block in at.state.blocks if block.number] == [1, 2, 3, 4]
    assert [block.number for block in at.runs] == [1, 2, 3, 4]
    await at.enter("%hello ::1[said]")
    await at.ended(at.runs[4])
    assert at.runs[4].value["said"] == "hello hello one"
    await at.enter("%hello ::0")
    assert at.errors[-1] == "Result ::0 not found. Results are numbered 1 to 5."


async def test_tags_are_shown_and_select_runs() -> None:
    async with scene() as at:
        assert at.api is not None

        @at.api.session.workflow
        async def review(ctx: WorkflowContext) -> None:
            ctx.tag(stage="review")

        await at.api.session.start("hello", "one", tags={"customer": "42"})
        await at.api.session.start("review", tags={"customer": "43"})
        await at.until(lambda: [card.has_ended for card in at.state.runs.values()] == [True, True])
        await at.enter("/runs")
        assert "[customer=42]" in at.last.text
        assert "[customer=43 stage=review]" in at.last.text
        await at.enter("/runs completed --tag customer=43 --tag=stage=review")
        assert "customer=43" in at.last.text
        assert "customer=42" not in at.last.text
        await at.enter("/runs --tag stage=done")
        assert at.last.text == "No runs."
        await at.enter("/runs --tag stage", "/runs complted")
        assert at.errors[-2:] == [
            "--tag: A tag must have the form name=value, got 'stage'.",
            "Unknown state 'complted'. Did you mean 'completed'? Available: "
            + ", ".join(RUN_STATES)
            + ", and --tag NAME=VALUE.",
        ]
        await at.enter("/status review")
        assert "- tags: customer=43 stage=review" in at.last.text


async def test_triggers_are_listed_paused_resumed_and_fired() -> None:
    async with scene() as at:
        assert at.api is not None

        @at.api.session.workflow
        async def report(ctx: WorkflowContext, text: str) -> str:
            return text

        await at.enter("/triggers")
        assert at.last.text == "No triggers."
        at.api.session.trigger("nightly", "report", schedule="0 3 * * *", input="done")
        await at.enter("/triggers pause nightly")
        assert at.last.text == "Trigger nightly is paused."
        await at.enter("/triggers")
        assert at.last.text.startswith("- `nightly` **paused by ")
        assert at.last.text.endswith("schedule trigger of report")
        await at.enter("/triggers resume nightly", "/triggers")
        assert ", next " in at.last.text
        await at.enter("/triggers fire nightly")
        await at.ended()
        assert at.runs[0].value == "done"
        await at.enter("/triggers fie nightly", "/triggers fire", "/triggers fire nightl")
        assert at.errors[:2] == [
            "Unknown action 'fie'. Did you mean 'fire'?",
            "The name of the trigger is missing: /triggers fire NAME.",
        ]
        assert "Trigger 'nightl' not found. Did you mean 'nightly'?" in at.errors[2]


async def test_queues_are_listed_paused_and_resumed() -> None:
    async with scene() as at:
        assert at.api is not None
        session = at.api.session
        await at.enter("/queues")
        assert at.last.text == "No queues."
        session.add_queue(Queue("emails", concurrency=5, rate="100/min"))

        @session.step(queue="emails")
        async def send_email() -> str:
            return "sent"

        @session.workflow
        async def mail(ctx: WorkflowContext) -> str:
            return await send_email()

        await at.enter("/queues pause emails")
        assert at.last.text == "Queue emails is paused."
        await at.enter("%mail")
        await at.until(
            lambda: [card.waiting_for for card in at.state.runs.values()] == ['for queue "emails"']
        )
        await at.enter("/queues")
        assert "`emails` **paused** 0 running, 1 waiting, the oldest for 0." in at.last.text
        assert at.last.text.endswith("limits: 5 at a time, 100/min")
        assert [each.text for each in at.controller.complete("/queues resume ", 15)] == ["emails"]
        await at.enter("/queues pase emails", "/queues pause", "/queues pause email")
        assert at.errors == [
            "Unknown action 'pase'. Did you mean 'pause'?",
            "The name of the queue is missing: /queues pause NAME.",
            "Queue 'email' not found. Did you mean 'emails'? Correct it and try again.",
        ]
        await at.enter("/queues resume emails")
        await at.ended()
        assert at.runs[0].value == "sent"


async def test_a_waiting_run_says_for_what_in_lists_and_its_status() -> None:
    async with scene() as at:
        assert at.api is not None
        session = at.api.session
        session.add_queue(Queue("emails", concurrency=1))

        @session.step(queue="emails")
        async def send_email() -> None: ...

        @session.workflow
        async def mail(ctx: WorkflowContext) -> None:
            await send_email()

        @session.workflow
        async def receive(ctx: WorkflowContext) -> Any:
            return await ctx.receive("orders")

        @session.workflow
        async def listen(ctx: WorkflowContext) -> Any:
            return await ctx.wait_signal("shipped", key="42")

        @session.workflow
        async def doze(ctx: WorkflowContext) -> None:
            await ctx.sleep(36 * 3600)

        @session.workflow
        async def ask_thrice(ctx: WorkflowContext) -> Any:
            return await asyncio.gather(*(ctx.gate(f"Ship {number}?") for number in range(3)))

        @session.workflow
        async def call(ctx: WorkflowContext) -> Any:
            return await ctx.run_workflow("listen")

        await session.pause_queue("emails")
        phrases = {
            "mail": 'waiting for queue "emails"',
            "receive": 'waiting for message "orders"',
            "listen": "waiting for signal shipped (key 42)",
            "doze": "waiting until ",
            "ask_thrice": "waiting for 3 gates",
            "call": "waiting for child run ",
        }
        for name in phrases:
            run = await session.start(name)
            await at.until(
                lambda id=run.run_id: (card := at.state.runs.get(id)) is not None and card.waiting_for
            )
        await at.enter("/runs waiting")
        rows = at.last.text.splitlines()
        for name, phrase in phrases.items():
            assert any(f" {name} " in row and phrase in row for row in rows), name
        for name, phrase in phrases.items():
            run = session.runs(workflow=name)[-1]
            await at.enter(f"/status {run.run_id}")
            assert phrase in at.last.text.splitlines()[0]


async def test_the_changes_of_a_run_in_its_workspace_are_shown(tmp_path: Path) -> None:
    make_repository(tmp_path)
    body = {"kind": "bash", "command": "echo new > new.txt", "workspace": "worktree"}
    async with scene(tmp_path) as at:
        await at.client.define(source=json.dumps({"name": "edit", "body": body}), notation="json")
        await at.enter("%edit")
        await at.ended()
        await at.enter("/diff")
        [shown] = [block.text for block in at.state.blocks if block.name == "/diff"]
        assert "/bash: new.txt" in shown
        assert "+new" in shown
