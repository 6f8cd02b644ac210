"""Answering: each gate takes one answer; who gave it is told the same each time, the others who won."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Collection, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple
from weakref import WeakKeyDictionary

from nerve.api import models
from nerve.api.errors import ApiError
from nerve.api.once import under_key
from nerve.api.replies import Reply
from nerve.api.telling import found, goes_by, several
from nerve.core.gates import taken
from nerve.core.values import decode, encode
from nerve.core.workflow import GateInfo, WorkflowRun, WorkflowState
from nerve.core.workflow.replay import ASKS
from nerve.core.workflow.run import SHORTEST
from nerve.core.workflow.state import FINAL
from nerve.engine.records import read_intact
from nerve.engine.recovery import OPEN
from nerve.store.port import ReplyRow

if TYPE_CHECKING:
    from nerve.core.session import Session

LIMIT = 1_000_000
"""Bytes of an answer."""

LOOKED_THROUGH = 1000
"""How many runs are looked through for a gate that is not open any more."""

GATES = ("gate_waiting", "gate_answered", "gate_timeout", "gate_cancelled")
"""What the engine writes of gates; a workflow may emit events that are called much the same."""

_on_their_way: WeakKeyDictionary[Session, set[asyncio.Future[None]]] = WeakKeyDictionary()
"""The answers that are being written."""


class GateEvent(NamedTuple):
    """What happened to a gate: opened, answered, too late, given up."""

    run: str
    shown_at: str
    """The path of the gate, as the run that was asked about shows it."""
    path: str
    type: str
    data: dict[str, Any]

    @property
    def names(self) -> tuple[str | None, ...]:
        return self.data.get("gate_id"), self.shown_at, self.path, self.data.get("node_id")

    def is_of(self, name: str) -> bool:
        return name in self.names

    def told(self) -> models.Answered:
        names = ("gate_id", "node_id", "answer", "by", "via", "scope", "pid", "reason", "key")
        told = {name: self.data[name] for name in names if name in self.data}
        return models.Answered(run_id=self.run, path=self.path, **told)


async def answer(session: Session, asked: models.Answer) -> models.Answered:
    """Answer a gate once; the same key gives the same reply, also after a restart."""
    if len(encode(asked.answer).encode()) > LIMIT:
        raise ApiError("too_large", f"an answer has at most {LIMIT:,} bytes", "Put it into a file.")
    if asked.key is None:
        return await settled(session, asked)

    async def once(before: ReplyRow | None) -> models.Answered:
        kept = None if before is None else models.Answered.model_validate_json(before.reply)
        if kept is not None and asked.run in (None, kept.run_id):
            return repeated(kept, (kept.gate_id, kept.path, kept.node_id), asked)
        if asked.run is not None and (told := repeated_in(session, asked.run, kept, asked)) is not None:
            return told
        return await settled(session, asked)

    return await under_key(session, "answer", asked.key, once)


async def settled(session: Session, asked: models.Answer) -> models.Answered:
    """Give the answer, and return when it is written."""
    run = found(session, asked.run) if asked.run is not None else run_of_gate(session, asked.gate)
    asked.gate = whole(session, run, asked.gate)
    try:
        owner, gate = run._find_gate(asked.gate)
        asked.answer = taken(asked.answer, gate.choices, gate.form)
        told = given(owner, gate, asked)
        answering = run.answer(
            asked.answer,
            asked.gate,
            by=asked._caller.who,
            key=asked.key,
            about=asked._caller.about() | ({"reason": asked.reason} if asked.reason else {}),
            reply=None if asked.key is None else Reply(session.name, asked.key, "answer").row(told),
        )
        await on_its_way(session, answering)
    except RuntimeError as error:
        await written(session)
        raise refused(session, run, asked, error) from error
    return told


async def on_its_way(session: Session, answering: Awaitable[None]) -> None:
    """Let others wait until this is written; whoever asked may go away meanwhile."""
    task = asyncio.ensure_future(answering)
    _on_their_way.setdefault(session, set()).add(task)
    task.add_done_callback(_on_their_way[session].discard)
    await asyncio.shield(task)


async def written(session: Session) -> None:
    """Return when the answers that are on their way are written."""
    if waiting := list(_on_their_way.get(session, ())):
        await asyncio.wait(waiting)


def given(owner: WorkflowRun, gate: GateInfo, asked: models.Answer) -> models.Answered:
    return models.Answered(
        run_id=owner.run_id,
        gate_id=gate.gate_id,
        path=gate.path,
        node_id=gate.node_id,
        answer=decode(encode(asked.answer)),
        by=asked._caller.who,
        reason=asked.reason,
        key=asked.key,
        **asked._caller.about(),
    )


def repeated_in(
    session: Session, name: str, kept: models.Answered | None, asked: models.Answer
) -> models.Answered | None:
    """The reply to an answer that was given before in a run, or in one that it started."""
    assert asked.key is not None
    run = found(session, name) if kept is None else answered_under(session, name, kept)
    before = None if run is None else answered_with(session, run, asked.key)
    if before is not None:
        return repeated(before.told(), before.names, asked)
    if kept is not None:
        raise another(kept, asked)
    return None


def answered_under(session: Session, name: str, kept: models.Answered) -> WorkflowRun | None:
    """The run with an answer, or one around it, that goes by a name, whatever else does so by now."""
    engine = session.engine
    row = engine.store.run(kept.run_id)
    while row is not None and not goes_by(row, name):
        row = engine.store.run(row.parent) if row.parent is not None else None
    return None if row is None else engine.handle(row)


def repeated(before: models.Answered, names: Collection[str | None], asked: models.Answer) -> models.Answered:
    """The reply to an answer that was given before; a key is for one answer only."""
    named = asked.gate is None or asked.gate in names
    if not named and asked.gate is not None:
        named = begins(asked.gate, before.gate_id, before.node_id)
    if named and same(before.answer, asked.answer):
        return before
    raise another(before, asked)


def another(before: models.Answered, asked: models.Answer) -> ApiError:
    return ApiError(
        "conflict",
        f"key '{asked.key}' was used for the answer {encode(before.answer, deep=None)}"
        f" in run '{before.run_id}'",
        "Use a new key for a new answer.",
        {"winner": before.model_dump()},
    )


def same(recorded: Any, asked: Any) -> bool:
    """Whether it is the same answer, which a form may have been given as text."""
    if isinstance(asked, str) and not isinstance(recorded, str):
        try:
            asked = decode(asked)
        except ValueError:
            return False
    return encode(recorded, True, None) == encode(asked, True, None)


def begins(name: str, gate_id: str, node_id: str | None) -> bool:
    """Whether it is the beginning of what a gate is called."""
    return (node_id or "").startswith(name) or (len(name) >= SHORTEST and gate_id.startswith(name))


def whole(session: Session, run: WorkflowRun, name: str | None) -> str | None:
    """The id of the one open gate that begins so, unless a gate is, or was, called just that."""
    gates = list(run._owned_gates())
    if name is None or any(name in (gate.gate_id, gate.node_id, path) for _, gate, path in gates):
        return name
    close = [gate for _, gate, _ in gates if begins(name, gate.gate_id, gate.node_id)]
    if not close or any(each.is_of(name) for each in gate_events(session, run.run_id)):
        return name
    if len(close) > 1:
        could_be = [gate.node_id or gate.gate_id for gate in close]
        raise ApiError("conflict", several(name, could_be), "Write more of the name.")
    return close[0].gate_id


def run_of_gate(session: Session, gate: str | None) -> WorkflowRun:
    """The run in which a gate is, or was, open."""
    if gate is None:
        raise ApiError("bad_request", "answer: neither a run nor a gate is named", "Give one of them.")
    engine = session.engine
    for run in list(engine.known.values()):
        if any(gate == each.gate_id for each in (run._open_gates or {}).values()):
            return run
    rows = engine.store.runs(session=session.name, states=OPEN)
    named = [(row, each) for row in rows for each in engine.gates(row).values()]
    exact = [row for row, each in named if gate == each.gate_id]
    close = exact or [row for row, each in named if gate in (each.path, each.node_id)]
    if not close and len(gate) >= SHORTEST:
        close = [row for row, each in named if each.gate_id.startswith(gate)]
    if len(close) > 1:
        ids = ", ".join(row.run for row in close[:5])
        raise ApiError("conflict", f"several runs have a gate '{gate}' open: {ids}", "Name the run, too.")
    return engine.handle(close[0]) if close else run_that_had(session, gate)


def run_that_had(session: Session, gate_id: str) -> WorkflowRun:
    rows = session.engine.store.runs(session=session.name, newest=LOOKED_THROUGH)
    for row in reversed(rows):
        past = read_intact(session.engine.store, row.run)
        opened = (each for each in past if each.type == "gate_waiting" and gate_id in each.data)
        if any(decode(each.data)["gate_id"] == gate_id for each in opened):
            return session.engine.handle(row, past)
    raise ApiError("not_found", f"there is no gate '{gate_id}'", "See the list: nerve gates")


def gate_events(session: Session, run_id: str, above: str = "") -> Iterator[GateEvent]:
    """What happened to the gates of a run, and of the runs it started."""
    for row in session.engine.store.events(run_id):
        if row.type in GATES:
            yield GateEvent(run_id, above + row.path, row.path, row.type, decode(row.data))
        elif row.type in ASKS and '"child":' in row.data and (child := decode(row.data).get("child")):
            yield from gate_events(session, child, above + row.path)


def answered_with(session: Session, run: WorkflowRun, key: str) -> GateEvent | None:
    """The answer that was given with a key."""
    events = gate_events(session, run.run_id)
    return next(
        (each for each in events if each.type == "gate_answered" and each.data.get("key") == key), None
    )


def refused(session: Session, run: WorkflowRun, asked: models.Answer, error: RuntimeError) -> ApiError:
    """Why no gate took an answer: another one won, it is over, it never was, or there are several."""
    if asked.gate is None and run.pending_gates:
        return ApiError("conflict", str(error), "Name the gate.")
    events = list(gate_events(session, run.run_id))
    if asked.gate is not None:
        paths = {each.shown_at for each in events if each.is_of(asked.gate)}
        events = [each for each in events if each.shown_at in paths]
        if not events:
            told = f"run '{run.run_id}' has no gate '{asked.gate}'"
            return ApiError("not_found", told, "See the list: nerve gates")
    state = f"Run is not waiting for input (state: {run.state.value})"
    match events[-1] if events else None:
        case GateEvent(type="gate_answered") as winner:
            told = f"{state}: the gate was answered already: {encode(winner.data['answer'], deep=None)}"
            return ApiError("conflict", told, details={"winner": winner.told().model_dump()})
        case GateEvent(type="gate_timeout"):
            return ApiError("gone", f"{state}: nobody answered the gate in time")
    if asked.gate is not None and run.state not in FINAL:
        return ApiError("conflict", f"run '{run.run_id}' has given up its gate '{asked.gate}'")
    if run.state in FINAL and run.state is not WorkflowState.CANCELLED:
        return ApiError("gone", state)
    return ApiError("conflict", state)
