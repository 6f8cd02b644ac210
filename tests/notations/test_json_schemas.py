"""The schemas for editors: the committed files are up to date and agree with the readers."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from nerve.notations import json_schemas, yaml_keys
from nerve.notations.json_steps import step_schema as steps_shape
from nerve.notations.yaml_prompts import forms
from nerve.spec.models import KINDS
from nerve.text.json_reader import parse_located_json
from nerve.text.yaml_reader import load_yaml

ROOT = Path(__file__).parents[2]
NAMES = {
    "string": str,
    "integer": int,
    "number": (int, float),
    "boolean": bool,
    "array": list,
    "object": dict,
    "null": type(None),
}


def test_the_committed_schemas_are_up_to_date() -> None:
    written = {path.name: path.read_text() for path in (ROOT / "schemas").iterdir()}
    assert written == json_schemas.schema_files(), "run: python -m nerve.notations.json_schemas"


def test_one_command_writes_the_schemas(tmp_path: Path) -> None:
    json_schemas.main(str(tmp_path))
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == json_schemas.schema_files()


@pytest.mark.requirement("S2-24")
def test_the_schema_of_steps_has_the_keys_of_the_reader() -> None:
    made = json_schemas.steps_schema()
    assert made["properties"].keys() == steps_shape.WORKFLOW_SCHEMA.keys()
    by_type = {step["properties"]["type"]["const"]: step for step in made["$defs"]["step"]["oneOf"]}
    assert by_type.keys() == steps_shape.STEP_TYPE_SCHEMAS.keys()
    for type, step in by_type.items():
        assert step["properties"].keys() == steps_shape.step_keys(type, 0).keys()
        assert step["required"] == ["id", "type", *steps_shape.REQUIRED_KEYS[type]]


def test_the_schema_of_prompts_has_the_keys_of_the_reader() -> None:
    made = json_schemas.prompts_schema()
    assert set(made["oneOf"][0]["properties"]) == {"steps", "workspace", *yaml_keys.WORKFLOW_KEYS}
    assert set(made["$defs"]["step"]["properties"]) == set(yaml_keys.STEP_KEYS)
    assert set(made["$defs"]["gate"]["properties"]) == set(yaml_keys.GATE_KEYS)
    nodes = {node["required"][1]: set(node["properties"]) for node in made["$defs"]["node"]["anyOf"]}
    assert nodes == {key: set(forms.node_keys([key])) for key in forms.ACTIONS}


PART = {"id": "b", "type": "condition", "condition": "1", "else": None}


def test_the_full_form_has_every_kind_of_node() -> None:
    assert set(json_schemas.workflow_schema()["$defs"]["Node"]["discriminator"]["mapping"]) == set(KINDS)


@pytest.mark.parametrize("file", sorted(ROOT.glob("examples/workflows/json/*.json")), ids=lambda p: p.name)
def test_the_examples_in_json_fit(file: Path) -> None:
    assert problems(parse_located_json(file.read_text(), file.name), json_schemas.steps_schema()) == []


@pytest.mark.parametrize("file", sorted(ROOT.glob("examples/**/*.yaml")), ids=lambda p: p.name)
def test_the_examples_in_yaml_fit(file: Path) -> None:
    given = load_yaml(file.read_text(), file.name)
    made = json_schemas.workflow_schema() if "body" in given else json_schemas.prompts_schema()
    assert problems(given, made) == []


@pytest.mark.parametrize(
    ("name", "given", "wrong"),
    [
        ("workflow", {"name": "x", "body": {"kind": "bash", "comand": "ls"}}, True),
        ("workflow", {"name": "x", "body": {"kind": "bash", "command": "ls", "timeout": 3}}, False),
        ("workflow", {"$schema": "s", "name": "x", "body": {"kind": "goto"}}, False),
        ("steps", {"id": "x", "steps": []}, True),
        ("steps", {"id": "x", "steps": [{"id": "a", "type": "agent"}]}, True),
        ("steps", {"id": "x", "steps": [{"id": "a", "type": "agent", "agent": "b", "next": None}]}, False),
        (
            "steps",
            {"id": "x", "steps": [{"id": "a", "type": "transform", "transform": "1", "then": "a"}]},
            True,
        ),
        ("steps", {"id": "x", "steps": [{"id": "a", "type": "parallel", "steps": [PART]}]}, False),
        (
            "steps",
            {"id": "x", "steps": [{"id": "a", "type": "parallel", "steps": [{**PART, "then": "a"}]}]},
            True,
        ),
        ("prompts", {"name": "x", "description": "d", "steps": [{"step": "plan", "retry": 2}]}, False),
        ("prompts", {"name": "x", "description": "d", "steps": [{"stp": "plan"}]}, True),
        ("prompts", {"name": "x", "description": "d", "nodes": [{"id": "a", "bash": "ls"}]}, False),
        (
            "prompts",
            {"name": "x", "description": "d", "nodes": [{"id": "a", "approval": {"message": "?"}}]},
            False,
        ),
        (
            "prompts",
            {"name": "x", "description": "d", "inputs": {"a": "text"}, "steps": [{"step": "p"}]},
            True,
        ),
        (
            "prompts",
            {"name": "x", "description": "d", "inputs": {"a": None}, "steps": [{"step": "p"}]},
            False,
        ),
    ],
)
def test_the_schemas_accept_valid_and_reject_invalid_documents(name: str, given: Any, wrong: bool) -> None:
    assert bool(problems(given, json_schemas.SCHEMAS[name]())) is wrong


def problems(value: Any, made: dict[str, Any], root: dict[str, Any] | None = None, at: str = "") -> list[str]:
    """The problems of a value, by the subset of JSON Schema that the schemas use."""
    root = made if root is None else root
    if "$ref" in made:
        return problems(value, root["$defs"][made["$ref"].rsplit("/", 1)[1]], root, at)
    found: list[str] = []
    for way in {"anyOf", "oneOf"} & made.keys():
        fitting = [part for part in made[way] if not problems(value, part, root, at)]
        if not fitting or (way == "oneOf" and len(fitting) > 1):
            found.append(f"{at}: fits {len(fitting)} of {way}")
    if "type" in made and not is_a(value, made["type"]):
        return [*found, f"{at}: {value!r} is no {made['type']}"]
    if ("const" in made and value != made["const"]) or ("enum" in made and value not in made["enum"]):
        found.append(f"{at}: {value!r}")
    if isinstance(value, str):
        short = len(value) < made.get("minLength", 0)
        if short or not re.search(made.get("pattern", ""), value):
            found.append(f"{at}: {value!r}")
    elif isinstance(value, dict):
        found += in_object(value, made, root, at)
    elif isinstance(value, list):
        if len(value) < made.get("minItems", 0):
            found.append(f"{at}: is empty")
        for n, item in enumerate(value):
            found += problems(item, made.get("items", {}), root, f"{at}/{n}")
    elif isinstance(value, int | float) and value < made.get("minimum", value):
        found.append(f"{at}: {value}")
    return found


def in_object(value: dict[str, Any], made: dict[str, Any], root: dict[str, Any], at: str) -> list[str]:
    known = made.get("properties", {})
    others = made.get("additionalProperties", True)
    found = [f"{at}: no {name}" for name in made.get("required", []) if name not in value]
    for key, item in value.items():
        if key in known:
            found += problems(item, known[key], root, f"{at}/{key}")
        elif others is False:
            found.append(f"{at}: {key} is not known")
        elif isinstance(others, dict):
            found += problems(item, others, root, f"{at}/{key}")
    return found


def is_a(value: Any, names: str | list[str]) -> bool:
    wanted = [names] if isinstance(names, str) else names
    if isinstance(value, bool):
        return "boolean" in wanted
    return any(isinstance(value, NAMES[name]) for name in wanted)


def test_the_files_are_json() -> None:
    for name in json_schemas.schema_files():
        assert json.loads((ROOT / "schemas" / name).read_text())["title"].startswith("A Nerve workflow")
