"""Declared inputs: what the signature of a workflow function says about the input of its runs."""

import enum
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, Field

from nerve.core.input_fields import DeclaredInputs, InputField, declare_inputs
from nerve.core.value_codec import FunctionSignature
from nerve.errors import InvalidValue


class Speed(enum.Enum):
    SLOW = "slow"
    FAST = "fast"


@dataclass
class Order:
    customer: Annotated[str, Field(description="Who pays")]
    amount: Decimal
    due: datetime | None = None
    speed: Speed = Speed.SLOW
    lines: list[dict[str, int]] = field(default_factory=list)


class Settings(BaseModel):
    rush: bool = False


def inputs_of(function: Any) -> DeclaredInputs:
    return declare_inputs(FunctionSignature(function, "workflow 'w'", skipped=1), "workflow 'w'")


def test_the_fields_of_the_input_and_the_parameters_are_inputs() -> None:
    async def fulfil(ctx: Any, order: Order, *, rush: bool = False, size: Literal[1, 2] = 1) -> Path:
        return Path()

    declared = inputs_of(fulfil)
    assert declared.fields == [
        InputField("customer", "string", required=True, description="Who pays"),
        InputField("amount", "string", required=True, format="decimal"),
        InputField("due", "string", format="date-time"),
        InputField("speed", "string", default="slow", choices=["slow", "fast"]),
        InputField("lines", "array"),
        InputField("rush", "boolean", default=False),
        InputField("size", "integer", default=1, choices=[1, 2]),
    ]
    assert declared.input_schema["required"] == ["customer", "amount"]
    assert list(declared.params_schema["properties"]) == ["rush", "size"]
    assert declared.output_schema == {"type": "string", "format": "path"}


def test_an_input_that_is_not_an_object_is_one_input() -> None:
    async def count(ctx: Any, limit: int, by: Any = None) -> None: ...

    assert inputs_of(count).fields == [InputField("limit", "integer", required=True), InputField("by", "any")]


def test_the_fields_of_an_input_with_a_default_are_not_required() -> None:
    async def fulfil(ctx: Any, order: Order | None = None) -> None: ...

    declared = inputs_of(fulfil)
    assert declared.fields[0] == InputField("customer", "string", description="Who pays")
    assert not any(input.required for input in declared.fields)


def test_an_input_with_a_field_of_the_name_of_a_parameter_is_one_input() -> None:
    async def fulfil(ctx: Any, settings: Settings, rush: bool = True) -> None: ...

    assert [(input.name, input.type) for input in inputs_of(fulfil).fields] == [
        ("settings", "object"),
        ("rush", "boolean"),
    ]


def test_fields_that_are_given_as_parameters_become_the_input() -> None:
    async def fulfil(ctx: Any, order: Order, *, rush: bool = False) -> None: ...

    declared = inputs_of(fulfil)
    params = {"customer": "Ann", "rush": True}
    assert declared.join_input(None, params) == ({"customer": "Ann"}, {"rush": True})
    assert declared.join_input({"amount": 3}, params)[0] == {"amount": 3, "customer": "Ann"}
    assert declared.join_input('{"amount": 3}', params)[0] == {"amount": 3, "customer": "Ann"}
    assert declared.join_input("text", {"rush": True}) == ("text", {"rush": True})
    with pytest.raises(InvalidValue, match="given twice: as a value, and as 'customer'"):
        declared.join_input("text", params)


def test_an_input_that_is_given_as_a_parameter_is_the_input() -> None:
    async def count(ctx: Any, limit: int, by: int = 1) -> None: ...

    declared = inputs_of(count)
    assert declared.join_input(None, {"limit": 3, "by": 2}) == (3, {"by": 2})
    with pytest.raises(InvalidValue, match="given twice"):
        declared.join_input(4, {"limit": 3})
