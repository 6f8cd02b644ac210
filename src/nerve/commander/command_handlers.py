"""Handlers of the /commands that `core.command_table` lists."""

from __future__ import annotations

import re
import shlex
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nerve.commander import reports
from nerve.commander.controller import STOP_REASON
from nerve.commander.core.command_table import find_command, help_text, unknown_command_message
from nerve.commander.core.name_resolution import (
    CommanderInputError,
    find_gate_by_name,
    split_answer,
    split_reason,
)
from nerve.commander.core.references import resolve_references, resolve_text_value
from nerve.commander.core.run_cards import TARGET_PREFIXES, InputTarget
from nerve.core.suggest import did_you_mean_hint
from nerve.ui.event_lines import LogLines, to_workflow_event
from nerve.ui.formatting import short_id
from nerve.ui.gate_names import APPROVE_WORDS, REJECT_WORDS, gate_display_name, match_choice
from nerve.ui.sanitize import dump_safe_json, fence_text, sanitize_text
from nerve.ui.typed_options import parse_json_or_text

if TYPE_CHECKING:
    from nerve.api.models import RunResponse
    from nerve.commander.controller import CommanderController

CommandHandler = Callable[["CommanderController", str], Awaitable[None]]
COMMAND_HANDLERS: dict[str, CommandHandler] = {}
"""Handlers by command name; each receives the text after the command."""
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


def reply_to_command(commander: CommanderController, command: str, text: str) -> None:
    """Show the output of a command; it does not count as a result for `::last`."""
    commander.state.add_block("text", text, name=f"/{command}")


def add_note(commander: CommanderController, text: str) -> None:
    commander.state.add_block("note", text)


# -- workflows -------------------------------------------------------------------------------------------


@register_handler("workflows")
async def handle_workflows_command(commander: CommanderController, text: str) -> None:
    await commander.event_sync.reload_workflows()
    reply_to_command(commander, "workflows", reports.workflows_report(commander.state))


@register_handler("workflow")
async def handle_workflow_command(commander: CommanderController, text: str) -> None:
    """Answer as the router does, from the current files."""
    from nerve.router.chat_commands import answer_command
    from nerve.router.decision import Candidate

    problems = []
    if text.split() == ["reload"]:
        problems = (await commander.client.reload()).problems
    await commander.event_sync.reload_workflows()
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
        location = f"{problem.get('file', '')}:{problem.get('line', '')}".rstrip(":")
        message = f"{location}: {problem.get('message', '')} {problem.get('fix') or ''}"
        commander.state.add_block("error", sanitize_text(message.strip()))


@register_handler("target")
async def handle_target_command(commander: CommanderController, text: str) -> None:
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
async def handle_runs_command(commander: CommanderController, text: str) -> None:
    reply_to_command(commander, "runs", reports.runs_report(commander.state, text))


@register_handler("status")
async def handle_status_command(commander: CommanderController, text: str) -> None:
    if not text and commander.state.focused_run is None:
        health, usage = await commander.client.health(), await commander.client.usage()
        reply_to_command(commander, "status", reports.status_report(commander.state, health, usage))
        return
    run = await commander.client.run(run=await commander.resolve_run(text))
    reply_to_command(commander, "status", reports.run_report(run))


@register_handler("watch")
async def handle_watch_command(commander: CommanderController, text: str) -> None:
    await commander.follow(await commander.resolve_run(text))


@register_handler("logs")
async def handle_logs_command(commander: CommanderController, text: str) -> None:
    events = await commander.event_sync.load_events(await commander.resolve_run(text))
    log = LogLines()
    lines = [line for event in events for line in log.apply_event(to_workflow_event(event))] + log.flush_all()
    reply_to_command(commander, "logs", fence_text(sanitize_text("\n".join(lines)) or "No output yet."))


@register_handler("diff")
async def handle_diff_command(commander: CommanderController, text: str) -> None:
    page = await commander.client.changes(run=await commander.resolve_run(text))
    parts = [f"{step.path}: {', '.join(step.files)}\n{step.diff or ''}" for step in page.steps]
    reply_to_command(commander, "diff", fence_text(sanitize_text("\n".join(parts)) or "No changes."))


STATE_MESSAGES = {
    "pausing": "pauses after the current step; /resume continues it.",
    "paused": "is paused; /resume continues it.",
    "running": "continues.",
    "waiting": "continues and is waiting.",
    "stopping": "is being stopped.",
    "cancelled": "has been stopped.",
}
"""What a command did to a run, by the run's new state."""


