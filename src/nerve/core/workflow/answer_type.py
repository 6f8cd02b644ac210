"""AnswerType: how a gate asks for a value of a type, and the value of an answer."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from typing import Any

from nerve.core.json_codec import encode_json
from nerve.core.json_schema import find_validation_error
from nerve.core.nodes.context import ExecutionContext
from nerve.core.runtime import GateWait
from nerve.core.value_codec import UNTYPED, ValueCodec, describe_annotation
from nerve.errors import InvalidRecord, InvalidValue

BOOLEAN_CHOICES = {"yes": True, "no": False}
MAX_PROMPT_CHARS = 40
"""Characters of the prompt that name a gate in a message."""


class AnswerType:
    """The type of the answers to a gate: its choices or its form, and how an answer is decoded.

    A boolean, an enum or a Literal of simple values has choices; text has neither choices nor a form.
    """

    def __init__(self, annotation: Any, prompt: str) -> None:
        shortened = prompt if len(prompt) <= MAX_PROMPT_CHARS else f"{prompt[:MAX_PROMPT_CHARS]}…"
        self._codec = ValueCodec(annotation, f"The answer{{field}} to the gate '{shortened}'")
        schema = self._codec.json_schema()
        if not schema and annotation not in UNTYPED:
            raise TypeError(
                f"A gate cannot ask for {describe_annotation(annotation)}, which has no JSON Schema."
                " Use a dataclass, a pydantic model or JSON."
            )
        self._values = choice_values(schema)
        self.choices = list(self._values) or None
        self.form = None if self._values or not schema or schema == {"type": "string"} else schema

    def decode(self, answer: Any) -> Any:
        """Return the value of an answer; InvalidValue if the answer is not of the type."""
        is_choice = isinstance(answer, str) and answer in self._values
        return self._codec.decode(self._values[answer] if is_choice else answer)

    def accepts(self, answer: Any) -> bool:
        """Return whether the choices or the form allow an answer; a validator of the type may not."""
        if self.form is not None:
            return not find_validation_error(answer, self.form, check_formats=True)
        return isinstance(answer, str) and (self.choices is None or answer in self.choices)


def choice_values(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return the JSON values of a schema by the choices that stand for them; {} if they are not a few."""
    if schema.get("type") == "boolean":
        return BOOLEAN_CHOICES
    values = [schema["const"]] if "const" in schema else schema.get("enum") or []
    if not all(isinstance(value, str | int | float) and value != "" for value in values):
        return {}
    choices = {value if isinstance(value, str) else encode_json(value): value for value in values}
    return choices if len(choices) == len(values) else {}


async def ask_typed(
    context: ExecutionContext,
    gate: GateWait,
    answer_type: AnswerType,
    ask: Callable[[ExecutionContext, GateWait], Awaitable[Any]],
) -> Any:
    """Return the answer to a gate as a value of its type.

    A validator of the type may refuse what the form allows; then the gate asks again, and says why. An
    answer that the form does not allow was given to an earlier version of the type, and holds the run.
    """
    while True:
        answer = await ask(context, gate)
        try:
            return answer_type.decode(answer)
        except InvalidValue as error:
            if not answer_type.accepts(answer):
                raise InvalidRecord(gate.path, str(error)) from None
            note = f"'{encode_json(answer, max_depth=None)}' was not accepted: {error}"
            gate = replace(gate, path=context.next_path("gate"), note=note)
