"""Queues: their settings, and what a step or a run asks of them."""

from __future__ import annotations

from typing import Any

import pytest

from nerve import Queue
from nerve.core.queues import QueueRequest, Rate, find_queue


@pytest.mark.parametrize(
    ("text", "rate"), [("10/s", Rate(10, 1)), ("100/min", Rate(100, 60)), ("5/h", Rate(5, 3600))]
)
def test_a_rate_is_a_number_per_second_minute_or_hour(text: str, rate: Rate) -> None:
    assert Queue("emails", rate=text).window == rate


@pytest.mark.parametrize("rate", ["", "100", "0/s", "-1/s", "1/m", "1 / s", "1.5/s", "1/min ", "1/day", 5])
def test_another_rate_is_refused(rate: Any) -> None:
    with pytest.raises(ValueError, match=r"rate of queue 'emails' must be a number per s, min or h such as"):
        Queue("emails", rate=rate)


@pytest.mark.parametrize(
    "settings",
    [
        {"name": ""},
        {"name": "two words"},
        {"name": 3},
        {"concurrency": 0},
        {"concurrency": True},
        {"concurrency": "2"},
        {"per": 7},
        {"priority": 1},
    ],
)
def test_wrong_settings_are_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="queue"):
        Queue(**{"name": "emails", **settings})


def test_the_key_and_the_priority_come_from_the_first_source_with_their_names() -> None:
    queue = Queue("emails", concurrency=1, per="tenant", priority="urgency")
    assert queue.make_request(
        "step 'send'", [{"tenant": "a", "urgency": 3}, {"tenant": "b"}]
    ) == QueueRequest("emails", "a", 3)
    assert queue.make_request("step 'send'", [{"x": 1}, {"tenant": 7, "urgency": "-2"}]) == QueueRequest(
        "emails", "7", -2
    )
    assert queue.make_request("step 'send'", ["text", None, {"tenant": True}]).key == "true"


def test_a_step_without_the_key_is_refused() -> None:
    with pytest.raises(
        ValueError,
        match="counts per 'tenant', but step 'send' has neither an input field nor a tag 'tenant'",
    ):
        Queue("emails", per="tenant").make_request("step 'send'", [{"to": "x"}])
    with pytest.raises(ValueError, match=r"'tenant' of step 'send'.* must be a string, a number"):
        Queue("emails", per="tenant").make_request("step 'send'", [{"tenant": ["a"]}])


@pytest.mark.parametrize("priority", ["high", 1.5, True, [1]])
def test_a_priority_must_be_an_integer(priority: Any) -> None:
    with pytest.raises(
        ValueError, match="priority 'rank' of step 'send' in queue 'emails' must be an integer"
    ):
        Queue("emails", priority="rank").make_request("step 'send'", [{"rank": priority}])


def test_an_unknown_queue_is_one_error_with_the_nearest_name() -> None:
    queues = {"emails": Queue("emails")}
    with pytest.raises(ValueError, match=r"Queue 'email' not found\. Did you mean 'emails'\?"):
        find_queue(queues, "email")
    with pytest.raises(ValueError, match=r"Queue 'x' not found\. Known queues: emails"):
        find_queue(queues, "x")
    with pytest.raises(ValueError, match=r"Queue 'x' not found\. The session has no queues"):
        find_queue({}, "x")
