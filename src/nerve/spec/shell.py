"""Commands with values: a value is one word, comes in a variable, and never becomes text of the script."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from nerve.core.values import encode
from nerve.expr import ExprError, Expression, Template, compile_template
from nerve.expr.values import UNDEFINED
from nerve.spec import shell_script as script
from nerve.spec.shell_programs import name_set, program_named
from nerve.spec.shell_script import Refusal, Script, refuse, text_of

if TYPE_CHECKING:
    from tree_sitter import Node

VALUE_LIMIT = 100_000
"""Bytes of one value; Linux refuses a variable, and an argument, of 131,072 bytes."""
COMMAND_LIMIT = 100_000
MARK = re.compile(r"\$\{NERVE_V(\d+)\}")
CLOSED = "Close the quotes before it, 'it is '{{ … }}, or use double quotes."
WORD = "Write it as a word of its own or inside double quotes."
DOCUMENT = "Write `value={{ … }}` on a line before it, and $value here; do not quote the end word."
CODE = "Write `export value={{ … }}` before it, quote the end word, <<'EOF', and let the code read $value."
HIDDEN = {
    "raw_string": ("no value is filled in between single quotes", CLOSED),
    "ansi_c_string": ("no value is filled in between single quotes", CLOSED),
    "comment": ("a value in a comment is never used", "Take it out of the comment."),
    "heredoc_start": ("a value cannot end a here-document", script.NAMED),
    "heredoc_body": ("no value is filled in in a here-document", DOCUMENT),
    "heredoc_content": ("no value is filled in in a here-document", DOCUMENT),
    "regex": ("no value is filled in in a pattern", script.COMPARED),
    "extglob_pattern": ("no value is filled in in a pattern", script.COMPARED),
}
"""Where the parser finds no expansions, and what to do instead."""
QUOTED_ONLY = frozenset({"case_item", "file_redirect"})
EVALUATED = name_set("subscript arithmetic_expansion compound_statement c_style_for_statement")
"""What `Script.check` refuses with the fix for it."""
PLACES = (
    QUOTED_ONLY
    | EVALUATED
    | script.EXPRESSIONS
    | name_set(
        "command for_statement case_statement test_command array variable_assignment herestring_redirect "
        "declaration_command unset_command"
    )
)
"""The nodes of the tree in which a value is a word, or part of one."""


class UnsafeCommand(ExprError):
    """A `{{ }}` where its value could become code, or could not arrive as one word."""

    def __init__(self, message: str, fix: str, source: str, offset: int, length: int) -> None:
        super().__init__(message, source, offset, length)
        self.fix = fix

    def __str__(self) -> str:
        message, pointing = super().__str__().split("\n", 1)
        return f"{message}. {self.fix}\n{pointing}"


@dataclass(frozen=True, slots=True)
class Command:
    """A command whose values come from variables; `text` is what bash is given."""

    template: Template
    text: str
    expressions: tuple[Expression, ...]
    warnings: tuple[UnsafeCommand, ...] = ()

    def fill(self, scope: Mapping[str, Any]) -> tuple[str, dict[str, str]]:
        """The command, and the variables that it needs."""
        values = {variable(n): value(each, scope) for n, each in enumerate(self.expressions)}
        return self.text, values


def compile_command(
    text: str,
    names: Iterable[str] | None = None,
    *,
    hyphens: Iterable[str] = (),
    variables: Iterable[str] = (),
) -> Command:
    """Compile a command with `{{ expressions }}`; `names` and `hyphens` are those of `nerve.expr.compile`.

    `variables` are the variables of its environment that hold values.
    """
    known = None if names is None else frozenset(names)
    return _compile(text, known, frozenset(hyphens), frozenset(variables))


@lru_cache(maxsize=256)
def _compile(
    text: str, names: frozenset[str] | None, hyphens: frozenset[str], variables: frozenset[str]
) -> Command:
    template = compile_template(text, names, hyphens=hyphens)
    found = tuple(part for part in template.parts if isinstance(part, Expression))
    if not found and not variables:
        return Command(template, "".join(map(str, template.parts)), ())
    if len(text) > COMMAND_LIMIT:
        raise ExprError(f"a command has at most {COMMAND_LIMIT:,} characters; put it into a script", text)
    if "\0" in text:
        raise ExprError("a command cannot contain a NUL character", text, text.index("\0"))
    numbers = iter(range(len(found)))
    marked = "".join(part if isinstance(part, str) else refer(next(numbers)) for part in template.parts)
    filled = marked
    try:
        if len(MARK.findall(marked)) > len(found):
            start = marked.index("${NERVE_V")
            raise Refusal(start, start, "variables named NERVE_V… are those of values", "Use another name.")
        inside = [mark.parent is not None and mark.parent.type == "string" for mark in find_marks(marked)]
        filled = MARK.sub(lambda mark: mark[0] if inside[int(mark[1]) - 1] else f'"{mark[0]}"', marked)
        read = Script(filled, variables)
        for mark, quoted in zip(find_marks(filled), inside, strict=True):
            check_position(mark, quoted)
        read.check()
    except Refusal as refusal:
        raise locate(refusal, text, filled, found) from None
    warnings = tuple(locate(each, text, filled, found) for each in read.warnings)
    return Command(template, filled, found, warnings)


def find_marks(text: str) -> list[Node]:
    """The node of every value, in the order of the text."""
    root = script.parse(text)
    if root.has_error and not MARK.search(text):
        refuse(root, "this script cannot be parsed as bash", script.SYNTAX)
    data, nodes = text.encode(), []
    for match in re.finditer(MARK.pattern.encode(), data):
        node = root.descendant_for_byte_range(*match.span())
        hidden = node
        while hidden is not None and hidden.type not in HIDDEN:
            hidden = hidden.parent
        if hidden is not None:
            message, fix = HIDDEN[hidden.type]
            raise Refusal(*match.span(), message, CODE if fix == DOCUMENT and is_code(hidden) else fix)
        before = data[: match.start()]
        slashes = len(before) - len(before.rstrip(b"\\"))
        if before.endswith(b"$"):
            raise Refusal(*match.span(), "a `$` is before a value", "Write {{ … }} without it.")
        if root.has_error or node is None or node.type != "expansion" or slashes % 2:
            raise Refusal(*match.span(), "this script cannot be parsed as bash", script.SYNTAX)
        nodes.append(node)
    return nodes


def is_code(document: Node) -> bool:
    """Whether a here-document is read by a program that runs it, in its own command or further on."""
    while document.parent is not None and document.type not in ("redirected_statement", "pipeline"):
        document = document.parent
    words = (word for node in script.descend(document) for word in script.words_of(node))
    programs = (program_named(script.base_name(word)) for word in words)
    return any(program is not None and program.kind in ("shell", "script", "words") for program in programs)


def check_position(mark: Node, quoted: bool) -> None:
    """Refuse a value that is not an argument, inside double quotes or the right side of an assignment."""
    string = mark.parent
    if string is None or string.type != "string":
        refuse(mark, "this script cannot be parsed as bash", script.SYNTAX)
    if string.prev_sibling is not None and text_of(string.prev_sibling).endswith("$"):
        refuse(mark, 'a value in $"…" is looked up as a message', 'Write "…" without the `$`.')
    place, around = string, string.parent
    if around is not None and around.type == "concatenation":
        place, around = around, around.parent
    kind = around.type if around is not None else ""
    if kind == "command_name":
        refuse(mark, "a value could be the name of a program here", script.NAMED)
    if kind in QUOTED_ONLY and not (quoted and place.type == "string"):
        refuse(mark, "a value is not allowed bare as a file or pattern", script.QUOTES)
    if kind == "expansion":
        refuse(
            mark, "no value is filled in inside ${…}", "Write `value={{ … }}` before it, and use ${value}."
        )
    if kind not in PLACES:
        refuse(mark, "a value is not allowed here", WORD)
    while around is not None:
        if around.type == "command_substitution" and around.children[0].type == "`":
            refuse(mark, "no value is filled in between backticks", "Write $( … ) instead.")
        around = around.parent


def locate(refusal: Refusal, text: str, filled: str, found: tuple[Expression, ...]) -> UnsafeCommand:
    """The error at the value that it is about, or else at the same text of the source."""
    data = filled.encode()
    marks = [match.span() for match in re.finditer(b'"?' + MARK.pattern.encode() + b'"?', data)]
    offset, length, begin, source = 0, 1, 0, 0
    for (start, end), each in zip(marks, found, strict=False):
        if refusal.start < end and start < refusal.end:
            offset, length = each.offset, len(each.source)
            break
        if start >= refusal.end:
            offset = source + len(data[begin : refusal.start].decode(errors="ignore"))
            break
        begin, source = end, text.index("}}", each.offset + len(each.source)) + 2
    else:
        offset = min(source + len(data[begin : refusal.start].decode(errors="ignore")), max(len(text) - 1, 0))
    return UnsafeCommand(refusal.message, refusal.fix, text, offset, length)


def variable(number: int) -> str:
    return f"NERVE_V{number + 1}"


def refer(number: int) -> str:
    return f"${{{variable(number)}}}"


def value(expression: Expression, scope: Mapping[str, Any]) -> str:
    """The value as a variable holds it: strings as they are, nothing as nothing, anything else as JSON."""
    given = expression(scope)
    if not isinstance(given, str):
        given = "" if given is None or given is UNDEFINED else encode(given)
    data = given.encode("utf-8", "replace")
    if b"\0" in data:
        raise ValueError(
            f"the value of {{{{ {expression.source} }}}} contains a NUL character; no command can take it"
        )
    if len(data) > VALUE_LIMIT:
        raise ValueError(
            f"the value of {{{{ {expression.source} }}}} has {len(data):,} bytes, and a command can be given"
            f" {VALUE_LIMIT:,}; hand it over as the step's input, which arrives on standard input"
        )
    return data.decode()