async def change_run(commander: CommanderController, text: str, operation: str, **arguments: str) -> None:
    """Perform an operation on a run and report the new state."""
    run_id = await commander.resolve_run(text)
    run: RunResponse = await commander.perform_operation(operation, run=run_id, **arguments)
    commander.state.merge_runs([run])
    message = STATE_MESSAGES.get(run.state, f"is {run.state}.")
    add_note(commander, f"{run.label or run.workflow} ({short_id(run.run_id)}) {message}")


COMMAND_HANDLERS |= {
    "pause": partial(change_run, operation="pause"),
    "resume": partial(change_run, operation="resume"),
    "stop": partial(change_run, operation="stop", reason=STOP_REASON),
}


@register_handler("fork")
async def handle_fork_command(commander: CommanderController, text: str) -> None:
    run, _, step = text.partition(" ")
    run_id = await commander.resolve_run(run)
    path = step.strip() or None
    if path is not None and not path.startswith("/"):
        path = f"/{path}"
    await commander.show_started_run(await commander.perform_operation("fork", run=run_id, at=path))


@register_handler("retry")
async def handle_retry_command(commander: CommanderController, text: str) -> None:
    await commander.show_started_run(
        await commander.perform_operation("retry", run=await commander.resolve_run(text))
    )


def split_action(noun: str, text: str, actions: tuple[str, ...]) -> tuple[str, str]:
    """Return the action and the name in the text of a command, such as `pause NAME`."""
    action, _, name = text.partition(" ")
    if action not in actions:
        *others, last = (f"{known} NAME" for known in actions)
        fix = did_you_mean_hint(action, actions) or f". Use {', '.join(others)} or {last}."
        raise CommanderInputError(f"Unknown action '{action}'{fix}")
    if not name:
        raise CommanderInputError(f"The name of the {noun} is missing: /{noun}s {action} NAME.")
    return action, name.strip()


QUEUE_ACTIONS = ("pause", "resume")


@register_handler("queues")
async def handle_queues_command(commander: CommanderController, text: str) -> None:
    if not text:
        queues = await commander.event_sync.load_queues()
        reply_to_command(commander, "queues", reports.queues_report(queues))
        return
    action, name = split_action("queue", text, QUEUE_ACTIONS)
    queue = await commander.perform_operation(f"{action}_queue", queue=name)
    add_note(commander, f"Queue {queue.name} is {'paused' if queue.paused else 'resumed'}.")


TRIGGER_ACTIONS = ("pause", "resume", "fire")


@register_handler("triggers")
async def handle_triggers_command(commander: CommanderController, text: str) -> None:
    if not text:
        triggers = await commander.event_sync.load_triggers()
        reply_to_command(commander, "triggers", reports.triggers_report(triggers))
        return
    action, name = split_action("trigger", text, TRIGGER_ACTIONS)
    reply = await commander.perform_operation(f"{action}_trigger", trigger=name)
    if action != "fire":
        add_note(commander, f"Trigger {reply.name} is {'paused' if reply.paused else 'resumed'}.")
    elif reply.run is None:
        add_note(commander, f"Nothing was started: {reply.reason}.")
    else:
        await commander.show_started_run(reply.run)


# -- gates -----------------------------------------------------------------------------------------------


@register_handler("gates")
async def handle_gates_command(commander: CommanderController, text: str) -> None:
    if not text:
        reply_to_command(commander, "gates", reports.gates_report(commander.state))
        return
    if text == "mine":
        asked = {gate.gate_id for gate in await commander.client.all_gates(mine=True)}
        reply_to_command(commander, "gates", reports.gates_report(commander.state, asked))
        return
    gate = find_gate_by_name(commander.state, text)
    commander.state.open_gate(gate.gate_id)
    add_note(
        commander,
        f"Your next input answers '{gate_display_name(gate)}'. {GATE_PROMPT_HINT} Esc leaves the gate.",
    )


@register_handler("answer")
async def handle_answer_command(commander: CommanderController, text: str) -> None:
    gate, answer_text = split_answer(commander.state, text)
    problem = await commander.answer_gate(gate, resolve_references(answer_text, commander.state.blocks))
    if problem:
        commander.state.add_block("error", problem)


async def answer_with_choice(commander: CommanderController, text: str, words: tuple[str, ...]) -> None:
    """Answer a gate with the choice that matches `words`; the rest of the text is the reason."""
    gate, reason = split_reason(commander.state, text)
    if problem := await commander.answer_gate(gate, match_choice(gate, words), reason):
        commander.state.add_block("error", problem)


