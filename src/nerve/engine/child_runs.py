"""Child runs: workflows called by workflows, each a run of its own, started at most once."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from nerve.core.json_codec import decode_json
from nerve.core.limits import BUDGET_FIELDS, Limits, RunUsage
from nerve.core.nodes.context import numbered_path
from nerve.core.result import CHILD_REJECTED_ERROR_TYPE, REJECTED_ERROR_TYPE, Result
from nerve.core.run_view import RunView
from nerve.core.runtime import NodeCall
from nerve.core.usage_ledger import sum_entries
from nerve.core.workflow.run import WorkflowRun
from nerve.core.workflow.state import WorkflowState
from nerve.core.workflow.workflow import Workflow, recursion_error
from nerve.engine.open_waits import find_unsettled_rows
from nerve.errors import NerveError
from nerve.journal.events import call_key, find_resets
from nerve.journal.replay import ABANDON_EVENTS, is_child_start, is_once_start, unknown_outcomes
from nerve.store.port import EventRow, RunRow, Store

if TYPE_CHECKING:
    from nerve.engine.local_engine import LocalEngine
    from nerve.engine.run_executor import RunExecutor


def child_id(parent: str, path: str, attempt: int = 1) -> str:
    """Return the id of a child run: deterministic, so that a crash never starts a second one."""
    from uuid import NAMESPACE_OID, uuid5  # imported here: it takes milliseconds, and few runs need it

    suffix = f"~{attempt}" if attempt > 1 else ""
    return str(uuid5(NAMESPACE_OID, f"{parent}{path}{suffix}"))


def attempt_timer_path(path: str, attempt: int) -> str:
    """Return the path of the timer that bounds an attempt at a child run."""
    return numbered_path(f"{path}/~timeout", attempt)


async def run_child(
    engine: LocalEngine, parent: RunExecutor, call: NodeCall, attempt: int, is_late: bool
) -> Result:
    """Start or resume the child run of a call, and return its result when it ends.

    `is_late`: the journal says that this attempt timed out, so it times out again whatever the child did.
    """
    workflow = call.node
    assert isinstance(workflow, Workflow)
    lineage = [*parent.start_data.get("lineage", []), parent.run.workflow_id]
    if refusal := recursion_error(workflow.name, lineage, parent.limits.depth):
        return refusal
    run_id = parent.child_id(call.path, attempt)
    # During replay a child that has not ended must not run ahead: the recorded parent may abandon it.
    if is_late or not (parent.is_live or engine.has_child_ended(run_id)):
        await wait_for_replay_end(engine, parent, call, run_id, is_late)
    row = engine.store.run(run_id)
    # After a reset the call has a new child. The previous one would otherwise keep running unsupervised.
    if row is None and parent.has_optional_history:
        await engine.stop_children(parent.run.run_id, "its parent replaced it", call.path)
        parent.budget.record_stopped_children(call.path)
    try:
        child = (
            engine.resume_run(row) if row is not None else create_child_run(parent, workflow, call, run_id)
        )
    except ValueError as error:
        return Result.from_exception(error)
    # Registered before the first await, so that a stop or a pause of the parent finds the child.
    if not child.is_complete:
        parent.run._children[call.path] = child
    try:
        if row is None:
            await engine.start(child, parent=parent.run.run_id, parent_path=call.path, lineage=lineage)
        else:
            # A child that runs spends from its parent's budget at once, not only when it ends.
            parent.budget.own_budget.in_progress[call.path] = engine.budgets.budget_of_run(run_id)
        previous_runs = previous_attempt_runs(engine, parent, call.path, attempt)
        for number, previous_run in enumerate(previous_runs, 1):
            parent.budget.own_budget.in_progress[f"{call.path}~{number}"] = engine.budgets.budget_of_run(
                previous_run.run_id
            )
        while not child.is_complete:
            await wait_for_child_change(parent, call, child)
    except asyncio.CancelledError:
        await abandon_child(engine, parent, call, child)
        raise
    finally:
        if parent.run._children.get(call.path) is child:
            del parent.run._children[call.path]
        parent.open_waits.update_wall_clock()
    # The stop ended the child first, and a crash kept it from the parent; see RunCommands._stop().
    if (top := find_stop_origin(engine.store, child)) is not None:
        await stop_parent_with_child(engine, parent, child, top)
    if child._state is not WorkflowState.COMPLETED:
        record_interrupted_step(engine.store, parent, call, run_id)
    return child_run_result(child, previous_runs)


def find_stop_origin(store: Store, child: WorkflowRun) -> str | None:
    """Return the run that was stopped, if the child was stopped as part of an enclosing run."""
    last = store.last_event(child.run_id) if child._state is WorkflowState.CANCELLED else None
    return None if last is None else decode_json(last.data).get("stopped_with")


async def stop_parent_with_child(
    engine: LocalEngine, parent: RunExecutor, child: WorkflowRun, top: str
) -> None:
    """Finish stopping a run when a crash interrupted the stop after its children."""
    if not parent.is_stopping:
        run = parent.run
        engine.commands.schedule_stop(run, child._error or "", None if run.run_id == top else top)
    # The body must not see the child's cancellation as an outcome; the stop cancels this wait.
    await parent.dispatcher.wait_forever()


async def wait_for_replay_end(
    engine: LocalEngine, parent: RunExecutor, call: NodeCall, run_id: str, is_late: bool
) -> None:
    """Wait until replay has ended; stop the child if the body abandons it before that."""
    if (row := engine.store.run(run_id)) is not None:
        parent.budget.own_budget.in_progress[call.path] = engine.budgets.budget_of_run(run_id)
    try:
        await (parent.dispatcher.wait_forever() if is_late else parent.wait_until_live())
    except asyncio.CancelledError:
        if row is not None and not parent.is_inactive:
            parent.run._children.pop(call.path, None)
            await abandon_child(engine, parent, call, engine.run_handle(row))
        raise


async def abandon_child(engine: LocalEngine, parent: RunExecutor, call: NodeCall, child: WorkflowRun) -> None:
    """Stop a child its parent no longer waits for; hold both if that cannot be written."""
    # A stop handles the children itself, and on shutdown a child stays open for recovery.
    if parent.is_stopping or parent.is_inactive:
        return
    try:
        await child.stop("its parent abandoned it")
    except NerveError as unwritten:
        parent.on_write_failed(unwritten)
    record_interrupted_step(engine.store, parent, call, child.run_id, is_abandoned=True)


async def wait_for_child_change(parent: RunExecutor, call: NodeCall, child: WorkflowRun) -> None:
    """Wait until a child changes; pause the timers of its call while it is held."""
    if child.held is None:
        await wait_for_child_event(parent, child)
        return
    with parent.call_runner.timers_paused(call.path):
        while child.held is not None:
            await wait_for_child_event(parent, child)


async def wait_for_child_event(parent: RunExecutor, child: WorkflowRun) -> None:
    parent.open_waits.update_wall_clock()
    parent.run._notify()
    await child._wait_for_change()


def record_interrupted_step(
    store: Store, parent: RunExecutor, call: NodeCall, run_id: str, is_abandoned: bool = False
) -> None:
    """Record a step with effect="once" that a failed child run started and may have completed."""
    if is_abandoned and call.policy.effect == "once":
        parent.call_runner.interrupted_steps.append(call.path)
    elif (step_path := find_interrupted_step(store, run_id)) is not None:
        parent.call_runner.interrupted_steps.append(call.path + step_path)


def record_all_interrupted_steps(parent: RunExecutor, call: NodeCall) -> None:
    """Record the interrupted steps of all attempts at a child run that the body abandoned."""
    host = parent.host
    for run_id in host.child_attempts(parent.run.run_id, parent.call_key(call.path)):
        record_interrupted_step(host.store, parent, call, run_id, is_abandoned=True)


def find_interrupted_step(store: Store, run_id: str) -> str | None:
    """Return the first effect="once" step of a run or its children whose outcome is unknown."""
    rows = store.events(run_id)
    unknown_paths, resets = unknown_outcomes(rows), find_resets(rows)
    for row in rows:
        if row.path in unknown_paths and is_once_start(row):
            return row.path
        if is_child_start(row):
            inner = (
                find_interrupted_step(store, attempt_row.run)
                for attempt_row in find_child_attempts(store, run_id, call_key(row.path, resets))
            )
            if (step_path := next(filter(None, inner), None)) is not None:
                return row.path + step_path
    return None


def previous_attempt_runs(
    engine: LocalEngine, parent: RunExecutor, path: str, attempt: int
) -> list[WorkflowRun]:
    """Return the runs of earlier attempts; their usage counts as well."""
    rows = (engine.store.run(parent.child_id(path, number)) for number in range(1, attempt))
    return [engine.run_handle(row) for row in rows if row is not None]


def find_child_attempts(store: Store, run_id: str, key: str) -> list[RunRow]:
    """Return the child runs of a call by its key, first attempt first."""
    rows: list[RunRow] = []
    while (row := store.run(child_id(run_id, key, len(rows) + 1))) is not None:
        rows.append(row)
    return rows


def find_unsettled_children(store: Store, run_id: str) -> list[RunRow]:
    """Return the child runs a run has called without a recorded outcome.

    Includes all attempts, abandoned ones, and those the code no longer requests.
    """
    resets: list[tuple[str, int]] = []
    keys: dict[str, None] = {}
    for row in store.events(run_id):
        if row.type == "path_reset":
            resets.append((row.path, row.seq))
        elif is_child_start(row):
            keys[call_key(row.path, resets)] = None
        elif row.settles and row.type not in ABANDON_EVENTS:
            keys.pop(call_key(row.path, resets), None)
    return [row for key in keys for row in find_child_attempts(store, run_id, key)]


def has_asked_person(store: Store, run_id: str) -> bool:
    """Whether a run, or a child of it, has opened a gate."""
    rows = store.events(run_id)
    gates = any(row.type == "gate_waiting" for row in rows)
    return gates or any(
        has_asked_person(store, decode_json(row.data)["child"]) for row in rows if is_child_start(row)
    )


def find_open_children(
    engine: LocalEngine, run_id: str, journal_rows: Sequence[EventRow]
) -> dict[str, WorkflowRun]:
    """Return the open children of a run, by the paths of their calls."""
    resets = find_resets(journal_rows)
    call_paths = [path for path, row in find_unsettled_rows(journal_rows).items() if is_child_start(row)]
    attempts_by_path = {
        path: find_child_attempts(engine.store, run_id, call_key(path, resets)) for path in call_paths
    }
    last = {path: engine.run_handle(rows[-1]) for path, rows in attempts_by_path.items() if rows}
    return {path: child for path, child in last.items() if not child.is_complete}


def create_child_run(parent: RunExecutor, workflow: Workflow, call: NodeCall, run_id: str) -> WorkflowRun:
    """Create the handle of a new child run with its limits and parameters."""
    # A child never gets more than its caller allows: the smaller of both limits applies.
    depth = min(workflow.limits.depth, parent.limits.depth)
    sources = (workflow.limits, call.policy.limits or Limits())
    budget_limits: dict[str, Any] = {}
    for name in BUDGET_FIELDS:
        for bound in (getattr(limits, name) for limits in sources):
            if bound is not None:
                budget_limits[name] = min(bound, budget_limits.get(name, bound))
    limits = workflow.limits.with_raised({"depth": depth, **budget_limits})
    params = workflow.check_params(call.params)
    return WorkflowRun(workflow, call.input, params, run_id=run_id, limits=limits)


def child_run_result(child: WorkflowRun, previous_runs: Sequence[WorkflowRun] = ()) -> Result:
    """Return the result of a call from the ended child run, with the usage of all attempts."""
    attributes: dict[str, object] = {"run_id": child.run_id}
    if usage := sum_run_usage([run.view for run in (*previous_runs, child)]):
        attributes["usage"] = usage
    if child._state is WorkflowState.COMPLETED:
        return Result.ok(child._result, attributes)
    if child._error_type == REJECTED_ERROR_TYPE:
        return Result.failed(child._error or "rejected", CHILD_REJECTED_ERROR_TYPE, attributes=attributes)
    if child._state is WorkflowState.CANCELLED:
        reason = f": {child._error}" if child._error else ""
        return Result.failed(f"child run was cancelled{reason}", "CancelledError", attributes=attributes)
    return Result.failed(
        child._error or "failed", child._error_type or "WorkflowFailed", attributes=attributes
    )


def with_attempt_usage(engine: LocalEngine, parent: RunExecutor, call: NodeCall, result: Result) -> Result:
    """Add the usage of child runs to the result of a call that timed out and does not name them."""
    attributes = result["attributes"]
    attempt_ids = (
        engine.child_attempts(parent.run.run_id, parent.call_key(call.path))
        if "run_id" not in attributes
        else []
    )
    if not attempt_ids:
        return result
    usage = usage_of_stopped_runs(engine, *attempt_ids)
    attributes = {**attributes, "run_id": attempt_ids[-1]} | ({"usage": usage} if usage else {})
    return Result({**result, "attributes": attributes}).with_settlement(result)


def usage_of_stopped_runs(engine: LocalEngine, *run_ids: str) -> dict[str, Any]:
    """Return the usage of stopped runs, including interrupted steps, and the models used."""
    rows = [row for run_id in run_ids if (row := engine.store.run(run_id)) is not None]
    models = sum_run_usage([engine.run_handle(row).view for row in rows]).get("models")
    usage = RunUsage()
    for run_id in run_ids:
        usage.add(engine.budgets.budget_of_run(run_id).total())
    used: dict[str, Any] = usage.to_dict()
    return {**used, "models": models} if models else used


def sum_run_usage(views: Sequence[RunView]) -> dict[str, Any]:
    """Return the usage of runs, and the models used."""
    usage = RunUsage()
    for view in views:
        usage.add(view.usage)
    entries = (item for view in views for item in view.ledger.entries.items())
    used, models = usage.to_dict(), sum_entries((model, entry) for (_, model), entry in entries)
    return {**used, "models": models} if used or models else {}
