"""Export and import of a conversation: Markdown for reading, JSON for importing."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from nerve.commander.core.blocks import Block
from nerve.commander.core.name_resolution import CommanderInputError
from nerve.commander.core.state import CommanderState
from nerve.ui.sanitize import fence_text, sanitize_text

TRANSCRIPT_FORMAT = "nerve-conversation"
MAX_IMPORT_BYTES = 20 * 2**20


def export_transcript(file: str, state: CommanderState) -> int:
    """Export a conversation in the format of the file suffix; return the number of blocks."""
    path = Path(file).expanduser()
    if path.suffix.lower() not in (".md", ".markdown", ".json"):
        raise CommanderInputError(f"Export file must end in .md or .json, got '{path.suffix or path.name}'.")
    title = f"# {state.project or 'A conversation'}\n"
    if path.exists():
        earlier = read_import_file(str(path))
        if not earlier.startswith(title) and parse_transcript(earlier) is None:
            raise CommanderInputError(
                f"{file} already exists and is not an exported conversation. Choose another file."
            )
    if path.suffix.lower() == ".json":
        text = transcript_as_json(state)
    else:
        text = "\n".join([title, *(f"{block_as_markdown(block)}\n" for block in state.blocks)])
    # Like the store, a new file is readable only by its owner.
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as out:
        out.write(text)
    return len(state.blocks)


def transcript_as_json(state: CommanderState) -> str:
    transcript = {
        "format": TRANSCRIPT_FORMAT,
        "version": 1,
        "project": state.project,
        "blocks": [*map(block_as_dict, state.blocks)],
    }
    return json.dumps(transcript, ensure_ascii=False, indent=2, default=str) + "\n"


def block_as_dict(block: Block) -> dict[str, Any]:
    data = {
        "number": block.number,
        "kind": block.kind,
        "name": block.name,
        "text": block.text,
        "value": block.value,
        "run_id": block.run_id,
        "at": block.created_at.isoformat(),
        "done": block.done,
    }
    parts = [{"path": p.path, "name": p.name, "kind": p.kind, "text": p.text} for p in block.parts]
    return data | ({"parts": parts} if parts else {})


def block_as_markdown(block: Block) -> str:
    match block.kind:
        case "input" if "\n" in block.text:
            return f"## Input\n\n{fence_text(block.text)}"
        case "input":
            return f"## `{sanitize_text(block.text)}`"
        case "run":
            head = f"**{block.name}** (run `{block.run_id}`)" + ("" if block.done else ", not ended")
            part_texts = [part_as_markdown(part) for part in block.parts if part.text.strip()]
            result = [block.text] if block.text and block.text not in part_texts else []
            return "\n\n".join([head, *part_texts, *result])
        case "gate":
            answer = f"\n\n> {block.value}" if block.value is not None else ""
            return f"**⏸ {block.name}**: {block.text}{answer}"
        case "error":
            return f"**Error**: {block.text}"
    return block.text


def part_as_markdown(part: Any) -> str:
    match part.kind:
        case "text":
            return str(part.text)
        case "diff":
            return fence_text(part.text, "diff")
    return f"*{part.name}*\n\n{fence_text(part.text)}"


def read_import_file(file: str) -> str:
    path = Path(file).expanduser()
    if path.exists() and not path.is_file():
        raise CommanderInputError(f"{file} is not a regular file.")
    if path.exists() and path.stat().st_size > MAX_IMPORT_BYTES:
        raise CommanderInputError(f"{file} is larger than {MAX_IMPORT_BYTES // 2**20} MB.")
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise CommanderInputError(f"{file} is not UTF-8 text.") from None


def parse_transcript(source: str) -> list[dict[str, Any]] | None:
    """Return the blocks of an exported JSON conversation; None for other text."""
    try:
        transcript = json.loads(source)
    except (ValueError, RecursionError):
        return None
    if not isinstance(transcript, dict) or transcript.get("format") != TRANSCRIPT_FORMAT:
        return None
    blocks = transcript.get("blocks")
    if not isinstance(blocks, list) or not all(isinstance(block, dict) for block in blocks):
        raise CommanderInputError(
            "The file is not a valid exported conversation: 'blocks' must be a list of objects."
        )
    return blocks
