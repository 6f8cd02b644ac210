"""Gate policies: their settings, what each person may do, and the decision."""

import re
from itertools import permutations
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nerve.core.gate_policy import (
    EMPTY_TALLY,
    Delegation,
    Escalation,
    GatePolicy,
    GateTally,
    Vote,
    Voter,
    check_claim,
    check_delegation,
    check_release,
    decide,
    describe_missing,
    make_vote,
    next_step,
    read_gate_policy,
)
from nerve.errors import VoteRefused

ANN, BEN, CAT = Voter("ann", ("lead",)), Voter("ben", ("security",)), Voter("cat", ("lead", "security"))


def policy_of(**settings: Any) -> GatePolicy:
    policy = read_gate_policy("'ship'", settings)
    assert policy is not None
    return policy


def tally_of(policy: GatePolicy, *votes: tuple[Voter, str]) -> GateTally:
    tally = EMPTY_TALLY
    for voter, answer in votes:
        tally = tally.with_vote(make_vote(policy, tally, voter, answer, "h"))
    return tally


def answer_of(policy: GatePolicy, tally: GateTally) -> Any:
    decision = decide(policy, tally, "h")
    return None if decision is None else decision.answer


# -- settings ----------------------------------------------------------------------------------


def test_a_gate_without_settings_has_no_policy() -> None:
    assert read_gate_policy("'ship'", {}) is None
    assert read_gate_policy("'ship'", {"approvers": None, "self_approval": False, "remind": []}) is None


def test_a_quorum_of_roles_makes_them_approvers() -> None:
    policy = policy_of(quorum="2 of [lead, security]", approvers=["admin"])
    assert (policy.quorum, policy.of) == (2, ("lead", "security"))
    assert policy.approvers == ("lead", "security", "admin")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"quorum": 0}, "quorum of 'ship' must be 1 to 100 people, got 0"),
        ({"quorum": True}, "quorum of 'ship' must be 1 to 100 people"),
        ({"quorum": "2 out of 3"}, "quorum of 'ship' must be a number or like '2 of"),
        ({"quorum": "3 of [lead, security]"}, "quorum of 'ship' needs 3 of 2 roles"),
        ({"quorum": "2 of [lead, lead]"}, "quorum of 'ship' has 'lead' twice"),
        ({"approvers": ["Lead"]}, "approvers of 'ship' must name people and roles in lower case, got 'Lead'"),
        ({"approvers": 3}, "approvers of 'ship' must be a list of people and roles, got 3"),
        ({"self_approval": "no"}, "self_approval of 'ship' must be true or false, got 'no'"),
        ({"remind": "soon"}, "remind of 'ship' must be up to 20 numbers of seconds, got 'soon'"),
        ({"remind": [-1]}, "remind of 'ship' must"),
        ({"escalate": [{"after": 1}]}, "escalate of 'ship' must have 'after' and 'to'"),
        ({"escalate": [{"after": 1, "to": []}]}, "escalate of 'ship' must name a person or a role"),
        ({"claim": True}, "claim of 'ship' needs approvers"),
        ({"claim": True, "quorum": 2, "approvers": ["lead"]}, "cannot have both claim and a quorum of 2"),
        ({"author": 3}, "author of 'ship' must be the name of a person, got 3"),
        ({"approver": ["lead"]}, "Unknown setting 'approver' of 'ship'. Did you mean 'approvers'?"),
    ],
)
def test_wrong_settings_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        policy_of(**settings)


def test_several_people_need_choices() -> None:
    with pytest.raises(ValueError, match="texts seldom agree"):
        read_gate_policy("'ship'", {"quorum": 2}, has_choices=False)


def test_a_policy_is_read_back_as_it_was_recorded() -> None:
    policy = policy_of(
        quorum="2 of [lead, security]",
        veto=["security"],
        self_approval=True,
        author="ann",
        remind=[60, 30],
        escalate=[{"after": 5, "to": ["admin"]}],
    )
    assert policy.remind == (30, 60)
    assert GatePolicy.from_data(policy.to_data()) == policy
    assert policy_of(approvers="lead").to_data() == {"approvers": ["lead"]}


# -- who may answer ----------------------------------------------------------------------------


def test_only_an_approver_may_answer() -> None:
    policy = policy_of(approvers=["lead", "ben"])
    assert answer_of(policy, tally_of(policy, (ANN, "approve"))) == "approve"
    assert answer_of(policy, tally_of(policy, (BEN, "approve"))) == "approve"
    with pytest.raises(VoteRefused, match="'eve' is not one of the approvers: ben, lead"):
        make_vote(policy, EMPTY_TALLY, Voter("eve"), "approve", "h")


@pytest.mark.parametrize("person", [Voter("ann", ("lead",), started_run=True), Voter("dan", ("lead",))])
def test_nobody_approves_their_own_work_but_may_reject_it(person: Voter) -> None:
    settings = {"approvers": ["lead"], "author": "dan"}
    policy = policy_of(**settings)
    with pytest.raises(VoteRefused, match="cannot approve"):
        make_vote(policy, EMPTY_TALLY, person, "approve", "h")
    assert answer_of(policy, tally_of(policy, (person, "reject"))) == "reject"
    with pytest.raises(VoteRefused, match="cannot delegate"):
        check_delegation(policy, EMPTY_TALLY, person, "ben")
    allowed = policy_of(self_approval=True, **settings)
    assert answer_of(allowed, tally_of(allowed, (person, "approve"))) == "approve"


