"""docs/reference/client.md: its table matches the operations. UPDATE_SNAPSHOTS=1 rewrites it."""

import json
import os
import re
from typing import Any

from docs.pages import ROOT, page
from nerve.api.operations import OPERATIONS, Operation
from nerve.client import Client

NAME = "docs/reference/client.md"
TABLE = re.compile(r"<!-- operations -->\n(.*?)\n<!-- end -->", re.DOTALL)


def type_name(schema: dict[str, Any]) -> str:
    """Return the type of a JSON Schema in words."""
    if "anyOf" in schema:
        return " or ".join(type_name(part) for part in schema["anyOf"])
    if "enum" in schema:
        return " or ".join(json.dumps(value) for value in schema["enum"])
    if schema.get("type") == "object" and isinstance(schema.get("additionalProperties"), dict):
        return f"object of {type_name(schema['additionalProperties'])}"
    return str(schema.get("type", "any"))


def parameters(operation: Operation) -> str:
    """Return the parameters of an operation with their types and defaults."""
    schema = operation.request_model.model_json_schema()
    required = schema.get("required", ())
    texts = []
    for name, field in schema.get("properties", {}).items():
        default = "" if name in required else f" = {json.dumps(field.get('default'))}"
        texts.append(f"`{name}: {type_name(field)}{default}`")
    return ", ".join(texts)


def operations() -> str:
    rows = ["| method | parameters | returns | what it does |", "|---|---|---|---|"]
    for operation in OPERATIONS.values():
        cells = [f"`{operation.name}`", parameters(operation), f"`{operation.response_model.__name__}`"]
        rows.append(f"| {' | '.join([*cells, operation.summary])} |")
    return "\n".join(rows)


def test_the_table_has_every_operation_with_its_parameters() -> None:
    text, table = page(NAME), operations()
    if os.environ.get("UPDATE_SNAPSHOTS"):
        text = TABLE.sub(lambda _: f"<!-- operations -->\n{table}\n<!-- end -->", text)
        (ROOT / NAME).write_text(text, encoding="utf-8")
    found = TABLE.search(text)
    assert found is not None
    assert found[1] == table


def test_every_operation_is_a_method_of_the_client() -> None:
    assert set(OPERATIONS) <= set(dir(Client))
