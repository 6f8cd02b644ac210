"""Translate the conditions of Archon, such as `$x.output.type == 'BUG' && $y.output != ''`."""

from __future__ import annotations

import re

from nerve.notations.archon.references import (
    FIELD_NAME,
    NODE_NAME,
    TextScope,
    UnreadableReference,
    quote,
)

ATOM = re.compile(
    rf"(?:\$INPUTS\.(?P<input>{NODE_NAME})|\$(?P<node>{NODE_NAME})\.(?P<first>{FIELD_NAME})(?:\.(?P<second>{FIELD_NAME}))?)"
    r"\s*(?P<operator>==|!=|<=|>=|<|>)\s*(?:'(?P<quoted>[^']*)'|(?P<plain>-?\d+(?:\.\d+)?|true|false))"
)


def translate_condition(text: str, scope: TextScope) -> str:
    """Return the expression of a condition; raises UnreadableReference for one that Archon cannot read."""
    clauses = [
        [translate_atom(atom.strip(), scope) for atom in split_outside_quotes(clause, "&&")]
        for clause in split_outside_quotes(text.strip(), "||")
    ]
    if len(clauses) > 1 and any(number for clause in clauses for _, number in clause):
        return nest_clauses(clauses)
    joined = (" && ".join(test for test, _ in clause) for clause in clauses)
    return " || ".join(joined)


def nest_clauses(clauses: list[list[tuple[str, str]]]) -> str:
    """Return the clauses as nested choices: a comparison of a text without a number ends as false."""
    result = "false"
    for clause in reversed(clauses):
        otherwise, result = result, "true"
        for test, number in reversed(clause):
            chosen = f"({test} ? {result} : {otherwise})"
            result = f"(isFinite({number}) ? {chosen} : false)" if number else chosen
    return result


def split_outside_quotes(text: str, separator: str) -> list[str]:
    """Split a condition at an operator that is not inside single quotes."""
    parts, current, is_quoted, position = [], "", False, 0
    while position < len(text):
        if not is_quoted and text.startswith(separator, position):
            parts.append(current)
            current, position = "", position + len(separator)
            continue
        is_quoted ^= text[position] == "'"
        current += text[position]
        position += 1
    return [*parts, current]


def translate_atom(atom: str, scope: TextScope) -> tuple[str, str]:
    """Return the expression of a comparison, and the number that it compares, if it compares numbers."""
    match = ATOM.fullmatch(atom)
    if match is None or match["node"] == "INPUTS" or (match["first"] != "output" and match["second"]):
        message = f"The condition {atom[:100]!r} cannot be read"
        raise UnreadableReference(message, "Write $node.output.field == 'text', joined by && and ||.")
    expected = match["quoted"] if match["quoted"] is not None else match["plain"]
    operator = match["operator"]
    value = compared_text(match, scope)
    if operator in ("==", "!="):
        return f"{value} {operator}= {quote(expected)}", ""
    number = re.match(r"\s*[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?", expected)
    if number is None:
        raise UnreadableReference(f"The condition {atom[:100]!r} compares with a text that is not a number")
    return f"parseFloat({value}) {operator} {float(number[0]):g}", f"parseFloat({value})"


def compared_text(match: re.Match[str], scope: TextScope) -> str:
    """Return the expression of the text that a comparison reads."""
    if match["input"] is not None:
        return f"String({scope.input(match['input'])})"
    node = scope.find_node(match["node"])
    name = match["second"] if match["first"] == "output" else match["first"]
    if name is None:
        return node.text()
    value = node.field_value(name)
    return value if node.field_type(name) == "string" else f"String({value})"
