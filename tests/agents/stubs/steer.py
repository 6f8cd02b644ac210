"""How a prompt steers a stub API: orders in double brackets, executed in sequence.

    [[say TEXT]]     answer with the text, in parts
    [[long NUMBER]]  answer with that many characters
    [[think TEXT]]   emit the text as reasoning, then answer `thought`
    [[run COMMAND]]  call the shell tool; the next order is for the request with its result
    [[call NAME {…}]] call any tool with the given input
    [[json {…}]]     answer with this value if a schema was given
    [[hold]]         send `wait `, then block until the client disconnects
    [[error STATUS]] an API error
    [[overloaded STATUS]] an API error that says that the service is overloaded
    [[exhausted]]    an API error that says that the account has no money left
    [[refuse TEXT]]  a refusal, where the API has a form for it
    [[limit TEXT]]   a rate limit (429); TEXT is the seconds until it resets, or empty if unknown

A prompt without orders is answered with `heard: ` and all messages of the user in the conversation; tool
results after the last order are answered with `tool said: ` and the result.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

ORDER = re.compile(
    r"\[\[(say|long|think|run|call|json|hold|error|limit|overloaded|exhausted|refuse)\b ?(.*?)\]\]", re.DOTALL
)


@dataclass(frozen=True, slots=True)
class Order:
    kind: str
    text: str = ""


def order_of(said: Sequence[str], results: Sequence[str]) -> Order:
    """Return the next order, from all messages of the user and the tool results since the last one."""
    orders = [Order(kind, text) for kind, text in ORDER.findall(said[-1] if said else "")]
    if len(results) < len(orders):
        order = orders[len(results)]
        return Order("say", long_text(int(order.text))) if order.kind == "long" else order
    if results:
        return Order("say", f"tool said: {results[-1][:500]}")
    return Order("say", "heard: " + " | ".join(text[:500] for text in said))


def long_text(length: int) -> str:
    """Return a text of a length, in few pieces."""
    return (f"{'x' * 9_999} " * (length // 10_000 + 1))[: length - 1] + "."


OVERLOADED = "The server is overloaded. Please try again later."


def pieces(text: str) -> list[str]:
    """Split the text as a stream does."""
    return re.findall(r"\S+\s*|\s+", text)
