"""What is wrong with a text that is no YAML: where, in plain words, and the fix."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import yaml

SYNTAX_ERRORS = [
    ("tab character", "a tab in the indentation", "Indent with spaces, not tabs."),
    ("cannot start any token", "a tab in the indentation", "Indent with spaces, not tabs."),
    (
        "expected alphabetic",
        "a text cannot start with * or &",
        "Put quotes around it; aliases and anchors are not allowed.",
    ),
    (
        "comment or line break",
        "something stands behind the | or > of a long text",
        "Begin the text in the line below, indented.",
    ),
    ("expected node content", "a value is missing here", "Write one, or close the bracket."),
    (
        "mapping values are not allowed",
        "a ': ' where no key can stand",
        "Put quotes around a text with ': ' in it, or mend the indentation.",
    ),
    ("unexpected end of stream", "a quote that is never closed", "Close the quote."),
    (
        "did not find expected ',' or",
        "a bracket that is never closed",
        "Close the bracket, or put quotes around the text.",
    ),
    ("'-' indicator", "this stands between two indentations", "Indent it like the line that it belongs to."),
    (
        "expected key",
        "no key begins here",
        "Look at the indentation, and put quotes around a text that has quotes in it.",
    ),
    (
        "expected ':'",
        "a key without ':'",
        "Write 'key: value', with a blank behind the colon, and indent the lines of a long text.",
    ),
    ("unknown escape", "no escape begins so", "Use single quotes around a text with backslashes."),
]
"""What the parser says, what is said of it here, and the fix."""
HIDDEN_LINE_BREAK = re.compile("[\x85\u2028\u2029]")
"""What hardly any editor shows as the end of a line."""
UNCLOSED_MESSAGES = ("unexpected end of stream", "did not find expected ',' or")
MISSING_BLANK = re.compile(r"[ -]*[A-Za-z_][\w-]*(?=:[^\s/:][^:\n]*$)", re.MULTILINE)
"""A key that its value follows too closely, up to the colon."""
DEFAULT_FIX = "Mend this line or the one above it."


def explain_yaml_syntax_error(text: str, error: yaml.MarkedYAMLError) -> tuple[int, str, str]:
    """Where the mistake is, what it is, and the fix."""
    parser_message = ", ".join(part for part in (error.context, error.problem) if part)
    at = syntax_error_offset(error, parser_message)
    if text.startswith("```"):
        return at, "this is a block of Markdown", "Remove the lines with ```."
    if (match := HIDDEN_LINE_BREAK.search(text, 0, at)) is not None:
        return (
            match.start(),
            f"the character U+{ord(match[0]):04X} ends a line",
            "Write a line break or a blank.",
        )
    if "mapping values" in parser_message and (
        key := MISSING_BLANK.match(text, previous_line_start(text, at))
    ):
        return key.end(), "a key without a blank behind its colon", "Write 'key: value'."
    if "cannot start any token" in parser_message and text[at : at + 1] != "\t":
        return at, f"a text cannot start with {text[at : at + 1]}", "Put quotes around it."
    return next(
        ((at, words, fix) for part, words, fix in SYNTAX_ERRORS if part in parser_message),
        (at, parser_message, DEFAULT_FIX),
    )


def syntax_error_offset(error: yaml.MarkedYAMLError, parser_message: str) -> int:
    """Where the parser noticed it; what is never closed, where that was opened."""
    opened, noticed = error.context_mark, error.problem_mark or error.context_mark
    if (
        opened
        and noticed
        and opened.line < noticed.line
        and any(part in parser_message for part in UNCLOSED_MESSAGES)
    ):
        return opened.index
    return noticed.index if noticed else 0


def previous_line_start(text: str, at: int) -> int:
    """Where the line above the one of a place begins."""
    return text.rfind("\n", 0, max(text.rfind("\n", 0, at), 0)) + 1
