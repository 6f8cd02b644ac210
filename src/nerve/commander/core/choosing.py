"""Which answer of a gate is meant."""

from __future__ import annotations

from collections.abc import Callable

from nerve.api.models import GateTold
from nerve.commander.core.cards import SHORTEST, short_id
from nerve.commander.core.desk import Desk
from nerve.commander.core.forms import example
from nerve.commander.core.gates import name_of, names_of


class Unsaid(ValueError):
    """It cannot be told which answer is meant; the message says what to type."""


def meant(gate: GateTold, words: tuple[str, ...], how: Callable[[GateTold, str], str] | None = None) -> str:
    """The one choice of a gate that says this; nothing is guessed. `how` writes the command that answers."""
    how = how or (lambda gate, text: f"/answer {gate.gate_id} {text}")
    if gate.form is not None:
        raise Unsaid(f"Gate '{name_of(gate)}' asks for more than that: {how(gate, example(gate.form))}")
    known = gate.choices or gate.options or []
    found = [choice for choice in known if choice.casefold() in words]
    if len(found) == 1:
        return found[0]
    takes, first = " or ".join(known) or "any text", known[0] if known else "TEXT"
    raise Unsaid(f"Gate '{name_of(gate)}' takes {takes}: say which it is, with {how(gate, first)}")


def gate_named(desk: Desk, name: str) -> GateTold:
    """The open gate of that name, id or number in the list; without a name, the one that must be meant."""
    name = name.strip()
    if not name:
        return the_gate(desk)
    found = matching(desk, name)
    if len(found) == 1:
        return found[0]
    if found:
        raise Unsaid(f"'{name}' could be several gates: {told(found)}. Name one by its id.")
    there = f"Open: {told(desk.gates)}." if desk.gates else "None is open."
    raise Unsaid(f"There is no open gate '{name}'. {there}")


def matching(desk: Desk, name: str) -> list[GateTold]:
    by_name = [gate for gate in desk.gates if name in names_of(gate)]
    by_run = [gate for gate in desk.gates if is_run(desk, gate, name)]
    by_start = [gate for gate in desk.gates if len(name) >= 4 and gate.gate_id.startswith(name)]
    number = int(name) if name.isdecimal() and name.isascii() and len(name) < 5 else 0
    by_number = desk.gates[number - 1 : number] if number else []
    return by_name or by_run or by_start or by_number


def is_run(desk: Desk, gate: GateTold, name: str) -> bool:
    card = desk.runs.get(desk.root_of(gate.run_id))
    if card is not None and len(name) >= SHORTEST and card.run_id.endswith(name):
        return True
    return name in (gate.run_id, card.label if card is not None else None)


def the_gate(desk: Desk) -> GateTold:
    """The gate that is open on the screen, or the only one of the run in focus, or the only one."""
    if (gate := desk.gate(desk.opened)) is not None:
        return gate
    card = desk.focused
    for gates in (card.gates if card is not None else [], desk.gates):
        if len(gates) == 1:
            return gates[0]
    if not desk.gates:
        raise Unsaid("No gate is open: nothing waits for an answer.")
    raise Unsaid(f"Several gates are open: {told(desk.gates)}. Name one of them.")


def next_gate(desk: Desk) -> GateTold | None:
    """The gate after the one that is open on the screen; those of the run in focus come first."""
    turns = sorted(desk.gates, key=lambda gate: desk.root_of(gate.run_id) != desk.focus)
    ids = [gate.gate_id for gate in turns]
    at = ids.index(desk.opened) + 1 if desk.opened in ids else 0
    return turns[at % len(turns)] if turns else None


def whose(desk: Desk, gate: GateTold) -> str:
    """The run that asks, so that nobody answers for another."""
    card = desk.runs.get(desk.root_of(gate.run_id))
    if card is None:
        return short_id(gate.run_id)
    return (f"{card.label} · " if card.label else "") + f"{card.workflow} {card.short_id}"


def split_answer(desk: Desk, text: str) -> tuple[GateTold, str]:
    """The gate and the answer in `[gate] answer`: a first word that names no open gate is of the answer."""
    first, _, rest = text.strip().partition(" ")
    if rest.strip() and len(found := matching(desk, first)) == 1:
        return found[0], rest.strip()
    if not text.strip():
        raise Unsaid("Say the answer: /answer [GATE] ANSWER.")
    return the_gate(desk), text.strip()


def split_reason(desk: Desk, text: str) -> tuple[GateTold, str]:
    """The gate and the reason in `[gate] [reason]`."""
    first, _, rest = text.strip().partition(" ")
    if first and (found := matching(desk, first)):
        return gate_named(desk, first) if len(found) > 1 else found[0], rest.strip()
    if first and not rest:
        return gate_named(desk, first), ""
    return the_gate(desk), text.strip()


def told(gates: list[GateTold]) -> str:
    return ", ".join(
        f"{number} {name_of(gate)} ({gate.gate_id})" for number, gate in enumerate(gates[:10], 1)
    )
