"""Reports of commands."""

import pytest

from nerve.api.models import FactResponse, UsageResponse
from nerve.commander.reports import facts_report, format_usage_today


def fact(by: str) -> FactResponse:
    return FactResponse(id="f", record=["ready"], text="(ready)", by=by, at=0.0)


def test_a_fact_is_listed_with_its_author() -> None:
    assert facts_report([fact("ada"), fact("")]) == "- `(ready)` by ada\n- `(ready)`"


@pytest.mark.parametrize(
    ("today_", "models", "expected"),
    [
        ({}, {}, "nothing spent"),
        ({"tokens": 1200, "cost": 0.5, "turns": 2}, {"a": {"turns": 2}}, "1.2k tokens · $0.50"),
        ({"turns": 1}, {"unknown": {"turns": 1, "turns_without_cost": 1}}, "1 turn of unknown cost"),
        (
            {"tokens": 90, "cost": 0.5, "turns": 3},
            {"a": {"turns": 1}, "b": {"turns": 2, "turns_without_cost": 2}},
            "90 tokens · $0.50 · 2 turns of unknown cost",
        ),
        ({"turns": 2}, {"free": {"turns": 2, "reported_cost": 0}}, "2 turns at no cost"),
    ],
)
def test_the_usage_of_today_includes_turns_of_unknown_cost(today_, models, expected) -> None:
    assert format_usage_today(UsageResponse(today=today_, models=models)) == expected
