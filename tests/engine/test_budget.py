"""The tree of budgets: reservations, usage and limits of steps, runs and the day."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nerve.core.limits import BUDGET_FIELDS, Limits, RunUsage
from nerve.engine.budget import Budget, Reservation

pytestmark = pytest.mark.local("looks at executors")

TURN = RunUsage(turns=1, agents=1)

amounts = st.builds(RunUsage, turns=st.integers(0, 2), agents=st.integers(0, 1))
usages = st.builds(
    RunUsage,
    tokens=st.integers(0, 9),
    # Quarters have an exact sum in any order.
    cost=st.integers(0, 9).map(lambda quarters: quarters / 4),
    turns=st.integers(0, 2),
    agents=st.integers(0, 1),
)
bounds = st.none() | st.integers(0, 8)
limits = st.builds(Limits, tokens=bounds, cost=bounds, turns=bounds, agents=bounds)


def node(bounds: Limits, parent: Budget | None = None, run_id: str | None = "run") -> Budget:
    return Budget(bounds, "Run budget", "resume(limits=…)", parent, None if parent is None else run_id)


@st.composite
def trees(draw: st.DrawFn) -> list[Budget]:
    budgets = [node(draw(limits))]
    for parent in draw(st.lists(st.integers(0, 9), min_size=1, max_size=6)):
        budgets.append(node(draw(limits), budgets[parent % len(budgets)]))
    return budgets


def figures(usage: RunUsage) -> tuple[float, ...]:
    return tuple(getattr(usage, name) for name in BUDGET_FIELDS)


@dataclass
class Expected:
    """What one budget holds itself, without the budgets below it."""

    usage: RunUsage = field(default_factory=RunUsage)
    open: list[Reservation] = field(default_factory=list)


def check_sums(budgets: list[Budget], expected: dict[Budget, Expected]) -> None:
    """Every budget has the sums of its subtree."""
    for budget in budgets:
        below = [expected[other] for other in budgets if budget in other.chain()]
        usage, reserved = RunUsage(), RunUsage()
        for own in below:
            usage.add(own.usage)
            for reservation in own.open:
                reserved.add(reservation.amount)
        assert figures(budget.usage) == figures(usage)
        assert figures(budget.reserved) == figures(reserved)


def has_room(budget: Budget, amount: RunUsage) -> bool:
    """Whether one budget, without those around it, allows an amount, written out for each limit."""
    bound, used, reserved = budget.limits, budget.usage, budget.reserved
    return (
        (bound.tokens is None or used.tokens < bound.tokens)
        and (bound.cost is None or used.cost < bound.cost)
        and (bound.turns is None or used.turns + reserved.turns + amount.turns <= bound.turns)
        and (bound.agents is None or used.agents + reserved.agents + amount.agents <= bound.agents)
    )


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_every_budget_has_the_sums_of_its_subtree_and_reserves_no_more_than_its_limits(data):
    budgets = data.draw(trees())
    expected = {budget: Expected() for budget in budgets}
    for _ in range(data.draw(st.integers(1, 20), "operations")):
        budget = budgets[data.draw(st.integers(0, len(budgets) - 1))]
        own = expected[budget]
        operation = data.draw(st.sampled_from(("reserve", "commit", "release", "count", "correct")))
        if operation == "reserve":
            amount = data.draw(amounts)
            is_possible = all(has_room(each, amount) for each in budget.chain())
            reservation = budget.reserve(amount)
            assert (reservation is not None) == is_possible
            if reservation is not None:
                own.open.append(reservation)
        elif operation == "count":
            own.usage.add(used := data.draw(usages))
            budget.count(used)
        elif operation == "correct" and not any(other.parent is budget for other in budgets):
            own.usage = data.draw(usages)
            budget.correct(own.usage)
        elif own.open:
            reservation = own.open.pop(data.draw(st.integers(0, len(own.open) - 1)))
            if operation == "commit":
                own.usage.add(used := data.draw(usages))
                budget.commit(reservation, used)
            else:
                budget.release(reservation)
        check_sums(budgets, expected)


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_turns_that_use_what_they_reserved_never_exceed_a_limit(data):
    budgets = data.draw(trees())
    running: list[tuple[Budget, Reservation]] = []
    for _ in range(data.draw(st.integers(1, 30), "turns")):
        budget = budgets[data.draw(st.integers(0, len(budgets) - 1))]
        if (reservation := budget.reserve(TURN)) is not None:
            running.append((budget, reservation))
        if running and data.draw(st.booleans()):
            budget, reservation = running.pop(0)
            budget.commit(reservation, TURN)
        for each in budgets:
            for name in ("turns", "agents"):
                bound = getattr(each.limits, name)
                assert bound is None or getattr(each.usage, name) + getattr(each.reserved, name) <= bound


def test_a_budget_is_exhausted_when_all_of_it_is_used():
    budget = node(Limits(tokens=10))
    budget.count(RunUsage(tokens=9))
    assert budget.find_exhausted() is None
    budget.count(RunUsage(tokens=1))
    exhausted = budget.find_exhausted()
    assert exhausted is not None
    assert (exhausted.limit_name, exhausted.used_amount) == ("tokens", 10)


def test_the_innermost_exhausted_budget_is_reported():
    day = node(Limits(turns=0))
    run = node(Limits(turns=0), day)
    step = node(Limits(turns=1), run)
    exhausted = step.find_exhausted()
    assert exhausted is not None
    assert exhausted.budget is run


def test_reserved_turns_are_not_used_turns():
    run = node(Limits(turns=1), node(Limits()))
    reservation = run.reserve(TURN)
    assert reservation is not None
    assert run.find_exhausted() is None
    assert run.find_exhausted(include_reserved=True) is not None
    run.release(reservation)
    assert run.find_exhausted(include_reserved=True) is None


def test_a_step_that_is_an_agent_already_needs_no_further_one():
    run = node(Limits(agents=1), node(Limits()))
    run.count(replace(TURN))
    assert run.find_exhausted() is not None
    assert run.find_exhausted(RunUsage(turns=1)) is None


def test_the_day_does_not_count_usage_of_another_day():
    day = node(Limits())
    parent = node(Limits(), day)
    child = node(Limits(), parent)
    child.count(RunUsage(tokens=5), today=False)
    child.count(RunUsage(tokens=2))
    assert (child.usage.tokens, parent.usage.tokens, day.usage.tokens) == (7, 7, 2)


@pytest.mark.parametrize(
    ("budget", "limit", "message"),
    [
        (
            Budget(Limits(cost=0.5), "Daily session budget", "session.budget = …"),
            None,
            "Daily session budget exhausted: 0.5 of 0.5 USD. Raise it with session.budget = {'cost': …}.",
        ),
        (
            Budget(
                Limits(cost=0.5), "Budget of step /dev", "resume(limits={'/dev': …})", None, "run", "/dev"
            ),
            "/dev:cost",
            "Budget of step /dev exhausted: 0.5 of 0.5 USD. "
            "Raise it with resume(limits={'/dev': {'cost': …}}).",
        ),
    ],
)
def test_an_exhausted_budget_names_the_limit_and_the_call_that_raises_it(budget, limit, message):
    budget.count(RunUsage(cost=0.5))
    exhausted = budget.find_exhausted()
    assert (exhausted.limit, str(exhausted)) == (limit, message)
