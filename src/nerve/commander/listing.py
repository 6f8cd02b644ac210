"""What commands tell, as Markdown."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

from nerve.api.models import EventTold, FactTold, GateTold, Health, RunDetail, ThreadTold, UsageTold
from nerve.commander.core.cards import RunCard, short_id
from nerve.commander.core.desk import Desk, text_of
from nerve.commander.core.forms import example
from nerve.commander.core.forms import lines as fields
from nerve.commander.core.gates import name_of, preview_of
from nerve.commander.core.harmless import harmless
from nerve.commander.core.lines import SYMBOLS, LogLines
from nerve.commander.core.naming import Unknown
from nerve.commander.core.options import about, shown
from nerve.commander.core.tree import event_of, spent
from nerve.core.limits import Usage

MOST = 50
STATES = (
    "pending",
    "running",
    "waiting",
    "pausing",
    "paused",
    "stopping",
    "completed",
    "failed",
    "cancelled",
    "held",
)


def workflows(desk: Desk) -> str:
    if not desk.workflows:
        return "No workflows yet. `nerve new NAME` writes the beginnings of one."
    rows = []
    for each in desk.workflows:
        what = f": {one_line(each.description)}" if each.description else ""
        inputs = ", ".join(f"`--{shown(input.name)}` ({about(input)})" for input in each.inputs)
        rows.append(f"- `%{each.id}`{what}" + (f"  \n  {inputs}" if inputs else ""))
    return "\n".join(rows)


def runs(desk: Desk, state: str = "") -> str:
    if state and state not in STATES:
        raise Unknown(f"There is no state '{state}'. There are: {', '.join(STATES)}.")
    found = [card for card in desk.runs.values() if state in ("", card.state)]
    if not found:
        return "No runs." if state else "No runs yet. Start one: `%workflow text`"
    rows = [run(card, desk) for card in found[:MOST]]
    return "\n".join([*rows, *([f"- … {len(found) - MOST} more"] if len(found) > MOST else [])])


def run(card: RunCard, desk: Desk) -> str:
    symbol, _ = SYMBOLS.get(card.state, ("⏸", ""))
    label = f" *{one_line(card.label or card.about)}*" if card.label or card.about else ""
    here = " ←" if card.run_id == desk.focus else ""
    asked = "".join(f"  \n  ⏸ {one_line(gate.prompt)}" for gate in card.gates)
    return f"- {symbol} `{short(card, desk)}` {card.workflow}{label} {card.state}{took(card)}{here}{asked}"


def short(card: RunCard, desk: Desk) -> str:
    """As much of the end of the id as no other has."""
    same = sum(each.endswith(card.short_id) for each in desk.runs)
    return card.short_id if same == 1 else card.run_id


def took(card: RunCard) -> str:
    if card.started_at is None:
        return ""
    seconds = ((card.ended_at or datetime.now(UTC)) - card.started_at).total_seconds()
    used = f", {cost}" if (cost := spent(card.usage)) else ""
    return (
        f" ({seconds:.1f}s{used})" if seconds < 60 else f" ({seconds // 60:.0f}m{seconds % 60:02.0f}s{used})"
    )


def gates(desk: Desk) -> str:
    if not desk.gates:
        return "No gate is open: nothing waits for you."
    return "\n".join(gate(number, each, desk) for number, each in enumerate(desk.gates, 1))


def gate(number: int, gate: GateTold, desk: Desk) -> str:
    card = desk.runs.get(desk.root_of(gate.run_id))
    of = f" of {harmless(card.name)} `{short(card, desk)}`" if card is not None else ""
    rows = [f"{n} {harmless(choice)}" for n, choice in enumerate(gate.choices or [], 1)]
    if gate.form is not None:
        rows = [*fields(gate.form), f"`/answer {number} {harmless(example(gate.form))}`"]
    if preview := one_line(preview_of(gate.input_preview)):
        rows.insert(0, preview)
    takes = "".join(f"  \n   {row}" for row in rows)
    return (
        f"{number}. **{harmless(name_of(gate))}**{of}, gate `{gate.gate_id}`: {one_line(gate.prompt)}{takes}"
    )


def status(told: RunDetail) -> str:
    used = Usage()
    used.spend(told.usage)
    symbol, _ = SYMBOLS.get(told.state, ("⏸", ""))
    rows = [
        f"{symbol} **{told.workflow}** `{told.run_id}` {told.state}"
        + (f", {spent(used)}" if spent(used) else "")
    ]
    rows += [f"- {line}" for line in steps(told.tree)]
    rows += [f"- ⏸ {one_line(each.prompt)}" for each in told.gates]
    if told.held:
        rows.append(f"- held: {one_line(str(told.held.get('message', '')))}")
    if told.error:
        rows.append(f"- ✗ {one_line(told.error)}")
    if told.state == "completed" and told.result is not None:
        rows += ["", harmless(text_of(told.result))]
    return "\n".join(rows)


def steps(nodes: Iterable[Any], depth: int = 0) -> Iterable[str]:
    for node in nodes:
        symbol, _ = SYMBOLS.get(node.state, ("●", ""))
        rounds = f" [{node.iteration}/{node.max_iterations or '?'}]" if node.iteration else ""
        seconds = f" ({node.seconds:.1f}s)" if node.seconds is not None else ""
        yield f"{'· ' * depth}{symbol} {harmless(node.name)}{rounds}{seconds}"
        yield from steps(node.parts, depth + 1)


def overall(desk: Desk, health: Health, usage: UsageTold) -> str:
    counted = ", ".join(f"{number} {state}" for state, number in sorted(health.runs.items()))
    rows = [
        f"- server: {'connected' if desk.connected else 'not reached'}",
        *([f"- store: {one_line(health.loss)}"] if health.loss else ()),
        f"- runs: {counted or 'none'}",
        f"- today: {today(usage)}",
        *(f"- held: `{run_id}` {one_line(why)}" for run_id, why in health.held.items()),
    ]
    return "\n".join(rows + ([f"- waiting for you: {len(desk.gates)}"] if desk.gates else []))


def today(told: UsageTold) -> str:
    """What was spent today; turns of which nobody told the cost are said, and are not nothing."""
    used = Usage()
    used.spend(told.today)
    parts = [spent(used)] if spent(used) else []
    if unknown := sum(int(each.get("turns_without_cost", 0)) for each in told.models.values()):
        parts.append(f"{turns(unknown)} of unknown cost")
    elif used.turns and not parts:
        parts.append(f"{turns(used.turns)} at no cost")
    return " · ".join(parts) or "nothing spent"


def turns(number: int) -> str:
    return f"{number} turn{'' if number == 1 else 's'}"


def usage(desk: Desk, told: UsageTold) -> str:
    rows = [f"Today: {today(told)}"]
    if told.budget:
        rows[0] += " of " + ", ".join(f"{name} {value:g}" for name, value in told.budget.items())
    for run_id, data in told.runs.items():
        used = Usage()
        used.spend(data)
        card = desk.runs.get(run_id)
        if text := spent(used):
            rows.append(
                f"- {harmless(card.name) if card is not None else run_id} `{short_id(run_id)}` {text}"
            )
    rows += [f"- {name} is limited until {clock(until)}" for name, until in told.limited.items()]
    return "\n".join(rows)


def clock(seconds: float) -> str:
    return f"{datetime.fromtimestamp(seconds).astimezone():%H:%M}"


def agents(threads: list[ThreadTold]) -> str:
    rows = [
        f"- {harmless(f'{each.agent} ({each.provider}) `{each.thread}`')} of run `{short_id(each.run_id)}`"
        for each in threads
    ]
    return "\n".join(rows) or "No conversations with agents are open."


def facts(found: list[FactTold]) -> str:
    rows = [
        f"- `{harmless(fact.text)}`{f' by {harmless(fact.by)}' if fact.by else ''}" for fact in found[:MOST]
    ]
    more = [f"- … {len(found) - MOST} more"] if len(found) > MOST else []
    return "\n".join([*rows, *more]) or "No facts."


def logs(events: list[EventTold]) -> str:
    """What a run did and said, as plain output."""
    log = LogLines()
    lines = [line for event in events for line in log.take(event_of(event))] + log.rest()
    text = harmless("\n".join(lines)) or "Nothing yet."
    fence = "```"
    while fence in text:
        fence += "`"
    return f"{fence}text\n{text}\n{fence}"


def problem(told: dict[str, Any]) -> str:
    place = f"{told.get('file', '')}:{told.get('line', '')}".rstrip(":")
    return harmless(f"{place}: {told.get('message', '')} {told.get('fix') or ''}".strip())


def one_line(text: str) -> str:
    return harmless(" ".join(text.split()))
