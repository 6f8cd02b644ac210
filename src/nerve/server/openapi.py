"""The description of the REST routes: OpenAPI 3.1, made from the table of operations and its models."""

from __future__ import annotations

import re
from typing import Any

from pydantic.json_schema import JsonSchemaMode, models_json_schema

from nerve import __version__
from nerve.api import OPERATIONS, Operation
from nerve.api.errors import STATUS
from nerve.api.models import Told

REF = "#/components/schemas/{model}"
ERROR: dict[str, Any] = {
    "type": "object",
    "required": ["code", "message"],
    "properties": {
        "code": {"type": "string", "enum": list(STATUS)},
        "message": {"type": "string", "description": "One sentence that says what is wrong."},
        "fix": {"type": "string", "description": "What to do about it."},
        "details": {"type": "object"},
    },
}


def document() -> dict[str, Any]:
    paths: dict[str, dict[str, Any]] = {}
    for operation in OPERATIONS.values():
        paths.setdefault(operation.path, {})[operation.method.lower()] = described(operation)
    return {
        "openapi": "3.1.0",
        "info": {"title": "nerve", "version": __version__},
        "security": [{"token": []}],
        "paths": paths,
        "components": {
            "schemas": {**told(), "Error": ERROR},
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
            "responses": {
                "Error": {
                    "description": "Why it was not done.",
                    "content": {"application/json": {"schema": {"$ref": REF.format(model="Error")}}},
                }
            },
        },
    }


def told() -> dict[str, Any]:
    mode: JsonSchemaMode = "serialization"
    models: list[tuple[type[Told], JsonSchemaMode]] = [(each.tells, mode) for each in OPERATIONS.values()]
    _, schemas = models_json_schema(list(dict.fromkeys(models)), ref_template=REF)
    found: dict[str, Any] = schemas["$defs"]
    return found


def described(operation: Operation) -> dict[str, Any]:
    asks = operation.asks.model_json_schema(ref_template=REF)
    in_path = re.findall(r"{(\w+)}", operation.path)
    properties: dict[str, Any] = asks.get("properties", {})
    required = asks.get("required", [])
    parameters = [parameter(name, "path", properties.pop(name), True) for name in in_path]
    told: dict[str, Any] = {
        "operationId": operation.name,
        "summary": operation.summary,
        "description": f"Needs a token for `{operation.scope}`.",
    }
    if not operation.changes:
        parameters += [
            parameter(name, "query", without_null(schema), name in required)
            for name, schema in properties.items()
        ]
    else:
        asks["required"] = [name for name in required if name not in in_path]
        told["requestBody"] = {
            "required": bool(asks["required"]),
            "content": {"application/json": {"schema": asks}},
        }
        if operation.asks.keyed_by:
            parameters.append(parameter("Idempotency-Key", "header", {"type": "string"}, False))
    return told | {"parameters": parameters, "responses": responses(operation)}


def without_null(schema: dict[str, Any]) -> dict[str, Any]:
    """What may be left out of an address is not null there."""
    kinds = [kind for kind in schema.get("anyOf", []) if kind != {"type": "null"}]
    rest = {name: value for name, value in schema.items() if name != "anyOf" and value is not None}
    return rest | kinds[0] if len(kinds) == 1 else schema


def parameter(name: str, place: str, schema: dict[str, Any], required: bool) -> dict[str, Any]:
    return {"name": name, "in": place, "required": required, "schema": schema}


def responses(operation: Operation) -> dict[str, Any]:
    schema = {"$ref": REF.format(model=operation.tells.__name__)}
    done = {"description": "Done.", "content": {"application/json": {"schema": schema}}}
    return {"200": done, "default": {"$ref": "#/components/responses/Error"}}
