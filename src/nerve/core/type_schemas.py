"""JSON Schemas of Python types, as forms and command lines need them."""

from __future__ import annotations

from typing import Any

from pydantic.json_schema import GenerateJsonSchema

DECIMAL_PATTERN = r"^\s*[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?\s*$"
"""The text of a decimal number, in the syntax of RE2."""


class TypeSchemaGenerator(GenerateJsonSchema):
    """Generates schemas without invented titles, in which a decimal number can be recognized.

    Objects are closed, except those of a pydantic model whose configuration says what happens to other keys.
    """

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False

    def model_schema(self, schema: Any) -> dict[str, Any]:
        generated = super().model_schema(schema)
        return generated if "extra" in schema["cls"].model_config else close_object(generated)

    def dataclass_schema(self, schema: Any) -> dict[str, Any]:
        generated = super().dataclass_schema(schema)
        config: Any = getattr(schema["cls"], "__pydantic_config__", {})
        return generated if "extra" in config else close_object(generated)

    def typed_dict_schema(self, schema: Any) -> dict[str, Any]:
        generated = super().typed_dict_schema(schema)
        config: Any = getattr(schema.get("cls"), "__pydantic_config__", {})
        return generated if "extra" in config else close_object(generated)

    def decimal_schema(self, schema: Any) -> dict[str, Any]:
        if self.mode == "serialization":
            return {"type": "string", "format": "decimal", "pattern": DECIMAL_PATTERN}
        numbers = {name: part for name, part in self.float_schema(schema).items() if name != "format"}
        text = {"type": "string", "pattern": DECIMAL_PATTERN}
        return {"anyOf": [numbers, text], "format": "decimal"}


def close_object(schema: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of an object without other properties; any other schema as it is."""
    return {**schema, "additionalProperties": False} if schema.get("type") == "object" else schema
