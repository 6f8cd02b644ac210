"""Explain YAML syntax errors: position, message and fix."""

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
        "a string cannot start with * or &",
        "Put quotes around it; aliases and anchors are not allowed.",
    ),
    (
        "comment or line break",
        "unexpected text after the | or > of a block scalar",
        "Start the text on the next line, indented.",
    ),
    ("expected node content", "a value is missing here", "Write one, or close the bracket."),
    (
        "mapping values are not allowed",
        "a ': ' where a key is not allowed",
        "Put quotes around a string that contains ': ', or fix the indentation.",
    ),
    ("unexpected end of stream", "unclosed quote", "Close the quote."),
    (
        "did not find expected ',' or",
        "unclosed bracket",
        "Close the bracket, or put quotes around the string.",
    ),
    ("'-' indicator", "inconsistent indentation", "Indent the line like the other lines of its block."),
    (
        "expected key",
        "expected a key here",
        "Check the indentation, and put quotes around a string that contains quotes.",
    ),
    (
        "expected ':'",
        "a key without ':'",
        "Write 'key: value', with a space after the colon, and indent the lines of a block scalar.",
    ),
    ("unknown escape", "unknown escape sequence", "Use single quotes around a string with backslashes."),
]
"""Part of the parser's message, the message shown instead, and the fix."""
HIDDEN_LINE_BREAK = re.compile("[\x85\u2028\u2029]")
"""Characters that end a line in YAML, although most editors do not show a line break."""
UNCLOSED_MESSAGES = ("unexpected end of stream", "did not find expected ',' or")
MISSING_BLANK = re.compile(r"[ -]*[A-Za-z_][\w-]*(?=:[^\s/:][^:\n]*$)", re.MULTILINE)
"""A key whose colon is not followed by a space, up to the colon."""
DEFAULT_FIX = "Fix this line or the line above it."


def explain_yaml_syntax_error(text: str, error: yaml.MarkedYAMLError) -> tuple[int, str, str]:
    """Return the offset of the error, a message and the fix."""
    parser_message = ", ".join(part for part in (error.context, error.problem) if part)
    at = syntax_error_offset(error, parser_message)
    if text.startswith("```"):
        return at, "this is a block of Markdown", "Remove the lines with ```."
    if (match := HIDDEN_LINE_BREAK.search(text, 0, at)) is not None:
        return (
            match.start(),
            f"the character U+{ord(match[0]):04X} ends a line",
            "Write a line break or a space.",
        )
    if "mapping values" in parser_message and (
        key := MISSING_BLANK.match(text, text.rfind("\n", 0, max(text.rfind("\n", 0, at), 0)) + 1)
    ):
        return key.end(), "missing space after the colon of a key", "Write 'key: value'."
    if "cannot start any token" in parser_message and text[at : at + 1] != "\t":
        return at, f"a string cannot start with {text[at : at + 1]}", "Put quotes around it."
    return next(
        ((at, words, fix) for part, words, fix in SYNTAX_ERRORS if part in parser_message),
        (at, parser_message, DEFAULT_FIX),
    )


def syntax_error_offset(error: yaml.MarkedYAMLError, parser_message: str) -> int:
    """Return the offset the parser reports, or that of the opening character of an unclosed construct."""
    opened, noticed = error.context_mark, error.problem_mark or error.context_mark
    if (
        opened
        and noticed
        and opened.line < noticed.line
        and any(part in parser_message for part in UNCLOSED_MESSAGES)
    ):
        return opened.index
    return noticed.index if noticed else 0
