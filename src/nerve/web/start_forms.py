"""Start forms: the inputs of a workflow as fields, and the run that a submitted form starts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import TYPE_CHECKING, Any

from nerve.api.errors import ApiError
from nerve.core.limits import FRACTIONAL_LIMITS
from nerve.core.tags import parse_tag
from nerve.lazy_dataclass import dataclass
from nerve.text import with_full_stop
from nerve.ui.typed_options import OPTION_PARSERS, find_option_schema, parse_finite_json
from nerve.web.json_form import FormField, change_rows, encode_value, parse_form, show_form

if TYPE_CHECKING:
    from nerve.api.models import RunResponse, WorkflowResponse
    from nerve.web.site import FormFields, Visit

FORM_NAME = "params"
"""The first part of the names of the fields of the inputs."""
LIMIT_LABELS = {"cost": "Cost in $", "tokens": "Tokens", "turns": "Agent turns", "wall_time": "Seconds"}
OPTION_NAMES = ("input", "is_json", "label", "tags", "queue", "conversation", "key")


@dataclass(slots=True)
class StartForm:
    """The form that starts a workflow, with what the user has entered so far."""

    workflow: WorkflowResponse
    inputs: FormField | None
    has_input: bool
    """Whether the run has an input besides the declared ones."""
    values: Mapping[str, str] = field(default_factory=dict)
    """The texts of the other fields."""
    limits: Mapping[str, str] = field(default_factory=dict)
    errors: Mapping[str, str] = field(default_factory=dict)
    """Errors of the other fields, and under "" that of the whole form."""


def start_schema(workflow: WorkflowResponse) -> dict[str, Any]:
    """Return the schema of an object with all declared inputs of a workflow."""
    properties: dict[str, Any] = {}
    definitions: dict[str, Any] = {}
    for declared in workflow.inputs:
        schema = dict(find_option_schema(workflow, declared.name))
        definitions |= schema.pop("$defs", {})
        if declared.type != "any":
            schema.setdefault("type", declared.type)
        for name, value in (("enum", declared.choices), ("description", declared.description)):
            if value and "anyOf" not in schema:
                schema.setdefault(name, value)
        if declared.default is not None:
            schema.setdefault("default", declared.default)
        properties[declared.name] = schema
    required = [declared.name for declared in workflow.inputs if declared.required]
    schema = {"type": "object", "properties": properties, "required": required}
    return schema | ({"$defs": definitions} if definitions else {})


def make_start_form(
    workflow: WorkflowResponse, params: Mapping[str, Any] | None = None, **values: str
) -> StartForm:
    """Return the form with the defaults of the inputs, or with other values of them."""
    schema, inputs = start_schema(workflow), None
    if workflow.inputs:
        given = encode_defaults(schema) | dict(params or {})
        known = {name: value for name, value in given.items() if name in schema["properties"]}
        inputs = show_form(schema, FORM_NAME, encode_value(schema, FORM_NAME, known))
    return StartForm(workflow, inputs, workflow.input_schema is None, values)


def encode_defaults(schema: Mapping[str, Any]) -> dict[str, Any]:
    return {name: part["default"] for name, part in schema["properties"].items() if "default" in part}


def read_start_form(workflow: WorkflowResponse, form: FormFields) -> tuple[StartForm, dict[str, Any], bool]:
    """Return the form as it was submitted, the request that starts the run, and whether to start it.

    A form with errors, or one in which the user only changes the length of a list, starts nothing.
    """
    schema = start_schema(workflow)
    texts = [(name, text) for name, text in form.fields if name.startswith(FORM_NAME)]
    values = {name: form.get(name).replace("\r\n", "\n") for name in OPTION_NAMES}
    limits = {name: form.get(f"limit-{name}").strip() for name in LIMIT_LABELS}
    changes_rows = bool(form.get("add") or form.get("remove"))
    if changes_rows:
        texts = change_rows(texts, form.get("add"), form.get("remove"))
    params, field_errors = parse_form(schema, FORM_NAME, texts) if workflow.inputs else ({}, {})
    request: dict[str, Any] = {"params": params}
    errors: dict[str, str] = {}
    if (shown_hash := form.get("hash")) and shown_hash != workflow.hash:
        errors[""] = "The definition of the workflow has changed since this form was shown. Check the inputs."
    has_input = workflow.input_schema is None
    if has_input and values["input"].strip():
        request["input"] = values["input"]
        if values["is_json"]:
            try:
                request["input"] = parse_finite_json(values["input"])
            except ValueError as error:
                errors["input"] = f"The input is not valid JSON: {error}."
    for name in ("label", "queue", "conversation", "key"):
        if values[name].strip():
            request[name] = values[name].strip()
    try:
        request["tags"] = dict(parse_tag(text) for text in values["tags"].split())
    except ValueError as error:
        errors["tags"] = f"{error}. Use tags such as customer=42."
    request["limits"] = read_limits(limits, errors) or None
    shown_errors = {} if changes_rows else field_errors
    shown = StartForm(
        workflow,
        show_form(schema, FORM_NAME, texts, shown_errors) if workflow.inputs else None,
        has_input,
        values,
        limits,
        {} if changes_rows else errors,
    )
    return shown, request, not (changes_rows or errors or field_errors)


def read_limits(texts: Mapping[str, str], errors: dict[str, str]) -> dict[str, float]:
    limits: dict[str, float] = {}
    for name, text in texts.items():
        if not text:
            continue
        kind = "number" if name in FRACTIONAL_LIMITS else "integer"
        try:
            limits[name] = OPTION_PARSERS[kind](text)
            if limits[name] < 0:
                raise ValueError(text)
        except (ValueError, OverflowError):
            errors[f"limit-{name}"] = f"Must be a non-negative {kind}, got '{text[:60]}'."
    return limits


async def start_run(visit: Visit, shown: StartForm, request: dict[str, Any]) -> RunResponse | None:
    """Start the run; None with an error in the form, if the API refuses it."""
    try:
        return await visit.client.start(workflow=shown.workflow.id, **request)
    except ApiError as error:
        if error.code not in ("refused", "bad_request", "conflict", "gone", "too_large", "not_found"):
            raise
        text = with_full_stop(error.message) if error.code == "refused" else error.sentences
        shown.errors = {**shown.errors, "": text}
        if error.code == "conflict":  # the key of this form has started another run
            shown.values = {**shown.values, "key": ""}
        return None
