"""Handlers of the /commands that `core.command_table` lists."""

from __future__ import annotations

import re
import shlex
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from nerve.commander import reports
from nerve.commander.core.command_table import find_command, help_text, unknown_command_message
from nerve.commander.core.gate_selection import find_gate_by_name, match_choice, split_answer, split_reason
from nerve.commander.core.name_resolution import CommanderInputError
from nerve.commander.core.references import resolve_references, resolve_text_value
from nerve.commander.core.run_cards import TARGET_PREFIXES, InputTarget, short_id
from nerve.ui.gate_names import APPROVE_WORDS, REJECT_WORDS, gate_display_name
from nerve.ui.typed_options import parse_json_or_text

if TYPE_CHECKING:
    from nerve.api.models import EventResponse, RunResponse
    from nerve.commander.workflow_controller import WorkflowController

CommandHandler = Callable[["WorkflowController", str], Awaitable[None]]
COMMAND_HANDLERS: dict[str, CommandHandler] = {}
"""Handlers by command name; each receives the text after the command."""
EVENTS_PAGE_SIZE = 1000
KEY_WORD_PATTERN = r"""(?P<key>"[^"]*"|'[^']*'|\S*)"""
SIGNAL_KEY_PATTERN = re.compile(
    rf"^--key(?:=|\s+|$){KEY_WORD_PATTERN}"
    rf"(?=\s|$)|(?<=\s)--key(?:=|\s+|$){KEY_WORD_PATTERN.replace('key', 'last')}$"
)
"""The `--key` option of a signal, before or after its value."""
GATE_PROMPT_HINT = "Lines with / @ # % keep their meaning; start with \\ to send them as text."


def register_handler(name: str) -> Callable[[CommandHandler], CommandHandler]:
    def add(function: CommandHandler) -> CommandHandler:
        COMMAND_HANDLERS[name] = function
        return function

    return add


def reply_to_command(commander: WorkflowController, command: str, text: str) -> None:
    """Show the output of a command; it does not count as a result for `::last`."""
    commander.state.add_block("text", text, name=f"/{command}")


def add_note(commander: WorkflowController, text: str) -> None:
    commander.state.add_block("note", text)


# -- workflows -------------------------------------------------------------------------------------------


@register_handler("workflows")
async def handle_workflows_command(commander: WorkflowController, text: str) -> None:
    await commander.reload_workflows()
    reply_to_command(commander, "workflows", reports.workflows_report(commander.state))


@register_handler("workflow")
async def handle_workflow_command(commander: WorkflowController, text: str) -> None:
    """Answer as the router does, from the current files."""
    from nerve.router.chat_commands import answer_command
    from nerve.router.decision import Candidate

    problems = []
    if text.split() == ["reload"]:
        problems = (await commander.client.reload()).problems
    await commander.reload_workflows()
    candidates = [
        Candidate(known_workflow.id, known_workflow.description, steps=tuple(known_workflow.steps))
        for known_workflow in commander.state.workflows
    ]
    answer = answer_command(f"/workflow {text}", lambda: candidates)
    assert answer is not None
    if answer.success:
        reply_to_command(commander, "workflow", answer.text)
    else:
        commander.state.add_block("error", answer.text)
    for problem in problems:
        commander.state.add_block("error", reports.format_load_problem(problem))


@register_handler("target")
async def handle_target_command(commander: WorkflowController, text: str) -> None:
    state = commander.state
    if not text:
        add_note(commander, f"Plain text goes to {state.target or 'the router'}.")
        return
    if text.lower() == "router":
        state.target = None
    else:
        kind = TARGET_PREFIXES.get(text[:1], "workflow")
        name, _ = await commander.resolve_target(kind, text[1:] if text[:1] in TARGET_PREFIXES else text)
        state.target = InputTarget(kind, name)
    state.raise_flags("target")
    add_note(commander, f"Plain text goes to {state.target or 'the router'} from now on.")


# -- runs ------------------------------------------------------------------------------------------------


@register_handler("runs")
async def handle_runs_command(commander: WorkflowController, text: str) -> None:
    reply_to_command(commander, "runs", reports.runs_report(commander.state, text))


