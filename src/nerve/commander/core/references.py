"""References to earlier blocks: `::3`, `::-1`, `::last`, `::name`, `::3[field]`; resolved on submit."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from nerve.commander.core.input_parser import REFERENCE_PATTERN, InputType, ParsedInput
from nerve.core.suggest import did_you_mean_hint
from nerve.ui.formatting import format_value
from nerve.ui.typed_options import parse_json_or_text

if TYPE_CHECKING:
    from nerve.commander.core.blocks import Block

REFERENCE_IN_TEXT = re.compile(
    rf"(?P<before>^|[\s(\[{{\"'=,])(?P<escape>\\?)(?P<whole>{REFERENCE_PATTERN.pattern})"
)
"""A reference starts a word, so `std::vector` does not contain one."""


class UnresolvedReference(ValueError):
    """A reference that cannot be resolved; the message says how to fix it."""


def resolve_references(text: str, blocks: Sequence[Block]) -> str:
    """Replace the references in a text by their values; `\\::` is an escape, not a reference."""

    def replace_match(match: re.Match[str]) -> str:
        if match["escape"]:
            return match["before"] + match["whole"]
        return match["before"] + format_value(reference_value(match["whole"], blocks))

    return REFERENCE_IN_TEXT.sub(replace_match, text)


def resolve_text_value(text: str, blocks: Sequence[Block]) -> Any:
    """Return the value of a text that is one reference; otherwise the text with references replaced."""
    return (
        reference_value(text, blocks)
        if REFERENCE_PATTERN.fullmatch(text)
        else resolve_references(text, blocks)
    )


def resolve_input(parsed: ParsedInput, blocks: Sequence[Block]) -> tuple[ParsedInput, Any]:
    """Return the input with its references resolved, and the value of its text.

    Referenced values are never parsed as a prefix or an option.
    """
    if parsed.type is InputType.REFERENCE:
        value = reference_value(f"::{parsed.target}", blocks)
        return replace(parsed, text=format_value(value)), value
    options = {
        name: resolve_text_value(value, blocks) if isinstance(value, str) else value
        for name, value in parsed.options.items()
    }
    value = resolve_text_value(parsed.text, blocks)
    return replace(parsed, text=format_value(value), options=options), value


def reference_value(reference: str, blocks: Sequence[Block]) -> Any:
    """Return the value of one reference, or raise UnresolvedReference."""
    match = REFERENCE_PATTERN.fullmatch(reference)
    if match is None:
        raise UnresolvedReference(
            f"'{reference}' is not a valid reference: write ::3, ::-1, ::last, ::name or ::3[field]."
        )
    block = find_referenced_block(match["name"], reference, blocks)
    value: Any = block.value
    if value is None and block.kind == "run":
        raise UnresolvedReference(
            f"::{block.number} has no result: {block.name or 'the run'} failed or returned nothing."
        )
    value = block.text if value is None else value
    location = f"::{match['name']}"
    for key in re.findall(r"\[([^\[\]]+)\]", match["fields"]):
        value = value_at_key(value, key.strip("'\"") or key, location)
        location += f"[{key}]"
    return value


def find_referenced_block(name: str, reference: str, blocks: Sequence[Block]) -> Block:
    if name == "last":
        return block_by_offset(1, reference, blocks)
    if re.fullmatch(r"-?\d{1,9}", name):
        number = int(name)
        if name.startswith("-"):
            return block_by_offset(-number, reference, blocks)
        block = next((candidate for candidate in blocks if candidate.number == number > 0), None)
        if block is None:
            last = max((candidate.number for candidate in blocks), default=0)
            hint = f"Results are numbered 1 to {last}." if last else "No results yet."
            raise UnresolvedReference(f"Result ::{number} not found. {hint}")
        return require_finished_block(block)
    return block_by_name(name, reference, blocks)


def block_by_offset(offset: int, reference: str, blocks: Sequence[Block]) -> Block:
    """Return a result counted from the last finished one; unfinished blocks do not count."""
    results = results_in_order(blocks)
    if not 1 <= offset <= len(results):
        hint = f"There are {len(results)} results so far." if results else "No results yet."
        raise UnresolvedReference(f"Result {reference} not found. {hint}")
    return results[-offset]


def block_by_name(name: str, reference: str, blocks: Sequence[Block]) -> Block:
    """Return the block with this name that finished last."""
    namesakes = [block for block in blocks if block.is_result and block.name == name]
    if not namesakes:
        names = sorted({block.name for block in blocks if block.is_result and block.name})
        hint = (
            did_you_mean_hint(name, names).removeprefix(". ")
            or f"To send the text as it is, write \\{reference}."
        )
        raise UnresolvedReference(f"Result '{name}' not found. {hint}")
    return (
        results_in_order(namesakes)[-1]
        if results_in_order(namesakes)
        else require_finished_block(namesakes[-1])
    )


def results_in_order(blocks: Sequence[Block]) -> list[Block]:
    """Return the finished results in the order in which they finished."""
    return sorted(
        (block for block in blocks if block.is_result and block.done),
        key=lambda block: block.end_order,
    )


def require_finished_block(block: Block) -> Block:
    if not block.done:
        raise UnresolvedReference(
            f"::{block.number} has no result yet: {block.name or 'the run'} is not finished."
        )
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
            raise UnresolvedReference(f"{location} is a list of {len(value)} items: [{key}] is out of range.")
    if isinstance(parsed := parse_json_or_text(value), dict | list):
        return value_at_key(parsed, key, location)
    raise UnresolvedReference(
        f"{location} has no fields: it is {'a string' if isinstance(value, str) else 'a single value'}."
    )
