"""Gates: their ids, their event data, and the validation of answers."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from datetime import datetime
from enum import IntEnum
from hashlib import sha256
from json import JSONDecodeError
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from nerve.core.json_codec import encode_json, find_unsafe_integer, parse_strict_json, unsafe_integer_message
from nerve.core.json_schema import (
    FORMAT_EXAMPLES,
    find_schema_error,
    find_validation_error,
    reduce_field_schema,
)
from nerve.core.validation import describe_value, require_mapping, require_seconds, require_str_list

if TYPE_CHECKING:
    from nerve.core.gate_policy import GatePolicy, GateTally
    from nerve.core.runtime import GateWait

APPROVE_WORDS = ("approve", "approved", "yes", "y", "ok", "accept", "allow", "true")
REJECT_WORDS = ("reject", "rejected", "no", "n", "deny", "decline", "refuse", "cancel", "false")
"""Names of choices that approve or reject, and messages that answer any gate."""
ALLOW, DENY = "allow", "deny"
"""The choices of a gate that asks for a permission."""
EDITABLE = "editable"
"""In the action of a gate: whether the answer may be `{"allow": INPUT}`, which runs it with that input."""
MIN_GATE_ID_PREFIX_CHARS = 4
"""The shortest prefix of a gate id that identifies a gate."""


def gate_id(run_id: str, path: str, length: int = 8) -> str:
    """Return the id of a gate. It depends only on run and path, so it is stable across recovery."""
    return sha256(f"{run_id}{path}".encode()).hexdigest()[:length]


class AskedGate(Protocol):
    """What a gate asks."""

    prompt: str
    choices: list[str] | None
    options: list[str] | None
    note: str | None
    input_preview: str | None
    action: dict[str, Any] | None
    form: dict[str, Any] | None
    policy: GatePolicy | None
    created_at: datetime


def gate_hash(gate: AskedGate) -> str:
    """Return a hash of what a gate asks and when, which binds an answer to what the user was shown."""
    asked: list[Any] = [
        gate.prompt,
        gate.choices,
        gate.options,
        gate.note,
        gate.input_preview,
        gate.action,
        gate.form,
    ]
    if gate.policy is not None:
        asked.append(gate.policy.to_data())
    text = encode_json([*asked, gate.created_at.isoformat()], True, None)
    return sha256(text.encode(errors="surrogatepass")).hexdigest()[:32]


NO_PROGRESS: dict[str, Any] = {
    "policy": None,
    "votes": [],
    "delegations": [],
    "claimed_by": None,
    "approvers": [],
    "missing": "",
}
"""What lists show of a gate without a policy."""


class DecidedGate(Protocol):
    """Who decides a gate, and what people have done at it."""

    policy: GatePolicy | None
    tally: GateTally | None


def gate_progress_fields(gate: DecidedGate) -> dict[str, Any]:
    """Return what lists show of the policy of a gate, and of what people have done at it."""
    if gate.policy is None or gate.tally is None:
        return NO_PROGRESS
    from nerve.core.gate_policy import current_approvers, describe_missing  # few gates have a policy

    return {
        "policy": gate.policy.to_data(),
        "votes": [vote.to_data() for vote in gate.tally.votes],
        "delegations": [each.to_data() for each in gate.tally.delegations],
        "claimed_by": gate.tally.claimed_by,
        "approvers": sorted(current_approvers(gate.policy, gate.tally)),
        "missing": describe_missing(gate.policy, gate.tally),
    }


def is_gate_id_prefix(text: str, gate_id: str) -> bool:
    """Whether a text is a gate id, or a prefix of it that is long enough to identify the gate."""
    return len(text) >= MIN_GATE_ID_PREFIX_CHARS and gate_id.startswith(text)


class NamedGate(Protocol):
    """The attributes of a gate that its names use."""

    @property
    def gate_id(self) -> str: ...
    @property
    def path(self) -> str: ...
    @property
    def node_id(self) -> str | None: ...


Gate = TypeVar("Gate", bound=NamedGate)


class GateMatch(IntEnum):
    """How a name refers to a gate: its id or path, another name, or a prefix. The lowest match counts."""

    EXACT, NAME, ID_PREFIX, NAME_PREFIX = range(4)


_STEP_NUMBER = re.compile(r"\[\d+\]$")


def gate_names(gate_id: str | None, path: str, node_id: str | None) -> list[str]:
    """Return the accepted names of a gate: id, path, node id, and last path segment."""
    step = path.removesuffix("/answer")
    segment = step.rsplit("/", 1)[-1]
    name = _STEP_NUMBER.sub("", segment) if segment.endswith("]") else segment
    names = [gate_id, path, step, step[1:], node_id, segment, name]
    return [name for name in names if name]


def match_gate_name(gate: NamedGate, name: str, path: str | None = None) -> GateMatch | None:
    """Return how a name refers to a gate; `path` is its path in an enclosing run."""
    path = path or gate.path
    names = gate_names(gate.gate_id, path, gate.node_id)
    if name in (gate.gate_id, path):
        return GateMatch.EXACT
    if name in names:
        return GateMatch.NAME
    if is_gate_id_prefix(name, gate.gate_id):
        return GateMatch.ID_PREFIX
    return GateMatch.NAME_PREFIX if name and any(own.startswith(name) for own in names) else None


def select_gates(gates: Iterable[Gate], name: str) -> list[Gate]:
    """Return the gates that a name refers to best."""
    matches = [(match, gate) for gate in gates if (match := match_gate_name(gate, name)) is not None]
    return select_lowest(matches)


Item = TypeVar("Item")


def select_lowest(ranked: Iterable[tuple[int, Item]]) -> list[Item]:
    """Return the items with the lowest rank."""
    items = list(ranked)
    lowest = min((rank for rank, _ in items), default=0)
    return [item for rank, item in items if rank == lowest]


def gate_waiting_data(gate: GateWait, identity: str, deadline: float | None) -> dict[str, Any]:
    """Return the data of a `gate_waiting` event."""
    data: dict[str, Any] = {
        "gate_id": identity,
        "prompt": gate.prompt,
        "choices": gate.choices,
        "options": gate.options,
    }
    optional = {
        "node_id": gate.node_id,
        "input_preview": gate.input_preview,
        "note": gate.note,
        "action": dict(gate.action) if gate.action is not None else None,
        "form": dict(gate.form) if gate.form is not None else None,
        "timeout": gate.timeout,
        "deadline": deadline,
        "typed": gate.typed or None,
    }
    return data | {name: value for name, value in optional.items() if value is not None}


def check_gate_settings(of: str, timeout: Any, options: Any, choices: Any, form: Any) -> None:
    """Raise ValueError for invalid settings of a gate; `of` names the gate in the message."""
    if timeout is not None:
        require_seconds(f"timeout of {of}", timeout)
    for name, setting in (("options", options), ("choices", choices)):
        if setting is not None and setting not in ([], ""):  # check_choices reports empty choices
            require_str_list(f"{name} of {of}", setting)
    if form is not None:
        require_mapping(f"form of {of}", form)
    check_choices(choices, form)


def check_choices(choices: object, form: Mapping[str, Any] | None = None) -> None:
    """Raise ValueError for choices that are not a list of answers, and for an invalid form."""
    if choices is not None and (isinstance(choices, str) or not choices):
        raise ValueError(f"choices must be a list of at least one answer, got {choices!r}")
    if form is None:
        return
    if choices is not None:
        raise ValueError("A gate can have choices or a form, not both")
    if flaw := find_schema_error(form):
        raise ValueError(f"form must be a valid JSON Schema: {flaw}")


def read_edited_input(answer: Any, action: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Return the answer if it allows an action with an edited input; None if it is another answer.

    A JSON string is accepted, too. ValueError says why an edited input is not accepted.
    """
    if isinstance(answer, str) and answer.lstrip().startswith("{"):
        try:
            answer = parse_strict_json(answer)
        except ValueError:
            return None
    if action is None or not isinstance(answer, Mapping) or list(answer) != [ALLOW]:
        return None
    if not action.get(EDITABLE):
        raise ValueError("Invalid answer: the input of this call cannot be edited. Answer with allow or deny")
    if not isinstance(answer[ALLOW], Mapping):
        found = describe_value(answer[ALLOW])
        raise ValueError(f"Invalid answer: the edited input must be a JSON object, got {found}")
    if (number := find_unsafe_integer(answer)) is not None:
        raise ValueError(f"Invalid answer: {unsafe_integer_message(number)}")
    return {ALLOW: dict(answer[ALLOW])}


