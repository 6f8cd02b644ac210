"""Answer gates. Each gate takes one answer; a repeated answer gets the same reply, others a conflict."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Collection, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple
from weakref import WeakKeyDictionary

from nerve.api import models
from nerve.api.errors import ApiError
from nerve.api.idempotency import with_key_lock
from nerve.api.pending_reply import PendingReply
from nerve.api.responses import ambiguity_message, find_run, matches_run_name
from nerve.core.gates import validate_answer
from nerve.core.json_codec import decode_json, encode_json
from nerve.core.workflow import GateInfo, WorkflowRun, WorkflowState
from nerve.core.workflow.run import MIN_GATE_ID_PREFIX_CHARS
from nerve.core.workflow.state import FINAL_STATES
from nerve.engine.recovery import OPEN_STATES
from nerve.journal.events import read_intact
from nerve.journal.replay import OPENING_EVENTS
from nerve.store.port import ReplyRow

if TYPE_CHECKING:
    from nerve.session import Session

MAX_ANSWER_BYTES = 1_000_000
"""Maximum size of an answer in bytes."""

MAX_SEARCHED_RUNS = 1000
"""How many runs to search for a gate that has closed."""

GATE_EVENT_TYPES = ("gate_waiting", "gate_answered", "gate_timeout", "gate_cancelled")
"""Gate events of the engine; a workflow may emit custom events with similar names."""

_pending_answers: WeakKeyDictionary[Session, set[asyncio.Future[None]]] = WeakKeyDictionary()
"""Answers that are being written to the store, by session."""


class GateEvent(NamedTuple):
    """An event of a gate: opened, answered, timed out or abandoned."""

    run_id: str
    display_path: str
    """The path of the gate as shown by the requested run."""
    path: str
    type: str
    data: dict[str, Any]

    @property
    def names(self) -> tuple[str | None, ...]:
        return self.data.get("gate_id"), self.display_path, self.path, self.data.get("node_id")

    def has_name(self, name: str) -> bool:
        return name in self.names

    def to_answer_response(self) -> models.AnswerResponse:
        names = ("gate_id", "node_id", "answer", "by", "via", "scope", "pid", "reason", "key")
        fields = {name: self.data[name] for name in names if name in self.data}
        return models.AnswerResponse(run_id=self.run_id, path=self.path, **fields)


async def answer(session: Session, request: models.AnswerRequest) -> models.AnswerResponse:
    """Answer a gate once; a repeated key returns the same reply, even after a restart."""
    if len(encode_json(request.answer).encode()) > MAX_ANSWER_BYTES:
        raise ApiError("too_large", f"Answer exceeds {MAX_ANSWER_BYTES:,} bytes", "Put it into a file.")
    if request.key is None:
        return await submit_answer(session, request)

    async def answer_with_key(stored_row: ReplyRow | None) -> models.AnswerResponse:
        stored_response = (
            None if stored_row is None else models.AnswerResponse.model_validate_json(stored_row.reply)
        )
        if stored_response is not None and request.run in (None, stored_response.run_id):
            return replay_answer(
                stored_response,
                (stored_response.gate_id, stored_response.path, stored_response.node_id),
                request,
            )
        if (
            request.run is not None
            and (replayed := replay_answer_in_run(session, request.run, stored_response, request)) is not None
        ):
            return replayed
        return await submit_answer(session, request)

    return await with_key_lock(session, "answer", request.key, answer_with_key)


async def submit_answer(session: Session, request: models.AnswerRequest) -> models.AnswerResponse:
    """Submit the answer, and return after it is written."""
    run = (
        find_run(session, request.run) if request.run is not None else find_run_of_gate(session, request.gate)
    )
    request.gate = complete_gate_name(session, run, request.gate)
    try:
        owner, gate = run._find_gate(request.gate)
        request.answer = validate_answer(request.answer, gate.choices, gate.form)
        response = answer_response(owner, gate, request)
        pending_answer = run.answer(
            request.answer,
            request.gate,
            by=request._caller.identity,
            key=request.key,
            about=request._caller.audit_fields() | ({"reason": request.reason} if request.reason else {}),
            reply=None
            if request.key is None
            else PendingReply(session.name, request.key, "answer").completed_row(response),
        )
        await track_pending_answer(session, pending_answer)
    except RuntimeError as error:
        await wait_for_pending_answers(session)
        raise answer_refused_error(session, run, request, error) from error
    return response


async def track_pending_answer(session: Session, pending_answer: Awaitable[None]) -> None:
    """Let other commands wait for this write; it completes even if the caller disconnects."""
    task = asyncio.ensure_future(pending_answer)
    _pending_answers.setdefault(session, set()).add(task)
    task.add_done_callback(_pending_answers[session].discard)
    await asyncio.shield(task)


async def wait_for_pending_answers(session: Session) -> None:
    """Wait until all pending answers are written."""
    if pending := list(_pending_answers.get(session, ())):
        await asyncio.wait(pending)


def answer_response(
    owner: WorkflowRun, gate: GateInfo, request: models.AnswerRequest
) -> models.AnswerResponse:
    return models.AnswerResponse(
        run_id=owner.run_id,
        gate_id=gate.gate_id,
        path=gate.path,
        node_id=gate.node_id,
        answer=decode_json(encode_json(request.answer)),
        by=request._caller.identity,
        reason=request.reason,
        key=request.key,
        **request._caller.audit_fields(),
    )


def replay_answer_in_run(
    session: Session, name: str, stored_response: models.AnswerResponse | None, request: models.AnswerRequest
) -> models.AnswerResponse | None:
    """Return the reply to an earlier answer in a run or its child runs."""
    assert request.key is not None
    run = (
        find_run(session, name)
        if stored_response is None
        else find_answered_run(session, name, stored_response)
    )
    answer_event = None if run is None else find_answer_by_key(session, run, request.key)
    if answer_event is not None:
        return replay_answer(answer_event.to_answer_response(), answer_event.names, request)
    if stored_response is not None:
        raise answer_key_conflict(stored_response, request)
    return None


def find_answered_run(
    session: Session, name: str, stored_response: models.AnswerResponse
) -> WorkflowRun | None:
    """Return the answered run, or an enclosing run, that the name matches, even if others match it too."""
    engine = session.engine
    row = engine.store.run(stored_response.run_id)
    while row is not None and not matches_run_name(row, name):
        row = engine.store.run(row.parent) if row.parent is not None else None
    return None if row is None else engine.run_handle(row)


def replay_answer(
    stored_response: models.AnswerResponse, names: Collection[str | None], request: models.AnswerRequest
) -> models.AnswerResponse:
    """Return the reply to an earlier answer; a key is valid for one answer only."""
    is_same_gate = request.gate is None or request.gate in names
    if not is_same_gate and request.gate is not None:
        is_same_gate = is_gate_name_prefix(request.gate, stored_response.gate_id, stored_response.node_id)
    if is_same_gate and is_same_answer(stored_response.answer, request.answer):
        return stored_response
    raise answer_key_conflict(stored_response, request)


def answer_key_conflict(stored_response: models.AnswerResponse, request: models.AnswerRequest) -> ApiError:
    return ApiError(
        "conflict",
        f"Key '{request.key}' was used for the answer {encode_json(stored_response.answer, max_depth=None)}"
        f" in run '{stored_response.run_id}'",
        "Use a new key for a new answer.",
        {"winner": stored_response.model_dump()},
    )


def is_same_answer(recorded: Any, submitted: Any) -> bool:
    """Return whether the answers are equal; a form may be submitted as JSON text."""
    if isinstance(submitted, str) and not isinstance(recorded, str):
        try:
            submitted = decode_json(submitted)
        except ValueError:
            return False
    return encode_json(recorded, True, None) == encode_json(submitted, True, None)


def is_gate_name_prefix(name: str, gate_id: str, node_id: str | None) -> bool:
    """Return whether the name is a prefix of the gate's node name or id."""
    return (node_id or "").startswith(name) or (
        len(name) >= MIN_GATE_ID_PREFIX_CHARS and gate_id.startswith(name)
    )


