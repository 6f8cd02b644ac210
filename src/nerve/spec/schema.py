"""JSON Schemas for editors: the full form as the models say it, and the dialects of JSON and YAML.

`python -m nerve.spec.schema FOLDER` writes them; a test holds the ones in `schemas/` equal to these.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from nerve.spec import models

Schema = dict[str, Any]

DRAFT = "https://json-schema.org/draft/2020-12/schema"
TEXT: Schema = {"type": "string"}
FILLED: Schema = {"type": "string", "minLength": 1}
FLAG: Schema = {"type": "boolean"}
OBJECT: Schema = {"type": "object"}
MILLISECONDS: Schema = {"type": "number", "minimum": 0}
SECONDS: Schema = {"type": "number", "minimum": 0}
TARGET: Schema = {"type": ["string", "null"], "description": "The id of a step, or null for the end."}


def workflow_schema() -> Schema:
    """The spec itself, which every syntax can be written in."""
    spec = models.WorkflowSpec.model_json_schema()
    nodes: list[Schema] = []
    made = with_one_node(spec, nodes)
    made["$defs"]["Node"] = nodes[0]
    made["properties"] = {"$schema": TEXT, **made["properties"]}
    return {"$schema": DRAFT, **made, "title": "A Nerve workflow, full form"}


def with_one_node(made: Any, nodes: list[Schema]) -> Any:
    """The schema with a name for the union of all nodes, which stands at every place otherwise."""
    if isinstance(made, list):
        return [with_one_node(each, nodes) for each in made]
    if not isinstance(made, dict):
        return made
    if "discriminator" not in made:
        return {key: with_one_node(each, nodes) for key, each in made.items()}
    nodes.append({key: made[key] for key in ("discriminator", "oneOf")})
    rest = {key: value for key, value in made.items() if key not in ("discriminator", "oneOf")}
    return {"$ref": "#/$defs/Node", **rest}


# -- steps in JSON -----------------------------------------------------------------------------

STEP: Schema = {
    "id": {"type": "string", "pattern": r"^\w[\w.\-]{0,127}$"},
    "type": FILLED,
    "description": TEXT,
    "next": TARGET,
    "on_error": TARGET,
    "max_retries": {"type": "integer", "minimum": 1, "description": "Attempts in all; 1 is no retry."},
    "retry_delay_ms": MILLISECONDS,
    "timeout_ms": {"type": "number", "exclusiveMinimum": 0},
}
BUDGET: Schema = {"$ref": "#/$defs/StepLimits"}
STEP_TYPES: dict[str, Schema] = {
    "agent": {
        "agent": {**FILLED, "description": "A node, an agent, or workflow:<id>."},
        "input": {
            "type": ["string", "array"],
            "items": TEXT,
            "description": "Steps whose results it is given.",
        },
        "params": {**OBJECT, "description": "The inputs of a workflow that is called."},
        "output_schema": {**OBJECT, "description": "The JSON Schema of the answer."},
        "limits": BUDGET,
    },
    "approval": {"message": TEXT, "on_approve": TARGET, "on_reject": TARGET},
    "parallel": {
        "steps": {"type": "array", "items": {"$ref": "#/$defs/part"}, "minItems": 1},
        "min_success": {"type": "integer", "minimum": 0},
    },
    "condition": {"condition": FILLED, "then": TARGET, "else": TARGET},
    "transform": {"transform": FILLED},
}
NEEDED = {
    "agent": ["agent"],
    "approval": [],
    "parallel": ["steps"],
    "condition": ["condition", "then", "else"],
    "transform": ["transform"],
}
STEPS: Schema = {
    "$schema": TEXT,
    "id": FILLED,
    "description": TEXT,
    "max_iterations": {"type": "integer", "minimum": 0},
    "max_duration_ms": MILLISECONDS,
    "parallel": {**FLAG, "description": "Run steps side by side that are provably independent."},
    "initial_context": OBJECT,
    "steps": {"type": "array", "items": {"$ref": "#/$defs/step"}, "minItems": 1},
}


def step_schema(type: str) -> Schema:
    keys = {**STEP, "type": {"const": type}, **STEP_TYPES[type]}
    if type == "condition":
        del keys["next"]
    return closed(keys, ["id", "type", *NEEDED[type]])


def part_schema(type: str) -> Schema:
    """A step in a parallel step, which leads nowhere."""
    keys = {**STEP, "type": {"const": type}, **STEP_TYPES[type]}
    ways: Schema = {key: {"type": "null"} for key, takes in keys.items() if takes is TARGET}
    if type == "approval":
        ways["on_reject"] = {"enum": ["continue", None], "description": "The report has the rejection."}
    return closed({**keys, **ways}, ["id", "type", *(key for key in NEEDED[type] if key not in ways)])


def steps_schema() -> Schema:
    """A step machine in JSON."""
    steps = {"oneOf": [step_schema(type) for type in STEP_TYPES]}
    parts = {"oneOf": [part_schema(type) for type in STEP_TYPES]}
    made = closed(STEPS, ["id", "steps"])
    return {
        "$schema": DRAFT,
        **made,
        "title": "A Nerve workflow of steps",
        "$defs": {"StepLimits": models.StepLimits.model_json_schema(), "step": steps, "part": parts},
    }


# -- prompts in YAML ---------------------------------------------------------------------------

KEPT = ("Expect", "Input", "LimitsSpec", "PermissionsSpec", "RetrySpec", "StepLimits")


def prompts_schema() -> Schema:
    """A chain or a graph of prompts in YAML."""
    defs = models.WorkflowSpec.model_json_schema()["$defs"]
    header = header_of(defs)
    needed = ["name", "description"]
    chain = closed({**header, "steps": listed("step")}, [*needed, "steps"])
    graph = closed({**header, "nodes": listed("node")}, [*needed, "nodes"])
    kept = {name: defs[name] for name in KEPT}
    return {
        "$schema": DRAFT,
        "title": "A Nerve workflow of prompts",
        "oneOf": [chain, graph],
        "$defs": {**kept, "gate": closed(GATE, []), "step": chain_step(), "node": {"anyOf": graph_nodes()}},
    }


def header_of(defs: Schema) -> Schema:
    types = defs["Input"]["properties"]["type"]["enum"]
    input: Schema = {"anyOf": [{"enum": [*types, None]}, {"$ref": "#/$defs/Input"}]}
    return {
        "name": FILLED,
        "description": {**FILLED, "description": "What the workflow does, and when to use it."},
        "provider": {**FILLED, "description": "Who answers the prompts; claude without a word."},
        "model": FILLED,
        "inputs": {"type": "object", "additionalProperties": input},
        "limits": {"$ref": "#/$defs/LimitsSpec"},
        "context": OBJECT,
        "metadata": OBJECT,
    }


def carried(instead: str) -> Schema:
    """What every step and node may carry."""
    check: Schema = {"anyOf": [TEXT, {"$ref": "#/$defs/Expect"}]}
    return {
        "description": TEXT,
        "when": {"type": ["string", "boolean"]},
        "retry": {"anyOf": [{"type": "integer", "minimum": 1}, {"$ref": "#/$defs/RetrySpec"}]},
        "timeout": SECONDS,
        "idle_timeout": SECONDS,
        "on_error": {"anyOf": [{"enum": ["fail", "skip"]}, {"$ref": f"#/$defs/{instead}"}, OBJECT]},
        "effect": {"enum": ["repeat", "once"]},
        "expect": {"anyOf": [check, {"type": "array", "items": check}]},
    }


AGENT: Schema = {
    "provider": FILLED,
    "model": TEXT,
    "agent": FILLED,
    "role": FILLED,
    "thread": FILLED,
    "args": OBJECT,
    "output_schema": OBJECT,
    "permissions": {"$ref": "#/$defs/PermissionsSpec"},
    "tools": {"type": "array", "items": FILLED},
    "max_turns": {"type": "integer", "minimum": 1},
    "fallback": FILLED,
    "limits": BUDGET,
}
CONTEXT: Schema = {"enum": ["fresh", "shared"]}
GATE: Schema = {
    "prompt": TEXT,
    "message": TEXT,
    "choices": {"type": "array", "items": TEXT},
    "options": {"type": "array", "items": TEXT},
    "form": {"type": "object"},
    "reject": {"type": "array", "items": TEXT},
    "default": TEXT,
}
NODES: dict[str, tuple[Schema, Schema]] = {
    "prompt": (FILLED, {"context": CONTEXT, **AGENT}),
    "command": (FILLED, {"context": CONTEXT, **AGENT}),
    "bash": (FILLED, {"env": {"type": "object", "additionalProperties": TEXT}, "cwd": TEXT, "input": {}}),
    "gate": ({"anyOf": [{"type": ["string", "null"]}, {"$ref": "#/$defs/gate"}]}, {}),
    "approval": (
        {"anyOf": [{"type": ["string", "null"]}, {"$ref": "#/$defs/gate"}]},
        {"on_reject": {"enum": ["cancel", "continue"]}},
    ),
}
"""What a node of a graph can be: what stands behind the key, and which keys it may have beside it."""


def chain_step() -> Schema:
    prompt = {**FILLED, "description": "A Markdown file in the folder steps, without .md."}
    keys = {"step": prompt, "id": FILLED, "clearContext": FLAG, **carried("step"), **AGENT}
    return closed(keys, ["step"])


def graph_nodes() -> list[Schema]:
    after: Schema = {"anyOf": [TEXT, {"type": "array", "items": TEXT}]}
    common = {"id": FILLED, "depends_on": after, **carried("node")}
    return [closed({**common, key: value, **more}, ["id", key]) for key, (value, more) in NODES.items()]


def listed(name: str) -> Schema:
    return {"type": "array", "items": {"$ref": f"#/$defs/{name}"}, "minItems": 1}


def closed(properties: Schema, required: list[str]) -> Schema:
    """An object with these keys and no others."""
    return {
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": False,
    }


SCHEMAS = {"workflow": workflow_schema, "steps": steps_schema, "prompts": prompts_schema}


def texts() -> dict[str, str]:
    """The files, by their names."""
    return {
        f"{name}.schema.json": json.dumps(make(), indent=2, ensure_ascii=False) + "\n"
        for name, make in SCHEMAS.items()
    }


def main(folder: str = "schemas") -> None:
    for name, text in texts().items():
        Path(folder, name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
