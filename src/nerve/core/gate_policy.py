"""Gate policies: who may answer a gate, how many have to agree, and what happens while they do not.

The decision is a function of the policy and of what people have done so far. It knows no clock, no store and
no order: the same votes give the same decision.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypedDict

from nerve.core.gates import REJECT_WORDS
from nerve.core.json_codec import encode_json
from nerve.core.people import NAME_PATTERN, Person, find_by_identity
from nerve.core.suggest import did_you_mean_hint
from nerve.core.validation import describe_value, require_seconds
from nerve.errors import VoteRefused
from nerve.lazy_dataclass import dataclass


class PolicySettings(TypedDict, total=False):
    """The settings of a gate that make its policy."""

    approvers: str | Sequence[str] | None
    quorum: int | str | None
    veto: str | Sequence[str] | None
    self_approval: bool | None
    author: str | None
    claim: bool | None
    remind: float | Sequence[float] | None
    escalate: Mapping[str, Any] | Sequence[Mapping[str, Any]] | None


POLICY_FIELDS = tuple(PolicySettings.__annotations__)
QUORUM_PATTERN = re.compile(r"\s*(\d{1,3})\s+of\s+\[([^\[\]]*)\]\s*")
MAX_QUORUM = 100
MAX_STEPS = 20
"""Maximum number of reminders and of escalations."""


@dataclass(frozen=True, slots=True)
class Escalation:
    """People and roles who may answer, too, when the gate is open for some time."""

    after: float
    to: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class GatePolicy:
    """Who decides a gate. Names are those of people and of roles."""

    approvers: tuple[str, ...] = ()
    """Who may answer; without any, every person may."""
    quorum: int = 1
    """How many people have to give the same answer."""
    of: tuple[str, ...] = ()
    """Roles that the people of the quorum must have, each role from another person."""
    veto: tuple[str, ...] = ()
    """Who can reject alone."""
    self_approval: bool = False
    """Whether the person who started the run, or whose change it is, may approve."""
    author: str | None = None
    """The person whose change it is."""
    claim: bool = False
    """Whether the first person who claims the gate answers it, and no other until it is released."""
    remind: tuple[float, ...] = ()
    """Seconds after which the people who have not answered are reminded."""
    escalate: tuple[Escalation, ...] = ()
    reject: tuple[str, ...] = ()
    """The answers that reject, beside the usual words."""

    def to_data(self) -> dict[str, Any]:
        """Return what the journal records: the values that are not the default."""
        data: dict[str, Any] = {}
        for name in ("approvers", "of", "veto", "remind", "reject"):
            if values := getattr(self, name):
                data[name] = list(values)
        if self.quorum != 1:
            data["quorum"] = self.quorum
        for name in ("self_approval", "author", "claim"):
            if value := getattr(self, name):
                data[name] = value
        if self.escalate:
            data["escalate"] = [{"after": step.after, "to": list(step.to)} for step in self.escalate]
        return data

    @classmethod
    def from_data(cls, data: Mapping[str, Any]) -> GatePolicy:
        """Return a policy that a journal has recorded."""
        fields: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value for name, value in data.items()
        }
        steps = data.get("escalate", ())
        escalate = tuple(Escalation(step["after"], tuple(step["to"])) for step in steps)
        fields["escalate"] = escalate
        return cls(**fields)

    def is_rejection(self, answer: Any) -> bool:
        """Whether an answer rejects."""
        if not isinstance(answer, str):
            return False
        return answer in self.reject or answer.strip().casefold() in REJECT_WORDS


@dataclass(frozen=True, slots=True)
class Voter:
    """A person who answers, with the roles that they have now."""

    name: str
    roles: tuple[str, ...] = ()
    started_run: bool = False

    def names(self) -> frozenset[str]:
        return frozenset((self.name, *self.roles))


@dataclass(frozen=True, slots=True)
class Vote:
    """An answer of one person; the last one of a person counts."""

    person: str
    answer: Any
    names: tuple[str, ...] = ()
    """The name and the roles that the person had."""
    hash: str = ""
    """The hash of what the gate asked."""
    about: Mapping[str, Any] | None = None
    """Further data: by which identity, which way, from where, when and why."""

    def to_data(self) -> dict[str, Any]:
        data = {"person": self.person, "answer": self.answer, "names": list(self.names), "hash": self.hash}
        return data | dict(self.about or {})

    @classmethod
    def from_data(cls, data: Mapping[str, Any]) -> Vote:
        about = {
            name: value
            for name, value in data.items()
            if name not in ("person", "answer", "names", "hash", "gate_id", "node_id")
        }
        return cls(
            data["person"], data.get("answer"), tuple(data.get("names", ())), data.get("hash", ""), about
        )


@dataclass(frozen=True, slots=True)
class Delegation:
    """That a person lets another one answer in their place."""

    person: str
    to: str
    names: tuple[str, ...] = ()
    """The name and the roles of the person who delegates."""

    def to_data(self) -> dict[str, Any]:
        return {"person": self.person, "to": self.to, "names": list(self.names)}


@dataclass(frozen=True, slots=True)
class GateTally:
    """What people have done at a gate so far."""

    votes: tuple[Vote, ...] = ()
    """One vote of each person, in the order of their first votes."""
    delegations: tuple[Delegation, ...] = ()
    claimed_by: str | None = None
    reminders: int = 0
    escalations: int = 0

    def with_vote(self, vote: Vote) -> GateTally:
        votes = {each.person: each for each in self.votes} | {vote.person: vote}
        return replace(self, votes=tuple(votes.values()))

    def with_delegation(self, delegation: Delegation) -> GateTally:
        return replace(self, delegations=(*self.delegations, delegation))

    def delegate_of(self, person: str) -> str | None:
        """Return to whom a person has delegated."""
        return next((each.to for each in self.delegations if each.person == person), None)

    def delegated_names(self, person: str) -> frozenset[str]:
        """Return the names and roles of those for whom a person answers, besides themselves."""
        names: set[str] = set()
        for each in self.delegations:
            if each.to == person:
                names |= {*each.names, *self.delegated_names(each.person)}
        return frozenset(names)

    def names_of(self, vote: Vote) -> frozenset[str]:
        """Return for whom a vote counts."""
        return self.delegated_names(vote.person).union(vote.names)

    def vote_of(self, person: str) -> Vote | None:
        return next((vote for vote in self.votes if vote.person == person), None)

    def to_data(self) -> dict[str, Any]:
        """Return what is stored with an open gate, so that lists need no journal."""
        return {
            "votes": [vote.to_data() for vote in self.votes],
            "delegations": [each.to_data() for each in self.delegations],
            "claimed_by": self.claimed_by,
            "reminders": self.reminders,
            "escalations": self.escalations,
        }

    @classmethod
    def from_data(cls, data: Mapping[str, Any]) -> GateTally:
        return cls(
            tuple(Vote.from_data(vote) for vote in data["votes"]),
            tuple(
                Delegation(each["person"], each["to"], tuple(each["names"])) for each in data["delegations"]
            ),
            data["claimed_by"],
            data["reminders"],
            data["escalations"],
        )


EMPTY_TALLY = GateTally()


@dataclass(frozen=True, slots=True)
class GateDecision:
    """The answer of a gate, and the votes that it has."""

    answer: Any
    votes: tuple[Vote, ...]


# -- settings ------------------------------------------------------------------------------------------


def read_gate_policy(
    of: str, settings: Mapping[str, Any], reject: Sequence[str] = (), has_choices: bool = True
) -> GatePolicy | None:
    """Return the policy that the settings of a gate make; None without any.

    ValueError says what is wrong; `of` names the gate in the message.
    """
    if unknown := [name for name in settings if name not in POLICY_FIELDS]:
        hint = did_you_mean_hint(unknown[0], POLICY_FIELDS)
        raise ValueError(f"Unknown setting '{unknown[0]}' of {of}{hint}")
    given = {name: value for name, value in settings.items() if value is not None}
    if all(value is False or value in ([], ()) for value in given.values()):
        return None
    count, roles = read_quorum(of, given.get("quorum", 1))
    policy = GatePolicy(
        approvers=tuple(dict.fromkeys((*roles, *read_names(of, "approvers", given.get("approvers", ()))))),
        quorum=count,
        of=roles,
        veto=read_names(of, "veto", given.get("veto", ())),
        self_approval=read_flag(of, "self_approval", given.get("self_approval", False)),
        author=read_author(of, given.get("author")),
        claim=read_flag(of, "claim", given.get("claim", False)),
        remind=read_times(of, given.get("remind", ())),
        escalate=read_escalations(of, given.get("escalate", ())),
        reject=tuple(reject),
    )
    if policy.quorum > 1 and not has_choices:
        raise ValueError(f"quorum of {of} is {policy.quorum}, but texts seldom agree. Give it choices")
    if policy.claim and policy.quorum > 1:
        raise ValueError(f"{of} cannot have both claim and a quorum of {policy.quorum}. Remove one of them")
    if policy.claim and not policy.approvers:
        raise ValueError(f"claim of {of} needs approvers, one of whom claims the gate")
    return policy


def read_quorum(of: str, quorum: Any) -> tuple[int, tuple[str, ...]]:
    """Return how many people a quorum needs, and the roles that they must have."""
    roles: tuple[str, ...] = ()
    count = quorum
    if isinstance(quorum, str):
        match = QUORUM_PATTERN.fullmatch(quorum)
        if match is None:
            raise ValueError(
                f"quorum of {of} must be a number or like '2 of [lead, security]', got '{quorum}'"
            )
        count, names = int(match[1]), [name.strip() for name in match[2].split(",")]
        roles = read_names(of, "quorum", [name for name in names if name])
        if not 1 <= count <= len(roles):
            raise ValueError(f"quorum of {of} needs {count} of {len(roles)} roles")
    if isinstance(count, bool) or not isinstance(count, int) or not 1 <= count <= MAX_QUORUM:
        raise ValueError(f"quorum of {of} must be 1 to {MAX_QUORUM} people, got {describe_value(quorum)}")
    return count, roles


def read_names(of: str, setting: str, names: Any) -> tuple[str, ...]:
    """Return the names of people and roles in a setting; a single one may be given without a list."""
    listed = [names] if isinstance(names, str) else names
    if not isinstance(listed, Sequence):
        raise ValueError(f"{setting} of {of} must be a list of people and roles, got {describe_value(names)}")
    for name in listed:
        if not isinstance(name, str) or not NAME_PATTERN.fullmatch(name):
            raise ValueError(
                f"{setting} of {of} must name people and roles in lower case, got {describe_value(name)}"
            )
    if repeated := [name for name in listed if listed.count(name) > 1]:
        raise ValueError(f"{setting} of {of} has '{repeated[0]}' twice")
    return tuple(listed)


def read_author(of: str, author: Any) -> str | None:
    if author is not None and not isinstance(author, str):
        raise ValueError(f"author of {of} must be the name of a person, got {describe_value(author)}")
    return author or None


def read_flag(of: str, setting: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError(f"{setting} of {of} must be true or false, got {describe_value(value)}")
    return value


def read_times(of: str, times: Any) -> tuple[float, ...]:
    """Return the seconds after which people are reminded, in order."""
    listed = [times] if isinstance(times, int | float) else times
    if not isinstance(listed, Sequence) or isinstance(listed, str) or len(listed) > MAX_STEPS:
        raise ValueError(
            f"remind of {of} must be up to {MAX_STEPS} numbers of seconds, got {describe_value(times)}"
        )
    for seconds in listed:
        require_seconds(f"remind of {of}", seconds)
    return tuple(sorted(set(map(float, listed))))


def read_escalations(of: str, steps: Any) -> tuple[Escalation, ...]:
    """Return the escalations in order."""
    listed = [steps] if isinstance(steps, Mapping) else steps
    if not isinstance(listed, Sequence) or isinstance(listed, str) or len(listed) > MAX_STEPS:
        raise ValueError(f"escalate of {of} must be up to {MAX_STEPS} objects, got {describe_value(steps)}")
    read = []
    for step in listed:
        if not isinstance(step, Mapping) or set(step) != {"after", "to"}:
            raise ValueError(f"escalate of {of} must have 'after' and 'to', got {describe_value(step)}")
        require_seconds(f"escalate of {of}", step["after"])
        to = read_names(of, "escalate", step["to"])
        if not to:
            raise ValueError(f"escalate of {of} must name a person or a role in 'to'")
        read.append(Escalation(float(step["after"]), to))
    return tuple(sorted(read, key=lambda step: step.after))


# -- what people may do --------------------------------------------------------------------------------


def current_approvers(policy: GatePolicy, tally: GateTally) -> frozenset[str]:
    """Return who may answer now, with those to whom the gate has been escalated."""
    return frozenset((*policy.approvers, *escalated_names(policy, tally)))


def escalated_names(policy: GatePolicy, tally: GateTally) -> tuple[str, ...]:
    return tuple(name for step in policy.escalate[: tally.escalations] for name in step.to)


def make_vote(
    policy: GatePolicy,
    tally: GateTally,
    voter: Voter,
    answer: Any,
    hash: str,
    about: Mapping[str, Any] | None = None,
) -> Vote:
    """Return the vote of a person; VoteRefused says why they may not give it."""
    if (to := tally.delegate_of(voter.name)) is not None:
        raise VoteRefused(f"'{voter.name}' has delegated this gate to '{to}'")
    names = voter.names() | tally.delegated_names(voter.name)
    is_rejection = policy.is_rejection(answer)
    if not is_rejection and not policy.self_approval:
        if voter.started_run:
            raise VoteRefused(f"'{voter.name}' started the run and cannot approve it")
        if policy.author == voter.name:
            raise VoteRefused(f"'{voter.name}' is the author and cannot approve their own change")
    if tally.claimed_by not in (None, voter.name):
        raise VoteRefused(f"'{tally.claimed_by}' has claimed this gate")
    approvers = current_approvers(policy, tally)
    may_veto = is_rejection and bool(names.intersection(policy.veto))
    if policy.approvers and not (may_veto or names & approvers):
        raise VoteRefused(f"'{voter.name}' is not one of the approvers: {', '.join(sorted(approvers))}")
    return Vote(voter.name, answer, tuple(sorted(voter.names())), hash, about)


def make_voter(person: Person, people: Mapping[str, Person], starters: Iterable[str]) -> Voter:
    """Return a person as one who answers; `starters` are the identities that have started the run."""
    has_started = any(find_by_identity(people, identity) == person for identity in starters)
    return Voter(person.name, person.roles, has_started)


def is_asked(policy: GatePolicy, tally: GateTally, voter: Voter) -> bool:
    """Whether a gate waits for the answer of a person: they may answer it, and have not.

    Who may only reject, because it is their own run, is not asked; who has a veto is.
    """
    if tally.vote_of(voter.name) is not None:
        return False
    names = voter.names() | tally.delegated_names(voter.name)
    answer = REJECT_WORDS[0] if names.intersection(policy.veto) else None
    try:
        make_vote(policy, tally, voter, answer, "")
    except VoteRefused:
        return False
    return True


def check_delegation(policy: GatePolicy, tally: GateTally, voter: Voter, to: str) -> None:
    """Raise VoteRefused unless a person may let another one answer in their place."""
    if (delegate := tally.delegate_of(voter.name)) is not None:
        raise VoteRefused(f"'{voter.name}' has delegated this gate to '{delegate}' already")
    if tally.vote_of(voter.name) is not None:
        raise VoteRefused(f"'{voter.name}' has answered this gate already")
    if not policy.self_approval and (voter.started_run or policy.author == voter.name):
        raise VoteRefused(f"'{voter.name}' cannot approve this gate, and so cannot delegate it")
    if tally.claimed_by is not None:
        raise VoteRefused(f"'{tally.claimed_by}' has claimed this gate")
    names = voter.names() | tally.delegated_names(voter.name)
    if policy.approvers and not names & (current_approvers(policy, tally) | set(policy.veto)):
        approvers = ", ".join(sorted(current_approvers(policy, tally)))
        raise VoteRefused(f"'{voter.name}' is not one of the approvers: {approvers}")
    place: str | None = to
    while place is not None:
        if place == voter.name:
            raise VoteRefused(f"'{to}' has delegated this gate to '{voter.name}', so this would be a loop")
        place = tally.delegate_of(place)


def check_claim(policy: GatePolicy, tally: GateTally, voter: Voter) -> None:
    """Raise VoteRefused unless a person may claim a gate."""
    if not policy.claim:
        raise VoteRefused("This gate cannot be claimed: it has no 'claim'")
    if tally.claimed_by is not None:
        raise VoteRefused(f"'{tally.claimed_by}' has claimed this gate")
    if not voter.names() & current_approvers(policy, tally):
        approvers = ", ".join(sorted(current_approvers(policy, tally)))
        raise VoteRefused(f"'{voter.name}' is not one of the approvers: {approvers}")


def check_release(tally: GateTally, name: str) -> None:
    """Raise VoteRefused unless a person has claimed a gate."""
    if tally.claimed_by is None:
        raise VoteRefused("This gate is not claimed")
    if tally.claimed_by != name:
        raise VoteRefused(f"'{tally.claimed_by}' has claimed this gate, and only they can release it")


# -- reminders and escalations -------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class PolicyStep:
    """A reminder, or an escalation, some seconds after the gate was opened."""

    after: float
    escalation: Escalation | None = None


def next_step(policy: GatePolicy, tally: GateTally) -> PolicyStep | None:
    """Return the next reminder or escalation of a gate."""
    steps = [PolicyStep(after) for after in policy.remind[tally.reminders : tally.reminders + 1]]
    escalations = policy.escalate[tally.escalations : tally.escalations + 1]
    steps += [PolicyStep(escalation.after, escalation) for escalation in escalations]
    return min(steps, key=lambda step: step.after, default=None)


# -- the decision --------------------------------------------------------------------------------------


def decide(policy: GatePolicy, tally: GateTally, hash: str) -> GateDecision | None:
    """Return the decision of the votes so far; None if there is none yet.

    A vote for something else than the gate asks now does not count. A veto comes first; of other answers, at
    most one has its quorum when each vote is decided as it comes.
    """
    votes = [vote for vote in tally.votes if vote.hash == hash]
    by_answer: dict[str, list[Vote]] = {}
    for vote in votes:
        by_answer.setdefault(encode_json(vote.answer, True, None), []).append(vote)
    vetoed = [
        key
        for key, group in by_answer.items()
        if any(policy.is_rejection(vote.answer) and tally.names_of(vote) & set(policy.veto) for vote in group)
    ]
    agreed = [key for key, group in by_answer.items() if missing_votes(policy, tally, group) == 0]
    if decided := sorted(vetoed) or sorted(agreed):
        group = by_answer[decided[0]]
        return GateDecision(group[0].answer, tuple(group))
    return None


def missing_votes(policy: GatePolicy, tally: GateTally, group: Sequence[Vote]) -> int:
    """Return how many further people have to give the answer of a group."""
    approvers = current_approvers(policy, tally)
    counted = [vote for vote in group if not policy.approvers or approvers & tally.names_of(vote)]
    if not policy.of:
        return max(0, policy.quorum - len(counted))
    return max(0, policy.quorum - len(match_roles(policy, tally, counted)))


def match_roles(policy: GatePolicy, tally: GateTally, group: Sequence[Vote]) -> dict[str, str]:
    """Return roles of the quorum with the people who stand for them, for as many roles as possible.

    A person stands for one role. Those to whom the gate has been escalated may stand for any.
    """
    escalated = set(escalated_names(policy, tally))
    people_by_role = {
        role: [vote.person for vote in group if tally.names_of(vote) & {role, *escalated}]
        for role in policy.of
    }
    role_of: dict[str, str] = {}

    def place(role: str, tried: set[str]) -> bool:
        for person in people_by_role[role]:
            if person not in tried:
                tried.add(person)
                if person not in role_of or place(role_of[person], tried):
                    role_of[person] = role
                    return True
        return False

    for role in policy.of:
        place(role, set())
    return {role: person for person, role in role_of.items()}


def describe_missing(policy: GatePolicy, tally: GateTally) -> str:
    """Return what the answer with the most votes still needs, as one line."""
    by_answer: dict[str, list[Vote]] = {}
    for vote in tally.votes:
        by_answer.setdefault(encode_json(vote.answer, True, None), []).append(vote)
    best = min(by_answer.values(), key=lambda group: missing_votes(policy, tally, group), default=[])
    missing = missing_votes(policy, tally, best)
    if policy.of:
        placed = match_roles(policy, tally, best)
        who = ", ".join(role for role in policy.of if role not in placed)
    elif tally.claimed_by is not None:
        who = tally.claimed_by
    else:
        who = ", ".join(sorted(current_approvers(policy, tally))) or "anyone"
    people = "1 person" if missing == 1 else f"{missing} people"
    return f"{people} of {who}"
