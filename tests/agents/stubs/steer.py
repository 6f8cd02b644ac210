"""How a prompt steers a stub API: orders in double brackets, carried out one after the other.

    [[say TEXT]]     answer with the text, in pieces
    [[think TEXT]]   think the text, then answer `thought`
    [[run COMMAND]]  call the shell tool; the next order is for the request that brings its result
    [[call NAME {…}]] call any tool with the given input
    [[json {…}]]     answer with this value where a schema was given
    [[hold]]         say `wait `, then say nothing more until the client goes away
    [[error STATUS]] an error of the API
    [[limit TEXT]]   a rate limit (429); TEXT is the seconds until it resets, or empty where it does not say

A prompt without orders is answered with `heard: ` and all that the user said in the conversation; results of
tools, when the orders are used up, with `tool said: ` and the result.
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
    """What to do, given all texts of the user and the results of tools since the last of them."""
    orders = [Order(kind, text) for kind, text in ORDER.findall(said[-1] if said else "")]
    if len(results) < len(orders):
        return orders[len(results)]
    if results:
        return Order("say", f"tool said: {results[-1][:500]}")
    return Order("say", "heard: " + " | ".join(text[:500] for text in said))


def pieces(text: str) -> list[str]:
    """The text as a stream gives it."""
    return re.findall(r"\S+\s*|\s+", text)
