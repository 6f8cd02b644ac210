"""Limits and usage."""

import pytest

from nerve import Limits
from nerve.core.limits import RunUsage, limit_message


def test_limits_survive_a_json_round_trip():
    limits = Limits(steps=3, cost=0.5)
    assert limits.to_dict() == {"steps": 3, "cost": 0.5, "depth": 16}
    assert Limits.from_recorded(limits.to_dict()) == limits
    assert Limits.from_recorded(None) == Limits()


def test_unknown_limits_of_a_later_version_are_ignored():
    assert Limits.from_recorded({"steps": 3, "patience": 7}) == Limits(steps=3)


def test_raising_changes_only_the_given_limits():
    limits = Limits(steps=3, tokens=10)
    assert limits.with_raised({"tokens": 20}) == Limits(steps=3, tokens=20)
    assert limits.with_raised(Limits(steps=5)) == Limits(steps=5, tokens=10)
    assert limits.with_raised({}) == limits


def test_raising_an_unknown_limit_is_rejected():
    with pytest.raises((TypeError, ValueError), match="tokns"):
        Limits().with_raised({"tokns": 20})


@pytest.mark.parametrize(
    ("usage", "tokens", "cost"),
    [
        ({"tokens": 5}, 5, 0.0),
        ({"input_tokens": 2, "output_tokens": 3, "cost": 0.5}, 5, 0.5),
        ({"tokens": 5, "input_tokens": 2, "output_tokens": 3}, 5, 0.0),
        ({"cost": 1}, 0, 1.0),
        ({"tokens": None, "cost": None}, 0, 0.0),
        ({"tokens": "many", "cost": True}, 0, 0.0),
        (None, 0, 0.0),
        ("much", 0, 0.0),
        ([], 0, 0.0),
    ],
)
def test_usage_is_read_in_all_forms_that_agents_report(usage, tokens, cost):
    used = RunUsage()
    used.spend(usage)
    assert (used.tokens, used.cost) == (tokens, cost)


def test_a_counting_limit_is_exceeded_by_the_next_step():
    assert RunUsage(steps=3).exceeded_limit(Limits(steps=3)) is None
    assert RunUsage(steps=4).exceeded_limit(Limits(steps=3)) == "steps"
    assert RunUsage(iterations=1).exceeded_limit(Limits(iterations=0)) == "iterations"
    assert RunUsage(errors=1).exceeded_limit(Limits(errors=0)) == "errors"
    assert RunUsage(steps=10**9).exceeded_limit(Limits()) is None


def test_the_difference_of_two_usages_has_only_what_counts_against_budgets():
    used = RunUsage(steps=4, tokens=9, cost=0.5, turns=2, agents=1)
    assert used.minus(RunUsage(steps=4, tokens=4, turns=2)).to_dict() == {
        "tokens": 5,
        "cost": 0.5,
        "agents": 1,
    }


def test_the_message_names_the_limit_the_path_and_how_to_raise_it():
    told = limit_message("steps", Limits(steps=3), "/loop[2]/work")
    for part in ("steps=3", "/loop[2]/work", "Limits(steps=", "session.start(limits="):
        assert part in told
