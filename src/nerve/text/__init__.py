"""Texts: readers that keep positions (JSON, YAML, S-expressions), and parts of messages."""

from collections.abc import Sequence


def clip_text(text: str, max_chars: int) -> str:
    """Return a text of at most that many characters; a longer one ends in `…`."""
    return text if len(text) <= max_chars else f"{text[: max_chars - 1]}…"


def clip_names(names: Sequence[str], max_names: int) -> str:
    """Return the first names separated by commas; `…` stands for the others."""
    return ", ".join(names[:max_names]) + (", …" if len(names) > max_names else "")


def take_first_line(text: str) -> str:
    return text.strip().partition("\n")[0]


def with_full_stop(sentence: str) -> str:
    """Return the sentence with a full stop, unless it already ends in punctuation."""
    return sentence if sentence.endswith(("?", ".", "!")) else f"{sentence}."


def join_problem_and_fix(problem: str, fix: str) -> str:
    """Return a problem as a sentence, followed by the fix if there is one."""
    return f"{with_full_stop(problem)} {fix}".rstrip()
