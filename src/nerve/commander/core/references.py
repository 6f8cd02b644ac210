"""References to earlier blocks: `::3`, `::-1`, `::last`, `::name`, `::3[field]`; resolved when entered."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Protocol

from nerve.commander.core.input import REFERENCE, InputType, ParsedInput
from nerve.core.suggest import suggest

ANSWERS = ("run", "text")
"""The kinds of blocks that are counted from the end and found by a name."""
FOUND = re.compile(rf"(?P<before>^|[\s(\[{{\"'=,])(?P<escape>\\?)(?P<whole>{REFERENCE.pattern})")
"""A reference begins a word; `std::vector` has none."""


class Block(Protocol):
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
    def ended(self) -> int: ...


class Unresolved(ValueError):
    """A reference that means nothing here; the message is a sentence with the fix."""


def resolve(text: str, blocks: Sequence[Block]) -> str:
    """The text with what its references stand for; `\\::` is no reference."""

    def put(found: re.Match[str]) -> str:
        if found["escape"]:
            return found["before"] + found["whole"]
        return found["before"] + shown(value_of(found["whole"], blocks))

    return FOUND.sub(put, text)


def resolve_value(text: str, blocks: Sequence[Block]) -> Any:
    """What a text that is one reference stands for, whatever it is; any other text resolved."""
    return value_of(text, blocks) if REFERENCE.fullmatch(text) else resolve(text, blocks)


def resolve_input(parsed: ParsedInput, blocks: Sequence[Block]) -> tuple[ParsedInput, Any]:
    """An input with its references resolved, and the value of its text.

    What a reference gives is never read as a prefix or as an option.
    """
    if parsed.type is InputType.REFERENCE:
        value = value_of(f"::{parsed.target}", blocks)
        return replace(parsed, text=shown(value)), value
    options = {
        name: resolve_value(value, blocks) if isinstance(value, str) else value
        for name, value in parsed.options.items()
    }
    value = resolve_value(parsed.text, blocks)
    return replace(parsed, text=shown(value), options=options), value


def value_of(reference: str, blocks: Sequence[Block]) -> Any:
    """What one reference stands for; Unresolved if nothing."""
    found = REFERENCE.fullmatch(reference)
    if found is None:
        raise Unresolved(f"'{reference}' is no reference: write ::3, ::-1, ::last, ::name or ::3[field].")
    block = block_of(found["name"], reference, blocks)
    value: Any = block.value
    if value is None and block.kind == "run":
        raise Unresolved(
            f"::{block.number} gave no result: {block.name or 'it'} failed, or returned nothing."
        )
    value = block.text if value is None else value
    at = f"::{found['name']}"
    for key in re.findall(r"\[([^\[\]]+)\]", found["fields"]):
        value = part_of(value, key.strip("'\"") or key, at)
        at += f"[{key}]"
    return value


def block_of(name: str, reference: str, blocks: Sequence[Block]) -> Block:
    if name == "last":
        return counted(1, reference, blocks)
    if re.fullmatch(r"-?\d{1,9}", name):
        number = int(name)
        return counted(-number, reference, blocks) if name.startswith("-") else numbered(number, blocks)
    return named(name, reference, blocks)


def numbered(number: int, blocks: Sequence[Block]) -> Block:
    block = next((each for each in blocks if each.number == number > 0), None)
    if block is None:
        last = max((each.number for each in blocks), default=0)
        there = f"There are 1 to {last}." if last else "There is none yet."
        raise Unresolved(f"There is no result ::{number}. {there}")
    return finished(block)


def counted(back: int, reference: str, blocks: Sequence[Block]) -> Block:
    """The block that many answers before the one that ended last; what still runs is not counted."""
    answers = in_turn(blocks)
    if not 1 <= back <= len(answers):
        there = f"There are {len(answers)} results so far." if answers else "There is no result yet."
        raise Unresolved(f"{reference} is no result. {there}")
    return answers[-back]


def named(name: str, reference: str, blocks: Sequence[Block]) -> Block:
    """The block of a name that ended last."""
    called = [each for each in blocks if is_answer(each) and each.name == name]
    if not called:
        names = sorted({each.name for each in blocks if is_answer(each) and each.name})
        close = suggest(name, names).removeprefix(". ") or f"To write these characters, use \\{reference}."
        raise Unresolved(f"There is no result named '{name}'. {close}")
    return in_turn(called)[-1] if in_turn(called) else finished(called[-1])


def in_turn(blocks: Sequence[Block]) -> list[Block]:
    """The results, as they came."""
    return sorted((each for each in blocks if is_answer(each) and each.done), key=lambda each: each.ended)


def is_answer(block: Block) -> bool:
    """Whether it is a result; what a command listed is not."""
    return block.kind in ANSWERS and not block.name.startswith("/")


def finished(block: Block) -> Block:
    if not block.done:
        raise Unresolved(f"::{block.number} has no result yet: {block.name or 'it'} is not done.")
    return block


def part_of(value: Any, key: str, at: str) -> Any:
    match value:
        case dict() if key in value:
            return value[key]
        case dict():
            known = ", ".join(map(str, value)) or "none"
            raise Unresolved(f"{at} has no field '{key}'. It has: {known}.")
        case list() if re.fullmatch(r"-?\d{1,9}", key) and -len(value) <= int(key) < len(value):
            return value[int(key)]
        case list():
            raise Unresolved(f"{at} is a list of {len(value)}: there is no [{key}].")
    if isinstance(value, str) and (read := structure(value)) is not None:
        return part_of(read, key, at)
    raise Unresolved(f"{at} has no fields: it is {'a text' if isinstance(value, str) else 'a single value'}.")


def structure(text: str) -> Any:
    """The object or list that a text is the JSON of."""
    try:
        read = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return read if isinstance(read, dict | list) else None


def shown(value: Any) -> str:
    """A value as it stands in a text."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
