"""Shell commands with values: each value is one word in a variable and never part of the script text."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from nerve.core.json_codec import encode_json
from nerve.expr import ExprError, Expression, Template, compile_template
from nerve.expr.values import UNDEFINED
from nerve.lazy_dataclass import dataclass
from nerve.spec.shell import script_analysis as script
from nerve.spec.shell.programs import lookup_program, name_set
from nerve.spec.shell.script_analysis import ScriptAnalysis, UnsafePosition, node_text, refuse_node

if TYPE_CHECKING:
    from tree_sitter import Node

MAX_VALUE_BYTES = 100_000
"""Bytes of one value; Linux rejects variables and arguments of 131,072 bytes."""
MAX_COMMAND_CHARS = 100_000
VALUE_MARK_PATTERN = re.compile(r"\$\{NERVE_V(\d+)\}")
CLOSE_QUOTES_FIX = "Close the quotes before it, 'it is '{{ … }}, or use double quotes."
SEPARATE_WORD_FIX = "Write it as a separate word or inside double quotes."
HERE_DOCUMENT_FIX = "Write `value={{ … }}` on a line before it, and $value here; do not quote the delimiter."
CODE_DOCUMENT_FIX = (
    "Write `export value={{ … }}` before it, quote the delimiter, <<'EOF', and read $value in the code."
)
UNEXPANDED_NODES = {
    "raw_string": ("Values are not expanded between single quotes", CLOSE_QUOTES_FIX),
    "ansi_c_string": ("Values are not expanded between single quotes", CLOSE_QUOTES_FIX),
    "comment": ("A value in a comment is never used", "Remove it from the comment."),
    "heredoc_start": ("A value cannot be the delimiter of a here-document", script.NAME_FIX),
    "heredoc_body": ("Values are not expanded in a here-document", HERE_DOCUMENT_FIX),
    "heredoc_content": ("Values are not expanded in a here-document", HERE_DOCUMENT_FIX),
    "regex": ("Values are not expanded in a pattern", script.COMPARE_FIX),
    "extglob_pattern": ("Values are not expanded in a pattern", script.COMPARE_FIX),
}
"""Syntax nodes without expansions, and the message and fix for values in them."""
QUOTED_ONLY_NODES = frozenset({"case_item", "file_redirect"})
EVALUATED_NODES = name_set("subscript arithmetic_expansion compound_statement c_style_for_statement")
"""Nodes that ScriptAnalysis.check() rejects with a specific fix."""
WORD_NODES = (
    QUOTED_ONLY_NODES
    | EVALUATED_NODES
    | script.EXPRESSION_NODES
    | name_set(
        "command for_statement case_statement test_command array variable_assignment herestring_redirect "
        "declaration_command unset_command"
    )
)
"""The syntax nodes in which a value is a word, or part of one."""


class UnsafeCommand(ExprError):
    """A `{{ }}` whose value could become code, or could not be passed as one word."""

    def __init__(self, message: str, fix: str, source: str, offset: int, length: int) -> None:
        super().__init__(message, source, offset, length)
        self.fix = fix

    def __str__(self) -> str:
        message, pointing = super().__str__().split("\n", 1)
        return f"{message}. {self.fix}\n{pointing}"


@dataclass(frozen=True, slots=True)
class ShellCommand:
    """A command whose values come from variables; `text` is the script for bash."""

    template: Template
    text: str
    expressions: tuple[Expression, ...]
    warnings: tuple[UnsafeCommand, ...] = ()

    def fill(self, scope: Mapping[str, Any]) -> tuple[str, dict[str, str]]:
        """Return the script and the variables that it needs."""
        values = {
            value_variable(n): variable_value(expression, scope)
            for n, expression in enumerate(self.expressions)
        }
        return self.text, values


def compile_command(
    text: str,
    names: Iterable[str] | None = None,
    *,
    hyphens: Iterable[str] = (),
    variables: Iterable[str] = (),
) -> ShellCommand:
    """Compile a command with `{{ expressions }}`; `names` and `hyphens` are those of `nerve.expr.compile`.

    `variables` are the environment variables that hold values.
    """
    known = None if names is None else frozenset(names)
    return _compile_command(text, known, frozenset(hyphens), frozenset(variables))


@lru_cache(maxsize=256)
def _compile_command(
    text: str, names: frozenset[str] | None, hyphens: frozenset[str], variables: frozenset[str]
) -> ShellCommand:
    template = compile_template(text, names, hyphens=hyphens)
    expressions = tuple(part for part in template.parts if isinstance(part, Expression))
    if not expressions and not variables:
        return ShellCommand(template, "".join(map(str, template.parts)), ())
    if len(text) > MAX_COMMAND_CHARS:
        raise ExprError(
            f"A command can have at most {MAX_COMMAND_CHARS:,} characters; move it to a script file", text
        )
    if "\0" in text:
        raise ExprError("A command cannot contain a NUL character", text, text.index("\0"))
    numbers = iter(range(len(expressions)))
    marked = "".join(
        part if isinstance(part, str) else f"${{{value_variable(next(numbers))}}}" for part in template.parts
    )
    filled = marked
    try:
        if len(VALUE_MARK_PATTERN.findall(marked)) > len(expressions):
            start = marked.index("${NERVE_V")
            raise UnsafePosition(
                start, start, "Variable names that start with NERVE_V are reserved", "Use another name."
            )
        inside = [mark.parent is not None and mark.parent.type == "string" for mark in find_marks(marked)]
        filled = VALUE_MARK_PATTERN.sub(
            lambda mark: mark[0] if inside[int(mark[1]) - 1] else f'"{mark[0]}"', marked
        )
        analysis = ScriptAnalysis(filled, variables)
        for mark, quoted in zip(find_marks(filled), inside, strict=True):
            check_position(mark, quoted)
        analysis.check()
    except UnsafePosition as refusal:
        raise locate_unsafe_value(refusal, text, filled, expressions) from None
    warnings = tuple(locate_unsafe_value(warning, text, filled, expressions) for warning in analysis.warnings)
    return ShellCommand(template, filled, expressions, warnings)


def find_marks(text: str) -> list[Node]:
    """Return the syntax node of every value, in source order."""
    root = script.parse_bash(text)
    if root.has_error and not VALUE_MARK_PATTERN.search(text):
        refuse_node(root, "This script cannot be parsed as bash", script.SYNTAX_FIX)
    data, nodes = text.encode(), []
    for match in re.finditer(VALUE_MARK_PATTERN.pattern.encode(), data):
        node = root.descendant_for_byte_range(*match.span())
        hidden = node
        while hidden is not None and hidden.type not in UNEXPANDED_NODES:
            hidden = hidden.parent
        if hidden is not None:
            message, fix = UNEXPANDED_NODES[hidden.type]
            raise UnsafePosition(
                *match.span(),
                message,
                CODE_DOCUMENT_FIX if fix == HERE_DOCUMENT_FIX and is_code_document(hidden) else fix,
            )
        before = data[: match.start()]
        slashes = len(before) - len(before.rstrip(b"\\"))
        if before.endswith(b"$"):
            raise UnsafePosition(*match.span(), "A `$` precedes a value", "Write {{ … }} without it.")
        if root.has_error or node is None or node.type != "expansion" or slashes % 2:
            raise UnsafePosition(*match.span(), "This script cannot be parsed as bash", script.SYNTAX_FIX)
        nodes.append(node)
    return nodes


def is_code_document(document: Node) -> bool:
    """Whether a program runs a here-document as code, in its own command or later in the pipeline."""
    while document.parent is not None and document.type not in ("redirected_statement", "pipeline"):
        document = document.parent
    words = (word for node in script.descend_nodes(document) for word in script.command_words(node))
    programs = (lookup_program(script.program_name(word)) for word in words)
    return any(program is not None and program.kind in ("shell", "script", "words") for program in programs)


def check_position(mark: Node, quoted: bool) -> None:
    """Reject a value that is not an argument, in double quotes, or the right side of an assignment."""
    string = mark.parent
    if string is None or string.type != "string":
        refuse_node(mark, "This script cannot be parsed as bash", script.SYNTAX_FIX)
    if string.prev_sibling is not None and node_text(string.prev_sibling).endswith("$"):
        refuse_node(mark, 'A value in $"…" is looked up as a message', 'Write "…" without the `$`.')
    word, around = string, string.parent
    if around is not None and around.type == "concatenation":
        word, around = around, around.parent
    kind = around.type if around is not None else ""
    if kind == "command_name":
        refuse_node(mark, "A value could become the name of a program here", script.NAME_FIX)
    if kind in QUOTED_ONLY_NODES and not (quoted and word.type == "string"):
        refuse_node(mark, "A value used as a file or pattern must be quoted", script.QUOTES_FIX)
    if kind == "expansion":
        refuse_node(
            mark, "Values are not expanded inside ${…}", "Write `value={{ … }}` before it, and use ${value}."
        )
    if kind not in WORD_NODES:
        refuse_node(mark, "A value is not allowed here", SEPARATE_WORD_FIX)
    while around is not None:
        if around.type == "command_substitution" and around.children[0].type == "`":
            refuse_node(mark, "Values are not expanded between backticks", "Write $( … ) instead.")
        around = around.parent


def locate_unsafe_value(
    refusal: UnsafePosition, text: str, filled: str, expressions: tuple[Expression, ...]
) -> UnsafeCommand:
    """Return the error at the position of its value, or at the same text in the source."""
    data = filled.encode()
    marks = [match.span() for match in re.finditer(b'"?' + VALUE_MARK_PATTERN.pattern.encode() + b'"?', data)]
    offset, length, begin, source = 0, 1, 0, 0
    for (start, end), expression in zip(marks, expressions, strict=False):
        if refusal.start < end and start < refusal.end:
            offset, length = expression.offset, len(expression.source)
            break
        if start >= refusal.end:
            offset = source + len(data[begin : refusal.start].decode(errors="ignore"))
            break
        begin, source = end, text.index("}}", expression.offset + len(expression.source)) + 2
    else:
        offset = min(source + len(data[begin : refusal.start].decode(errors="ignore")), max(len(text) - 1, 0))
    return UnsafeCommand(refusal.message, refusal.fix, text, offset, length)


def value_variable(number: int) -> str:
    return f"NERVE_V{number + 1}"


def variable_value(expression: Expression, scope: Mapping[str, Any]) -> str:
    """Return the value of a variable: strings unchanged, null empty, anything else as JSON."""
    result = expression(scope)
    if not isinstance(result, str):
        result = "" if result is None or result is UNDEFINED else encode_json(result)
    data = result.encode("utf-8", "replace")
    if b"\0" in data:
        raise ValueError(
            f"The value of {{{{ {expression.source} }}}} contains a NUL character, which commands cannot take"
        )
    if len(data) > MAX_VALUE_BYTES:
        raise ValueError(
            f"The value of {{{{ {expression.source} }}}} has {len(data):,} bytes, but a command accepts"
            f" at most {MAX_VALUE_BYTES:,}; pass it as the step's input, which arrives on standard input"
        )
    return data.decode()
