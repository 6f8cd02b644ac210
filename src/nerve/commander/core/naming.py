"""Names of what can be started, as they are typed and as they are offered."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable, Iterable, Sequence

from nerve.api.models import WorkflowTold
from nerve.commander.core.cards import SHORTEST
from nerve.commander.core.completion import Named, Names
from nerve.commander.core.desk import Desk
from nerve.commander.core.gates import name_of
from nerve.core.suggest import suggest


class Unknown(ValueError):
    """A name that means nothing here; the message is a sentence with the fix."""


def startable(desk: Desk, kind: str, name: str) -> tuple[str, WorkflowTold | None]:
    """What a name means, also by the only beginning of it, and the workflow if it is one."""
    flows = {each.id: each for each in desk.workflows}
    graphs = graphs_of(desk)
    known = {"node": [*desk.nodes, *graphs], "graph": graphs, "workflow": list(flows)}[kind]
    if name not in known:
        close = [each for each in known if each.startswith(name)]
        if len(close) != 1:
            raise Unknown(elsewhere(desk, kind, name, graphs) or unknown(kind, name, close, known))
        name = close[0]
    return name, flows.get(name) if kind == "workflow" else None


def run_named(desk: Desk, name: str) -> str | None:
    """The run that a name on the screen means: a block, the only open one of a workflow, the end of an id.

    None if it must be an id or a label, which the server knows better.
    """
    if name.startswith("::"):
        number = int(name[2:]) if name[2:].isdecimal() else 0
        block = next((each for each in desk.blocks if each.number == number > 0), None)
        if block is None or block.run_id is None:
            raise Unknown(f"{name} is no run. /runs lists them.")
        return block.run_id
    cards = [card for card in desk.runs.values() if card.workflow == name]
    if name in desk.runs or any(card.label == name for card in desk.runs.values()):
        return None
    if not cards and len(name) >= SHORTEST and not any(each.startswith(name) for each in desk.runs):
        cards = [card for card in desk.runs.values() if card.run_id.endswith(name)]
    meant = [card for card in cards if not card.ended] or cards
    if len(meant) > 1:
        told = ", ".join(f"{card.short_id} ({card.state})" for card in meant[:10])
        raise Unknown(f"'{name}' could be several runs: {told}. Name one by its id.")
    return meant[0].run_id if meant else None


def only_ones(desk: Desk) -> set[str]:
    """The ids of the runs that the name of their workflow means."""
    found = set()
    for workflow in {card.workflow for card in desk.runs.values()}:
        with contextlib.suppress(Unknown):
            found.add(run_named(desk, workflow) or "")
    return found


def graphs_of(desk: Desk) -> list[str]:
    """The graphs, each once; what was started once, a node too, is a workflow from then on."""
    return list(dict.fromkeys([*desk.graphs, *(each.id for each in desk.workflows if each.kind == "graph")]))


def elsewhere(desk: Desk, kind: str, name: str, graphs: list[str]) -> str:
    """How a name is typed that is one of another kind; "" where there is none of any kind."""
    prefixes = {"workflow": "%", "graph": "#", "node": "@"}
    names = {"graph": graphs, "node": list(desk.nodes), "workflow": [each.id for each in desk.workflows]}
    found = next((other for other, known in names.items() if other != kind and name in known), None)
    return f"'{name}' is a {found}, not a {kind}: type {prefixes[found]}{name}." if found else ""


def unknown(kind: str, name: str, close: list[str], known: list[str]) -> str:
    if close:
        return f"'{name}' could be {', '.join(sorted(close)[:10])}. Write more of the name."
    there = ", ".join(sorted(known)[:10]) + (", …" if len(known) > 10 else "")
    told = suggest(name, known).removeprefix(". ") or (
        f"There are: {there}." if known else f"There are no {kind}s here."
    )
    return f"There is no {kind} '{name}'. {told}"


def names(
    desk: Desk, themes: Sequence[str] = (), files: Callable[[str], Iterable[str]] | None = None
) -> Names:
    """Everything that can be named now."""
    only = only_ones(desk)
    runs = [
        Named(
            card.label or (card.workflow if card.run_id in only else card.short_id),
            f"{card.workflow} {card.state} {card.about}".rstrip(),
        )
        for card in desk.runs.values()
    ]
    asked = Counter(map(name_of, desk.gates))
    gates = [
        Named(
            name_of(gate) if asked[name_of(gate)] == 1 else gate.gate_id, " ".join(gate.prompt.split())[:60]
        )
        for gate in desk.gates
    ]
    results = [each for each in desk.blocks if each.kind in ("run", "text") and each.done]
    results = [each for each in results if not each.name.startswith("/")]
    opened = desk.gate(desk.opened)
    blocks = [Named("last", "the last result")] if results else []
    blocks += [Named(str(each.number), f"{each.name} {each.text[:40]}") for each in reversed(results)]
    blocks += [Named(name, "by its name") for name in dict.fromkeys(each.name for each in results) if name]
    return Names(
        workflows=desk.workflows,
        nodes=[Named(name, "node") for name in desk.nodes],
        graphs=[Named(name, "graph") for name in graphs_of(desk)],
        runs=runs,
        gates=gates,
        blocks=blocks,
        answers=(opened.choices or opened.options or []) if opened is not None else [],
        themes=themes,
        files=files,
    )
