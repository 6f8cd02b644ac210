"""A tool: a function whose annotations are its schema and whose docstring is its description."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping
from functools import cached_property
from typing import Any

import mcp_types

from nerve.api.errors import ApiError
from nerve.core.input_fields import object_schema, parameter_schema
from nerve.core.value_codec import FunctionSignature
from nerve.errors import InvalidValue

ToolFunction = Callable[..., Awaitable[dict[str, Any]]]


class Tool:
    """A tool of a function that returns JSON data.

    `is_read_only` and `is_destructive` let a host decide whether it asks its user before a call.
    """

    def __init__(self, fn: ToolFunction, *, is_read_only: bool = False, is_destructive: bool = False) -> None:
        self._fn = fn
        self.name: str = fn.__name__
        self._is_read_only, self._is_destructive = is_read_only, is_destructive

    @cached_property
    def _signature(self) -> FunctionSignature:
        return FunctionSignature(self._fn, f"tool '{self.name}'")

    def describe(self) -> mcp_types.Tool:
        """Return the name, the description and the schema of the arguments."""
        parameters = self._signature.parameters
        required = [name for name, parameter in parameters.items() if parameter.default is parameter.empty]
        schemas = {name: parameter_schema(self._signature, name, each) for name, each in parameters.items()}
        return mcp_types.Tool(
            name=self.name,
            description=inspect.getdoc(self._fn),
            input_schema=object_schema(schemas, required),
            annotations=tool_annotations(self._is_read_only, self._is_destructive),
        )

    async def call(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Return the result; raise ApiError for wrong arguments too."""
        try:
            bound = self._signature.decode_arguments(arguments)
        except (InvalidValue, TypeError) as error:
            raise ApiError("bad_request", str(error), f"See the schema of the tool '{self.name}'.") from None
        return await self._fn(*bound.args, **bound.kwargs)


def tool_annotations(is_read_only: bool, is_destructive: bool = False) -> mcp_types.ToolAnnotations:
    """Return what a host may assume of a tool; a tool of Nerve does not reach beyond the project."""
    return mcp_types.ToolAnnotations(
        read_only_hint=is_read_only,
        destructive_hint=None if is_read_only else is_destructive,
        open_world_hint=False,
    )
