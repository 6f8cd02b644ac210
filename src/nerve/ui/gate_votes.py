"""What people have done at a gate with a policy, as lines for all screens."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from nerve.ui.formatting import format_value

if TYPE_CHECKING:
    from nerve.api.models import GateResponse


def gate_vote_lines(gate: GateResponse) -> Iterator[str]:
    """Yield who may answer a gate, who has, and what is missing; nothing for a gate without a policy."""
    if gate.policy is None:
        return
    yield f"needs {gate.missing}"
    if gate.claimed_by is not None:
        yield f"claimed by {gate.claimed_by}"
    for vote in gate.votes:
        reason = f" ({vote['reason']})" if vote.get("reason") else ""
        yield f"{vote['person']}: {format_value(vote['answer'])}{reason}"
    for each in gate.delegations:
        yield f"{each['person']} has delegated to {each['to']}"
    if veto := gate.policy.get("veto"):
        yield f"can reject alone: {', '.join(veto)}"
