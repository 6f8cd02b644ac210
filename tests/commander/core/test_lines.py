"""Events as lines, for pipes and files."""

from nerve.commander.core.lines import plain
from nerve.core.event import WorkflowEvent


def test_a_step_that_gave_nothing_is_told_with_its_time():
    data = {"success": True, "result": {"output": ""}, "duration_ms": 1500}
    assert plain(WorkflowEvent("r", "w", "node_completed", data, path="/send")) == "[send] ✓ (1.5s)"


def test_a_provider_that_is_limited_is_told_with_the_time_when_it_goes_on():
    data = {"provider": "claude", "until": 0.0, "message": "held: claude limit until 14:30"}
    event = WorkflowEvent("r", "w", "provider_limited", data, path="/plan")
    assert plain(event) == "[plan] ⏸ held: claude limit until 14:30"
