"""A conversation on paper: Markdown to read, JSON to read back."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from nerve.commander.core.blocks import Block
from nerve.commander.core.desk import Desk
from nerve.commander.core.harmless import harmless
from nerve.commander.core.naming import Unknown
from nerve.written import BY_SUFFIX, NotationName

FORMAT = "nerve-conversation"
LARGEST = 20 * 2**20


def write(file: str, desk: Desk) -> int:
    """Write a conversation as the ending of the file says; how many blocks it has."""
    path = Path(file).expanduser()
    if path.suffix.lower() not in (".md", ".markdown", ".json"):
        raise Unknown(f"A conversation is written as .md or .json, not as '{path.suffix or path.name}'.")
    if path.exists() and not is_conversation(path, desk):
        raise Unknown(f"{file} is there already, and is no conversation. Name another file.")
    text = as_json(desk) if path.suffix.lower() == ".json" else as_markdown(desk)
    # As the store is, a file that was not there before is for its owner alone.
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as out:
        out.write(text)
    return len(desk.blocks)


def is_conversation(path: Path, desk: Desk) -> bool:
    """Whether a file was exported before, and may be written anew."""
    text = read(str(path))
    return text.startswith(title(desk)) or conversation_in(text) is not None


def as_json(desk: Desk) -> str:
    told = {
        "format": FORMAT,
        "version": 1,
        "project": desk.project,
        "blocks": [*map(block_told, desk.blocks)],
    }
    return json.dumps(told, ensure_ascii=False, indent=2, default=str) + "\n"


def block_told(block: Block) -> dict[str, Any]:
    told = {
        "number": block.number,
        "kind": block.kind,
        "name": block.name,
        "text": block.text,
        "value": block.value,
        "run_id": block.run_id,
        "at": block.at.isoformat(),
        "done": block.done,
    }
    parts = [{"path": p.path, "name": p.name, "kind": p.kind, "text": p.text} for p in block.parts]
    return told | ({"parts": parts} if parts else {})


def as_markdown(desk: Desk) -> str:
    return "\n".join([title(desk), *(f"{markdown(block)}\n" for block in desk.blocks)])


def title(desk: Desk) -> str:
    return f"# {desk.project or 'A conversation'}\n"


def markdown(block: Block) -> str:
    match block.kind:
        case "input":
            return f"## `{harmless(block.text)}`" if "\n" not in block.text else inputs(block)
        case "run":
            head = f"**{block.name}** (run `{block.run_id}`)" + ("" if block.done else ", not ended")
            said = [part_markdown(part) for part in block.parts if part.text.strip()]
            result = [block.text] if block.text and block.text not in said else []
            return "\n\n".join([head, *said, *result])
        case "gate":
            answer = f"\n\n> {block.value}" if block.value is not None else ""
            return f"**⏸ {block.name}**: {block.text}{answer}"
        case "error":
            return f"**Error**: {block.text}"
    return block.text


def inputs(block: Block) -> str:
    return f"## Input\n\n{fenced(block.text)}"


def part_markdown(part: Any) -> str:
    match part.kind:
        case "text":
            return str(part.text)
        case "diff":
            return fenced(part.text, "diff")
    return f"*{part.name}*\n\n{fenced(part.text)}"


def fenced(text: str, kind: str = "text") -> str:
    fence = "```"
    while fence in text:
        fence += "`"
    return f"{fence}{kind}\n{text.rstrip()}\n{fence}"


def read(file: str) -> str:
    path = Path(file).expanduser()
    if path.exists() and not path.is_file():
        raise Unknown(f"{file} is no file that can be read.")
    if path.exists() and path.stat().st_size > LARGEST:
        raise Unknown(f"{file} is larger than {LARGEST // 2**20} MB.")
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise Unknown(f"{file} is no text.") from None


def notation_of(file: str) -> NotationName | None:
    return BY_SUFFIX.get(Path(file).suffix.lower())


def conversation_in(source: str) -> list[dict[str, Any]] | None:
    """The blocks of a conversation that was written as JSON; None for any other text."""
    try:
        told = json.loads(source)
    except (ValueError, RecursionError):
        return None
    if not isinstance(told, dict) or told.get("format") != FORMAT:
        return None
    blocks = told.get("blocks")
    if not isinstance(blocks, list) or not all(isinstance(each, dict) for each in blocks):
        raise Unknown("The file is no conversation that was exported here: its blocks are not a list.")
    return blocks
