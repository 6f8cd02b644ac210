"""Who has answered a gate, by which way and from where, as lines for all screens."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from nerve.ui.formatting import format_caller, format_value

if TYPE_CHECKING:
    from nerve.api.models import GateResponse


def describe_answerers(answer: Mapping[str, Any]) -> str:
    """Return who has given an answer, or the votes that decided it: `ann (page from 192.0.2.1)`."""
    if votes := answer.get("votes"):
        return ", ".join(map(describe_answerer, votes))
    return describe_answerer(answer)


def describe_answerer(answer: Mapping[str, Any]) -> str:
    """Return who has answered, by which way and from where, as far as it is known."""
    name = answer.get("person") or format_caller(answer.get("by") or "")
    place = f"from {answer['address']}" if answer.get("address") else ""
    way = " ".join(part for part in (answer.get("via"), place) if part)
    return f"{name} ({way})" if name and way else str(name)


def gate_vote_lines(gate: GateResponse) -> Iterator[str]:
    """Yield who may answer a gate, who has, and what is missing; nothing for a gate without a policy."""
    if gate.policy is None:
        return
    yield f"needs {gate.missing}"
    if gate.claimed_by is not None:
        yield f"claimed by {gate.claimed_by}"
    for vote in gate.votes:
        reason = f" ({vote['reason']})" if vote.get("reason") else ""
        yield f"{describe_answerer(vote)}: {format_value(vote['answer'])}{reason}"
    for each in gate.delegations:
        yield f"{each['person']} has delegated to {each['to']}"
    if veto := gate.policy.get("veto"):
        yield f"can reject alone: {', '.join(veto)}"