COMMAND_HANDLERS |= {
    "approve": partial(answer_with_choice, words=APPROVE_WORDS),
    "reject": partial(answer_with_choice, words=REJECT_WORDS),
}


# -- messages --------------------------------------------------------------------------------------------


@register_handler("send")
async def handle_send_command(commander: CommanderController, text: str) -> None:
    run, channel, value = parse_message(commander, text, "/send RUN CHANNEL [VALUE]")
    run_id = await commander.resolve_run(run)
    await commander.perform_operation("send", run=run_id, channel=channel, value=value)
    add_note(commander, f"Sent a message to channel '{channel}'.")


@register_handler("update")
async def handle_update_command(commander: CommanderController, text: str) -> None:
    run, name, value = parse_message(commander, text, "/update RUN NAME [VALUE]")
    run_id = await commander.resolve_run(run)
    reply = await commander.perform_operation("update", run=run_id, update=name, value=value)
    add_note(commander, f"Update '{name}': {dump_safe_json(reply.result)}")


@register_handler("query")
async def handle_query_command(commander: CommanderController, text: str) -> None:
    run, name, _ = parse_message(commander, text, "/query RUN NAME")
    reply = await commander.client.query(run=await commander.resolve_run(run), query=name)
    add_note(commander, f"Query '{name}': {dump_safe_json(reply.result)}")


def parse_message(commander: CommanderController, text: str, usage: str) -> tuple[str, str, Any]:
    """Return the run, the name and the value of a command; the value is JSON, or else text."""
    run, name, rest = [*text.split(None, 2), "", "", ""][:3]
    if not name:
        raise CommanderInputError(f"Run and name are needed: {usage}.")
    return run, name, parse_json_or_text(resolve_text_value(rest, commander.state.blocks)) if rest else None


# -- facts -----------------------------------------------------------------------------------------------


@register_handler("facts")
async def handle_facts_command(commander: CommanderController, text: str) -> None:
    matching_facts = (await commander.client.facts(pattern=text or None)).facts
    reply_to_command(commander, "facts", reports.facts_report(matching_facts))


@register_handler("signal")
async def handle_signal_command(commander: CommanderController, text: str) -> None:
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
async def handle_usage_command(commander: CommanderController, text: str) -> None:
    reply_to_command(
        commander, "usage", reports.usage_report(commander.state, await commander.client.usage())
    )


@register_handler("agents")
async def handle_agents_command(commander: CommanderController, text: str) -> None:
    reply_to_command(commander, "agents", reports.agents_report((await commander.client.threads()).threads))


@register_handler("export")
async def handle_export_command(commander: CommanderController, text: str) -> None:
    from nerve.commander.transcript import export_transcript

    file = parse_file_argument("export", text)
    count = export_transcript(file, commander.state)
    add_note(commander, f"Exported {count} blocks to {file}.")


@register_handler("import")
async def handle_import_command(commander: CommanderController, text: str) -> None:
    from nerve.commander.transcript import parse_transcript, read_import_file
    from nerve.core.notation_table import NOTATION_BY_SUFFIX

    file = parse_file_argument("import", text)
    source = read_import_file(file)
    blocks = parse_transcript(source)
    if blocks is not None:
        first = commander.state.import_blocks(blocks)
        add_note(commander, f"Imported {len(blocks)} blocks; their results start at ::{first}.")
        return
    notation = NOTATION_BY_SUFFIX.get(Path(file).suffix.lower())
    workflow = await commander.client.define(source=source, notation=notation)
    await commander.event_sync.reload_workflows()
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
async def handle_theme_command(commander: CommanderController, text: str) -> None:
    themes = list(commander.themes)
    if text and themes and text not in themes:
        raise CommanderInputError(f"Unknown theme '{text}'. Available: {', '.join(themes)}.")
    commander.request_screen("theme", text)


@register_handler("tui")
async def handle_tui_command(commander: CommanderController, text: str) -> None:
    if text not in ("plain", "full"):
        raise CommanderInputError("Choose a mode: /tui plain or /tui full.")
    commander.request_screen("tui", text)


@register_handler("help")
async def handle_help_command(commander: CommanderController, text: str) -> None:
    from nerve.router.chat_commands import HELP_TEXT

    name = text.lstrip("/")
    if name and find_command(name) is None:
        raise CommanderInputError(unknown_command_message(name))
    notes = f"\n\n{HELP_TEXT}" if not name else ""
    reply_to_command(commander, "help", help_text(name) + notes)


@register_handler("quit")
async def handle_quit_command(commander: CommanderController, text: str) -> None:
    commander.request_screen("quit")