def test_a_veto_rejects_alone_and_does_not_approve() -> None:
    policy = policy_of(approvers=["lead"], quorum=2, veto=["security"])
    assert answer_of(policy, tally_of(policy, (ANN, "approve"), (BEN, "reject"))) == "reject"
    assert answer_of(policy, tally_of(policy, (ANN, "reject"))) is None
    with pytest.raises(VoteRefused, match="'ben' is not one of the approvers"):
        make_vote(policy, EMPTY_TALLY, BEN, "approve", "h")


# -- the decision ------------------------------------------------------------------------------


def test_a_person_counts_once_and_may_change_their_vote() -> None:
    policy = policy_of(approvers=["lead"], quorum=2)
    assert answer_of(policy, tally_of(policy, (ANN, "approve"), (ANN, "approve"))) is None
    changed = tally_of(policy, (ANN, "approve"), (ANN, "reject"), (CAT, "reject"))
    assert answer_of(policy, changed) == "reject"
    assert [vote.person for vote in changed.votes] == ["ann", "cat"]


def test_each_role_is_another_person() -> None:
    policy = policy_of(quorum="2 of [lead, security]")
    assert answer_of(policy, tally_of(policy, (CAT, "approve"))) is None
    assert answer_of(policy, tally_of(policy, (ANN, "approve"), (Voter("amy", ("lead",)), "approve"))) is None
    assert answer_of(policy, tally_of(policy, (CAT, "approve"), (ANN, "approve"))) == "approve"
    assert answer_of(policy, tally_of(policy, (CAT, "approve"), (BEN, "approve"))) == "approve"


def test_a_vote_for_another_content_does_not_count() -> None:
    policy = policy_of(approvers=["lead"])
    assert (
        decide(policy, EMPTY_TALLY.with_vote(Vote("ann", "approve", ("ann", "lead"), "old")), "new") is None
    )


def test_what_is_missing_is_named() -> None:
    policy = policy_of(quorum="2 of [lead, security]")
    assert describe_missing(policy, EMPTY_TALLY) == "2 people of lead, security"
    assert describe_missing(policy, tally_of(policy, (ANN, "approve"))) == "1 person of security"


# -- delegation, claim, escalation -------------------------------------------------------------


def delegate(policy: GatePolicy, tally: GateTally, voter: Voter, to: str) -> GateTally:
    check_delegation(policy, tally, voter, to)
    return tally.with_delegation(Delegation(voter.name, to, tuple(voter.names())))


def test_a_delegate_answers_with_the_roles_of_the_other() -> None:
    policy = policy_of(approvers=["lead"])
    tally = delegate(policy, EMPTY_TALLY, ANN, "eve")
    with pytest.raises(VoteRefused, match="'ann' has delegated this gate to 'eve'"):
        make_vote(policy, tally, ANN, "approve", "h")
    tally = tally.with_vote(make_vote(policy, tally, Voter("eve"), "approve", "h"))
    assert answer_of(policy, tally) == "approve"


def test_two_delegations_to_one_person_are_one_vote() -> None:
    policy = policy_of(approvers=["lead"], quorum=2)
    tally = delegate(policy, delegate(policy, EMPTY_TALLY, ANN, "eve"), CAT, "eve")
    tally = tally.with_vote(make_vote(policy, tally, Voter("eve"), "approve", "h"))
    assert answer_of(policy, tally) is None


def test_a_delegation_may_be_passed_on_but_not_in_a_loop() -> None:
    policy = policy_of(approvers=["lead", "security"])
    tally = delegate(policy, delegate(policy, EMPTY_TALLY, ANN, "ben"), BEN, "eve")
    with pytest.raises(VoteRefused, match="this would be a loop"):
        check_delegation(policy, tally, Voter("eve", ("lead",)), "ann")
    with pytest.raises(VoteRefused, match="has delegated this gate to 'ben' already"):
        check_delegation(policy, tally, ANN, "cat")
    with pytest.raises(VoteRefused, match="this would be a loop"):
        check_delegation(policy, EMPTY_TALLY, ANN, "ann")


def test_who_has_answered_cannot_delegate() -> None:
    policy = policy_of(approvers=["lead"], quorum=2)
    with pytest.raises(VoteRefused, match="'ann' has answered this gate already"):
        check_delegation(policy, tally_of(policy, (ANN, "approve")), ANN, "ben")
    with pytest.raises(VoteRefused, match="'eve' is not one of the approvers: lead"):
        check_delegation(policy, EMPTY_TALLY, Voter("eve"), "ben")


