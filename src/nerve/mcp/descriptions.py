"""Runs, gates and workflows as the fields that an agent needs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from nerve.api.models import GateResponse, NodeResponse, RunDetailResponse, RunResponse, WorkflowResponse
from nerve.core.workflow.state import FINAL_STATE_VALUES
from nerve.mcp.bounded_results import shorten_text, shorten_value, without_empty
from nerve.ui.formatting import format_two_units
from nerve.ui.gate_names import answer_command, gate_display_name

MAX_SHOWN_STEPS = 200
NEEDS_ATTENTION_STATES = frozenset({"paused", "held"})
"""States in which a run does not continue without a user, besides those with an open gate."""


def needs_attention(run: RunResponse) -> bool:
    """Return whether a run has ended, or does not continue without a user."""
    return run.state in FINAL_STATE_VALUES or run.state in NEEDS_ATTENTION_STATES or bool(run.gates)


def describe_workflow(workflow: WorkflowResponse) -> dict[str, Any]:
    """Return the name, the description and the inputs of a workflow."""
    inputs = [
        without_empty(
            {
                "name": each.name,
                "type": each.format or each.type,
                "required": each.required or None,
                "default": each.default,
                "description": each.description,
                "choices": each.choices,
            }
        )
        for each in workflow.inputs
    ]
    return without_empty(
        {
            "name": workflow.id,
            "description": shorten_text(workflow.description),
            "inputs": inputs,
            "steps": workflow.steps[:MAX_SHOWN_STEPS],
        }
    )


def describe_gate(gate: GateResponse) -> dict[str, Any]:
    """Return what a gate asks, and the command with which a person answers it."""
    return without_empty(
        {
            "gate": gate.gate_id,
            "name": gate_display_name(gate),
            "run": gate.run_id,
            "workflow": gate.workflow,
            "label": gate.label,
            "prompt": shorten_text(gate.prompt),
            "choices": gate.choices,
            "suggestions": gate.options,
            "form": gate.form,
            "action": shorten_value(gate.action),
            "note": shorten_text(gate.note or ""),
            "content": shorten_text(gate.input_preview or ""),
            "deadline": gate.deadline,
            "answer_with": answer_command(gate),
        }
    )


def describe_run(run: RunResponse) -> dict[str, Any]:
    """Return the state of a run, what it needs, and its outcome."""
    has_ended = run.state in FINAL_STATE_VALUES
    fields = without_empty(
        {
            "run": run.run_id,
            "workflow": run.workflow,
            "state": run.state,
            "label": run.label,
            "tags": run.tags,
            "started_at": run.started_at.isoformat() if run.started_at else None,
            "ended_at": run.ended_at.isoformat() if run.ended_at else None,
            "input": shorten_text(run.input_preview, 200),
            "error": shorten_text(run.error or ""),
            "error_type": run.error_type,
            "location": run.location,
            "held": shorten_text(str((run.held or {}).get("message", ""))),
            "waiting_for": run.waiting_for,
            "gates": [describe_gate(gate) for gate in run.gates],
            "parent": run.parent,
            "continued_as": run.continued_as,
        }
    )
    return fields | ({"result": shorten_value(run.result)} if has_ended and run.error is None else {})


def describe_run_with_steps(run: RunDetailResponse) -> dict[str, Any]:
    """Return a run with its input, its usage and a line for each step."""
    lines = list(step_lines(run.tree))
    left_out = max(len(lines) - MAX_SHOWN_STEPS, 0)
    return describe_run(run) | without_empty(
        {
            "input": shorten_value(run.input),
            "params": shorten_value(run.params),
            "usage": run.usage,
            "steps": lines[left_out:],
            "earlier_steps_left_out": left_out or None,
        }
    )


def step_lines(nodes: Iterable[NodeResponse]) -> Iterator[str]:
    """Yield a line for each step: its state, path, duration and error."""
    for node in nodes:
        duration = f" {format_two_units(node.seconds)}" if node.seconds is not None else ""
        reason = node.error or node.held
        yield f"{node.state} {node.path}{duration}" + (f": {shorten_text(reason, 300)}" if reason else "")
        yield from step_lines(node.parts)
