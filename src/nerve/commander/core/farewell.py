"""What is left in the terminal when somebody leaves: quitting is detaching."""

from __future__ import annotations

import shlex

from nerve.commander.core.cards import RunCard
from nerve.commander.core.desk import Desk
from nerve.commander.core.harmless import harmless
from nerve.commander.core.lines import SYMBOLS
from nerve.commander.core.tree import spent

MOST = 10


def farewell(desk: Desk) -> list[str]:
    """The runs that go on or wait, how each is seen again, and the result that came last."""
    open_ = [card for card in desk.runs.values() if not card.ended]
    mine = {block.run_id for block in desk.blocks}
    shown = sorted(open_, key=lambda card: card.run_id not in mine)[:MOST]
    lines = [line(card) for card in shown]
    if len(open_) > MOST:
        lines.append(f"… and {len(open_) - MOST} more: nerve runs")
    if lines:
        lines.insert(0, "Goes on in the background:" if desk.connected else "Not ended when last heard of:")
        lines.append("Come back with: nerve")
    return lines


def line(card: RunCard) -> str:
    symbol, _ = SYMBOLS.get(card.state, ("⏸", ""))
    asked = f": {' '.join(card.gates[0].prompt.split())[:60]}" if card.gates else ""
    cost = f"  {used}" if (used := spent(card.usage)) else ""
    name = harmless(card.name)
    return f"  {symbol} {name} {card.state}{harmless(asked)}{cost}  nerve watch {shlex.quote(card.run_id)}"
