"""The bell of a terminal rings for new events that the rules of the project name."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from nerve.core.events import WorkflowEvent
from nerve.ui.terminal_bell import TerminalBell, open_bell
from notifications.receiver import write_config


def event(type: str, data: dict[str, Any] | None = None, age_s: float = 0, run: str = "r") -> WorkflowEvent:
    at = datetime.now(UTC) - timedelta(seconds=age_s)
    return WorkflowEvent(run, "ship", type, data or {}, at, seq=1, path="/")


def bell(tmp_path: Path, **rule: Any) -> TerminalBell:
    write_config(
        tmp_path, notify={"rules": [{"events": ["gate_opened", "run_failed"], "to": ["bell"], **rule}]}
    )
    opened = open_bell(tmp_path)
    assert opened is not None
    return opened


def test_a_bell_rings_for_the_events_of_its_rules(tmp_path: Path) -> None:
    own = bell(tmp_path)
    assert own.rings_for(event("gate_waiting", {"prompt": "Continue?"}))
    assert own.rings_for(event("workflow_failed"))
    assert not own.rings_for(event("workflow_completed", {"result": None}))
    assert not own.rings_for(event("node_started"))


def test_history_rings_no_bell(tmp_path: Path) -> None:
    assert not bell(tmp_path).rings_for(event("gate_waiting", age_s=60))


def test_the_end_of_a_called_run_rings_no_bell(tmp_path: Path) -> None:
    own = bell(tmp_path)
    own.rings_for(event("workflow_started", {"parent": "p"}))
    assert not own.rings_for(event("workflow_failed"))
    assert own.rings_for(event("workflow_failed", run="another"))


def test_a_rule_selects_by_workflow_and_by_tag(tmp_path: Path) -> None:
    assert not bell(tmp_path, workflows=["review"]).rings_for(event("gate_waiting"))
    tagged = bell(tmp_path, tags={"team": "core"})
    assert not tagged.rings_for(event("gate_waiting"))
    tagged.rings_for(event("workflow_started", {"tags": {"team": "core"}}))
    assert tagged.rings_for(event("gate_waiting"))


def test_a_project_without_a_rule_for_it_has_no_bell(tmp_path: Path) -> None:
    assert open_bell(tmp_path) is None
    write_config(tmp_path, notify={"rules": [{"events": ["run_failed"], "to": ["desktop"]}]})
    assert open_bell(tmp_path) is None
    (tmp_path / ".nerve" / "config.json").write_text("{")
    assert open_bell(tmp_path) is None
