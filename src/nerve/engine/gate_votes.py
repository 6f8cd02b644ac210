"""The events that people cause at a gate with a policy."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import Any

from nerve.core.gate_policy import (
    Delegation,
    GateDecision,
    check_claim,
    check_delegation,
    check_release,
    current_approvers,
    decide,
    make_vote,
    next_step,
)
from nerve.core.gates import gate_hash
from nerve.core.json_codec import decode_json, encode_json
from nerve.core.people import PERSON_IDENTITY
from nerve.core.workflow.state import GateAnswer, GateInfo
from nerve.errors import VoteRefused
from nerve.journal.events import (
    GateAnswered,
    GateClaimed,
    GateDelegated,
    GateEscalated,
    GateProgress,
    GateReleased,
    GateReminded,
    GateVoted,
)


def make_gate_events(
    gate: GateInfo, answer: GateAnswer, starters: Collection[str], now: float
) -> list[GateProgress | GateAnswered]:
    """Return the events of what a person does at a gate; VoteRefused says why they may not do it.

    The last one answers the gate if that decides it.

    `starters` are the identities that started the run.
    """
    policy, tally = gate.policy, gate.tally
    assert policy is not None
    assert tally is not None
    voter = answer.voter
    if voter is None:
        raise VoteRefused(
            f"Gate '{gate.gate_id}' needs an answer of a person. Sign in with the token of a person"
        )
    if f"{PERSON_IDENTITY}{voter.name}" in starters:
        voter = replace(voter, started_run=True)
    node_id = gate.node_id or None
    who: dict[str, Any] = {"by": answer.by, "via": answer.about.get("via"), "key": answer.key}
    extra = {name: value for name, value in answer.about.items() if name not in ("via", "reason")}
    match answer.action:
        case "claim":
            check_claim(policy, tally, voter)
            return [GateClaimed(gate.gate_id, node_id, voter.name, **who, extra=extra)]
        case "release":
            check_release(tally, voter.name)
            return [GateReleased(gate.gate_id, node_id, voter.name, **who, extra=extra)]
        case "delegate":
            to, names = str(answer.value), sorted(voter.names())
            check_delegation(policy, tally, voter, to)
            event = GateDelegated(gate.gate_id, node_id, voter.name, to, names, **who, extra=extra)
            after = tally.with_delegation(Delegation(voter.name, to, tuple(names)))
            decision = decide(policy, after, gate_hash(gate))
            # With it, a vote that was given already may decide the gate.
            return [event] if decision is None else [event, answer_of_decision(gate, answer, decision, extra)]
    value = decode_json(encode_json(answer.value))
    about = {"by": answer.by, "at": now, **answer.about}
    vote = make_vote(policy, tally, voter, value, gate_hash(gate), about)
    decision = decide(policy, tally.with_vote(vote), vote.hash)
    if decision is not None:
        return [answer_of_decision(gate, answer, decision, extra)]
    voted = GateVoted(gate.gate_id, node_id, vote.person, value, list(vote.names), vote.hash, **who)
    return [replace(voted, reason=answer.about.get("reason"), extra={"at": now, **extra})]


def answer_of_decision(
    gate: GateInfo, answer: GateAnswer, decision: GateDecision, extra: dict[str, Any]
) -> GateAnswered:
    """Return the event that answers a gate as its votes have decided."""
    return GateAnswered(
        gate.gate_id,
        gate.node_id or None,
        decision.answer,
        decision.answer,
        answer.by,
        answer.about.get("via"),
        answer.about.get("reason"),
        answer.key,
        [vote.to_data() for vote in decision.votes],
        extra=extra,
    )


def make_step_event(gate: GateInfo) -> GateProgress:
    """Return the event of the next reminder or escalation of a gate."""
    policy, tally = gate.policy, gate.tally
    assert policy is not None
    assert tally is not None
    step = next_step(policy, tally)
    assert step is not None
    node_id = gate.node_id or None
    if step.escalation is not None:
        return GateEscalated(gate.gate_id, node_id, tally.escalations + 1, list(step.escalation.to))
    to = [tally.claimed_by] if tally.claimed_by is not None else sorted(current_approvers(policy, tally))
    return GateReminded(gate.gate_id, node_id, tally.reminders + 1, to)
