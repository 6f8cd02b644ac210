"""Parse structured answers of the routing agent, and validate inputs against the workflow."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from nerve.core.suggest import did_you_mean_hint
from nerve.router.decision import (
    Candidate,
    ConversationDecision,
    Decision,
    QuestionDecision,
    WorkflowDecision,
    join_quoted_names,
)
from nerve.router.workflow_marker import unknown_workflow_warnings
from nerve.spec.checks.node_rules import is_of_type
from nerve.spec.models import InputSpec


def parse_agent_answer(
    answer: Mapping[str, Any], workflows: Sequence[Candidate], text: str
) -> Decision | None:
    """Return the decision of a structured answer, or None if it is empty. Inputs are not validated."""
    name, question, reply = (answer_text(answer, key) for key in ("workflow", "question", "reply"))
    candidate_by_name = {workflow.name: workflow for workflow in workflows}
    intent = answer_text(answer, "intent") or text
    if name in candidate_by_name:
        inputs = extract_inputs(candidate_by_name[name], answer.get("inputs"))
        if question:
            return QuestionDecision(question, (name,), intent, inputs, text=text)
        return WorkflowDecision(name, intent, inputs, text=text)
    warnings = unknown_workflow_warnings(name or None, list(candidate_by_name))
    if question:
        return QuestionDecision(question, text=text, warnings=warnings)
    if reply or name:
        return ConversationDecision(
            reply or unknown_workflow_reply(name, list(candidate_by_name)), text=text, warnings=warnings
        )
    return None


def unknown_workflow_reply(name: str, names: list[str]) -> str:
    """Return the reply to use when the agent only named an unknown workflow."""
    available = f"Available: {join_quoted_names(names)}." if names else "No workflows are available."
    return f"The routing agent chose the unknown workflow '{name}'. {available}"


def answer_text(answer: Mapping[str, Any], key: str) -> str:
    value = answer.get(key)
    return value.strip() if isinstance(value, str) else ""


def extract_inputs(candidate: Candidate, inputs: Any) -> dict[str, Any]:
    """Return the inputs of an answer without nulls, with arrays and objects decoded from JSON text."""
    if not isinstance(inputs, Mapping):
        return {}
    return {
        str(name): parse_routed_input(candidate.inputs.get(str(name)), value)
        for name, value in inputs.items()
        if value is not None
    }


def parse_routed_input(declared: InputSpec | None, value: Any) -> Any:
    if declared is None or declared.type not in ("array", "object", "any") or not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        return value


def validate_decision_inputs(decision: Decision, workflows: Sequence[Candidate]) -> Decision:
    """Return the decision, or a question if the workflow cannot start with these inputs."""
    if not isinstance(decision, WorkflowDecision):
        return decision
    candidate = next(workflow for workflow in workflows if workflow.name == decision.workflow)
    wrong = {
        name: problem
        for name in decision.inputs
        if (problem := explain_wrong_input(candidate, name, decision.inputs))
    }
    missing = [
        f"'{name}' is needed ({input_kind_text(declared)}){input_description_suffix(declared)}"
        for name, declared in candidate.inputs.items()
        if declared.required and name not in decision.inputs
    ]
    if not wrong and not missing:
        return decision
    valid = {name: value for name, value in decision.inputs.items() if name not in wrong}
    question = f"To start '{candidate.name}': {'; '.join([*wrong.values(), *missing])}."
    return QuestionDecision(
        question, (candidate.name,), decision.intent, valid, **shared_decision_fields(decision)
    )


def shared_decision_fields(decision: Decision) -> dict[str, Any]:
    """Return the fields that a replacement decision takes over."""
    return {name: getattr(decision, name) for name in ("text", "by", "reason", "warnings", "thread", "usage")}


def with_warning(decision: Decision, warning: str) -> Decision:
    return replace(decision, warnings=(*decision.warnings, warning))


def explain_wrong_input(candidate: Candidate, name: str, inputs: Mapping[str, Any]) -> str:
    """Return why an input is invalid, or an empty string."""
    value, declared = inputs[name], candidate.inputs.get(name)
    if declared is None:
        close = (
            did_you_mean_hint(name, candidate.inputs).replace(". Did you mean", ", did you mean").rstrip("?")
        )
        return f"it has no input '{name}'{close}" if candidate.inputs else ""
    if not is_of_type(value, declared.type):
        return f"'{name}' must be {input_kind_text(declared)}, not {value!r:.60}"
    if declared.choices is not None and value not in declared.choices:
        return f"'{name}' must be {input_kind_text(declared)}, not {value!r:.60}"
    return ""


def input_kind_text(declared: InputSpec) -> str:
    if declared.choices:
        return f"one of {json.dumps(declared.choices, ensure_ascii=False)}"
    article = "an" if declared.type[0] in "aio" else "a"
    return "anything" if declared.type == "any" else f"{article} {declared.type}"


def input_description_suffix(declared: InputSpec) -> str:
    return f": {declared.description.strip().rstrip('.')}" if declared.description.strip() else ""
