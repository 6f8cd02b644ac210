"""Answer gates. Each gate takes one answer; a repeated answer gets the same reply, others a conflict."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from nerve.api import models
from nerve.api.errors import ApiError
from nerve.api.lookup import (
    GateEvent,
    find_open_gate,
    find_run,
    find_run_of_gate,
    gate_events,
    matches_run_name,
)
from nerve.api.pending_reply import run_to_completion, work_in_progress
from nerve.api.people import find_known, person_of_caller
from nerve.core.gate_policy import Voter, make_voter
from nerve.core.gates import gate_hash, match_gate_name
from nerve.core.json_codec import decode_json, encode_json
from nerve.core.workflow import GateInfo, WorkflowRun, WorkflowState
from nerve.core.workflow.run import accept_answer
from nerve.core.workflow.state import FINAL_STATES
from nerve.engine.run_starters import find_starters
from nerve.errors import GateNotOpen
from nerve.journal.events import GateAnswered, GateTimeout

if TYPE_CHECKING:
    from nerve.session import Session

MAX_ANSWER_BYTES = 1_000_000
"""Maximum size of an answer in bytes."""


async def answer(session: Session, request: models.AnswerRequest) -> models.AnswerResponse:
    """Record an answer to an open gate; return once it is durable."""
    if len(encode_json(request.answer).encode()) > MAX_ANSWER_BYTES:
        raise ApiError("too_large", f"Answer exceeds {MAX_ANSWER_BYTES:,} bytes", "Put it into a file.")
    if request.run is None and request.gate is None:
        raise ApiError("bad_request", "answer: 'run' or 'gate' is required", "Name one of them.")
    run = (
        find_run(session, request.run).current
        if request.run is not None
        else find_run_of_gate(session, str(request.gate))
    )
    try:
        owner, gate, _ = find_open_gate(session, run, request.gate)
        voter = None if gate.policy is None else find_voter(session, owner, gate, request)
        if request.hash is not None and request.hash != gate_hash(gate):
            raise ApiError(
                "conflict",
                f"Gate '{gate.gate_id}' asks something else now",
                "Read the question again, then answer it.",
                {"hash": gate_hash(gate)},
            )
        if request.action != "answer" and gate.policy is None:
            past_tense = {"delegate": "delegated", "claim": "claimed"}.get(request.action, "released")
            message = f"Gate '{gate.gate_id}' has no policy: it cannot be {past_tense}"
            raise ApiError("refused", message, "Give the gate approvers, or answer it.")
        accepted = accept_answer(gate, request.answer) if request.action == "answer" else request.answer
        response = answer_response(owner, gate, accepted, request)
        reason = {"reason": request.reason} if request.reason else {}
        write = owner.write_answer(
            gate,
            accepted,
            by=request.caller.identity,
            key=request.key,
            about=request.caller.audit_fields() | reason,
            reply=None if request.pending_reply is None else request.pending_reply.completed_row(response),
            voter=voter,
            action=request.action,
        )
        await run_to_completion(session, ("answer", gate.gate_id), write)
    except GateNotOpen:
        # One of the answers that are being written may be the one to report.
        if answers := [task for name, task in work_in_progress(session).items() if name[0] == "answer"]:
            await asyncio.wait(answers)
        raise answer_refused_error(session, run, request.gate) from None
    return response


def find_voter(session: Session, run: WorkflowRun, gate: GateInfo, request: models.AnswerRequest) -> Voter:
    """Return the person who answers a gate with a policy; ApiError says what is missing."""
    known = session.people.current()
    person = person_of_caller(known, request.caller)
    if person is None:
        raise ApiError(
            "forbidden",
            f"Gate '{gate.gate_id}' is answered by people; {request.caller.identity} is not one of them",
            "Use the token of a person, see: nerve people",
        )
    if request.action == "delegate":
        delegate = find_known(known, str(request.answer))
        if delegate.disabled:
            raise ApiError("refused", f"'{delegate.name}' is disabled", "Name another person.")
    elif request.action == "answer" and request.hash is None:
        message = f"An answer to gate '{gate.gate_id}' needs its hash"
        raise ApiError("bad_request", message, "Send the hash of the gate that was shown.")
    starters = find_starters(session.engine.store, run.run_id)
    return make_voter(person, known, starters)


def answer_response(
    owner: WorkflowRun, gate: GateInfo, answer: Any, request: models.AnswerRequest
) -> models.AnswerResponse:
    return models.AnswerResponse(
        run_id=owner.run_id,
        gate_id=gate.gate_id,
        path=gate.path,
        node_id=gate.node_id,
        answer=decode_json(encode_json(answer)),
        by=request.caller.identity,
        reason=request.reason,
        key=request.key,
        action=request.action,
        **request.caller.audit_fields(),
    )


def check_repeated_answer(
    session: Session, request: models.AnswerRequest, stored: models.AnswerResponse
) -> None:
    """Raise ApiError unless a request repeats a stored answer; it may name the run and the gate otherwise."""
    paths = {stored.path} if request.run is None else paths_in_run(session, request.run, stored)
    if not (
        any(request.gate is None or match_gate_name(stored, request.gate, path) is not None for path in paths)
        and is_same_answer(stored.answer, request.answer)
        and stored.action == request.action
    ):
        raise ApiError(
            "conflict",
            f"Key '{request.key}' was used for the answer {encode_json(stored.answer, max_depth=None)}"
            f" in run '{stored.run_id}'",
            "Use a new key for a new answer.",
            {"winner": stored.model_dump()},
        )


def paths_in_run(session: Session, name: str, stored: models.AnswerResponse) -> set[str]:
    """Return the paths of the answered gate in its run and in an enclosing run, if the name matches one."""
    runs = [(stored.run_id, ""), *session.engine.enclosing_runs(stored.run_id)]
    rows = [(session.engine.store.run(run_id), prefix) for run_id, prefix in runs]
    prefixes = [prefix for row, prefix in rows if row is not None and matches_run_name(row, name)]
    return {stored.path, prefixes[0] + stored.path} if prefixes else set()


def is_same_answer(recorded: Any, submitted: Any) -> bool:
    """Return whether the answers are equal; a form may be submitted as JSON text."""
    if isinstance(submitted, str) and not isinstance(recorded, str):
        try:
            submitted = decode_json(submitted.strip())
        except ValueError:
            return False
    return encode_json(recorded, True, None) == encode_json(submitted, True, None)


def answer_refused_error(session: Session, run: WorkflowRun, gate: str | None) -> ApiError:
    """Explain why no gate took the answer: it was answered, it ended, or it never existed."""
    events = list(gate_events(session, run.run_id))
    if gate is not None:
        paths = {event.display_path for event in events if event.has_name(gate)}
        events = [event for event in events if event.display_path in paths]
        if not events:
            message = f"Gate '{gate}' not found in run '{run.run_id}'"
            return ApiError("not_found", message, "See the list: nerve gates")
    state = f"Run is not waiting for input (state: {run.state.value})"
    match events[-1] if events else None:
        case GateEvent(event=GateAnswered() as answered) as winner:
            answer = encode_json(answered.answer, max_depth=None)
            details = {"winner": recorded_answer(winner, answered).model_dump()}
            return ApiError("conflict", f"{state}: the gate was already answered: {answer}", details=details)
        case GateEvent(event=GateTimeout()):
            return ApiError("gone", f"{state}: the gate timed out")
    if gate is not None and run.state not in FINAL_STATES:
        return ApiError("conflict", f"Run '{run.run_id}' abandoned its gate '{gate}'")
    if run.state in FINAL_STATES and run.state is not WorkflowState.CANCELLED:
        return ApiError("gone", state)
    return ApiError("conflict", state)


def recorded_answer(gate: GateEvent, answered: GateAnswered) -> models.AnswerResponse:
    """Return the recorded answer of a gate."""
    fields = {name: value for name, value in answered.to_data().items() if name != "response"}
    return models.AnswerResponse(run_id=gate.run_id, path=gate.path, **fields)
