"""Find runs, gates and workflows by the names that users give them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from nerve.api.errors import ApiError, RunNotFound
from nerve.core.events import GATE_EVENTS, STEP_START_EVENTS, WorkflowEventType
from nerve.core.gates import GateMatch, gate_names, match_gate_name, select_lowest
from nerve.core.workflow import Workflow, WorkflowRun
from nerve.core.workflow.open_gates import OpenGates
from nerve.core.workflow.run import OwnedGate, list_gates, several_gates_message
from nerve.core.workflow.state import OPEN_STATE_VALUES
from nerve.engine.run_chain import find_current_row, find_run_of_chain, iterate_chain
from nerve.engine.run_summary import GATE_KIND
from nerve.engine.stored_gates import gate_of_wait
from nerve.errors import GateNotOpen
from nerve.journal.events import (
    CallStarted,
    GateAnswered,
    GateCancelled,
    GateTimeout,
    GateWaiting,
    decode_event,
    may_contain,
    read_intact,
)
from nerve.text import clip_names

if TYPE_CHECKING:
    from nerve.session import Session
    from nerve.store.port import RunRow, Store

MAX_LISTED_MATCHES = 5
"""How many candidates an ambiguity message lists."""
MAX_SEARCHED_RUNS = 1000
"""How many runs to search for a gate that has closed."""
WORKFLOWS_FIX = "See the list: nerve workflow list"


def ambiguity_message(name: str, candidates: list[str]) -> str:
    return f"'{name}' is ambiguous: {clip_names(candidates, MAX_LISTED_MATCHES)}"


def complete_unique_name(name: str, names: Iterable[str]) -> str | None:
    """Return the name that matches exactly or by a unique prefix; None if none does."""
    matches = sorted({candidate for candidate in names if candidate.startswith(name)})
    if name in matches:
        return name
    if len(matches) > 1:
        raise ApiError("conflict", ambiguity_message(name, matches), "Use a longer prefix.")
    return matches[0] if matches else None


# -- runs ----------------------------------------------------------------------------------------------


def find_run(session: Session, name: str) -> WorkflowRun:
    """Return the run with that name; raise ApiError if none or several match."""
    return session.engine.run_handle(find_run_row(session, name))


def find_run_row(session: Session, name: str) -> RunRow:
    """Return the run of a session with that name."""
    return find_stored_run(session.engine.store, session.name, name)


def find_stored_run(store: Store, session: str, name: str) -> RunRow:
    """Return a run by its id, its label, a prefix of its id, or a prefix of its label.

    If several match and only one of them is open, return that one. Of runs of one chain, which share their
    label, the current one is returned; the id of a first run that was deleted still names its chain.
    """
    exact = store.run(name)
    if exact is not None and exact.session == session:
        return exact
    for names in (
        ({"label": name}, {"prefix": name}),
        ({"label": label} for label in find_unique_label(store, session, name)),
    ):
        if rows := match_run_rows(store, session, list(names)):
            break
    else:
        if (current := find_run_of_chain(store, session, name)) is not None:
            return current
        raise RunNotFound(name)
    if len(rows) > 1:
        rows = list({row.run: row for row in (find_current_row(store, row) for row in rows)}.values())
    if len(rows) > 1:
        raise ambiguous_run_error(name, rows)
    return rows[0]


def match_run_rows(store: Store, session: str, names: list[dict[str, Any]]) -> list[RunRow]:
    """Return the newest open runs that match one of the names, or else the newest others, newest first."""
    for states in (OPEN_STATE_VALUES, None):
        queries = [
            {"session": session, "states": states, "newest": MAX_LISTED_MATCHES + 1, **criteria}
            for criteria in names
        ]
        rows = {row.run: row for query in queries for row in store.runs(**query)}
        if rows:
            return sorted(rows.values(), key=lambda row: row.started, reverse=True)
    return []


def find_unique_label(store: Store, session: str, prefix: str) -> Iterator[str]:
    """Yield the only label with that prefix, if there is one."""
    matches = store.labels(session, prefix, MAX_LISTED_MATCHES + 1)
    if len(matches) > 1:
        raise ApiError("conflict", ambiguity_message(prefix, matches), "Use a longer prefix.")
    yield from matches


def ambiguous_run_error(name: str, rows: list[RunRow]) -> ApiError:
    candidates = [
        {
            "run_id": row.run,
            "label": row.label,
            "state": row.state,
            "started_at": datetime.fromtimestamp(row.started, UTC).isoformat(timespec="seconds"),
        }
        for row in rows
    ]
    descriptions = [
        f"{candidate['run_id']} ({candidate['state']}, started {candidate['started_at']})"
        for candidate in candidates
    ]
    return ApiError(
        "conflict",
        ambiguity_message(name, descriptions),
        "Name one by its id.",
        {"runs": candidates[:MAX_LISTED_MATCHES]},
    )


def matches_run_name(row: RunRow, name: str) -> bool:
    """Return whether a name could refer to this run."""
    return row.run.startswith(name) or (row.label or "").startswith(name)


# -- gates ---------------------------------------------------------------------------------------------


def find_open_gate(session: Session, run: WorkflowRun, name: str | None) -> OwnedGate:
    """Return an open gate of a run by its id, path or node, or a unique prefix; GateNotOpen if none matches.

    A prefix of a name does not match if it is exactly the name of a gate that has closed.
    """
    matches = run.match_gates(name)
    if len(matches) == 1:
        return matches[0]
    if matches and name is None:
        raise ApiError("conflict", several_gates_message(matches), "Name the gate.")
    if matches:
        message = f"Several open gates have the name '{name}': {list_gates(matches)}"
        raise ApiError("conflict", message, "Name the gate by its id.")
    matches = [
        owned
        for owned in run.owned_gates()
        if match_gate_name(owned.gate, str(name), owned.path) is GateMatch.NAME_PREFIX
    ]
    if not matches or any(event.has_name(name) for event in gate_events(session, run.run_id)):
        raise GateNotOpen(f"Gate '{name}' is not open in run '{run.run_id}'")
    if len(matches) > 1:
        could_be = [owned.gate.node_id or owned.path for owned in matches]
        raise ApiError("conflict", ambiguity_message(str(name), could_be), "Use a longer prefix.")
    return matches[0]


def find_run_of_gate(session: Session, gate: str) -> WorkflowRun:
    """Return the run in which the gate is or was open."""
    engine = session.engine
    for run in list(engine.run_handles.values()):
        if run.run_state.known_gates is not None and run.run_state.known_gates.has_id(gate):
            return run
    engine.bind_to_running_loop()
    waits = engine.store.open_waits(session.name, GATE_KIND)
    # A cheap filter: there may be thousands of gates.
    named = [wait for wait in waits if gate in wait.path or may_contain(wait.data or "", gate)]
    ranked = (
        (match, wait.run) for wait in named for match, _ in OpenGates([gate_of_wait(wait)]).find_matches(gate)
    )
    matches = list(dict.fromkeys(select_lowest(ranked)))
    if len(matches) > 1:
        ids = ", ".join(matches[:MAX_LISTED_MATCHES])
        raise ApiError("conflict", f"Several runs have an open gate '{gate}': {ids}", "Pass the run as well.")
    row = engine.store.run(matches[0]) if matches else None
    return engine.run_handle(row) if row is not None else find_run_of_closed_gate(session, gate)


def find_run_of_closed_gate(session: Session, gate_id: str) -> WorkflowRun:
    rows = session.engine.store.runs(session=session.name, newest=MAX_SEARCHED_RUNS)
    for row in reversed(rows):
        journal = read_intact(session.engine.store, row.run)
        gates = (decode_event(row) for row in journal if row.type == WorkflowEventType.GATE_WAITING)
        if any(isinstance(gate, GateWaiting) and gate.gate_id == gate_id for gate in gates):
            return session.engine.run_handle(row, journal)
    raise ApiError("not_found", f"Gate '{gate_id}' not found", "See the list: nerve gates")


class GateEvent(NamedTuple):
    """An event of a gate: opened, answered, timed out or abandoned."""

    run_id: str
    display_path: str
    """The path of the gate as shown by the requested run."""
    path: str
    event: GateWaiting | GateAnswered | GateTimeout | GateCancelled

    def has_name(self, name: str | None) -> bool:
        return name == self.path or name in gate_names(
            self.event.gate_id, self.display_path, self.event.node_id
        )


def gate_events(session: Session, run_id: str, path_prefix: str = "") -> Iterator[GateEvent]:
    """Yield the gate events of a run and its child runs."""
    for row in session.engine.store.events(run_id):
        # Results and outputs are not decoded.
        match decode_event(row) if row.type in GATE_EVENTS or row.type in STEP_START_EVENTS else None:
            case (GateWaiting() | GateAnswered() | GateTimeout() | GateCancelled()) as event:
                yield GateEvent(run_id, path_prefix + row.path, row.path, event)
            case CallStarted(child=str() as child):
                first = session.engine.store.run(child)
                for child_row in iterate_chain(session.engine.store, first) if first is not None else ():
                    yield from gate_events(session, child_row.run, path_prefix + row.path)


# -- workflows -----------------------------------------------------------------------------------------


def find_workflow(session: Session, name: str) -> Workflow:
    """Return a workflow by its name or a unique prefix of it."""
    full_name = complete_unique_name(name, session.workflows)
    workflow = session.get_workflow(full_name) if full_name is not None else None
    if workflow is None:
        raise ApiError("not_found", f"Workflow '{name}' not found", WORKFLOWS_FIX)
    return workflow


def find_startable_name(session: Session, name: str, definition: str | None = None) -> str:
    """Return the name of a workflow, node or graph, which may be given by a unique prefix.

    With the hash of a definition, it must be the name of that definition.
    """
    if definition is not None:
        stored = session.engine.store.definition(definition)
        if stored is None or stored.workflow != name:
            message = f"Workflow '{name}' has no definition '{definition}'"
            raise ApiError("not_found", message, "Define it, and start it with the hash in the reply.")
        return name
    name = complete_unique_name(name, [*session.workflows, *session.graphs, *session.nodes]) or name
    if session.find_startable(name) is None:
        raise ApiError("not_found", f"Workflow '{name}' not found", WORKFLOWS_FIX)
    return name


def complete_workflow_name(session: Session, name: str) -> str:
    """Return the workflow name for a prefix, from runs and definitions; the workflow may no longer exist."""
    known = [*session.workflows, *session.graphs, *session.nodes]
    if name in known:
        return name
    store = session.engine.store
    stored = (store.definition(hash) for hash in store.count_definitions(session.name))
    former = [definition.workflow for definition in stored if definition is not None]
    return complete_unique_name(name, [*known, *former]) or name
