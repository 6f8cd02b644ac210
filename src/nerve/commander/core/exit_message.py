"""The message printed on exit: runs continue after the Commander quits."""

from __future__ import annotations

import shlex

from nerve.commander.core.run_cards import RunCard
from nerve.commander.core.state import CommanderState
from nerve.ui.event_lines import STATE_SYMBOLS
from nerve.ui.formatting import format_tokens_and_cost
from nerve.ui.sanitize import sanitize_text

MAX_LISTED_RUNS = 10


def exit_message_lines(state: CommanderState) -> list[str]:
    """Return the lines that list the open runs and how to watch each."""
    open_cards = [card for card in state.runs.values() if not card.has_ended]
    shown_run_ids = {block.run_id for block in state.blocks}
    listed_cards = sorted(open_cards, key=lambda card: card.run_id not in shown_run_ids)[:MAX_LISTED_RUNS]
    lines = [exit_run_line(card) for card in listed_cards]
    if len(open_cards) > MAX_LISTED_RUNS:
        lines.append(f"… and {len(open_cards) - MAX_LISTED_RUNS} more: nerve runs")
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
    cost = f"  {used}" if (used := format_tokens_and_cost(card.usage)) else ""
    name = sanitize_text(card.name)
    return (
        f"  {symbol} {name} {card.state}{sanitize_text(question)}{cost}  nerve watch "
        f"{shlex.quote(card.run_id)}"
    )
