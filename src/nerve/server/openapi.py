"""The OpenAPI 3.1 document of the REST routes, generated from the table of operations."""

from __future__ import annotations

import re
from typing import Any

from pydantic.json_schema import JsonSchemaMode, models_json_schema

from nerve import __version__
from nerve.api import OPERATIONS, Operation
from nerve.api.errors import STATUS_BY_CODE
from nerve.api.models import ApiResponse
from nerve.server.artifact_response import ARTIFACT_PATH

SCHEMA_REF = "#/components/schemas/{model}"
ERROR_SCHEMA: dict[str, Any] = {
    "type": "object",
    "required": ["code", "message"],
    "properties": {
        "code": {"type": "string", "enum": list(STATUS_BY_CODE)},
        "message": {"type": "string", "description": "The problem, in one sentence."},
        "fix": {"type": "string", "description": "How to fix it."},
        "details": {"type": "object"},
    },
}


def openapi_document() -> dict[str, Any]:
    paths: dict[str, dict[str, Any]] = {}
    for operation in OPERATIONS.values():
        paths.setdefault(operation.path, {})[operation.method.lower()] = operation_schema(operation)
    paths[ARTIFACT_PATH] = {"get": artifact_schema()}
    return {
        "openapi": "3.1.0",
        "info": {"title": "nerve", "version": __version__},
        "security": [{"token": []}],
        "paths": paths,
        "components": {
            "schemas": {**response_schemas(), "Error": ERROR_SCHEMA},
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
            "responses": {
                "Error": {
                    "description": "Error.",
                    "content": {"application/json": {"schema": {"$ref": SCHEMA_REF.format(model="Error")}}},
                }
            },
        },
    }


def response_schemas() -> dict[str, Any]:
    mode: JsonSchemaMode = "serialization"
    models: list[tuple[type[ApiResponse], JsonSchemaMode]] = [
        (operation.response_model, mode) for operation in OPERATIONS.values()
    ]
    _, schemas = models_json_schema(list(dict.fromkeys(models)), ref_template=SCHEMA_REF)
    definitions: dict[str, Any] = schemas["$defs"]
    for definition in definitions.values():
        # Later fields are allowed anyway. Said aloud, it makes generated types accept misspelled fields.
        definition.pop("additionalProperties", None)
    return definitions


def operation_schema(operation: Operation) -> dict[str, Any]:
    request_schema = operation.request_model.model_json_schema(ref_template=SCHEMA_REF)
    in_path = re.findall(r"{(\w+)}", operation.path)
    properties: dict[str, Any] = request_schema.get("properties", {})
    required = request_schema.get("required", [])
    parameters = [parameter_schema(name, "path", properties.pop(name), True) for name in in_path]
    fields: dict[str, Any] = {
        "operationId": operation.name,
        "summary": operation.summary,
        "description": f"Requires a token for `{operation.scope}`.",
    }
    if not operation.is_command:
        parameters += [
            parameter_schema(name, "query", without_null(schema), name in required)
            for name, schema in properties.items()
        ]
    else:
        request_schema["required"] = [name for name in required if name not in in_path]
        fields["requestBody"] = {
            "required": bool(request_schema["required"]),
            "content": {"application/json": {"schema": request_schema}},
        }
        if operation.request_model.key_field:
            parameters.append(parameter_schema("Idempotency-Key", "header", {"type": "string"}, False))
    schema = {"$ref": SCHEMA_REF.format(model=operation.response_model.__name__)}
    done = {"description": "Success.", "content": {"application/json": {"schema": schema}}}
    fields["responses"] = {"200": done, "default": {"$ref": "#/components/responses/Error"}}
    return fields | {"parameters": parameters}


def artifact_schema() -> dict[str, Any]:
    done = {"description": "The bytes of the file.", "content": {"*/*": {"schema": {"format": "binary"}}}}
    return {
        "operationId": "read_artifact",
        "summary": "Get a file that a step of a run has made.",
        "description": "Requires a token for `read`.",
        "parameters": [parameter_schema(name, "path", {"type": "string"}, True) for name in ("run", "name")],
        "responses": {"200": done, "default": {"$ref": "#/components/responses/Error"}},
    }


def without_null(schema: dict[str, Any]) -> dict[str, Any]:
    """Return the schema without null, because an omitted query parameter is not null."""
    kinds = [kind for kind in schema.get("anyOf", []) if kind != {"type": "null"}]
    rest = {name: value for name, value in schema.items() if name != "anyOf" and value is not None}
    return rest | kinds[0] if len(kinds) == 1 else schema


def parameter_schema(name: str, location: str, schema: dict[str, Any], required: bool) -> dict[str, Any]:
    return {"name": name, "in": location, "required": required, "schema": schema}
