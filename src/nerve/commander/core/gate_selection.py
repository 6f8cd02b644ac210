"""Which answer of a gate is meant."""

from __future__ import annotations

from collections.abc import Callable

from nerve.api.models import GateResponse
from nerve.commander.core.run_cards import MIN_ID_SUFFIX_CHARS, short_id
from nerve.commander.core.state import CommanderState
from nerve.ui.gate_names import gate_display_name, gate_names
from nerve.ui.json_forms import format_example_answer


class AmbiguousAnswer(ValueError):
    """It cannot be told which answer is meant; the message says what to type."""


def match_choice(
    gate: GateResponse,
    words: tuple[str, ...],
    format_command: Callable[[GateResponse, str], str] | None = None,
) -> str:
    """The one choice of a gate that says this; nothing is guessed. `how` writes the command that answers."""
    format_command = format_command or (lambda gate, text: f"/answer {gate.gate_id} {text}")
    if gate.form is not None:
        raise AmbiguousAnswer(
            f"Gate '{gate_display_name(gate)}' asks for more than that: "
            f"{format_command(gate, format_example_answer(gate.form))}"
        )
    choices = gate.choices or gate.options or []
    matches = [choice for choice in choices if choice.casefold() in words]
    if len(matches) == 1:
        return matches[0]
    takes, first = " or ".join(choices) or "any text", choices[0] if choices else "TEXT"
    raise AmbiguousAnswer(
        f"Gate '{gate_display_name(gate)}' takes {takes}: say which it is, with {format_command(gate, first)}"
    )


def find_gate_by_name(state: CommanderState, name: str) -> GateResponse:
    """The open gate of that name, id or number in the list; without a name, the one that must be meant."""
    name = name.strip()
    if not name:
        return current_gate(state)
    matches = match_gates(state, name)
    if len(matches) == 1:
        return matches[0]
    if matches:
        raise AmbiguousAnswer(
            f"'{name}' could be several gates: {format_gate_list(matches)}. Name one by its id."
        )
    hint = f"Open: {format_gate_list(state.gates)}." if state.gates else "None is open."
    raise AmbiguousAnswer(f"There is no open gate '{name}'. {hint}")


def match_gates(state: CommanderState, name: str) -> list[GateResponse]:
    by_name = [gate for gate in state.gates if name in gate_names(gate)]
    by_run = [gate for gate in state.gates if is_gate_of_run(state, gate, name)]
    by_start = [gate for gate in state.gates if len(name) >= 4 and gate.gate_id.startswith(name)]
    number = int(name) if name.isdecimal() and name.isascii() and len(name) < 5 else 0
    by_number = state.gates[number - 1 : number] if number else []
    return by_name or by_run or by_start or by_number


def is_gate_of_run(state: CommanderState, gate: GateResponse, name: str) -> bool:
    card = state.runs.get(state.root_of(gate.run_id))
    if card is not None and len(name) >= MIN_ID_SUFFIX_CHARS and card.run_id.endswith(name):
        return True
    return name in (gate.run_id, card.label if card is not None else None)


def current_gate(state: CommanderState) -> GateResponse:
    """The gate that is open on the screen, or the only one of the run in focus, or the only one."""
    if (gate := state.find_gate(state.open_gate_id)) is not None:
        return gate
    card = state.focused_run
    for gates in (card.gates if card is not None else [], state.gates):
        if len(gates) == 1:
            return gates[0]
    if not state.gates:
        raise AmbiguousAnswer("No gate is open: nothing waits for an answer.")
    raise AmbiguousAnswer(f"Several gates are open: {format_gate_list(state.gates)}. Name one of them.")


def next_gate(state: CommanderState) -> GateResponse | None:
    """The gate after the one that is open on the screen; those of the run in focus come first."""
    ordered_gates = sorted(state.gates, key=lambda gate: state.root_of(gate.run_id) != state.focused_run_id)
    ids = [gate.gate_id for gate in ordered_gates]
    index = ids.index(state.open_gate_id) + 1 if state.open_gate_id in ids else 0
    return ordered_gates[index % len(ordered_gates)] if ordered_gates else None


def gate_run_label(state: CommanderState, gate: GateResponse) -> str:
    """The run that asks, so that nobody answers for another."""
    card = state.runs.get(state.root_of(gate.run_id))
    if card is None:
        return short_id(gate.run_id)
    return (f"{card.label} · " if card.label else "") + f"{card.workflow} {card.short_id}"


def split_answer(state: CommanderState, text: str) -> tuple[GateResponse, str]:
    """The gate and the answer in `[gate] answer`: a first word that names no open gate is of the answer."""
    first, _, rest = text.strip().partition(" ")
    if rest.strip() and len(matches := match_gates(state, first)) == 1:
        return matches[0], rest.strip()
    if not text.strip():
        raise AmbiguousAnswer("Say the answer: /answer [GATE] ANSWER.")
    return current_gate(state), text.strip()


def split_reason(state: CommanderState, text: str) -> tuple[GateResponse, str]:
    """The gate and the reason in `[gate] [reason]`."""
    first, _, rest = text.strip().partition(" ")
    if first and (matches := match_gates(state, first)):
        return find_gate_by_name(state, first) if len(matches) > 1 else matches[0], rest.strip()
    if first and not rest:
        return find_gate_by_name(state, first), ""
    return current_gate(state), text.strip()


def format_gate_list(gates: list[GateResponse]) -> str:
    return ", ".join(
        f"{number} {gate_display_name(gate)} ({gate.gate_id})" for number, gate in enumerate(gates[:10], 1)
    )
