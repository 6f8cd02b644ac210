"""The inputs of typed workflow functions: what the router asks for, and the arguments of the start."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from nerve.core.input_fields import InputField
from nerve.core.json_schema import FORMAT_EXAMPLES, reduce_field_schema
from nerve.errors import InvalidValue
from nerve.router.decision import Candidate
from nerve.spec.models import InputSpec

if TYPE_CHECKING:
    from nerve.core.workflow.workflow import Workflow

SAMPLE_TEXT = "a message"
"""A text that is of a type only if any text is: neither JSON, nor base64, nor one of the usual formats."""


def candidate_of_function(workflow: Workflow) -> Candidate:
    """Return the candidate of a workflow that is not of a file, with the inputs that it declares."""
    try:
        fields, schemas = workflow.inputs, input_schemas(workflow)
    except TypeError:  # an annotation cannot be resolved, which is the error of a start
        return Candidate(workflow.name, workflow.description, steps=tuple(workflow.steps))
    declared, takes_intent = workflow.declared_inputs, takes_text(workflow)
    return Candidate(
        workflow.name,
        workflow.description,
        {
            field.name: make_input_spec(field)
            for field in fields
            if not takes_intent or field.name in declared.params_schema.get("properties", {field.name})
        },
        tuple(workflow.steps),
        schemas,
        takes_intent,
        "" if takes_intent or declared.input_fields else declared.input_name,
        partial(start_arguments, workflow),
    )


def input_schemas(workflow: Workflow) -> dict[str, Mapping[str, Any]]:
    """Return the JSON Schemas of the inputs of a typed function by name."""
    declared = workflow.declared_inputs
    input_schema = reduce_field_schema(declared.input_schema)
    schemas = dict(declared.params_schema.get("properties", {}))
    if declared.input_fields:
        schemas |= input_schema["properties"]
    elif declared.input_name:
        schemas[declared.input_name] = input_schema
    definitions = {"$defs": input_schema["$defs"]} if "$defs" in input_schema else {}
    return {name: {**definitions, **schema} for name, schema in schemas.items()}


def make_input_spec(field: InputField) -> InputSpec:
    example = FORMAT_EXAMPLES.get(field.format)
    kind = f"a {field.format} such as {example}" if example is not None else ""
    description = f"{field.description} ({kind})" if field.description and kind else field.description or kind
    return InputSpec(
        type=field.type,
        description=description,
        required=field.required,
        default=field.default,
        choices=field.choices,
    )


def takes_text(workflow: Workflow) -> bool:
    """Return whether the input of a run may be any text, so that the intent is the input."""
    if workflow.signature is None:
        return True
    codec = workflow.signature.codecs[workflow.declared_inputs.input_name]
    try:
        codec.decode(SAMPLE_TEXT)
    except InvalidValue:
        return False
    return True


def start_arguments(workflow: Workflow, intent: str, inputs: Mapping[str, Any]) -> tuple[Any, dict[str, Any]]:
    """Return the input and the parameters of a run; InvalidValue if the workflow does not accept them."""
    if workflow.signature is None:
        return intent, dict(inputs)
    declared = workflow.declared_inputs
    parameter = workflow.signature.parameters[declared.input_name]
    input: Any = intent if takes_text(workflow) else None
    if input is None and declared.input_fields and parameter.default is parameter.empty:
        input = {}  # its fields may all have defaults
    input, params = workflow.parse_start(input, inputs)
    workflow.encode_input(input)
    workflow.check_params(params)
    return input, params