def complete_gate_name(session: Session, run: WorkflowRun, name: str | None) -> str | None:
    """Return the id of the only open gate with that prefix, unless a gate has or had exactly that name."""
    gates = list(run._owned_gates())
    if name is None or any(name in (gate.gate_id, gate.node_id, path) for _, gate, path in gates):
        return name
    matches = [gate for _, gate, _ in gates if is_gate_name_prefix(name, gate.gate_id, gate.node_id)]
    if not matches or any(event.has_name(name) for event in gate_events(session, run.run_id)):
        return name
    if len(matches) > 1:
        could_be = [gate.node_id or gate.gate_id for gate in matches]
        raise ApiError("conflict", ambiguity_message(name, could_be), "Use a longer prefix.")
    return matches[0].gate_id


def find_run_of_gate(session: Session, gate: str | None) -> WorkflowRun:
    """Return the run in which the gate is or was open."""
    if gate is None:
        raise ApiError("bad_request", "answer: 'run' or 'gate' is required", "Name one of them.")
    engine = session.engine
    for run in list(engine.run_handles.values()):
        if any(gate == info.gate_id for info in (run._open_gates or {}).values()):
            return run
    rows = engine.store.runs(session=session.name, states=OPEN_STATES)
    gate_rows = [(row, info) for row in rows for info in engine.gates_of_run(row).values()]
    exact = [row for row, info in gate_rows if gate == info.gate_id]
    matches = exact or [row for row, info in gate_rows if gate in (info.path, info.node_id)]
    if not matches and len(gate) >= MIN_GATE_ID_PREFIX_CHARS:
        matches = [row for row, info in gate_rows if info.gate_id.startswith(gate)]
    if len(matches) > 1:
        ids = ", ".join(row.run for row in matches[:5])
        raise ApiError("conflict", f"Several runs have an open gate '{gate}': {ids}", "Pass the run as well.")
    return engine.run_handle(matches[0]) if matches else find_run_of_closed_gate(session, gate)


