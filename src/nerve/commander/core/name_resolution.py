"""Resolution and completion of the names of workflows, graphs, nodes, runs and gates."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Iterable, Sequence

from nerve.api.models import GateResponse, WorkflowResponse
from nerve.commander.core.completion import CompletionName, CompletionNames
from nerve.commander.core.run_cards import MIN_ID_SUFFIX_CHARS
from nerve.commander.core.state import CommanderState
from nerve.core.gates import GateMatch, match_gate_name, select_gates
from nerve.core.suggest import did_you_mean_hint
from nerve.text import clip_names
from nerve.ui.formatting import short_id
from nerve.ui.gate_names import AmbiguousAnswer, gate_display_name


class CommanderInputError(ValueError):
    """Invalid input of the user; the message says how to fix it."""


def resolve_startable_name(
    state: CommanderState, kind: str, name: str
) -> tuple[str, WorkflowResponse | None]:
    """Resolve a name or unique prefix; also return the workflow if the name is one."""
    workflows = {item.id: item for item in state.workflows}
    graphs = graph_names(state)
    known = {"node": [*state.nodes, *graphs], "graph": graphs, "workflow": list(workflows)}[kind]
    if name not in known:
        matches = [item for item in known if item.startswith(name)]
        if len(matches) != 1:
            raise CommanderInputError(
                suggest_other_kind(state, kind, name, graphs)
                or unknown_name_message(kind, name, matches, known)
            )
        name = matches[0]
    return name, workflows.get(name) if kind == "workflow" else None


def find_run_by_name(state: CommanderState, name: str) -> str | None:
    """Return the run that a name refers to: a block, the only open run of a workflow, or the end of an id.

    None if the name must be an id or a label; the server resolves those.
    """
    if name.startswith("::"):
        number = int(name[2:]) if name[2:].isdecimal() else 0
        block = next((item for item in state.blocks if item.number == number > 0), None)
        if block is None or block.run_id is None:
            raise CommanderInputError(f"{name} is not a run. /runs lists the runs.")
        return block.run_id
    cards = [card for card in state.runs.values() if card.workflow == name]
    if name in state.runs or any(card.label == name for card in state.runs.values()):
        return None
    if (
        not cards
        and len(name) >= MIN_ID_SUFFIX_CHARS
        and not any(item.startswith(name) for item in state.runs)
    ):
        cards = [card for card in state.runs.values() if card.run_id.endswith(name)]
    matches = [card for card in cards if not card.has_ended] or cards
    if len(matches) > 1:
        candidates = ", ".join(f"{card.short_id} ({card.state})" for card in matches[:10])
        raise CommanderInputError(f"Run name '{name}' is ambiguous: {candidates}. Use an id.")
    return matches[0].run_id if matches else None


def graph_names(state: CommanderState) -> list[str]:
    """Return the unique graph names; a graph that was started is also listed as a workflow."""
    return list(
        dict.fromkeys(
            [*state.graphs, *(workflow.id for workflow in state.workflows if workflow.kind == "graph")]
        )
    )


def suggest_other_kind(state: CommanderState, kind: str, name: str, graphs: list[str]) -> str:
    """Return a hint if the name exists as another kind, else ""."""
    prefixes = {"workflow": "%", "graph": "#", "node": "@"}
    names = {
        "graph": graphs,
        "node": list(state.nodes),
        "workflow": [workflow.id for workflow in state.workflows],
    }
    actual_kind = next((other for other, known in names.items() if other != kind and name in known), None)
    return (
        f"'{name}' is a {actual_kind}, not a {kind}: type {prefixes[actual_kind]}{name}."
        if actual_kind
        else ""
    )


def unknown_name_message(kind: str, name: str, close: list[str], known: list[str]) -> str:
    if close:
        return f"Name '{name}' is ambiguous: {', '.join(sorted(close)[:10])}. Type more of it."
    known_names = clip_names(sorted(known), 10)
    hint = did_you_mean_hint(name, known).removeprefix(". ") or (
        f"Available: {known_names}." if known else f"The project has no {kind}s."
    )
    return f"Unknown {kind} '{name}'. {hint}"


def collect_completion_names(
    state: CommanderState, themes: Sequence[str] = (), files: Callable[[str], Iterable[str]] | None = None
) -> CompletionNames:
    """Return all names that can be completed now."""
    unambiguous_ids = set()  # ids of runs that their workflow name identifies
    for workflow in {card.workflow for card in state.runs.values()}:
        with contextlib.suppress(CommanderInputError):
            unambiguous_ids.add(find_run_by_name(state, workflow))
    runs = [
        CompletionName(
            card.label or (card.workflow if card.run_id in unambiguous_ids else card.short_id),
            f"{card.workflow} {card.state} {card.input_preview}".rstrip(),
        )
        for card in state.runs.values()
    ]
    gate_name_counts = Counter(map(gate_display_name, state.gates))
    gates = [
        CompletionName(
            gate_display_name(gate) if gate_name_counts[gate_display_name(gate)] == 1 else gate.gate_id,
            " ".join(gate.prompt.split())[:60],
        )
        for gate in state.gates
    ]
    results = [block for block in state.blocks if block.is_result and block.done]
    open_gate = state.find_gate(state.open_gate_id)
    blocks = [CompletionName("last", "the last result")] if results else []
    blocks += [
        CompletionName(str(block.number), f"{block.name} {block.text[:40]}") for block in reversed(results)
    ]
    blocks += [
        CompletionName(name, "result by name")
        for name in dict.fromkeys(block.name for block in results)
        if name
    ]
    return CompletionNames(
        workflows=state.workflows,
        nodes=[CompletionName(name, "node") for name in state.nodes],
        graphs=[CompletionName(name, "graph") for name in graph_names(state)],
        runs=runs,
        gates=gates,
        queues=[CompletionName(name, "queue") for name in state.queue_names],
        blocks=blocks,
        answers=(open_gate.choices or open_gate.options or []) if open_gate is not None else [],
        themes=themes,
        files=files,
    )


# -- gates ---------------------------------------------------------------------------------------------


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
