"""Whether OpenAI accepts a JSON Schema: every object must be closed, and all its properties required."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

STRICT_KEYWORDS = {
    *("type", "properties", "required", "additionalProperties", "items", "enum", "const", "anyOf", "$ref"),
    *("$defs", "definitions", "title", "description", "$schema", "$id", "pattern", "format", "multipleOf"),
    *("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "minItems", "maxItems"),
}


def is_strict_schema(schema: Mapping[str, Any]) -> bool:
    return schema.get("type") == "object" and _is_strict_part(schema)


def _is_strict_part(schema: Any) -> bool:
    if not isinstance(schema, Mapping) or not schema.keys() <= STRICT_KEYWORDS:
        return False
    properties = schema.get("properties", {})
    kind = schema.get("type", "object" if "properties" in schema else [])
    if "object" in ([kind] if isinstance(kind, str) else list(kind)) and not (
        schema.get("additionalProperties") is False and set(schema.get("required", ())) == set(properties)
    ):
        return False
    inner = [*properties.values(), *schema.get("anyOf", ())]
    inner += [schema["items"]] if "items" in schema else []
    inner += [part for name in ("$defs", "definitions") for part in schema.get(name, {}).values()]
    return all(_is_strict_part(part) for part in inner)
