"""Events: names, aliases and sinks."""

from datetime import UTC, datetime
from typing import Any

import pytest

from nerve.core.events import (
    EVENT_ALIASES,
    WorkflowEvent,
    WorkflowEventType,
    canonical_event_name,
    deliver_event,
    is_reserved_event,
)


@pytest.mark.requirement("S1-31")
@pytest.mark.requirement("C-26")
@pytest.mark.parametrize(
    "member",
    [
        "STARTED",
        "COMPLETED",
        "FAILED",
        "PAUSED",
        "RESUMED",
        "CANCELLED",
        "STEP_STARTED",
        "STEP_COMPLETED",
        "STEP_FAILED",
        "LOOP_ITERATION",
        "BRANCH_TAKEN",
        "MAP_ITEM_START",
        "MAP_ITEM_COMPLETE",
        "GATE_WAITING",
        "GATE_RESOLVED",
        "OUTPUT_CHUNK",
        "LOG",
    ],
)
def test_the_event_types_have_the_documented_members_and_names(member: str) -> None:
    found = WorkflowEventType[member]
    assert WorkflowEventType(member.lower()) is found
    assert found == canonical_event_name(member.lower())


@pytest.mark.requirement("D1-6")
def test_the_event_types_have_timeouts() -> None:
    assert {"gate_timeout", "node_timeout"} <= {member.value for member in WorkflowEventType}


@pytest.mark.requirement("S1-31")
@pytest.mark.requirement("C-26")
def test_a_member_is_its_string() -> None:
    assert WorkflowEventType.STARTED == "workflow_started"
    assert f"{WorkflowEventType.STARTED}" == "workflow_started"


def test_an_unknown_name_is_not_an_event_type() -> None:
    with pytest.raises(ValueError, match="'progress' is not a valid WorkflowEventType"):
        WorkflowEventType("progress")
    assert canonical_event_name("progress") == "progress"


@pytest.mark.parametrize(("alias", "name"), EVENT_ALIASES.items())
def test_an_event_matches_its_aliases(alias: str, name: str) -> None:
    event = WorkflowEvent("r", "w", name)
    assert event.is_a(alias)
    assert event.is_a(name)
    assert alias in event.aliases


def test_a_user_event_matches_its_own_name_even_if_it_is_an_alias() -> None:
    assert WorkflowEvent("r", "w", "completed").is_a("completed")
    assert not WorkflowEvent("r", "w", "completed").is_a("failed")


@pytest.mark.requirement("S1-32")
@pytest.mark.requirement("S0-49")
def test_an_event_is_written_as_plain_data() -> None:
    at = datetime(2025, 1, 2, 3, 4, 5, tzinfo=UTC)
    event = WorkflowEvent(
        workflow_id="w", run_id="r", event_type=WorkflowEventType.STARTED, timestamp=at, data={"a": 1}
    )
    assert event.to_dict() == {
        "run_id": "r",
        "workflow_id": "w",
        "event_type": "workflow_started",
        "data": {"a": 1},
        "timestamp": "2025-01-02T03:04:05+00:00",
        "seq": 0,
        "path": "",
    }


@pytest.mark.requirement("D0-10")
def test_the_time_of_an_event_has_a_time_zone() -> None:
    assert WorkflowEvent("r", "w", "x").timestamp.tzinfo is UTC


@pytest.mark.parametrize(
    ("name", "reserved"),
    [("workflow_started", True), ("step_failed", True), ("node_color", False), ("log", False), ("x", False)],
)
def test_only_names_the_engine_writes_are_reserved(name: str, reserved: bool) -> None:
    assert is_reserved_event(name) is reserved


@pytest.mark.requirement("C-10")
async def test_the_awaitable_of_an_async_sink_is_returned() -> None:
    seen: list[Any] = []

    async def sink(event: WorkflowEvent) -> None:
        seen.append(event.event_type)

    await deliver_event(sink, WorkflowEvent("r", "w", "x"))
    assert seen == ["x"]


@pytest.mark.requirement("C-10")
def test_the_return_value_of_a_sync_sink_is_ignored() -> None:
    assert deliver_event(lambda event: event, WorkflowEvent("r", "w", "x")) is None
