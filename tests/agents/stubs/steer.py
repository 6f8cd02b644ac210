"""How a prompt steers a stub API: orders in double brackets, executed in sequence.

    [[say TEXT]]     answer with the text, in parts
    [[think TEXT]]   emit the text as reasoning, then answer `thought`
    [[run COMMAND]]  call the shell tool; the next order is for the request with its result
    [[call NAME {…}]] call any tool with the given input
    [[json {…}]]     answer with this value if a schema was given
    [[hold]]         send `wait `, then block until the client disconnects
    [[error STATUS]] an API error
    [[limit TEXT]]   a rate limit (429); TEXT is the seconds until it resets, or empty if unknown

A prompt without orders is answered with `heard: ` and all messages of the user in the conversation; tool
results after the last order are answered with `tool said: ` and the result.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

ORDER = re.compile(r"\[\[(say|think|run|call|json|hold|error|limit)\b ?(.*?)\]\]", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Order:
    kind: str
    text: str = ""


def order_of(said: Sequence[str], results: Sequence[str]) -> Order:
    """Return the next order, from all messages of the user and the tool results since the last one."""
    orders = [Order(kind, text) for kind, text in ORDER.findall(said[-1] if said else "")]
    if len(results) < len(orders):
        return orders[len(results)]
    if results:
        return Order("say", f"tool said: {results[-1][:500]}")
    return Order("say", "heard: " + " | ".join(text[:500] for text in said))


def pieces(text: str) -> list[str]:
    """Split the text as a stream does."""
    return re.findall(r"\S+\s*|\s+", text)