def validate_answer(answer: Any, choices: list[str] | None, form: Mapping[str, Any] | None = None) -> Any:
    """Return the accepted answer; ValueError says why it is invalid. A form accepts a JSON string, too."""
    if choices and not isinstance(answer, str):
        answer = choice_for_value(answer, choices)
    if choices and answer not in choices:
        raise ValueError(f"Invalid choice '{answer}'. Must be one of: {choices}")
    if form is None and not isinstance(answer, str):
        raise ValueError(
            f"Invalid answer: a gate without a form needs a string, got {describe_value(answer)}."
            " Answer with a string, or give the gate a form"
        )
    if (number := find_unsafe_integer(answer)) is not None:
        raise ValueError(f"Invalid answer: {unsafe_integer_message(number)}")
    if form is None or not (problem := find_validation_error(answer, form, check_formats=True)):
        return answer
    if isinstance(answer, str):
        try:
            answer = parse_strict_json(answer)
        except JSONDecodeError:
            raise ValueError(f"Invalid answer: {describe_expected(form)}") from None
        except ValueError as error:
            raise ValueError(f"Invalid answer: {error}") from None
        problem = find_validation_error(answer, form, check_formats=True)
    if problem:
        raise ValueError(f"Invalid answer: {problem}")
    return answer


def choice_for_value(value: Any, choices: list[str]) -> Any:
    """Return the choice that stands for a boolean or a number; any other value as it is."""
    words: tuple[str, ...] = ()
    if isinstance(value, bool):
        words = ("yes", "true") if value else ("no", "false")
    elif isinstance(value, int | float):
        words = (json.dumps(value),)
    return next((word for word in words if word in choices), value)


def describe_expected(form: Mapping[str, Any]) -> str:
    """Return what a form expects, as the end of a sentence."""
    form = reduce_field_schema(form)
    fields = form.get("properties")
    if not isinstance(fields, Mapping) or not fields:
        if (example := FORMAT_EXAMPLES.get(str(form.get("format")))) is not None:
            return f"it must be a {form['format']} such as {example}"
        return "it must be JSON that matches the form of the gate"
    needed = set(form.get("required") or ())
    names = (name if name in needed else f"{name} (optional)" for name in fields)
    return f"it must be a JSON object with {', '.join(names)}"
