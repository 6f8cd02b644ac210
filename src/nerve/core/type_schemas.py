"""JSON Schemas of Python types, as forms and command lines need them."""

from __future__ import annotations

from typing import Any

from pydantic.json_schema import GenerateJsonSchema

DECIMAL_PATTERN = r"^\s*[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?\s*$"
"""The text of a decimal number, in the syntax of RE2."""


class TypeSchemaGenerator(GenerateJsonSchema):
    """Generates schemas without invented titles, in which a decimal number can be recognized."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False

    def decimal_schema(self, schema: Any) -> dict[str, Any]:
        if self.mode == "serialization":
            return {"type": "string", "format": "decimal", "pattern": DECIMAL_PATTERN}
        numbers = {name: part for name, part in self.float_schema(schema).items() if name != "format"}
        text = {"type": "string", "pattern": DECIMAL_PATTERN}
        return {"anyOf": [numbers, text], "format": "decimal"}
