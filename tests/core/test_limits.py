"""Limits and usage: counted, compared, raised, and told."""

import pytest

from nerve import Limits
from nerve.core.limits import Usage, message


def test_limits_can_be_written_as_json_and_read_back():
    limits = Limits(steps=3, cost=0.5)
    assert limits.to_dict() == {"steps": 3, "cost": 0.5, "depth": 16}
    assert Limits.read(limits.to_dict()) == limits
    assert Limits.read(None) == Limits()


def test_limits_written_by_a_later_version_are_read_as_far_as_they_are_known():
    assert Limits.read({"steps": 3, "patience": 7}) == Limits(steps=3)


def test_raising_changes_only_what_is_given():
    limits = Limits(steps=3, tokens=10)
    assert limits.raised({"tokens": 20}) == Limits(steps=3, tokens=20)
    assert limits.raised(Limits(steps=5)) == Limits(steps=5, tokens=10)
    assert limits.raised({}) == limits


def test_raising_an_unknown_limit_is_refused_by_its_name():
    with pytest.raises((TypeError, ValueError), match="tokns"):
        Limits().raised({"tokns": 20})


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
def test_usage_is_read_in_the_forms_that_agents_report(usage, tokens, cost):
    used = Usage()
    used.spend(usage)
    assert (used.tokens, used.cost) == (tokens, cost)


def test_a_counting_limit_is_reached_by_the_step_beyond_it():
    assert Usage(steps=3).reached(Limits(steps=3)) is None
    assert Usage(steps=4).reached(Limits(steps=3)) == "steps"
    assert Usage(iterations=1).reached(Limits(iterations=0)) == "iterations"
    assert Usage(errors=1).reached(Limits(errors=0)) == "errors"
    assert Usage(steps=10**9).reached(Limits()) is None


def test_a_budget_is_spent_when_all_of_it_is_used():
    assert Usage(tokens=9).spent(Limits(tokens=10)) is None
    assert Usage(tokens=10).spent(Limits(tokens=10)) == "tokens"
    assert Usage(cost=0.5).spent(Limits(cost=0.5)) == "cost"
    assert Usage(tokens=10**9, cost=1e9).spent(Limits()) is None


def test_the_message_says_which_limit_where_and_how_to_raise_it():
    told = message("steps", Limits(steps=3), "/loop[2]/work")
    for part in ("steps=3", "/loop[2]/work", "Limits(steps=", "session.start(limits="):
        assert part in told
