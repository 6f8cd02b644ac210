"""Answers in the form of the schema, and inputs held to what a workflow declares."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from nerve.core.suggest import suggest
from nerve.router.decision import Chosen, Conversation, Decision, Offered, Question, listed
from nerve.router.lines import unknown
from nerve.spec.checks.rules import fits
from nerve.spec.models import Input


def read_answer(answer: Mapping[str, Any], workflows: Sequence[Offered], text: str) -> Decision | None:
    """What an answer in the form says, or None if it says nothing; inputs are not held to anything yet."""
    name, question, reply = (said(answer, key) for key in ("workflow", "question", "reply"))
    offered = {each.name: each for each in workflows}
    intent = said(answer, "intent") or text
    if name in offered:
        inputs = given(offered[name], answer.get("inputs"))
        if question:
            return Question(question, (name,), intent, inputs, text=text)
        return Chosen(name, intent, inputs, text=text)
    warnings = unknown(name or None, list(offered))
    if question:
        return Question(question, text=text, warnings=warnings)
    if reply or name:
        return Conversation(reply or nowhere(name, list(offered)), text=text, warnings=warnings)
    return None


def nowhere(name: str, names: list[str]) -> str:
    """What is answered for an agent that named what does not exist, and said nothing else."""
    there = f"There are: {listed(names)}." if names else "There are none."
    return f"The router's agent chose the workflow '{name}', which does not exist. {there}"


def said(answer: Mapping[str, Any], key: str) -> str:
    value = answer.get(key)
    return value.strip() if isinstance(value, str) else ""


def given(offered: Offered, inputs: Any) -> dict[str, Any]:
    """The inputs that were given; null is none, and what a form cannot have stands in it as JSON text."""
    if not isinstance(inputs, Mapping):
        return {}
    return {
        str(name): value_of(offered.inputs.get(str(name)), value)
        for name, value in inputs.items()
        if value is not None
    }


def value_of(declared: Input | None, value: Any) -> Any:
    if declared is None or declared.type not in ("array", "object", "any") or not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        return value


def held_to_inputs(decision: Decision, workflows: Sequence[Offered]) -> Decision:
    """The decision, or a question back if the workflow could not be started with these inputs."""
    if not isinstance(decision, Chosen):
        return decision
    offered = next(each for each in workflows if each.name == decision.workflow)
    wrong = {name: why for name in decision.inputs if (why := wrong_input(offered, name, decision.inputs))}
    missing = [
        f"'{name}' is needed ({kind_of(declared)}){about(declared)}"
        for name, declared in offered.inputs.items()
        if declared.required and name not in decision.inputs
    ]
    if not wrong and not missing:
        return decision
    right = {name: value for name, value in decision.inputs.items() if name not in wrong}
    asked = f"To start '{offered.name}': {'; '.join([*wrong.values(), *missing])}."
    return Question(asked, (offered.name,), decision.intent, right, **common(decision))


def common(decision: Decision) -> dict[str, Any]:
    """What a decision says of itself, for the one that takes its place."""
    return {name: getattr(decision, name) for name in ("text", "by", "reason", "warnings", "thread", "usage")}


def with_warning(decision: Decision, warning: str) -> Decision:
    return replace(decision, warnings=(*decision.warnings, warning))


def wrong_input(offered: Offered, name: str, inputs: Mapping[str, Any]) -> str:
    """Why an input cannot be taken, or nothing."""
    value, declared = inputs[name], offered.inputs.get(name)
    if declared is None:
        close = suggest(name, offered.inputs).replace(". Did you mean", ", did you mean").rstrip("?")
        return f"it has no input '{name}'{close}" if offered.inputs else ""
    if not fits(value, declared.type):
        return f"'{name}' must be {kind_of(declared)}, not {value!r:.60}"
    if declared.choices is not None and value not in declared.choices:
        return f"'{name}' must be {kind_of(declared)}, not {value!r:.60}"
    return ""


def kind_of(declared: Input) -> str:
    if declared.choices:
        return f"one of {json.dumps(declared.choices, ensure_ascii=False)}"
    article = "an" if declared.type[0] in "aio" else "a"
    return "anything" if declared.type == "any" else f"{article} {declared.type}"


def about(declared: Input) -> str:
    return f": {declared.description.strip().rstrip('.')}" if declared.description.strip() else ""
