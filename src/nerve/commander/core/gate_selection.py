"""Selection of the gate and the answer that the user refers to."""

from __future__ import annotations

from nerve.api.models import GateResponse
from nerve.commander.core.run_cards import MIN_ID_SUFFIX_CHARS, short_id
from nerve.commander.core.state import CommanderState
from nerve.core.gates import GateMatch, match_gate_name, select_gates
from nerve.ui.gate_names import AmbiguousAnswer, gate_display_name


def find_gate_by_name(state: CommanderState, name: str) -> GateResponse:
    """Return the open gate with this name, id or list number; without a name, the current gate."""
    name = name.strip()
    if not name:
        return current_gate(state)
    matches = find_gates(state, name)
    if len(matches) == 1:
        return matches[0]
    if matches:
        raise AmbiguousAnswer(f"Gate name '{name}' is ambiguous: {format_gate_list(matches)}. Use an id.")
    hint = f"Open: {format_gate_list(state.gates)}." if state.gates else "No gate is open."
    raise AmbiguousAnswer(f"No open gate '{name}'. {hint}")


def find_gates(state: CommanderState, name: str) -> list[GateResponse]:
    """Return the open gates with this name, else those of this run, with this start of the id or number."""
    named = select_gates(state.gates, name)
    match = match_gate_name(named[0], name) if named else None
    by_run = []
    for gate in state.gates:
        card = state.runs.get(state.root_of(gate.run_id))
        is_id_end = card is not None and len(name) >= MIN_ID_SUFFIX_CHARS and card.run_id.endswith(name)
        if is_id_end or name in (gate.run_id, card.label if card is not None else None):
            by_run.append(gate)
    number = int(name) if name.isdecimal() and name.isascii() and len(name) < 5 else 0
    by_number = state.gates[number - 1 : number] if number else []
    if match in (GateMatch.EXACT, GateMatch.NAME):
        return named
    return by_run or (named if match is GateMatch.ID_PREFIX else by_number)


def current_gate(state: CommanderState) -> GateResponse:
    """Return the gate open on the screen, else the only one of the focused run, else the only one."""
    if (gate := state.find_gate(state.open_gate_id)) is not None:
        return gate
    card = state.focused_run
    for gates in (card.gates if card is not None else [], state.gates):
        if len(gates) == 1:
            return gates[0]
    if not state.gates:
        raise AmbiguousAnswer("No gate is open.")
    raise AmbiguousAnswer(f"Several gates are open: {format_gate_list(state.gates)}. Name one.")


def next_gate(state: CommanderState) -> GateResponse | None:
    """Return the gate after the one open on the screen; gates of the focused run come first."""
    ordered_gates = sorted(state.gates, key=lambda gate: state.root_of(gate.run_id) != state.focused_run_id)
    ids = [gate.gate_id for gate in ordered_gates]
    index = ids.index(state.open_gate_id) + 1 if state.open_gate_id in ids else 0
    return ordered_gates[index % len(ordered_gates)] if ordered_gates else None


def gate_run_label(state: CommanderState, gate: GateResponse) -> str:
    """Return a label of the run that opened the gate, so the user does not answer the wrong run."""
    card = state.runs.get(state.root_of(gate.run_id))
    if card is None:
        return short_id(gate.run_id)
    return (f"{card.label} · " if card.label else "") + f"{card.workflow} {card.short_id}"


def split_answer(state: CommanderState, text: str) -> tuple[GateResponse, str]:
    """Split `[gate] answer`; a first word that does not name an open gate belongs to the answer."""
    first, _, rest = text.strip().partition(" ")
    if rest.strip() and len(matches := find_gates(state, first)) == 1:
        return matches[0], rest.strip()
    if not text.strip():
        raise AmbiguousAnswer("The answer is missing: /answer [GATE] ANSWER.")
    return current_gate(state), text.strip()


def split_reason(state: CommanderState, text: str) -> tuple[GateResponse, str]:
    """Split `[gate] [reason]` into the gate and the reason."""
    first, _, rest = text.strip().partition(" ")
    if first and (matches := find_gates(state, first)):
        return find_gate_by_name(state, first) if len(matches) > 1 else matches[0], rest.strip()
    if first and not rest:
        return find_gate_by_name(state, first), ""
    return current_gate(state), text.strip()


def format_gate_list(gates: list[GateResponse]) -> str:
    return ", ".join(
        f"{number} {gate_display_name(gate)} ({gate.gate_id})" for number, gate in enumerate(gates[:10], 1)
    )
