"""Events as lines, for pipes and files."""

from nerve.commander.core.lines import plain
from nerve.core.event import WorkflowEvent


def test_a_provider_that_is_limited_is_told_with_the_time_when_it_goes_on():
    data = {"provider": "claude", "until": 0.0, "message": "held: claude limit until 14:30"}
    event = WorkflowEvent("r", "w", "provider_limited", data, path="/plan")
    assert plain(event) == "[plan] ⏸ held: claude limit until 14:30"
