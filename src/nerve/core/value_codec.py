"""Encode typed values as JSON and decode them, by the annotations of functions."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterable, Mapping
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Literal, get_type_hints

from nerve.core.json_codec import decode_json, encode_json
from nerve.core.json_schema import find_unknown_key, inline_references
from nerve.core.result import IMMUTABLE_TYPES
from nerve.core.suggest import did_you_mean_hint
from nerve.core.validation import describe_value, require_mapping
from nerve.errors import InvalidValue, NotJson

if TYPE_CHECKING:
    from pydantic import TypeAdapter, ValidationError

UNTYPED = (Any, object, inspect.Parameter.empty)
"""Annotations that say nothing: a value must be JSON itself."""
PLAIN_TYPES = frozenset({str, int, float, bool, type(None), list, dict})
"""Types that JSON has; values of exactly these types need neither encoding nor pydantic."""

UNKNOWN_KEY_ERRORS = ("extra_forbidden", "unexpected_keyword_argument")
"""The errors of pydantic for a key that a model or a dataclass does not have."""


class ValueCodec:
    """Encodes values of one annotation as JSON and decodes them.

    `name` describes them in messages; `{field}` in it is replaced by the wrong field of a value.
    """

    def __init__(self, annotation: Any, name: str) -> None:
        self.annotation = type(None) if annotation is None else annotation
        self._name = name
        self._is_untyped = self.annotation in UNTYPED
        is_plain = isinstance(self.annotation, type) and self.annotation in PLAIN_TYPES
        self._plain_type = self.annotation if is_plain else None
        """The type whose values are stored as they are."""

    def encode(self, value: Any) -> Any:
        """Return a value as JSON data; TypeError if it is not of the annotated type."""
        if self._is_plain(value):
            return value
        adapter = self._adapter
        try:
            adapter.validator.validate_python([value], strict=True)
            encoded: Any = adapter.serializer.to_python([value], mode="json", warnings=False)
            # A field of a dataclass can have any value: only reading it back shows that it has its type.
            adapter.validator.validate_json(encode_json(encoded, max_depth=None), strict=True)
        except Exception as error:
            raise self._encoding_error(error) from None
        return encoded[0]

    def encode_json(self, value: Any) -> Any:
        """Return a value as JSON data, as `encode` does; TypeError also if an untyped value is not JSON."""
        kind = type(value)
        if kind is self._plain_type and kind in IMMUTABLE_TYPES:
            return value  # as most arguments are
        encoded = self.encode(value)
        if encoded is value and kind not in IMMUTABLE_TYPES:
            try:
                encode_json(value)
            except NotJson as error:
                raise TypeError(f"{self._describe()} is not JSON: {error}") from None
        return encoded

    def _is_plain(self, value: Any) -> bool:
        """Return whether a value is stored as it is, which needs no pydantic."""
        return self._is_untyped or type(value) is self._plain_type

    def _encoding_error(self, error: Exception) -> Exception:
        """Return the TypeError for a value that cannot be encoded; errors of the user's code stay."""
        # Imported here, because these statements take as long as encoding a small value.
        from pydantic import ValidationError
        from pydantic_core import PydanticSerializationError

        match error:
            case ValidationError():
                return TypeError(self._explain(error))
            case UnicodeDecodeError():
                return TypeError(
                    f"{self._describe()} has bytes that are not UTF-8 in a pydantic model."
                    " Set ser_json_bytes and val_json_bytes of its model_config to 'base64'."
                )
            case PydanticSerializationError():
                return TypeError(f"{self._describe()} cannot be encoded as JSON: {error}")
        return error

    def decode(self, data: Any) -> Any:
        """Return the value of JSON data; InvalidValue if the data is not of the annotated type."""
        if type(data) is self._plain_type or self._is_untyped:
            return data
        try:
            text = encode_json([data], max_depth=None)
            return self._adapter.validator.validate_json(text, strict=True)[0]
        except ValueError as error:
            from pydantic import ValidationError

            if not isinstance(error, ValidationError):
                raise
            raise InvalidValue(self._explain(error)) from None

    def normalize(self, value: Any) -> Any:
        """Return a value of the annotated type, or JSON data of one, as JSON data; InvalidValue if wrong.

        Data from outside must not have keys that its type does not have; data of old journals may.
        """
        if isinstance(value, Mapping | list) and not self._is_plain(value):
            self._refuse_unknown_keys(value)  # first, because a misspelled key is a missing one, too
        try:
            return self.encode(value)
        except TypeError as error:
            if isinstance(value, str | int | float | Mapping | list | None):
                return self.encode(self.decode(value))
            raise InvalidValue(str(error)) from None

    def _refuse_unknown_keys(self, value: Any) -> None:
        from pydantic import ValidationError

        try:
            text = encode_json([value], max_depth=None)
            self._adapter.validator.validate_json(text, strict=True, extra="forbid")
        except NotJson:
            return  # it contains objects, which have no other attributes
        except ValidationError as error:
            if not any(problem["type"] in UNKNOWN_KEY_ERRORS for problem in error.errors(include_url=False)):
                return
            # Here every other key is refused; the schema knows the models that accept them.
            if (unknown := find_unknown_key(decode_json(text)[0], self.json_schema())) is None:
                return
            known = f". Known fields: {', '.join(unknown.known) or 'none'}"
            raise InvalidValue(
                f"{self._describe(format_location(unknown.path))} has no field '{unknown.key}'"
                f"{did_you_mean_hint(unknown.key, unknown.known) or known}"
            ) from None

    def parse_text(self, value: Any) -> Any:
        """Return the JSON in a text, if only that is of the annotated type; any other value as it is."""
        if not isinstance(value, str) or self._accepts(value):
            return value
        try:
            data = decode_json(value)
        except ValueError:
            return value
        # The text of an object or a list is meant as JSON, and the error is about what is in it.
        return data if isinstance(data, dict | list) or self._accepts(data) else value

    def _accepts(self, data: Any) -> bool:
        try:
            self.decode(data)
        except InvalidValue:
            return False
        return True

    def json_schema(self, mode: Literal["validation", "serialization"] = "validation") -> dict[str, Any]:
        """Return the JSON Schema of the data that `decode` accepts, or that `encode` returns.

        References are replaced by what they refer to; a type without a schema gives {}.
        """
        if self.annotation in UNTYPED:
            return {}
        from pydantic.errors import PydanticInvalidForJsonSchema

        from nerve.core.type_schemas import TypeSchemaGenerator

        try:
            schema = self._adapter.json_schema(mode=mode, schema_generator=TypeSchemaGenerator)
        except PydanticInvalidForJsonSchema:
            return {}
        inlined: dict[str, Any] = inline_references(schema["items"], schema.get("$defs", {}))
        return inlined

    @cached_property
    def _adapter(self) -> TypeAdapter[list[Any]]:
        from pydantic import ConfigDict, TypeAdapter
        from pydantic.errors import PydanticSchemaGenerationError, PydanticUserError

        # Inside a list, because pydantic takes no configuration for a dataclass that stands alone.
        config = ConfigDict(ser_json_bytes="base64", val_json_bytes="base64")
        try:
            return TypeAdapter(list[self.annotation], config=config)  # type: ignore[name-defined]
        except PydanticSchemaGenerationError:
            raise TypeError(
                f"{self._describe()} has the type {describe_annotation(self.annotation)}, which cannot be"
                " encoded as JSON. Use a dataclass, a pydantic model or JSON."
            ) from None
        except PydanticUserError as error:
            raise TypeError(
                f"{self._describe()} has the type {describe_annotation(self.annotation)}, which cannot be"
                f" encoded as JSON: {error.message.splitlines()[0]}"
            ) from None

    def _explain(self, error: ValidationError) -> str:
        """Return the first problem with the name of the field and the value found."""
        problem = error.errors(include_url=False)[0]
        field = format_location(problem["loc"][1:])
        message = problem["msg"].replace("Input should be", "must be", 1)
        message = message if message.startswith("must") else f"is invalid: {message}"
        return f"{self._describe(field)} {message}, got {describe_value(problem['input'])}"

    def _describe(self, field: str = "") -> str:
        return self._name.replace("{field}", field)


