"""References to earlier blocks: `::3`, `::-1`, `::last`, `::name`, `::3[field]`; resolved when entered."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Protocol

from nerve.commander.core.input_parser import REFERENCE_PATTERN, InputType, ParsedInput
from nerve.core.suggest import did_you_mean_hint

RESULT_KINDS = ("run", "text")
"""The kinds of blocks that are counted from the end and found by a name."""
REFERENCE_IN_TEXT = re.compile(
    rf"(?P<before>^|[\s(\[{{\"'=,])(?P<escape>\\?)(?P<whole>{REFERENCE_PATTERN.pattern})"
)
"""A reference begins a word; `std::vector` has none."""


class ReferencedBlock(Protocol):
    """What a reference needs to know of a block."""

    @property
    def number(self) -> int: ...
    @property
    def kind(self) -> str: ...
    @property
    def name(self) -> str: ...
    @property
    def text(self) -> str: ...
    @property
    def value(self) -> Any: ...
    @property
    def done(self) -> bool: ...
    @property
    def end_order(self) -> int: ...


class UnresolvedReference(ValueError):
    """A reference that means nothing here; the message is a sentence with the fix."""


def resolve_references(text: str, blocks: Sequence[ReferencedBlock]) -> str:
    """The text with what its references stand for; `\\::` is no reference."""

    def put(match: re.Match[str]) -> str:
        if match["escape"]:
            return match["before"] + match["whole"]
        return match["before"] + format_reference_value(reference_value(match["whole"], blocks))

    return REFERENCE_IN_TEXT.sub(put, text)


def resolve_text_value(text: str, blocks: Sequence[ReferencedBlock]) -> Any:
    """What a text that is one reference stands for, whatever it is; any other text resolved."""
    return (
        reference_value(text, blocks)
        if REFERENCE_PATTERN.fullmatch(text)
        else resolve_references(text, blocks)
    )


def resolve_input(parsed: ParsedInput, blocks: Sequence[ReferencedBlock]) -> tuple[ParsedInput, Any]:
    """An input with its references resolved, and the value of its text.

    What a reference gives is never read as a prefix or as an option.
    """
    if parsed.type is InputType.REFERENCE:
        value = reference_value(f"::{parsed.target}", blocks)
        return replace(parsed, text=format_reference_value(value)), value
    options = {
        name: resolve_text_value(value, blocks) if isinstance(value, str) else value
        for name, value in parsed.options.items()
    }
    value = resolve_text_value(parsed.text, blocks)
    return replace(parsed, text=format_reference_value(value), options=options), value


def reference_value(reference: str, blocks: Sequence[ReferencedBlock]) -> Any:
    """What one reference stands for; Unresolved if nothing."""
    match = REFERENCE_PATTERN.fullmatch(reference)
    if match is None:
        raise UnresolvedReference(
            f"'{reference}' is no reference: write ::3, ::-1, ::last, ::name or ::3[field]."
        )
    block = find_referenced_block(match["name"], reference, blocks)
    value: Any = block.value
    if value is None and block.kind == "run":
        raise UnresolvedReference(
            f"::{block.number} gave no result: {block.name or 'it'} failed, or returned nothing."
        )
    value = block.text if value is None else value
    location = f"::{match['name']}"
    for key in re.findall(r"\[([^\[\]]+)\]", match["fields"]):
        value = value_at_key(value, key.strip("'\"") or key, location)
        location += f"[{key}]"
    return value


def find_referenced_block(name: str, reference: str, blocks: Sequence[ReferencedBlock]) -> ReferencedBlock:
    if name == "last":
        return block_by_offset(1, reference, blocks)
    if re.fullmatch(r"-?\d{1,9}", name):
        number = int(name)
        return (
            block_by_offset(-number, reference, blocks)
            if name.startswith("-")
            else block_by_number(number, blocks)
        )
    return block_by_name(name, reference, blocks)


def block_by_number(number: int, blocks: Sequence[ReferencedBlock]) -> ReferencedBlock:
    block = next((candidate for candidate in blocks if candidate.number == number > 0), None)
    if block is None:
        last = max((candidate.number for candidate in blocks), default=0)
        hint = f"There are 1 to {last}." if last else "There is none yet."
        raise UnresolvedReference(f"There is no result ::{number}. {hint}")
    return require_finished_block(block)


def block_by_offset(offset: int, reference: str, blocks: Sequence[ReferencedBlock]) -> ReferencedBlock:
    """The block that many answers before the one that ended last; what still runs is not counted."""
    answers = results_in_order(blocks)
    if not 1 <= offset <= len(answers):
        hint = f"There are {len(answers)} results so far." if answers else "There is no result yet."
        raise UnresolvedReference(f"{reference} is no result. {hint}")
    return answers[-offset]


def block_by_name(name: str, reference: str, blocks: Sequence[ReferencedBlock]) -> ReferencedBlock:
    """The block of a name that ended last."""
    namesakes = [block for block in blocks if is_result_block(block) and block.name == name]
    if not namesakes:
        names = sorted({block.name for block in blocks if is_result_block(block) and block.name})
        hint = (
            did_you_mean_hint(name, names).removeprefix(". ")
            or f"To write these characters, use \\{reference}."
        )
        raise UnresolvedReference(f"There is no result named '{name}'. {hint}")
    return (
        results_in_order(namesakes)[-1]
        if results_in_order(namesakes)
        else require_finished_block(namesakes[-1])
    )


def results_in_order(blocks: Sequence[ReferencedBlock]) -> list[ReferencedBlock]:
    """The results, as they came."""
    return sorted(
        (block for block in blocks if is_result_block(block) and block.done),
        key=lambda block: block.end_order,
    )


def is_result_block(block: ReferencedBlock) -> bool:
    """Whether it is a result; what a command listed is not."""
    return block.kind in RESULT_KINDS and not block.name.startswith("/")


def require_finished_block(block: ReferencedBlock) -> ReferencedBlock:
    if not block.done:
        raise UnresolvedReference(f"::{block.number} has no result yet: {block.name or 'it'} is not done.")
    return block


def value_at_key(value: Any, key: str, location: str) -> Any:
    match value:
        case dict() if key in value:
            return value[key]
        case dict():
            known = ", ".join(map(str, value)) or "none"
            raise UnresolvedReference(f"{location} has no field '{key}'. It has: {known}.")
        case list() if re.fullmatch(r"-?\d{1,9}", key) and -len(value) <= int(key) < len(value):
            return value[int(key)]
        case list():
            raise UnresolvedReference(f"{location} is a list of {len(value)}: there is no [{key}].")
    if isinstance(value, str) and (parsed := parse_json_structure(value)) is not None:
        return value_at_key(parsed, key, location)
    raise UnresolvedReference(
        f"{location} has no fields: it is {'a text' if isinstance(value, str) else 'a single value'}."
    )


def parse_json_structure(text: str) -> Any:
    """The object or list that a text is the JSON of."""
    try:
        parsed = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return parsed if isinstance(parsed, dict | list) else None


def format_reference_value(value: Any) -> str:
    """A value as it stands in a text."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
