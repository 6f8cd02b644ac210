"""The prompt by which an agent decides, and the form of its answer."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from nerve.router.decision import Offered
from nerve.spec.models import Input

ROUTER = """\
# Router

You route user requests to the appropriate workflow.

## Available Workflows

{workflows}

## User Request

"{text}"

## Instructions

{instructions}"""

BY_LINE = """\
Analyze the user's request carefully.

If a workflow matches:
1. Respond with exactly: WORKFLOW: {workflow-name}
2. Then write a clear summary of the user's intent for the workflow agents.

If no workflow matches:
- Respond conversationally to help the user directly.
- You can ask clarifying questions or provide information.

IMPORTANT: Only output "WORKFLOW: name" if you're confident the request matches a workflow.
The workflow name must exactly match one from the Available Workflows list."""

BY_FORM = """\
Fill in the fields of the answer:
- workflow: the name of the workflow to start, exactly as in the list, and only if you are confident that it
  is meant; else null
- inputs: what the user said about the inputs of that workflow; null for each that was not said. Never make
  one up. An array, an object or an input of type any is written as JSON text.
- intent: a summary of what the user wants, for the agents of that workflow; empty without a workflow
- reply: if no workflow is meant, your answer to the user, as in a conversation; else empty
- question: what you must ask the user before you can decide; else empty"""

JSON_TYPES = {"string": "string", "number": "number", "integer": "integer", "boolean": "boolean"}
"""The types that a form has; other values are written as JSON text."""


def build_router_prompt(text: str, workflows: Iterable[Offered], form: bool = False) -> str:
    """What an agent is asked; without workflows, just what the user wrote.

    With `form` the answer is to have the fields of `answer_schema`, else its first line says the workflow.
    """
    offered = list(workflows)
    if not offered:
        return text
    lines = "\n".join(line for each in offered for line in described(each, form))
    # In one pass: a text or a description that has braces in it stays what it is.
    parts = {"{workflows}": lines, "{text}": text, "{instructions}": BY_FORM if form else BY_LINE}
    return "".join(parts.get(piece, piece) for piece in PIECES)


PIECES = re.split(r"(\{[a-z]+\})", ROUTER)


def described(offered: Offered, inputs: bool) -> Iterable[str]:
    yield f"- **{offered.name}**: {' '.join(offered.description.split())}".rstrip()
    if inputs:
        yield from (told(name, declared) for name, declared in offered.inputs.items())


def told(name: str, declared: Input) -> str:
    needed = ", required" if declared.required else ""
    among = f", one of {json.dumps(declared.choices, ensure_ascii=False)}" if declared.choices else ""
    about = " ".join(declared.description.split())
    return f"  - input `{name}` ({declared.type}{needed}{among}){f': {about}' if about else ''}"


def answer_schema(workflows: Sequence[Offered]) -> dict[str, Any]:
    """The JSON Schema of an answer: closed and with every key required, as the strictest APIs want it."""
    text = {"type": "string"}
    return closed(
        {
            "workflow": {"type": ["string", "null"], "enum": [*(each.name for each in workflows), None]},
            "inputs": closed(inputs_of(workflows)),
            "intent": text,
            "reply": text,
            "question": text,
        }
    )


def inputs_of(workflows: Sequence[Offered]) -> dict[str, Any]:
    """Every input that any of them declares; null where it is not given."""
    types: dict[str, list[str]] = {}
    for each in workflows:
        for name, declared in each.inputs.items():
            known = types.setdefault(name, [])
            if (type := JSON_TYPES.get(declared.type, "string")) not in known:
                known.append(type)
    return {name: {"type": [*known, "null"]} for name, known in types.items()}


def closed(properties: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": dict(properties),
        "required": list(properties),
        "additionalProperties": False,
    }
