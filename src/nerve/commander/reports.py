"""Reports of the commands, as Markdown, and the message printed on exit."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Iterable
from datetime import UTC, datetime
from typing import Any

from nerve.api.models import (
    FactResponse,
    GateResponse,
    HealthResponse,
    QueueResponse,
    RunDetailResponse,
    ThreadResponse,
    TriggerResponse,
    UsageResponse,
)
from nerve.commander.core.name_resolution import CommanderInputError
from nerve.commander.core.run_cards import RunCard
from nerve.commander.core.state import CommanderState
from nerve.core.limits import RunUsage
from nerve.core.suggest import did_you_mean_hint
from nerve.core.tags import format_tags, parse_tag
from nerve.core.workflow.state import WorkflowState
from nerve.ui.event_lines import STATE_SYMBOLS
from nerve.ui.failure_text import failure_text
from nerve.ui.formatting import (
    format_duration_between,
    format_queue_limits,
    format_queue_notes,
    format_result,
    format_trigger_notes,
    format_trigger_time,
    format_usage,
    format_usage_today,
    short_id,
    status_lines,
)
from nerve.ui.gate_names import gate_display_name, gate_preview
from nerve.ui.json_forms import form_field_lines, format_example_answer
from nerve.ui.sanitize import fence_text, sanitize_text
from nerve.ui.typed_options import describe_option_type, format_option_name

MAX_ROWS = 50
MAX_EXIT_RUNS = 10
"""Open runs that the exit message lists."""
RUN_STATES = tuple(state.value for state in WorkflowState)


def workflows_report(state: CommanderState) -> str:
    if not state.workflows:
        return "No workflows yet. Create one with `nerve new NAME`."
    rows = []
    for workflow in state.workflows:
        description = f": {join_to_one_line(workflow.description)}" if workflow.description else ""
        inputs = ", ".join(
            f"`--{format_option_name(input.name)}` ({describe_option_type(input)})"
            for input in workflow.inputs
        )
        rows.append(f"- `%{workflow.id}`{description}" + (f"  \n  {inputs}" if inputs else ""))
    return "\n".join(rows)


def runs_report(commander_state: CommanderState, filter: str = "") -> str:
    """List the runs that a filter selects: a state, and `--tag NAME=VALUE` as for `nerve runs`."""
    state, tags = parse_run_filter(filter)
    cards = [
        card
        for card in commander_state.runs.values()
        if state in ("", card.state) and tags.items() <= card.tags.items()
    ]
    if not cards:
        return "No runs." if filter else "No runs yet. Start one: `%workflow text`"
    rows = [format_run_row(card, commander_state) for card in cards[:MAX_ROWS]]
    return "\n".join([*rows, *([f"- … {len(cards) - MAX_ROWS} more"] if len(cards) > MAX_ROWS else [])])


def parse_run_filter(text: str) -> tuple[str, dict[str, str]]:
    """Return the state, "" for every state, and the tags in the arguments of `/runs`."""
    state, tags = "", dict[str, str]()
    words = text.replace("--tag=", "--tag ").split()
    while words:
        word = words.pop(0)
        if word == "--tag":
            try:
                name, value = parse_tag(words.pop(0) if words else "")
            except ValueError as error:
                raise CommanderInputError(f"--tag: {error}.") from None
            tags[name] = value
        elif word in RUN_STATES and not state:
            state = word
        else:
            hint = did_you_mean_hint(word, RUN_STATES) or "."
            raise CommanderInputError(
                f"Unknown state '{word}'{hint} Available: {', '.join(RUN_STATES)}, and --tag NAME=VALUE."
            )
    return state, tags


def format_run_row(card: RunCard, state: CommanderState) -> str:
    symbol, _ = STATE_SYMBOLS.get(card.state, ("⏸", ""))
    duration = format_duration_between(card.started_at, card.ended_at, datetime.now(UTC))
    figures = ", ".join(part for part in (duration, format_usage(card.usage)) if part)
    label = (
        f" *{join_to_one_line(card.label or card.input_preview)}*" if card.label or card.input_preview else ""
    )
    tags = f" [{join_to_one_line(format_tags(card.tags))}]" if card.tags else ""
    focus_mark = " ←" if card.run_id == state.focused_run_id else ""
    state_text = f"{card.state} {join_to_one_line(card.waiting_for or '')}".rstrip()
    questions = "".join(f"  \n  ⏸ {join_to_one_line(gate.prompt)}" for gate in card.gates)
    return (
        f"- {symbol} `{distinct_run_id(card, state)}` {card.workflow}{label}{tags} "
        f"{state_text}{f' ({figures})' if figures else ''}{focus_mark}{questions}"
    )


def distinct_run_id(card: RunCard, state: CommanderState) -> str:
    """Return the short id if it is unique, else the complete id."""
    same = sum(run_id.endswith(card.short_id) for run_id in state.runs)
    return card.short_id if same == 1 else card.run_id


def gates_report(state: CommanderState, asked: Collection[str] | None = None) -> str:
    """Return the open gates; with `asked`, only those with these ids. Their numbers stay the same."""
    rows = [
        format_gate_row(number, open_gate, state)
        for number, open_gate in enumerate(state.gates, 1)
        if asked is None or open_gate.gate_id in asked
    ]
    return "\n".join(rows) or ("No open gates." if asked is None else "No gates wait for you.")


def format_gate_row(number: int, gate: GateResponse, state: CommanderState) -> str:
    card = state.runs.get(state.root_of(gate.run_id))
    run = f" of {sanitize_text(card.name)} `{distinct_run_id(card, state)}`" if card is not None else ""
    rows = [f"{n} {sanitize_text(choice)}" for n, choice in enumerate(gate.choices or [], 1)]
    if gate.form is not None:
        rows = [
            *form_field_lines(gate.form),
            f"`/answer {number} {sanitize_text(format_example_answer(gate.form))}`",
        ]
    if preview := join_to_one_line(gate_preview(gate.input_preview)):
        rows.insert(0, preview)
    answer_rows = "".join(f"  \n   {row}" for row in rows)
    return (
        f"{number}. **{sanitize_text(gate_display_name(gate))}**{run}, gate `{gate.gate_id}`: "
        f"{join_to_one_line(gate.prompt)}{answer_rows}"
    )


def run_report(run_detail: RunDetailResponse) -> str:
    used = RunUsage()
    used.spend(run_detail.usage)
    symbol, _ = STATE_SYMBOLS.get(run_detail.state, ("⏸", ""))
    rows = [
        f"{symbol} **{run_detail.workflow}** `{run_detail.run_id}` "
        + f"{run_detail.state} {join_to_one_line(run_detail.waiting_for or '')}".rstrip()
        + (f", continued as `{run_detail.continued_as}`" if run_detail.continued_as else "")
        + (f", {format_usage(used)}" if format_usage(used) else "")
    ]
    if run_detail.tags:
        rows.append(f"- tags: {join_to_one_line(format_tags(run_detail.tags))}")
    rows += [f"- {line}" for line in format_step_lines(run_detail.tree)]
    rows += [f"- ⏸ {join_to_one_line(open_gate.prompt)}" for open_gate in run_detail.gates]
    if run_detail.held:
        rows.append(f"- held: {join_to_one_line(str(run_detail.held.get('message', '')))}")
    if run_detail.error:
        reason = failure_text(run_detail.error, run_detail.error_type, run_detail.location)
        rows.append(f"- ✗ {join_to_one_line(reason)}")
    if run_detail.traceback:
        rows += ["", fence_text(sanitize_text(run_detail.traceback))]
    if run_detail.state == "completed" and run_detail.result is not None:
        rows += ["", sanitize_text(format_result(run_detail.result))]
    return "\n".join(rows)


def format_step_lines(nodes: Iterable[Any], depth: int = 0) -> Iterable[str]:
    for node in nodes:
        symbol, _ = STATE_SYMBOLS.get(node.state, ("●", ""))
        rounds = f" [{node.iteration}/{node.max_iterations or '?'}]" if node.iteration else ""
        seconds = f" ({node.seconds:.1f}s)" if node.seconds is not None else ""
        reason = failure_text(node.error, node.error_type, node.location) if node.location else ""
        failure = f": {join_to_one_line(reason)}" if reason else ""
        yield f"{'· ' * depth}{symbol} {sanitize_text(node.name)}{rounds}{seconds}{failure}"
        yield from format_step_lines(node.parts, depth + 1)


def status_report(commander_state: CommanderState, health: HealthResponse, usage: UsageResponse) -> str:
    lines = [
        f"server: {'connected' if commander_state.is_connected else 'not connected'}",
        *status_lines(health, usage),
        *([f"waiting for you: {len(commander_state.gates)}"] if commander_state.gates else ()),
    ]
    return "\n".join(f"- {join_to_one_line(line)}" for line in lines)


def usage_report(state: CommanderState, usage_response: UsageResponse) -> str:
    rows = [f"Today: {format_usage_today(usage_response)}"]
    if usage_response.budget:
        rows[0] += " of " + ", ".join(f"{name} {value:g}" for name, value in usage_response.budget.items())
    for run_id, data in usage_response.runs.items():
        used = RunUsage()
        used.spend(data)
        card = state.runs.get(run_id)
        if text := format_usage(used):
            rows.append(
                f"- {sanitize_text(card.name) if card is not None else run_id} `{short_id(run_id)}` {text}"
            )
    rows += [
        f"- {name} is limited until {datetime.fromtimestamp(until).astimezone():%H:%M}"
        for name, until in usage_response.limited.items()
    ]
    return "\n".join(rows)


def agents_report(threads: list[ThreadResponse]) -> str:
    rows = [
        f"- {sanitize_text(f'{thread.agent} ({thread.provider}) `{thread.thread}`')} of run "
        f"`{short_id(thread.run_id)}`"
        for thread in threads
    ]
    return "\n".join(rows) or "No open agent conversations."


def queues_report(queues: list[QueueResponse]) -> str:
    return "\n".join(map(format_queue_row, queues)) or "No queues."


def format_queue_row(queue: QueueResponse) -> str:
    waited = format_duration_between(queue.oldest_wait, None, datetime.now(UTC))
    waiting = f"{queue.waiting} waiting{f', the oldest for {waited}' if waited else ''}"
    notes = f" **{notes}**" if (notes := format_queue_notes(queue)) else ""
    name, limits = sanitize_text(queue.name), sanitize_text(format_queue_limits(queue))
    return f"- `{name}`{notes} {queue.running} running, {waiting}; limits: {limits}"


def triggers_report(triggers: list[TriggerResponse]) -> str:
    return "\n".join(map(format_trigger_row, triggers[:MAX_ROWS])) or "No triggers."


def format_trigger_row(trigger: TriggerResponse) -> str:
    name, workflow = sanitize_text(trigger.name), sanitize_text(trigger.workflow)
    next_time = f", next {format_trigger_time(trigger.next_times[0])}" if trigger.next_times else ""
    last = trigger.last_runs[0] if trigger.last_runs else None
    last_run = f", last {format_trigger_time(last.started_at)} {last.state}" if last is not None else ""
    notes = f" **{sanitize_text(notes)}**" if (notes := format_trigger_notes(trigger)) else ""
    return f"- `{name}`{notes} {trigger.kind} trigger of {workflow}{next_time}{last_run}"


def facts_report(matching_facts: list[FactResponse]) -> str:
    rows = [
        f"- `{sanitize_text(fact.text)}`{f' by {sanitize_text(fact.by)}' if fact.by else ''}"
        for fact in matching_facts[:MAX_ROWS]
    ]
    more = [f"- … {len(matching_facts) - MAX_ROWS} more"] if len(matching_facts) > MAX_ROWS else []
    return "\n".join([*rows, *more]) or "No facts."


def join_to_one_line(text: str) -> str:
    return sanitize_text(" ".join(text.split()))


# -- exit ----------------------------------------------------------------------------------------------


def exit_message_lines(state: CommanderState) -> list[str]:
    """Return the lines that list the open runs and how to watch each."""
    open_cards = [card for card in state.runs.values() if not card.has_ended]
    shown_run_ids = {block.run_id for block in state.blocks}
    listed_cards = sorted(open_cards, key=lambda card: card.run_id not in shown_run_ids)[:MAX_EXIT_RUNS]
    lines = [exit_run_line(card) for card in listed_cards]
    if len(open_cards) > MAX_EXIT_RUNS:
        lines.append(f"… and {len(open_cards) - MAX_EXIT_RUNS} more: nerve runs")
    if lines:
        lines.insert(
            0,
            "Running in the background:" if state.is_connected else "Open when the connection was lost:",
        )
        lines.append("Reopen with: nerve")
    return lines


def exit_run_line(card: RunCard) -> str:
    symbol, _ = STATE_SYMBOLS.get(card.state, ("⏸", ""))
    question = f": {' '.join(card.gates[0].prompt.split())[:60]}" if card.gates else ""
    cost = f"  {used}" if (used := format_usage(card.usage)) else ""
    name = sanitize_text(card.name)
    return (
        f"  {symbol} {name} {card.state}{sanitize_text(question)}{cost}  nerve watch "
        f"{shlex.quote(card.run_id)}"
    )
