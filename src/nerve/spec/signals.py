"""Signals: words with which an agent says in its answer that it is done."""

from __future__ import annotations

import re

from nerve.core.result import Result


def has_signal(text: str, signal: str) -> bool:
    """Return whether a text has a word in a tag, on its own line, or at its end."""
    word = re.escape(signal)
    return any(
        re.search(pattern, text, flags)
        for pattern, flags in (
            (tagged_pattern(word), re.IGNORECASE),
            (rf"{word}[\s.,;:!?]*\Z", 0),
            (rf"^\s*{word}\s*$", re.MULTILINE),
        )
    )


def tagged_pattern(word: str) -> str:
    return rf"<([a-zA-Z][\w-]*)[^>]*>\s*{word}\s*</\1>"


def remove_signal(text: str, signal: str) -> str:
    """Return a text without the tags that contain the word, and without any `<promise>`."""
    text = re.sub(r"<promise>.*?</promise>", "", text, flags=re.DOTALL | re.IGNORECASE)
    return re.sub(tagged_pattern(re.escape(signal)), "", text, flags=re.IGNORECASE).strip()


def result_with_signal(result: Result, signal: str) -> Result:
    """Return the result of a prompt with the attribute `signal`, and without the tags in its output."""
    if not result.success:
        return result
    text = result.output
    if not isinstance(text, str):
        return Result({**result, "attributes": {**result.attributes, "signal": False}})
    attributes = {**result.attributes, "signal": has_signal(text, signal)}
    return Result({**result, "output": remove_signal(text, signal) or text, "attributes": attributes})
