"""Children: workflows called by workflows, each a run of its own, started at most once."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from nerve.core.ledger import summed
from nerve.core.limits import BUDGETS, Limits, Usage
from nerve.core.nodes.context import numbered
from nerve.core.result import CHILD_REJECTED, REJECTED, Result
from nerve.core.runtime import Call
from nerve.core.values import decode
from nerve.core.view import RunView
from nerve.core.workflow.replay import DROPS, is_child, is_once, unclear
from nerve.core.workflow.run import WorkflowRun
from nerve.core.workflow.state import WorkflowState
from nerve.core.workflow.workflow import Workflow, refused
from nerve.engine.records import call_key, resets_in
from nerve.engine.waits import asked_in
from nerve.errors import NerveError
from nerve.store.port import Row, RunRow, Store

if TYPE_CHECKING:
    from nerve.engine.drive import Drive
    from nerve.engine.local import LocalEngine


def child_id(parent: str, path: str, attempt: int = 1) -> str:
    """The same for the same place of the same run, so that a crash never starts two."""
    from uuid import NAMESPACE_OID, uuid5  # it takes milliseconds to import, and few need it

    again = f"~{attempt}" if attempt > 1 else ""
    return str(uuid5(NAMESPACE_OID, f"{parent}{path}{again}"))


def bound_of(path: str, attempt: int) -> str:
    """The path of the timer that bounds an attempt at a child run."""
    return numbered(f"{path}/~timeout", attempt)


async def run_child(engine: LocalEngine, parent: Drive, call: Call, attempt: int, late: bool) -> Result:
    """How the child run of a call ended; the child is started if there is none yet.

    `late` says that the attempt ran out of its time, as the journal has it, whatever became of the child:
    the body is told so again.
    """
    workflow = call.node
    assert isinstance(workflow, Workflow)
    lineage = [*parent.start.get("lineage", []), parent.run.workflow_id]
    if refusal := refused(workflow.name, lineage, parent.limits.depth):
        return refusal
    run_id = parent.child_id(call.path, attempt)
    if late or not (parent.is_live or engine.child_ended(run_id)):
        await held_back(engine, parent, call, run_id, late)
    row = engine.store.run(run_id)
    if row is None and parent.changed:
        await engine.stop_children(parent.run.run_id, "its parent asks for another", call.path)
        parent.purses.stopped(call.path)
    try:
        child = engine.take_up(row) if row is not None else made(parent, workflow, call, run_id)
    except ValueError as error:
        return Result.raised(error)
    if not child.is_complete:
        parent.run._children[call.path] = child
    try:
        if row is None:
            await engine.start(child, parent=parent.run.run_id, parent_path=call.path, lineage=lineage)
        else:
            parent.purses.own.under_way[call.path] = engine.budgets.of(run_id)
        before = earlier(engine, parent, call.path, attempt)
        for number, each in enumerate(before, 1):
            parent.purses.own.under_way[f"{call.path}~{number}"] = engine.budgets.of(each.run_id)
        while not child.is_complete:
            await changed(parent, call, child)
    except asyncio.CancelledError:
        await give_up(engine, parent, call, child)
        raise
    finally:
        if parent.run._children.get(call.path) is child:
            del parent.run._children[call.path]
        parent.waits.tick()
    if (top := stopped_with(engine.store, child)) is not None:
        await stop_too(engine, parent, child, top)
    if child._state is not WorkflowState.COMPLETED:
        note_cut_off(engine.store, parent, call, run_id)
    return result_of(child, before)


def stopped_with(store: Store, child: WorkflowRun) -> str | None:
    """The run that was stopped, if a child was stopped with one that is around it."""
    last = store.last(child.run_id) if child._state is WorkflowState.CANCELLED else None
    return None if last is None else decode(last.data).get("stopped_with")


async def stop_too(engine: LocalEngine, parent: Drive, child: WorkflowRun, top: str) -> None:
    """A run whose child was stopped with it, and that a crash kept from being stopped, is stopped now."""
    if not parent.stopping:
        run = parent.run
        engine.commands.begin_to_stop(run, child._error or "", None if run.run_id == top else top)
    await parent.delivery.never()


async def held_back(engine: LocalEngine, parent: Drive, call: Call, run_id: str, late: bool) -> None:
    """Return when the replay is over; if the body gives the child up before, it is stopped."""
    if (row := engine.store.run(run_id)) is not None:
        parent.purses.own.under_way[call.path] = engine.budgets.of(run_id)
    try:
        await (parent.delivery.never() if late else parent.turn_live())
    except asyncio.CancelledError:
        if row is not None and not parent.left:
            parent.run._children.pop(call.path, None)
            await give_up(engine, parent, call, engine.handle(row))
        raise


async def give_up(engine: LocalEngine, parent: Drive, call: Call, child: WorkflowRun) -> None:
    """Stop a child that its parent does not wait for any more; if that cannot be written, both are held."""
    if parent.stopping or parent.left:
        return
    try:
        await child.stop("the parent gave it up")
    except NerveError as unwritten:
        parent.write_failed(unwritten)
    note_cut_off(engine.store, parent, call, child.run_id, given_up=True)


async def changed(parent: Drive, call: Call, child: WorkflowRun) -> None:
    """Return when something about a child has changed; no time passes for its call while it is held."""
    if child.held is None:
        await told_of(parent, child)
        return
    with parent.calls.unhurried(call.path):
        while child.held is not None:
            await told_of(parent, child)


async def told_of(parent: Drive, child: WorkflowRun) -> None:
    parent.waits.tick()
    parent.run._notify()
    await child._change()


def note_cut_off(store: Store, parent: Drive, call: Call, run_id: str, given_up: bool = False) -> None:
    """Note what must happen at most once, was begun in a child run that did not succeed, and may have."""
    if given_up and call.policy.effect == "once":
        parent.calls.cut.append(call.path)
    elif (place := cut_off_in(store, run_id)) is not None:
        parent.calls.cut.append(call.path + place)


def note_all_cut_off(parent: Drive, call: Call) -> None:
    """The same of all attempts at a child run that the body has given up before."""
    host = parent.host
    for run_id in host.attempts(parent.run.run_id, parent.call_key(call.path)):
        note_cut_off(host.store, parent, call, run_id, given_up=True)


def cut_off_in(store: Store, run_id: str) -> str | None:
    """The first step of a run, or of a child of it, that must happen at most once, and may have."""
    past = store.events(run_id)
    begun, resets = unclear(past), resets_in(past)
    for row in past:
        if row.path in begun and is_once(row):
            return row.path
        if is_child(row):
            inner = (
                cut_off_in(store, each.run) for each in attempts(store, run_id, call_key(row.path, resets))
            )
            if (place := next(filter(None, inner), None)) is not None:
                return row.path + place
    return None


def earlier(engine: LocalEngine, parent: Drive, path: str, attempt: int) -> list[WorkflowRun]:
    """The runs of the attempts before: what they took counts as well."""
    rows = (engine.store.run(parent.child_id(path, number)) for number in range(1, attempt))
    return [engine.handle(row) for row in rows if row is not None]


def attempts(store: Store, run_id: str, key: str) -> list[RunRow]:
    """The child runs of a call, by what they are called after, the first attempt first."""
    found: list[RunRow] = []
    while (row := store.run(child_id(run_id, key, len(found) + 1))) is not None:
        found.append(row)
    return found


def unheard(store: Store, run_id: str) -> list[RunRow]:
    """The child runs that a run has called and not heard from, as its journal tells.

    All attempts, and also those that were given up, or that the code does not ask for any more.
    """
    resets: list[tuple[str, int]] = []
    keys: dict[str, None] = {}
    for row in store.events(run_id):
        if row.type == "path_reset":
            resets.append((row.path, row.seq))
        elif is_child(row):
            keys[call_key(row.path, resets)] = None
        elif row.settles and row.type not in DROPS:
            keys.pop(call_key(row.path, resets), None)
    return [row for key in keys for row in attempts(store, run_id, key)]


def asked(store: Store, run_id: str) -> bool:
    """Whether a person was asked in a run, or in a child of it."""
    past = store.events(run_id)
    gates = any(row.type == "gate_waiting" for row in past)
    return gates or any(asked(store, decode(row.data)["child"]) for row in past if is_child(row))


def open_in(engine: LocalEngine, run_id: str, past: Sequence[Row]) -> dict[str, WorkflowRun]:
    """The children that a run has called and not heard from, by the paths of their calls."""
    resets = resets_in(past)
    called = [path for path, row in asked_in(past).items() if is_child(row)]
    tried = {path: attempts(engine.store, run_id, call_key(path, resets)) for path in called}
    last = {path: engine.handle(rows[-1]) for path, rows in tried.items() if rows}
    return {path: child for path, child in last.items() if not child.is_complete}


def made(parent: Drive, workflow: Workflow, call: Call, run_id: str) -> WorkflowRun:
    depth = min(workflow.limits.depth, parent.limits.depth)
    sources = (workflow.limits, call.policy.limits or Limits())
    bounds: dict[str, Any] = {}
    for name in BUDGETS:
        for bound in (getattr(limits, name) for limits in sources):
            if bound is not None:
                bounds[name] = min(bound, bounds.get(name, bound))
    limits = workflow.limits.raised({"depth": depth, **bounds})
    params = workflow.check_params(call.params)
    return WorkflowRun(workflow, call.input, params, run_id=run_id, limits=limits)


def result_of(child: WorkflowRun, before: Sequence[WorkflowRun] = ()) -> Result:
    attributes: dict[str, object] = {"run_id": child.run_id}
    if used := taken([run.view for run in (*before, child)]):
        attributes["usage"] = used
    if child._state is WorkflowState.COMPLETED:
        return Result.ok(child._result, attributes)
    if child._error_type == REJECTED:
        return Result.failed(child._error or "rejected", CHILD_REJECTED, attributes=attributes)
    if child._state is WorkflowState.CANCELLED:
        reason = f": {child._error}" if child._error else ""
        return Result.failed(f"child run was cancelled{reason}", "CancelledError", attributes=attributes)
    return Result.failed(
        child._error or "failed", child._error_type or "WorkflowFailed", attributes=attributes
    )


def accounted(engine: LocalEngine, parent: Drive, call: Call, result: Result) -> Result:
    """A call that ran out of its time tells of no child run: what its attempts took counts all the same."""
    told = result["attributes"]
    tried = engine.attempts(parent.run.run_id, parent.call_key(call.path)) if "run_id" not in told else []
    if not tried:
        return result
    used = taken_by(engine, *tried)
    told = {**told, "run_id": tried[-1]} | ({"usage": used} if used else {})
    return Result({**result, "attributes": told}).ended_as(result)


def taken_by(engine: LocalEngine, *run_ids: str) -> dict[str, Any]:
    """What runs have used that were stopped, also in steps that were cut off, and of which models."""
    rows = [row for run_id in run_ids if (row := engine.store.run(run_id)) is not None]
    models = taken([engine.handle(row).view for row in rows]).get("models")
    usage = Usage()
    for run_id in run_ids:
        usage.add(engine.budgets.of(run_id).taken())
    used: dict[str, Any] = usage.to_dict()
    return {**used, "models": models} if models else used


def taken(views: Sequence[RunView]) -> dict[str, Any]:
    """What runs have used, and of which models."""
    usage = Usage()
    for view in views:
        usage.add(view.usage)
    entries = (item for view in views for item in view.ledger.entries.items())
    used, models = usage.to_dict(), summed((model, entry) for (_, model), entry in entries)
    return {**used, "models": models} if used or models else {}
