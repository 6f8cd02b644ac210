"""The view of steps without own events: decisions, computed values, empty states."""

from __future__ import annotations

import json
from typing import Any

import pytest

from nerve import MockNode, Session
from nerve.core.events import WorkflowEvent
from nerve.core.run_view import RunView
from nerve.errors import WorkflowFailed
from nerve.journal.run_view import fold_events


async def seen(
    source: Any, notation: str, given: Any = None, nodes: dict[str, list[Any]] | None = None
) -> RunView:
    """Return the view of an ended run of a workflow."""
    async with Session("s") as session:
        for name, answers in (nodes or {}).items():
            MockNode(name, session, answers)
        workflow = session.load(source if isinstance(source, str) else json.dumps(source), notation)
        run = await session.start(workflow.name, given)
        try:
            await run.wait()
        except WorkflowFailed:
            pass
        return fold_events(run.events)


def states(view: RunView) -> dict[str, str]:
    return {path: node.state for path, node in view.nodes.items()}


DEPLOY = {
    "id": "deploy",
    "steps": [
        {"id": "double", "type": "transform", "transform": "input * 2", "next": "check"},
        {
            "id": "check",
            "type": "condition",
            "condition": "context.double.output > 5",
            "then": "ship",
            "else": "stop",
        },
        {"id": "ship", "type": "agent", "agent": "shipper", "next": "note"},
        {"id": "note", "type": "transform", "transform": "'done'"},
        {"id": "stop", "type": "transform", "transform": "'stopped'"},
    ],
}


@pytest.mark.parametrize(
    ("given", "taken"),
    [
        (3, {"/double": "completed", "/check": "completed", "/ship": "completed", "/note": "completed"}),
        (2, {"/double": "completed", "/check": "completed", "/stop": "completed"}),
    ],
)
async def test_executed_steps_are_completed_and_the_others_skipped(given: int, taken: dict[str, str]) -> None:
    view = await seen(DEPLOY, "json", given, {"shipper": ["shipped"]})
    every = dict.fromkeys(["/double", "/check", "/ship", "/note", "/stop"], "skipped")
    assert states(view) == every | taken


async def test_a_failed_state_is_shown_as_failed_even_if_the_run_continues() -> None:
    steps = [
        {"id": "bad", "type": "transform", "transform": "input.a.b", "on_error": "save"},
        {"id": "save", "type": "transform", "transform": "input.a.b"},
        {"id": "never", "type": "transform", "transform": "1"},
    ]
    steps[1]["next"] = "never"
    view = await seen({"id": "w", "steps": steps}, "json", "x")
    assert view.state == "failed"
    assert states(view) == {"/bad": "failed", "/save": "failed", "/never": "skipped"}


async def test_the_taken_branch_is_shown_and_a_false_condition_is_not_a_failure() -> None:
    source = """(workflow w (state s
      (branch (on (signal absent) (result "yes")) (otherwise (result "no"))))
      (state end (terminal)))"""
    view = await seen(source, "lisp")
    branch = {
        "/s": "completed",
        "/s/_signal_1": "completed",
        "/s/branch": "completed",
        "/s/branch/else": "completed",
    }
    assert states(view) == branch | {"/end": "completed"}


async def test_a_state_with_a_handled_failure_is_completed() -> None:
    source = """(workflow w (state s
      (with-timeout 0.01 (wait (signal never)) (on-timeout (log "late") (goto end))))
      (state between (log "no"))
      (state end (result 1) (terminal)))"""
    view = await seen(source, "lisp")
    assert {path: states(view)[path] for path in ("/s", "/between", "/end")} == {
        "/s": "completed",
        "/between": "skipped",
        "/end": "completed",
    }


async def test_a_state_that_is_entered_twice_is_shown_twice() -> None:
    source = """(workflow w (state s
      (branch (on (fact (been)) (goto end)))
      (assert (been)) (goto s))
      (state end (terminal)))"""
    view = await seen(source, "lisp")
    assert {path: state for path, state in states(view).items() if path.count("/") == 1} == {
        "/s": "completed",
        "/s[2]": "completed",
        "/end": "completed",
    }


async def test_computed_steps_of_a_sequence_are_completed() -> None:
    steps = [
        {"kind": "transform", "id": "a", "expression": "1"},
        {"kind": "call", "id": "b", "target": "work"},
        {"kind": "transform", "id": "c", "expression": "results.b"},
    ]
    source = {"name": "w", "body": {"kind": "sequence", "id": "all", "steps": steps}}
    view = await seen(source, "json", nodes={"work": [2]})
    assert states(view) == {"/a": "completed", "/b": "completed", "/c": "completed"}
    view = await seen(source, "json", nodes={"work": [ValueError("no")]})
    assert states(view) == {"/a": "completed", "/b": "failed", "/c": "skipped"}


async def test_a_loop_of_computed_steps_is_completed() -> None:
    view = await seen('(workflow w (state s (loop :times 3 (log "again")) (log "done") (terminal)))', "lisp")
    assert (view.nodes["/s/loop"].state, view.nodes["/s/loop"].iteration) == ("completed", 3)


def told(*facts: tuple[str, str, dict[str, Any]]) -> list[WorkflowEvent]:
    return [
        WorkflowEvent("r", "w", kind, data, seq=seq, path=path)
        for seq, (kind, path, data) in enumerate(facts, 1)
    ]


STARTED = ("workflow_started", "", {"steps": ["a", "b", "c"]})


def entered(state: str, transition: int, **more: Any) -> tuple[str, str, dict[str, Any]]:
    return ("state_entered", "", {"node_id": "m", "state": state, "transition": transition, **more})


def test_the_current_state_of_a_machine_runs_until_the_next_is_entered() -> None:
    work = [("node_started", "/a/x", {"node_id": "x"}), ("node_completed", "/a/x", {"success": True})]
    view = fold_events(told(STARTED, entered("a", 1), *work))
    assert states(view)["/a"] == "running"
    view = fold_events(told(STARTED, entered("a", 1), *work, entered("b", 2)))
    assert states(view) == {"/a": "completed", "/a/x": "completed", "/b": "running", "/c": "pending"}


def test_unreached_steps_are_pending_again_when_the_run_resumes() -> None:
    events = told(STARTED, entered("a", 1), ("workflow_failed", "", {"error": "no"}))
    assert states(fold_events(events)) == {"/a": "failed", "/b": "skipped", "/c": "skipped"}
    events = told(
        STARTED,
        entered("a", 1),
        ("workflow_failed", "", {"error": "no"}),
        ("workflow_resumed", "", {}),
        entered("b", 2, previous="completed"),
        ("workflow_completed", "", {"result": 1}),
    )
    assert states(fold_events(events[:-2])) == {"/a": "running", "/b": "pending", "/c": "pending"}
    assert states(fold_events(events)) == {"/a": "completed", "/b": "completed", "/c": "skipped"}


@pytest.mark.parametrize(
    "data", [{}, {"state": 1}, {"state": ""}, {"branch": 7}, {"branch": ""}, {"branch": "/../x"}]
)
@pytest.mark.parametrize("type", ["state_entered", "branch_taken"])
def test_events_of_a_leaf_under_these_names_do_not_change_the_tree(type: str, data: dict[str, Any]) -> None:
    leaf = ("node_started", "/a", {"node_id": "x"})
    before = states(fold_events(told(STARTED, leaf)))
    assert states(fold_events(told(STARTED, leaf, (type, "/a", {**data, "state": "s"})))) == before
    fold_events(told(STARTED, (type, "", data)))
