"""JSON Schemas for editors: the full form of the models, and the JSON and YAML notations.

`python -m nerve.notations.json_schemas FOLDER` writes them; a test compares them with `schemas/`.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

from nerve.notations import yaml_keys
from nerve.notations.json_steps import step_schema
from nerve.notations.yaml_prompts import forms
from nerve.project.agent_settings import STEP_SETTING_KEYS
from nerve.spec import models

Schema = dict[str, Any]

DRAFT = "https://json-schema.org/draft/2020-12/schema"
TEXT: Schema = {"type": "string"}
NONEMPTY_TEXT: Schema = {"type": "string", "minLength": 1}


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

STEP_KEY_SCHEMAS: Schema = {
    "agent": {**NONEMPTY_TEXT, "description": "A node, an agent, or workflow:<id>."},
    "params": {"type": "object", "description": "The inputs of a workflow that is called."},
    "output_schema": {"type": "object", "description": "The JSON Schema of the answer."},
    "limits": {"$ref": "#/$defs/StepLimitsSpec"},
    "parallel": {"type": "boolean", "description": "Run steps in parallel that are provably independent."},
}
"""The schemas of keys that say more than the rule of their value."""


STEP_DEFS = ("HookSpec", "McpServerSpec", "PermissionsSpec", "StepLimitsSpec")


def steps_schema() -> Schema:
    """Return the schema of a step machine in JSON."""
    properties = {**rule_schemas(step_schema.WORKFLOW_SCHEMA), "steps": array_of_ref("step")}
    return {
        "$schema": DRAFT,
        **closed_object(properties, ["id", "steps"]),
        "title": "A Nerve workflow of steps",
        "$defs": {
            **{name: schema_of_model(models.WorkflowSpec)["$defs"][name] for name in STEP_DEFS},
            "WorkspaceSpec": workspace_schema(),
            "step": {"oneOf": [step_type_schema(type, 0) for type in step_schema.STEP_TYPE_SCHEMAS]},
            "part": {"oneOf": [step_type_schema(type, 1) for type in step_schema.STEP_TYPE_SCHEMAS]},
        },
    }


def step_type_schema(type: str, depth: int) -> Schema:
    """Return the schema of a step; one inside a parallel step has no next step, except null."""
    keys = step_schema.step_keys(type, depth)
    schemas = rule_schemas(step_schema.STEP_SCHEMA | step_schema.STEP_TYPE_SCHEMAS[type])
    properties: Schema = {
        key: rule_schemas(keys)[key] if key in keys else {"type": "null"}
        for key in schemas
        if key in keys or depth
    }
    properties["type"] = {"const": type}
    if "steps" in properties:
        properties["steps"] = array_of_ref("part")
    return closed_object(
        properties, ["id", "type", *(key for key in step_schema.REQUIRED_KEYS[type] if key in keys)]
    )


def rule_schemas(rules: dict[str, str]) -> Schema:
    """Return the schema of each key of the step machine format."""
    settings = field_schemas(models.CallSpec, STEP_SETTING_KEYS)
    return {
        key: STEP_KEY_SCHEMAS.get(key) or settings.get(key, step_schema.VALUE_RULES[rule].schema)
        for key, rule in rules.items()
    }


# -- prompts in YAML ---------------------------------------------------------------------------

SHARED_DEFS = ("ExpectSpec", "InputSpec", "LimitsSpec", "RetrySpec", *STEP_DEFS)
GATE_VALUE: Schema = {"anyOf": [{"type": ["string", "null"]}, {"$ref": "#/$defs/gate"}]}
ACTION_SCHEMAS: dict[str, Schema] = {
    **dict.fromkeys(("prompt", "command", "bash", "merge"), NONEMPTY_TEXT),
    **dict.fromkeys(("gate", "approval"), GATE_VALUE),
}
"""The schema of the value of each action of a graph node."""


def prompts_schema() -> Schema:
    """Return the schema of a chain or a graph of prompts in YAML."""
    defs = schema_of_model(models.WorkflowSpec)["$defs"]
    chain_step = {
        "step": {
            **NONEMPTY_TEXT,
            "description": "The name of a Markdown file in the steps folder, without .md.",
        },
        "clearContext": {"type": "boolean"},
        **node_properties(yaml_keys.STEP_KEYS[2:], "step"),
    }
    gate = {"message": TEXT, **field_schemas(models.GateSpec, yaml_keys.GATE_KEYS)}
    return {
        "$schema": DRAFT,
        "title": "A Nerve workflow of prompts",
        "oneOf": [
            closed_object(
                {**header_properties(), **node_properties(["workspace"], item), key: array_of_ref(item)},
                ["name", "description", key],
            )
            for key, item in (("steps", "step"), ("nodes", "node"))
        ],
        "$defs": {
            **{name: defs[name] for name in SHARED_DEFS},
            "WorkspaceSpec": workspace_schema(),
            "gate": closed_object(gate, []),
            "step": closed_object(chain_step, ["step"]),
            "node": {"anyOf": [graph_node_schema(action) for action in forms.ACTIONS]},
        },
    }


ON_CONFLICT: Schema = {"anyOf": [{"enum": ["ask", "fail"]}, {"type": "object"}]}
"""A node that resolves conflicts is not described in short forms."""


def workspace_schema() -> Schema:
    """Return the schema of a workspace."""
    fields = field_schemas(models.WorkspaceSpec, models.WorkspaceSpec.model_fields)
    return closed_object({**fields, "on_conflict": ON_CONFLICT}, [])


def graph_node_schema(action: str) -> Schema:
    names: Schema = {"anyOf": [TEXT, {"type": "array", "items": TEXT}]}
    own_keys = forms.ACTIONS[action][1]
    return closed_object(
        {
            **node_properties(("id", *yaml_keys.NODE_KEYS), "node"),
            "depends_on": names,
            action: ACTION_SCHEMAS[action],
            **node_properties(own_keys, "node"),
        },
        ["id", action],
    )


def header_properties() -> Schema:
    """Return the schemas of the keys of a workflow; an input may be declared by its type alone."""
    input: Schema = {"anyOf": [{"enum": [*forms.INPUT_TYPES, None]}, {"$ref": "#/$defs/InputSpec"}]}
    return {
        **field_schemas(models.WorkflowSpec, yaml_keys.WORKFLOW_KEYS),
        "description": {**NONEMPTY_TEXT, "description": "What the workflow does, and when to use it."},
        "provider": {
            **NONEMPTY_TEXT,
            "description": "The provider that answers the prompts; the default is claude.",
        },
        "model": NONEMPTY_TEXT,
        "inputs": {"type": "object", "additionalProperties": input},
    }


def node_properties(keys: Iterable[str], fallback: str) -> Schema:
    """Return the schemas of keys of a node, including the short forms that YAML allows."""
    check: Schema = {"anyOf": [TEXT, {"$ref": "#/$defs/ExpectSpec"}]}
    short_forms: Schema = {
        "id": NONEMPTY_TEXT,
        "when": {"type": ["string", "boolean"]},
        "retry": {"anyOf": [{"type": "integer", "minimum": 1}, {"$ref": "#/$defs/RetrySpec"}]},
        "on_error": {
            "anyOf": [{"enum": ["fail", "skip"]}, {"$ref": f"#/$defs/{fallback}"}, {"type": "object"}]
        },
        "expect": {"anyOf": [check, {"type": "array", "items": check}]},
        "context": {"enum": ["fresh", "shared"]},
        "on_reject": {"enum": ["cancel", "continue"]},
        "on_conflict": ON_CONFLICT,
    }
    kinds = (models.MergeSpec, models.BashSpec, models.PromptSpec)
    fields = {key: schema for kind in kinds for key, schema in field_schemas(kind, keys).items()}
    return {key: short_forms.get(key) or fields[key] for key in keys}


def field_schemas(model: type[models.SpecModel], keys: Iterable[str]) -> Schema:
    """Return the schemas of the fields of a model that have one of these keys; a key may be absent."""
    schema = schema_of_model(model)
    fields = schema.get("$defs", {}).get(model.__name__, schema)["properties"]
    return {key: without_null(fields[key]) for key in keys if key in fields}


@cache
def schema_of_model(model: type[models.SpecModel]) -> Schema:
    """Return the JSON Schema of a model; pydantic needs a tenth of a second for each."""
    return model.model_json_schema()


def without_null(schema: Schema) -> Schema:
    """Return the schema of a field that is left out instead of set to null or to its default."""
    rest = {key: value for key, value in schema.items() if key not in ("default", "title")}
    alternatives = [part for part in rest.get("anyOf", ()) if part != {"type": "null"}]
    return alternatives[0] if len(alternatives) == 1 else rest


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