@register_handler("status")
async def handle_status_command(commander: WorkflowController, text: str) -> None:
    if not text and commander.state.focused_run is None:
        health, usage = await commander.client.health(), await commander.client.usage()
        reply_to_command(commander, "status", reports.status_report(commander.state, health, usage))
        return
    run = await commander.client.run(run=await commander.resolve_run(text))
    reply_to_command(commander, "status", reports.run_report(run))


@register_handler("watch")
async def handle_watch_command(commander: WorkflowController, text: str) -> None:
    await commander.follow(await commander.resolve_run(text))


@register_handler("logs")
async def handle_logs_command(commander: WorkflowController, text: str) -> None:
    run_id = await commander.resolve_run(text)
    events: list[EventResponse] = []
    more = True
    while more:
        page = await commander.client.events(
            run=run_id, after=events[-1].seq if events else 0, limit=EVENTS_PAGE_SIZE
        )
        events += page.events
        more = page.more
    reply_to_command(commander, "logs", reports.logs_report(events))


STATE_MESSAGES = {
    "pausing": "pauses after the current step; /resume continues it.",
    "paused": "is paused; /resume continues it.",
    "running": "continues.",
    "waiting": "continues and is waiting.",
    "stopping": "is being stopped.",
    "cancelled": "has been stopped.",
}
"""What a command did to a run, by the run's new state."""


async def report_run_change(commander: WorkflowController, run: RunResponse) -> None:
    commander.state.merge_runs([run])
    message = STATE_MESSAGES.get(run.state, f"is {run.state}.")
    add_note(commander, f"{run.label or run.workflow} ({short_id(run.run_id)}) {message}")


@register_handler("pause")
async def handle_pause_command(commander: WorkflowController, text: str) -> None:
    run_id = await commander.resolve_run(text)
    await report_run_change(commander, await commander.perform_operation("pause", run=run_id))


@register_handler("resume")
async def handle_resume_command(commander: WorkflowController, text: str) -> None:
    run_id = await commander.resolve_run(text)
    await report_run_change(commander, await commander.perform_operation("resume", run=run_id))


@register_handler("stop")
async def handle_stop_command(commander: WorkflowController, text: str) -> None:
    from nerve.commander.workflow_controller import STOP_REASON

    run_id = await commander.resolve_run(text)
    await report_run_change(
        commander, await commander.perform_operation("stop", run=run_id, reason=STOP_REASON)
    )


@register_handler("fork")
async def handle_fork_command(commander: WorkflowController, text: str) -> None:
    run, _, step = text.partition(" ")
    run_id = await commander.resolve_run(run)
    path = step.strip() or None
    if path is not None and not path.startswith("/"):
        path = f"/{path}"
    await commander.show_started_run(await commander.perform_operation("fork", run=run_id, at=path))


@register_handler("retry")
async def handle_retry_command(commander: WorkflowController, text: str) -> None:
    await commander.show_started_run(
        await commander.perform_operation("retry", run=await commander.resolve_run(text))
    )


# -- gates -----------------------------------------------------------------------------------------------


@register_handler("gates")
async def handle_gates_command(commander: WorkflowController, text: str) -> None:
    if not text:
        reply_to_command(commander, "gates", reports.gates_report(commander.state))
        return
    gate = find_gate_by_name(commander.state, text)
    commander.state.open_gate(gate.gate_id)
    add_note(
        commander,
        f"Your next input answers '{gate_display_name(gate)}'. {GATE_PROMPT_HINT} Esc leaves the gate.",
    )


@register_handler("answer")
async def handle_answer_command(commander: WorkflowController, text: str) -> None:
    gate, answer_text = split_answer(commander.state, text)
    problem = await commander.answer_gate(gate, resolve_references(answer_text, commander.state.blocks))
    if problem:
        commander.state.add_block("error", problem)


@register_handler("approve")
async def handle_approve_command(commander: WorkflowController, text: str) -> None:
    await answer_with_choice(commander, text, APPROVE_WORDS)


@register_handler("reject")
async def handle_reject_command(commander: WorkflowController, text: str) -> None:
    await answer_with_choice(commander, text, REJECT_WORDS)


async def answer_with_choice(commander: WorkflowController, text: str, words: tuple[str, ...]) -> None:
    """Answer a gate with the choice that matches `words`; the rest of the text is the reason."""
    gate, reason = split_reason(commander.state, text)
    if problem := await commander.answer_gate(gate, match_choice(gate, words), reason):
        commander.state.add_block("error", problem)


