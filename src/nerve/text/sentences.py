"""Sentences of messages."""


def with_full_stop(sentence: str) -> str:
    """Return the sentence with a full stop, unless it already ends in punctuation."""
    return sentence if sentence.endswith(("?", ".", "!")) else f"{sentence}."


def join_problem_and_fix(problem: str, fix: str) -> str:
    """Return a problem as a sentence, followed by the fix if there is one."""
    return f"{with_full_stop(problem)} {fix}".rstrip()
