"""Built-in records: signals, definitions, instances, states, logs, requests and responses."""

from __future__ import annotations

from collections.abc import Mapping

from nerve.dataspace.matchers import literal
from nerve.dataspace.pattern import Pattern
from nerve.dataspace.record import Json, Record

SIGNAL_LABEL = "signal"
DEFINITION_LABEL = "workflow-definition"
INSTANCE_LABEL = "workflow-instance"
STATE_LABEL = "workflow/state"
LOG_LABEL = "workflow/log"
REQUEST_LABEL = "agent-request"
RESPONSE_LABEL = "agent-response"


def signal(label: str, key: Json = None, value: Json = None) -> Record:
    """Return a signal; a newer one with the same label and key replaces it, waits do not consume it."""
    return Record(SIGNAL_LABEL, (label,), {"key": key, "value": value})


def signal_pattern(label: str, key: Json = None) -> Pattern:
    """Return a pattern for signals with this label and key; without a key, with any key."""
    return Pattern((SIGNAL_LABEL, literal(label), _literal_fields(key=key)))


def workflow_definition(
    id: str,
    notation: str,
    source: str,
    hash: str | None = None,
    prompts: Mapping[str, Json] | None = None,
) -> Record:
    """Return a record that defines a workflow when asserted; `prompts` are the texts of its prompt files."""
    fields = _without_none(id=id, notation=notation, source=source, hash=hash, prompts=prompts or None)
    return Record(DEFINITION_LABEL, (), fields)


def workflow_instance(
    definition: str, label: str | None = None, branch: str = "main", context: Mapping[str, Json] | None = None
) -> Record:
    """Return a record that starts a run once when asserted, and stops it when retracted."""
    return Record(
        INSTANCE_LABEL,
        (),
        _without_none(definition=definition, label=label, branch=branch, context=context or {}),
    )


def workflow_state(
    run: str,
    workflow: str,
    status: str,
    step: str | None = None,
    label: str | None = None,
    awaits: Json = None,
    waiting_for: str | None = None,
) -> Record:
    """Return the state record of a run, which replaces the previous one."""
    fields = _without_none(run=run, label=label, workflow=workflow, step=step, status=status, awaits=awaits)
    return Record(STATE_LABEL, (), {**fields, **_without_none(**{"waiting-for": waiting_for})})


def workflow_log(run: str, seq: int, message: str, level: str = "info") -> Record:
    """Return a log line of a run."""
    return Record(LOG_LABEL, (), {"run": run, "seq": seq, "level": level, "message": message})


def agent_request(run: str, request_id: str, agent: str, prompt: str) -> Record:
    """Return a request to an agent."""
    return Record(REQUEST_LABEL, (), {"run": run, "request-id": request_id, "agent": agent, "prompt": prompt})


def agent_response(
    request_id: str, text: str, run: str | None = None, agent: str | None = None, error: str | None = None
) -> Record:
    """Return the response of an agent, or of a client on its behalf."""
    fields = _without_none(run=run, agent=agent, text=text, error=error)
    return Record(RESPONSE_LABEL, (), {"request-id": request_id, **fields})


def response_pattern(request_id: str, run: str | None = None) -> Pattern:
    """Return a pattern for the responses to a request; with a run, only those that name it."""
    return Pattern((RESPONSE_LABEL, {"request-id": literal(request_id), **_literal_fields(run=run)}))


def _without_none(**fields: Json) -> dict[str, Json]:
    return {name: value for name, value in fields.items() if value is not None}


def _literal_fields(**fields: Json) -> dict[str, Json]:
    return {name: literal(value) for name, value in _without_none(**fields).items()}