# -- facts -----------------------------------------------------------------------------------------------


@register_handler("facts")
async def handle_facts_command(commander: WorkflowController, text: str) -> None:
    matching_facts = (await commander.client.facts(pattern=text or None)).facts
    reply_to_command(commander, "facts", reports.facts_report(matching_facts))


@register_handler("signal")
async def handle_signal_command(commander: WorkflowController, text: str) -> None:
    name, _, rest = text.partition(" ")
    if not name:
        raise CommanderInputError("Signal name is missing: /signal NAME [VALUE] [--key KEY].")
    key, rest = split_signal_key(rest.strip())
    value = resolve_text_value(rest, commander.state.blocks) if rest else None
    await commander.perform_operation("signal", label=name, key=key, value=parse_json_or_text(value))
    add_note(commander, f"Sent signal '{name}'{f' with key {key!r}' if key else ''}.")


def split_signal_key(text: str) -> tuple[str | None, str]:
    """Return the key of `--key KEY` or `--key=KEY` at either end of the text, and the rest."""
    match = SIGNAL_KEY_PATTERN.search(text)
    if match is None:
        return None, text
    key = (match["key"] or match["last"] or "").strip("\"'")
    if not key:
        raise CommanderInputError("Value of --key is missing: /signal NAME [VALUE] --key KEY.")
    return key, (text[: match.start()] + text[match.end() :]).strip()


# -- here ------------------------------------------------------------------------------------------------


@register_handler("usage")
async def handle_usage_command(commander: WorkflowController, text: str) -> None:
    reply_to_command(
        commander, "usage", reports.usage_report(commander.state, await commander.client.usage())
    )


@register_handler("agents")
async def handle_agents_command(commander: WorkflowController, text: str) -> None:
    reply_to_command(commander, "agents", reports.agents_report((await commander.client.threads()).threads))


@register_handler("export")
async def handle_export_command(commander: WorkflowController, text: str) -> None:
    from nerve.commander.transcript import export_transcript

    file = parse_file_argument("export", text)
    count = export_transcript(file, commander.state)
    add_note(commander, f"Exported {count} blocks to {file}.")


@register_handler("import")
async def handle_import_command(commander: WorkflowController, text: str) -> None:
    from nerve.commander.transcript import notation_of_file, parse_transcript, read_import_file

    file = parse_file_argument("import", text)
    source = read_import_file(file)
    blocks = parse_transcript(source)
    if blocks is not None:
        first = commander.state.import_blocks(blocks)
        add_note(commander, f"Imported {len(blocks)} blocks; their results start at ::{first}.")
        return
    workflow = await commander.client.define(source=source, notation=notation_of_file(file))
    await commander.reload_workflows()
    add_note(commander, f"Defined workflow %{workflow.id}.")


def parse_file_argument(command: str, text: str) -> str:
    try:
        words = shlex.split(text)
    except ValueError:
        words = [text]
    if len(words) != 1:
        raise CommanderInputError(
            f"/{command} requires one file: /{command} FILE. Quote names that contain spaces."
        )
    return words[0]


@register_handler("theme")
async def handle_theme_command(commander: WorkflowController, text: str) -> None:
    themes = list(commander.themes)
    if text and themes and text not in themes:
        raise CommanderInputError(f"Unknown theme '{text}'. Available: {', '.join(themes)}.")
    commander.request_screen("theme", text)


@register_handler("tui")
async def handle_tui_command(commander: WorkflowController, text: str) -> None:
    if text not in ("plain", "full"):
        raise CommanderInputError("Choose a mode: /tui plain or /tui full.")
    commander.request_screen("tui", text)


@register_handler("help")
async def handle_help_command(commander: WorkflowController, text: str) -> None:
    from nerve.router.chat_commands import HELP_TEXT

    name = text.lstrip("/")
    if name and find_command(name) is None:
        raise CommanderInputError(unknown_command_message(name))
    notes = f"\n\n{HELP_TEXT}" if not name else ""
    reply_to_command(commander, "help", help_text(name) + notes)


@register_handler("quit")
async def handle_quit_command(commander: WorkflowController, text: str) -> None:
    commander.request_screen("quit")
