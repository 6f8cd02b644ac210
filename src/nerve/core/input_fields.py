"""The inputs that a workflow declares, for command lines, forms and descriptions."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import field
from typing import Any, Literal, cast

from nerve.core.json_codec import decode_json
from nerve.core.json_schema import reduce_field_schema
from nerve.core.value_codec import VARIADIC_KINDS, FunctionSignature
from nerve.errors import InvalidValue
from nerve.lazy_dataclass import dataclass

FieldType = Literal["string", "number", "integer", "boolean", "array", "object", "any"]
FIELD_TYPES = ("string", "number", "integer", "boolean", "array", "object")


@dataclass(frozen=True, slots=True)
class InputField:
    """One declared input of a workflow: an option of the command line, or a field of a form."""

    name: str
    type: FieldType
    required: bool = False
    default: Any = None
    description: str = ""
    choices: list[Any] | None = None
    format: str = ""
    """What a text stands for: `date-time`, `decimal`, `uuid` and the other formats of JSON Schema."""


@dataclass(frozen=True, slots=True)
class DeclaredInputs:
    """The inputs of a typed workflow function, and where their values belong."""

    owner: str
    fields: list[InputField] = field(default_factory=list)
    input_name: str = ""
    """The parameter that is the input of the run."""
    input_fields: frozenset[str] = frozenset()
    """The fields of the input that are inputs of their own; empty if the input is one itself."""
    input_schema: dict[str, Any] = field(default_factory=dict)
    params_schema: dict[str, Any] = field(default_factory=dict)
    output_schema: dict[str, Any] = field(default_factory=dict)

    def join_input(self, input: Any, params: Mapping[str, Any]) -> tuple[Any, dict[str, Any]]:
        """Return the input with the fields of it that were given as parameters, and the other parameters."""
        names = self.input_fields or {self.input_name}
        given = {name: value for name, value in params.items() if name in names}
        others = {name: value for name, value in params.items() if name not in names}
        if not given:
            return input, others
        if isinstance(input, str):
            input = parse_json_object(input)
        if self.input_fields and (input is None or isinstance(input, dict)):
            return {**(input or {}), **given}, others
        if input is not None:
            name = next(iter(given))
            raise InvalidValue(f"The input of {self.owner} is given twice: as a value, and as '{name}'")
        return given[self.input_name], others


def parse_json_object(text: str) -> Any:
    """Return the JSON object in a text; any other text as it is."""
    try:
        data = decode_json(text)
    except ValueError:
        return text
    return data if isinstance(data, dict) else text


def declare_inputs(signature: FunctionSignature, owner: str) -> DeclaredInputs:
    """Return the inputs of a workflow function, whose first parameter is the input of a run.

    The fields of an input that is an object are inputs of their own, unless one has the name of a parameter.
    TypeError if an annotation cannot be resolved.
    """
    parameters = {
        name: parameter
        for name, parameter in signature.parameters.items()
        if parameter.kind not in VARIADIC_KINDS
    }
    schemas = {name: parameter_schema(signature, name, parameter) for name, parameter in parameters.items()}
    required = [name for name, parameter in parameters.items() if parameter.default is parameter.empty]
    input_name, *names = parameters
    params_schema = object_schema({name: schemas[name] for name in names}, required)
    object_fields: dict[str, Any] = reduce_field_schema(schemas[input_name]).get("properties") or {}
    if set(object_fields) & set(names):
        object_fields = {}
    if object_fields:
        required_fields = schemas[input_name].get("required", ()) if input_name in required else ()
        fields = [make_input_field(name, part, required_fields) for name, part in object_fields.items()]
    else:
        fields = [make_input_field(input_name, schemas[input_name], required)]
    return DeclaredInputs(
        owner,
        [*fields, *(make_input_field(name, schemas[name], required) for name in names)],
        input_name,
        frozenset(object_fields),
        schemas[input_name],
        params_schema,
        signature.result.json_schema("serialization"),
    )


def object_schema(properties: Mapping[str, Any], required: list[str]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": dict(properties),
        "required": [name for name in required if name in properties],
        "additionalProperties": False,
    }


def parameter_schema(signature: FunctionSignature, name: str, parameter: inspect.Parameter) -> dict[str, Any]:
    schema = signature.codecs[name].json_schema()
    if parameter.default is parameter.empty or parameter.default is None:
        return schema
    try:
        return {**schema, "default": signature.codecs[name].encode(parameter.default)}
    except TypeError:
        return schema  # a default that is not of the annotated type, such as a marker, says nothing


def make_input_field(name: str, schema: Mapping[str, Any], required: Any) -> InputField:
    """Return the input for a field or a parameter with a JSON Schema."""
    reduced = reduce_field_schema(schema)
    choices = [reduced["const"]] if "const" in reduced else reduced.get("enum")
    is_text = reduced.get("format") == "decimal"  # a number would lose digits
    type = "string" if is_text else reduced.get("type")
    return InputField(
        name,
        cast("FieldType", type) if type in FIELD_TYPES else "any",
        name in required,
        schema.get("default"),
        str(schema.get("description") or ""),
        choices,
        str(reduced.get("format") or ""),
    )
