"""JSON Schemas for editors: the full form of the models, and the JSON and YAML notations.

`python -m nerve.spec.json_schemas FOLDER` writes them; a test compares them with the files in `schemas/`.
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
NONEMPTY_TEXT: Schema = {"type": "string", "minLength": 1}
BOOLEAN: Schema = {"type": "boolean"}
OBJECT: Schema = {"type": "object"}
MILLISECONDS: Schema = {"type": "number", "minimum": 0}
SECONDS: Schema = {"type": "number", "minimum": 0}
TARGET: Schema = {"type": ["string", "null"], "description": "The id of a step, or null for the end."}


def workflow_schema() -> Schema:
    """Return the schema of the full form, which every notation accepts."""
    spec = models.WorkflowSpec.model_json_schema()
    nodes: list[Schema] = []
    schema = name_node_union(spec, nodes)
    schema["$defs"]["Node"] = nodes[0]
    schema["properties"] = {"$schema": TEXT, **schema["properties"]}
    return {"$schema": DRAFT, **schema, "title": "A Nerve workflow, full form"}


def name_node_union(schema: Any, nodes: list[Schema]) -> Any:
    """Replace each copy of the union of all nodes by a reference; the union is appended to `nodes`."""
    if isinstance(schema, list):
        return [name_node_union(child, nodes) for child in schema]
    if not isinstance(schema, dict):
        return schema
    if "discriminator" not in schema:
        return {key: name_node_union(child, nodes) for key, child in schema.items()}
    nodes.append({key: schema[key] for key in ("discriminator", "oneOf")})
    rest = {key: value for key, value in schema.items() if key not in ("discriminator", "oneOf")}
    return {"$ref": "#/$defs/Node", **rest}


# -- steps in JSON -----------------------------------------------------------------------------

STEP_PROPERTIES: Schema = {
    "id": {"type": "string", "pattern": r"^\w[\w.\-]{0,127}$"},
    "type": NONEMPTY_TEXT,
    "description": TEXT,
    "next": TARGET,
    "on_error": TARGET,
    "max_retries": {
        "type": "integer",
        "minimum": 1,
        "description": "The total number of attempts; 1 means no retry.",
    },
    "retry_delay_ms": MILLISECONDS,
    "timeout_ms": {"type": "number", "exclusiveMinimum": 0},
}
STEP_LIMITS_REF: Schema = {"$ref": "#/$defs/StepLimitsSpec"}
STEP_TYPES: dict[str, Schema] = {
    "agent": {
        "agent": {**NONEMPTY_TEXT, "description": "A node, an agent, or workflow:<id>."},
        "input": {
            "type": ["string", "array"],
            "items": TEXT,
            "description": "The steps whose results are its input.",
        },
        "params": {**OBJECT, "description": "The inputs of a workflow that is called."},
        "output_schema": {**OBJECT, "description": "The JSON Schema of the answer."},
        "limits": STEP_LIMITS_REF,
    },
    "approval": {"message": TEXT, "on_approve": TARGET, "on_reject": TARGET},
    "parallel": {
        "steps": {"type": "array", "items": {"$ref": "#/$defs/part"}, "minItems": 1},
        "min_success": {"type": "integer", "minimum": 0},
    },
    "condition": {"condition": NONEMPTY_TEXT, "then": TARGET, "else": TARGET},
    "transform": {"transform": NONEMPTY_TEXT},
}
REQUIRED_KEYS = {
    "agent": ["agent"],
    "approval": [],
    "parallel": ["steps"],
    "condition": ["condition", "then", "else"],
    "transform": ["transform"],
}
WORKFLOW_PROPERTIES: Schema = {
    "$schema": TEXT,
    "id": NONEMPTY_TEXT,
    "description": TEXT,
    "max_iterations": {"type": "integer", "minimum": 0},
    "max_duration_ms": MILLISECONDS,
    "parallel": {**BOOLEAN, "description": "Run steps in parallel that are provably independent."},
    "initial_context": OBJECT,
    "steps": {"type": "array", "items": {"$ref": "#/$defs/step"}, "minItems": 1},
}


def step_schema(type: str) -> Schema:
    keys = {**STEP_PROPERTIES, "type": {"const": type}, **STEP_TYPES[type]}
    if type == "condition":
        del keys["next"]
    return closed_object(keys, ["id", "type", *REQUIRED_KEYS[type]])


def part_schema(type: str) -> Schema:
    """Return the schema of a step inside a parallel step, which has no next step."""
    keys = {**STEP_PROPERTIES, "type": {"const": type}, **STEP_TYPES[type]}
    target_schemas: Schema = {key: {"type": "null"} for key, schema in keys.items() if schema is TARGET}
    if type == "approval":
        target_schemas["on_reject"] = {
            "enum": ["continue", None],
            "description": "The report contains the rejection.",
        }
    return closed_object(
        {**keys, **target_schemas},
        ["id", "type", *(key for key in REQUIRED_KEYS[type] if key not in target_schemas)],
    )


def steps_schema() -> Schema:
    """Return the schema of a step machine in JSON."""
    steps = {"oneOf": [step_schema(type) for type in STEP_TYPES]}
    parts = {"oneOf": [part_schema(type) for type in STEP_TYPES]}
    schema = closed_object(WORKFLOW_PROPERTIES, ["id", "steps"])
    return {
        "$schema": DRAFT,
        **schema,
        "title": "A Nerve workflow of steps",
        "$defs": {"StepLimitsSpec": models.StepLimitsSpec.model_json_schema(), "step": steps, "part": parts},
    }


# -- prompts in YAML ---------------------------------------------------------------------------

SHARED_DEFS = ("ExpectSpec", "InputSpec", "LimitsSpec", "PermissionsSpec", "RetrySpec", "StepLimitsSpec")


def prompts_schema() -> Schema:
    """Return the schema of a chain or a graph of prompts in YAML."""
    defs = models.WorkflowSpec.model_json_schema()["$defs"]
    header = header_properties(defs)
    needed = ["name", "description"]
    chain = closed_object({**header, "steps": array_of_ref("step")}, [*needed, "steps"])
    graph = closed_object({**header, "nodes": array_of_ref("node")}, [*needed, "nodes"])
    shared_defs = {name: defs[name] for name in SHARED_DEFS}
    return {
        "$schema": DRAFT,
        "title": "A Nerve workflow of prompts",
        "oneOf": [chain, graph],
        "$defs": {
            **shared_defs,
            "gate": closed_object(GATE_PROPERTIES, []),
            "step": chain_step_schema(),
            "node": {"anyOf": graph_node_schemas()},
        },
    }


def header_properties(defs: Schema) -> Schema:
    types = defs["InputSpec"]["properties"]["type"]["enum"]
    input: Schema = {"anyOf": [{"enum": [*types, None]}, {"$ref": "#/$defs/InputSpec"}]}
    return {
        "name": NONEMPTY_TEXT,
        "description": {**NONEMPTY_TEXT, "description": "What the workflow does, and when to use it."},
        "provider": {
            **NONEMPTY_TEXT,
            "description": "The provider that answers the prompts; the default is claude.",
        },
        "model": NONEMPTY_TEXT,
        "inputs": {"type": "object", "additionalProperties": input},
        "limits": {"$ref": "#/$defs/LimitsSpec"},
        "context": OBJECT,
        "metadata": OBJECT,
    }


def common_properties(fallback: str) -> Schema:
    """Return the properties that every step and node may have."""
    check: Schema = {"anyOf": [TEXT, {"$ref": "#/$defs/ExpectSpec"}]}
    return {
        "description": TEXT,
        "when": {"type": ["string", "boolean"]},
        "retry": {"anyOf": [{"type": "integer", "minimum": 1}, {"$ref": "#/$defs/RetrySpec"}]},
        "timeout": SECONDS,
        "idle_timeout": SECONDS,
        "on_error": {"anyOf": [{"enum": ["fail", "skip"]}, {"$ref": f"#/$defs/{fallback}"}, OBJECT]},
        "effect": {"enum": ["repeat", "once"]},
        "expect": {"anyOf": [check, {"type": "array", "items": check}]},
    }


AGENT_PROPERTIES: Schema = {
    "provider": NONEMPTY_TEXT,
    "model": TEXT,
    "agent": NONEMPTY_TEXT,
    "role": NONEMPTY_TEXT,
    "thread": NONEMPTY_TEXT,
    "args": OBJECT,
    "output_schema": OBJECT,
    "permissions": {"$ref": "#/$defs/PermissionsSpec"},
    "tools": {"type": "array", "items": NONEMPTY_TEXT},
    "max_turns": {"type": "integer", "minimum": 1},
    "fallback": NONEMPTY_TEXT,
    "limits": STEP_LIMITS_REF,
}
CONTEXT_MODE: Schema = {"enum": ["fresh", "shared"]}
GATE_PROPERTIES: Schema = {
    "prompt": TEXT,
    "message": TEXT,
    "choices": {"type": "array", "items": TEXT},
    "options": {"type": "array", "items": TEXT},
    "form": {"type": "object"},
    "reject": {"type": "array", "items": TEXT},
    "default": TEXT,
}
GRAPH_NODE_PROPERTIES: dict[str, tuple[Schema, Schema]] = {
    "prompt": (NONEMPTY_TEXT, {"context": CONTEXT_MODE, **AGENT_PROPERTIES}),
    "command": (NONEMPTY_TEXT, {"context": CONTEXT_MODE, **AGENT_PROPERTIES}),
    "bash": (
        NONEMPTY_TEXT,
        {"env": {"type": "object", "additionalProperties": TEXT}, "cwd": TEXT, "input": {}},
    ),
    "gate": ({"anyOf": [{"type": ["string", "null"]}, {"$ref": "#/$defs/gate"}]}, {}),
    "approval": (
        {"anyOf": [{"type": ["string", "null"]}, {"$ref": "#/$defs/gate"}]},
        {"on_reject": {"enum": ["cancel", "continue"]}},
    ),
}
"""The kinds of graph nodes by key: the schema of the value, and the other keys that are allowed."""


def chain_step_schema() -> Schema:
    prompt = {**NONEMPTY_TEXT, "description": "The name of a Markdown file in the steps folder, without .md."}
    keys = {
        "step": prompt,
        "id": NONEMPTY_TEXT,
        "clearContext": BOOLEAN,
        **common_properties("step"),
        **AGENT_PROPERTIES,
    }
    return closed_object(keys, ["step"])


def graph_node_schemas() -> list[Schema]:
    after: Schema = {"anyOf": [TEXT, {"type": "array", "items": TEXT}]}
    common = {"id": NONEMPTY_TEXT, "depends_on": after, **common_properties("node")}
    return [
        closed_object({**common, key: value, **more}, ["id", key])
        for key, (value, more) in GRAPH_NODE_PROPERTIES.items()
    ]


def array_of_ref(name: str) -> Schema:
    return {"type": "array", "items": {"$ref": f"#/$defs/{name}"}, "minItems": 1}


def closed_object(properties: Schema, required: list[str]) -> Schema:
    """Return the schema of an object with these keys and no others."""
    return {
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": False,
    }


SCHEMAS = {"workflow": workflow_schema, "steps": steps_schema, "prompts": prompts_schema}


def schema_files() -> dict[str, str]:
    """Return the text of each schema file by its name."""
    return {
        f"{name}.schema.json": json.dumps(make(), indent=2, ensure_ascii=False) + "\n"
        for name, make in SCHEMAS.items()
    }


def main(folder: str = "schemas") -> None:
    for name, text in schema_files().items():
        Path(folder, name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
