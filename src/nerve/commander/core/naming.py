"""Names of what can be started, as they are typed and as they are offered."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from nerve.api.models import WorkflowTold
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
            raise Unknown(unknown(kind, name, close, known))
        name = close[0]
    return name, flows.get(name) if kind == "workflow" else None


def graphs_of(desk: Desk) -> list[str]:
    """The graphs; what was started once, a node too, is a workflow from then on."""
    return [*desk.graphs, *(each.id for each in desk.workflows if each.kind == "graph")]


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
    runs = [
        Named(card.label or card.run_id[:13], f"{card.workflow} {card.state}") for card in desk.runs.values()
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
        gates=[Named(name_of(gate), " ".join(gate.prompt.split())[:60]) for gate in desk.gates],
        blocks=blocks,
        answers=(opened.choices or opened.options or []) if opened is not None else [],
        themes=themes,
        files=files,
    )