class FunctionSignature:
    """The parameters and the result of a function, with a codec for each; `owner` names it in messages.

    `skipped` parameters at the start are not part of it.
    """

    def __init__(self, function: Callable[..., Any], owner: str, skipped: int = 0) -> None:
        self._function, self._owner = function, owner
        parameters = list(inspect.signature(function).parameters.values())[skipped:]
        self._signature = inspect.Signature(parameters)
        self._caller_names = names_of_caller()
        kinds = {parameter.kind for parameter in parameters}
        self._has_plain_names = kinds <= NAMED_KINDS
        """Whether every argument can be passed by name, and most by position; calls need no `bind`."""
        self._names = [parameter.name for parameter in parameters]
        self._positions = sum(parameter.kind is parameter.POSITIONAL_OR_KEYWORD for parameter in parameters)
        self._required = {
            parameter.name
            for parameter in parameters
            if parameter.default is parameter.empty and parameter.kind not in VARIADIC_KINDS
        }

    @property
    def parameters(self) -> Mapping[str, inspect.Parameter]:
        """The parameters by name."""
        return self._signature.parameters

    @cached_property
    def codecs(self) -> dict[str, ValueCodec]:
        """The codec of each parameter by its name."""
        return {
            name: ValueCodec(self._hints.get(name, Any), f"Parameter '{name}{{field}}' of {self._owner}")
            for name in self._signature.parameters
        }

    @cached_property
    def result(self) -> ValueCodec:
        """The codec of the return value."""
        return ValueCodec(self._hints.get("return", Any), f"The result{{field}} of {self._owner}")

    @cached_property
    def _hints(self) -> dict[str, Any]:
        function = find_python_function(self._function)
        if function is None:
            return {}
        # A function under `from __future__ import annotations` has strings, which name what it can see.
        local_names = {**self._caller_names, **inspect.getclosurevars(function).nonlocals}
        try:
            return get_type_hints(function, localns=local_names, include_extras=True)
        except NameError as error:
            raise TypeError(
                f"An annotation of {self._owner} cannot be resolved: {error}. Define the type in the module."
            ) from None

    def encode_arguments(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """Return the passed arguments by name as JSON data; TypeError names a wrong one."""
        codecs = self.codecs
        if self._has_plain_names and len(args) <= self._positions:
            # `bind` takes longer than the rest of a call; it is needed only to explain a mistake.
            arguments = dict(zip(self._names, args, strict=False))
            if kwargs:
                arguments |= kwargs
            has_all = self._required <= arguments.keys()
            is_unique = len(arguments) == len(args) + len(kwargs)
            if has_all and is_unique and (not kwargs or arguments.keys() <= codecs.keys()):
                return {name: codecs[name].encode_json(value) for name, value in arguments.items()}
        try:
            bound = self._signature.bind(*args, **kwargs)
        except TypeError as error:
            problem = str(error)
            if unknown := [name for name in kwargs if name not in codecs]:
                # First, because a misspelled argument is a missing one, too.
                problem = f"got an unexpected keyword argument '{unknown[0]}'"
                problem += did_you_mean_hint(unknown[0], codecs)
            raise TypeError(f"Wrong arguments of {self._owner}: {problem}") from None
        return {
            name: self._convert(name, value, codecs[name].encode_json)
            for name, value in bound.arguments.items()
        }

    def decode_call(self, data: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return the arguments for a call by position and by name, as `decode_arguments` finds them."""
        codecs = self.codecs
        if (
            self._has_plain_names
            and isinstance(data, dict)
            and self._required <= data.keys() <= codecs.keys()
        ):
            return (), {name: codecs[name].decode(value) for name, value in data.items()}
        bound = self.decode_arguments(data)
        return bound.args, bound.kwargs

    def decode_arguments(self, data: Any) -> inspect.BoundArguments:
        """Return the arguments for a call from JSON data; InvalidValue names an unknown or wrong one."""
        arguments = require_mapping(f"The input of {self._owner}", data)
        if unknown := [name for name in arguments if name not in self._signature.parameters]:
            hint = did_you_mean_hint(unknown[0], self._signature.parameters)
            raise InvalidValue(f"Unknown parameter '{unknown[0]}' of {self._owner}{hint}")
        bound = self._signature.bind_partial()
        for name, parameter in self._signature.parameters.items():
            if name in arguments:
                bound.arguments[name] = self._convert(name, arguments[name], self.codecs[name].decode)
            elif parameter.default is parameter.empty and parameter.kind not in VARIADIC_KINDS:
                raise InvalidValue(f"Parameter '{name}' of {self._owner} is missing")
        return bound

    def decode_start(self, input: Any, params: Mapping[str, Any]) -> inspect.BoundArguments:
        """Return the arguments of a workflow function: the input comes first, `params` are the others."""
        name, parameter = next(iter(self._signature.parameters.items()))
        if input is None and parameter.default is not parameter.empty:
            return self.decode_arguments(params)
        return self.decode_arguments({name: input, **params})

    def normalize_params(self, params: Mapping[str, Any]) -> dict[str, Any]:
        """Return the parameters after the first as JSON data; InvalidValue for an unknown or missing one."""
        declared = dict(list(self._signature.parameters.items())[1:])
        for name in params:
            if name not in declared:
                hint = did_you_mean_hint(name, declared) or "."
                known = ", ".join(declared) or "none"
                raise InvalidValue(
                    f"Unknown parameter '{name}' of {self._owner}{hint} Known parameters: {known}"
                )
        for name in declared:
            if name in self._required and name not in params:
                raise InvalidValue(f"Parameter '{name}' of {self._owner} is missing")
        return {name: self.codecs[name].normalize(value) for name, value in params.items()}

    def _convert(self, name: str, value: Any, convert: Callable[[Any], Any]) -> Any:
        kind = self._signature.parameters[name].kind
        if kind is inspect.Parameter.VAR_POSITIONAL:
            return tuple(map(convert, value))
        if kind is inspect.Parameter.VAR_KEYWORD:
            return {key: convert(part) for key, part in value.items()}
        return convert(value)


NAMED_KINDS = {inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY}
VARIADIC_KINDS = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


def find_python_function(function: Callable[..., Any]) -> Callable[..., Any] | None:
    """Return the Python function that a callable calls, for its annotations; None for a builtin."""
    while isinstance(function, partial):
        function = function.func
    if not inspect.isroutine(function):
        function = type(function).__call__
    return function if inspect.isfunction(function) or inspect.ismethod(function) else None


def names_of_caller() -> dict[str, Any]:
    """Return the local names of the user code that called Nerve.

    A class that is local to the function with the decorator is found only there.
    """
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith("nerve."):
        frame = frame.f_back
    return dict(frame.f_locals)


def format_location(parts: Iterable[str | int]) -> str:
    """Return the place of a field in a value: `.items[2].count`."""
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in parts)


def describe_annotation(annotation: Any) -> str:
    return getattr(annotation, "__name__", None) or str(annotation)