def find_run_of_closed_gate(session: Session, gate_id: str) -> WorkflowRun:
    rows = session.engine.store.runs(session=session.name, newest=MAX_SEARCHED_RUNS)
    for row in reversed(rows):
        journal = read_intact(session.engine.store, row.run)
        opening_events = (
            event for event in journal if event.type == "gate_waiting" and gate_id in event.data
        )
        if any(decode_json(event.data)["gate_id"] == gate_id for event in opening_events):
            return session.engine.run_handle(row, journal)
    raise ApiError("not_found", f"Gate '{gate_id}' not found", "See the list: nerve gates")


def gate_events(session: Session, run_id: str, path_prefix: str = "") -> Iterator[GateEvent]:
    """Yield the gate events of a run and its child runs."""
    for row in session.engine.store.events(run_id):
        if row.type in GATE_EVENT_TYPES:
            yield GateEvent(run_id, path_prefix + row.path, row.path, row.type, decode_json(row.data))
        elif (
            row.type in OPENING_EVENTS
            and '"child":' in row.data
            and (child := decode_json(row.data).get("child"))
        ):
            yield from gate_events(session, child, path_prefix + row.path)


def find_answer_by_key(session: Session, run: WorkflowRun, key: str) -> GateEvent | None:
    """Return the answer with that key."""
    events = gate_events(session, run.run_id)
    return next(
        (event for event in events if event.type == "gate_answered" and event.data.get("key") == key), None
    )


def answer_refused_error(
    session: Session, run: WorkflowRun, request: models.AnswerRequest, error: RuntimeError
) -> ApiError:
    """Explain why no gate took the answer: it was answered, it ended, it never existed, or several match."""
    if request.gate is None and run.pending_gates:
        return ApiError("conflict", str(error), "Name the gate.")
    events = list(gate_events(session, run.run_id))
    if request.gate is not None:
        paths = {event.display_path for event in events if event.has_name(request.gate)}
        events = [event for event in events if event.display_path in paths]
        if not events:
            message = f"Gate '{request.gate}' not found in run '{run.run_id}'"
            return ApiError("not_found", message, "See the list: nerve gates")
    state = f"Run is not waiting for input (state: {run.state.value})"
    match events[-1] if events else None:
        case GateEvent(type="gate_answered") as winner:
            message = (
                f"{state}: the gate was already answered: "
                f"{encode_json(winner.data['answer'], max_depth=None)}"
            )
            return ApiError("conflict", message, details={"winner": winner.to_answer_response().model_dump()})
        case GateEvent(type="gate_timeout"):
            return ApiError("gone", f"{state}: the gate timed out")
    if request.gate is not None and run.state not in FINAL_STATES:
        return ApiError("conflict", f"Run '{run.run_id}' abandoned its gate '{request.gate}'")
    if run.state in FINAL_STATES and run.state is not WorkflowState.CANCELLED:
        return ApiError("gone", state)
    return ApiError("conflict", state)
