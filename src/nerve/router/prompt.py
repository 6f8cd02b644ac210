"""The prompt of the routing agent, and the schema of its answer."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from nerve.router.decision import Candidate
from nerve.spec.models import InputSpec

ROUTER_TEMPLATE = """\
# Router

You route user requests to the appropriate workflow.

## Available Workflows

{workflows}

## User Request

"{text}"

## Instructions

{instructions}"""

MARKER_INSTRUCTIONS = """\
Analyze the user's request carefully.

If a workflow matches:
1. Respond with exactly: WORKFLOW: {workflow-name}
2. Then write a clear summary of the user's intent for the workflow agents.

If no workflow matches:
- Respond conversationally to help the user directly.
- You can ask clarifying questions or provide information.

IMPORTANT: Only output "WORKFLOW: name" if you're confident the request matches a workflow.
The workflow name must exactly match one from the Available Workflows list."""

SCHEMA_INSTRUCTIONS = """\
Fill in the fields of the answer:
- workflow: the name of the workflow to start, exactly as in the list, and only if you are confident that it
  is meant; else null
- inputs: what the user said about the inputs of that workflow; null for each that was not said. Never make
  one up. An array, an object or an input of type any is written as JSON text.
- intent: a summary of what the user wants, for the agents of that workflow; empty without a workflow
- reply: if no workflow is meant, your answer to the user, as in a conversation; else empty
- question: what you must ask the user before you can decide; else empty"""

JSON_TYPES = {"string": "string", "number": "number", "integer": "integer", "boolean": "boolean"}
"""Types that the schema can express; other values are written as JSON text."""


def build_router_prompt(text: str, workflows: Iterable[Candidate], form: bool = False) -> str:
    """Return the prompt of the routing agent; without workflows, the message itself.

    With `form`, the prompt asks for the fields of `answer_schema`, else for a `WORKFLOW:` line.
    """
    candidates = list(workflows)
    if not candidates:
        return text
    lines = "\n".join(line for workflow in candidates for line in describe_candidate(workflow, form))
    # Substituted in one pass, so that braces in the message or a description stay unchanged.
    parts = {
        "{workflows}": lines,
        "{text}": text,
        "{instructions}": SCHEMA_INSTRUCTIONS if form else MARKER_INSTRUCTIONS,
    }
    return "".join(parts.get(piece, piece) for piece in TEMPLATE_PIECES)


TEMPLATE_PIECES = re.split(r"(\{[a-z]+\})", ROUTER_TEMPLATE)


def describe_candidate(candidate: Candidate, inputs: bool) -> Iterable[str]:
    yield f"- **{candidate.name}**: {' '.join(candidate.description.split())}".rstrip()
    if inputs:
        for name, declared in candidate.inputs.items():
            yield describe_declared_input(name, declared, candidate.schemas.get(name, {}))


def describe_declared_input(name: str, declared: InputSpec, schema: Mapping[str, Any]) -> str:
    needed = ", required" if declared.required else ""
    among = f", one of {json.dumps(declared.choices, ensure_ascii=False)}" if declared.choices else ""
    about = " ".join(declared.description.split())
    is_nested = declared.type in ("array", "object", "any") and set(schema) - {"type", "default"}
    parts = f", JSON Schema {json.dumps(schema, ensure_ascii=False)}" if is_nested else ""
    return f"  - input `{name}` ({declared.type}{needed}{among}{parts}){f': {about}' if about else ''}"


def answer_schema(workflows: Sequence[Candidate]) -> dict[str, Any]:
    """Return the JSON Schema of an answer, closed and with every key required for strict APIs."""
    text = {"type": "string"}
    return closed_object_schema(
        {
            "workflow": {
                "type": ["string", "null"],
                "enum": [*(workflow.name for workflow in workflows), None],
            },
            "inputs": closed_object_schema(input_properties(workflows)),
            "intent": text,
            "reply": text,
            "question": text,
        }
    )


def input_properties(workflows: Sequence[Candidate]) -> dict[str, Any]:
    """Return a nullable property for every input that any workflow declares."""
    types: dict[str, list[str]] = {}
    for workflow in workflows:
        for name, declared in workflow.inputs.items():
            known = types.setdefault(name, [])
            if (type := JSON_TYPES.get(declared.type, "string")) not in known:
                known.append(type)
    return {name: {"type": [*known, "null"]} for name, known in types.items()}


def closed_object_schema(properties: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": dict(properties),
        "required": list(properties),
        "additionalProperties": False,
    }