def test_only_the_person_who_claimed_a_gate_answers_it() -> None:
    policy = policy_of(approvers=["lead"], claim=True)
    check_claim(policy, EMPTY_TALLY, ANN)
    claimed = GateTally(claimed_by="ann")
    for refused in (
        lambda: check_claim(policy, claimed, CAT),
        lambda: make_vote(policy, claimed, CAT, "yes", "h"),
    ):
        with pytest.raises(VoteRefused, match="'ann' has claimed this gate"):
            refused()
    with pytest.raises(VoteRefused, match="only they can release it"):
        check_release(claimed, "cat")
    check_release(claimed, "ann")
    with pytest.raises(VoteRefused, match="This gate is not claimed"):
        check_release(EMPTY_TALLY, "ann")
    with pytest.raises(VoteRefused, match="cannot be claimed"):
        check_claim(policy_of(approvers=["lead"]), EMPTY_TALLY, ANN)
    with pytest.raises(VoteRefused, match="'ben' is not one of the approvers"):
        check_claim(policy, EMPTY_TALLY, BEN)


def test_an_escalation_adds_people_who_may_stand_for_any_role() -> None:
    policy = policy_of(quorum="2 of [lead, security]", escalate=[{"after": 5, "to": ["admin"]}])
    admin = Voter("dan", ("admin",))
    with pytest.raises(VoteRefused):
        make_vote(policy, EMPTY_TALLY, admin, "approve", "h")
    tally = GateTally(escalations=1)
    for voter in (ANN, admin):
        tally = tally.with_vote(make_vote(policy, tally, voter, "approve", "h"))
    assert answer_of(policy, tally) == "approve"


def test_reminders_and_escalations_come_in_order_of_time() -> None:
    policy = policy_of(approvers=["lead"], remind=[10, 30], escalate=[{"after": 20, "to": ["admin"]}])
    steps, tally = [], EMPTY_TALLY
    while (step := next_step(policy, tally)) is not None:
        steps.append((step.after, step.escalation))
        is_reminder = step.escalation is None
        tally = GateTally(
            reminders=tally.reminders + is_reminder, escalations=tally.escalations + (not is_reminder)
        )
    assert steps == [(10, None), (20, Escalation(20, ("admin",))), (30, None)]


# -- laws --------------------------------------------------------------------------------------

NAMES = ("ann", "ben", "cat", "dan")
ROLES = ("lead", "security", "admin")
POLICIES = st.one_of(
    st.builds(
        GatePolicy,
        approvers=st.sets(st.sampled_from((*NAMES, *ROLES)), min_size=1).map(tuple),
        quorum=st.integers(1, 3),
        veto=st.sets(st.sampled_from(ROLES), max_size=2).map(tuple),
    ),
    st.sampled_from(
        [GatePolicy(ROLES, count, ROLES, veto) for count in (1, 2, 3) for veto in ((), ("security",))]
    ),
)
VOTES = st.lists(
    st.builds(
        lambda person, roles, answer: Vote(person, answer, (person, *roles), "h"),
        st.sampled_from(NAMES),
        st.sets(st.sampled_from(ROLES)),
        st.sampled_from(["approve", "reject", "later"]),
    ),
    max_size=4,
    unique_by=lambda vote: vote.person,
)
DELEGATIONS = st.lists(
    st.builds(
        Delegation, st.sampled_from(["eve", "fay"]), st.sampled_from(NAMES), st.just(("lead", "admin"))
    ),
    max_size=2,
    unique_by=lambda each: each.person,
)


@given(POLICIES, VOTES, DELEGATIONS)
def test_the_decision_does_not_depend_on_the_order(
    policy: GatePolicy, votes: list[Vote], delegations: list[Delegation]
) -> None:
    outcomes = set()
    for order in permutations(votes):
        for given_first in (delegations, delegations[::-1]):
            decision = decide(policy, GateTally(order, tuple(given_first)), "h")
            people = None if decision is None else frozenset(vote.person for vote in decision.votes)
            outcomes.add((None if decision is None else decision.answer, people))
    assert len(outcomes) == 1


@given(POLICIES, VOTES, DELEGATIONS)
def test_more_votes_for_the_same_answer_and_more_rights_never_undo_a_decision(
    policy: GatePolicy, votes: list[Vote], delegations: list[Delegation]
) -> None:
    decision = decide(policy, GateTally(tuple(votes)), "h")
    if decision is None:
        return
    further = Vote("gil", decision.answer, ("gil", "lead"), "h")
    more = decide(policy, GateTally((*votes, further)), "h")
    assert more is not None
    assert more.answer == decision.answer
    assert decide(policy, GateTally(tuple(votes), tuple(delegations)), "h") is not None


@given(POLICIES, VOTES)
def test_a_tally_is_read_back_as_it_was_stored(policy: GatePolicy, votes: list[Vote]) -> None:
    tally = GateTally(tuple(votes), (Delegation("eve", "ann", ("eve",)),), "ann", 1, 2)
    again = GateTally.from_data(tally.to_data())
    assert again.to_data() == tally.to_data()
    decision, expected = decide(policy, again, "h"), decide(policy, tally, "h")
    assert (decision and decision.answer) == (expected and expected.answer)
