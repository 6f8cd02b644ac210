"""The texts of messages in chats: questions, results, and long texts in parts."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from nerve.core.gates import describe_expected
from nerve.core.json_codec import decode_json, encode_json

if TYPE_CHECKING:
    from nerve.core.workflow.state import GateInfo

MAX_PARTS = 4
"""Messages that one text becomes; the rest is left out."""
SHORTENED = "… The text is shortened. The page has all of it."
MENTION = re.compile(
    r"(?P<code>^(?P<fence>```|~~~).*?^(?P=fence)|`[^`\n]+`)|@(?=\w)", re.MULTILINE | re.DOTALL
)
WORD_JOINER = "\u2060"


def describe_gate(gate: GateInfo) -> str:
    """Return everything that a gate asks."""
    return "\n\n".join(_describe_parts(gate))


def _describe_parts(gate: GateInfo) -> Iterator[str]:
    if gate.prompt.strip():
        yield gate.prompt.strip()
    if gate.note:
        yield gate.note
    if gate.input_preview:
        yield str(gate.input_preview)
    if gate.action:
        yield encode_json(gate.action)
    if gate.form is not None:
        yield f"Form: {describe_expected(gate.form)}.\n{encode_json(gate.form)}"
    if answers := gate.choices or gate.options:
        yield f"Answers: {', '.join(answers)}"
    if gate.policy is not None and gate.tally is not None:
        from nerve.core.gate_policy import describe_missing  # few gates have a policy

        yield f"Needs {describe_missing(gate.policy, gate.tally)}."


def describe_result(result_json: str) -> str:
    """Return the result of a run as text; "" for none."""
    result: Any = decode_json(result_json)
    if result is None:
        return ""
    return result.strip() if isinstance(result, str) else encode_json(result)


def split_text(text: str, limit: int) -> list[str]:
    """Return a text as parts of at most `limit` characters, split at paragraphs, lines or spaces.

    The last of `MAX_PARTS` parts says that the rest is left out.
    """
    parts: list[str] = []
    rest = text.strip()
    while rest:
        if len(parts) == MAX_PARTS - 1 and len(rest) > limit:
            parts.append(rest[: limit - len(SHORTENED) - 1].rstrip() + "\n" + SHORTENED)
            break
        end = find_split(rest, limit)
        parts.append(rest[:end].rstrip())
        rest = rest[end:].lstrip()
    return parts


def find_split(text: str, limit: int) -> int:
    """Return where to split a text: at the last break in the second half of what fits."""
    if len(text) <= limit:
        return len(text)
    for mark in ("\n\n", "\n", " "):
        if (at := text.rfind(mark, limit // 2, limit)) > 0:
            return at
    return limit


def disarm_mentions(text: str) -> str:
    """Return a Markdown text without mentions: an invisible character follows each `@` outside code."""
    return MENTION.sub(lambda match: match["code"] or f"@{WORD_JOINER}", text)
