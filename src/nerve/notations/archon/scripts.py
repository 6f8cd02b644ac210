"""Translate the shell scripts of Archon, into whose text it puts outputs as words in single quotes."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Literal

from nerve.lazy_dataclass import dataclass
from nerve.notations.archon.references import (
    ENGINE_VARIABLES,
    TOKEN,
    USER_VARIABLES,
    NodeOutput,
    TextScope,
    UnreadableReference,
    quote,
)
from nerve.spec.shell.command import UnsafeCommand, compile_command
from nerve.spec.shell.script_analysis import is_quoted_document, parse_bash

if TYPE_CHECKING:
    from tree_sitter import Node

Context = Literal["word", "double", "single", "document", "quoted document", "comment"]
CONTEXT_BY_NODE: dict[str, Context] = {
    "raw_string": "single",
    "ansi_c_string": "single",
    "string": "double",
    "comment": "comment",
    "heredoc_body": "document",
    "command_substitution": "word",
    "process_substitution": "word",
}
VARIABLE_NAME = re.compile(r"\b(?:[A-Z][A-Z_]*[A-Z])\b")
FOLDER_PRELUDE = 'mkdir -p "${0}" && {0}=$(cd "${0}" && pwd)\n'
"""Archon creates these folders before a run, and scripts may leave the folder of the project."""


@dataclass(slots=True)
class TranslatedScript:
    """A script as a command of the spec."""

    command: str
    env: dict[str, str]
    warning: str = ""
    """Why its values are in variables, about which the checks of the spec know nothing."""


class ScriptTranslator:
    """Translates one script."""

    def __init__(self, script: str, scope: TextScope) -> None:
        self.script, self.scope = script, scope
        self.use_variables = False
        self.prelude: dict[str, str] = {}
        """Values that the script reads from variables, because they cannot stand where they are used."""

    def translate(self) -> TranslatedScript:
        """Return the command of a bash step and its environment variables.

        A value becomes one word. Where the checks of the spec cannot see that, as in arithmetic, the script
        reads it from a variable, as it does in Archon.
        """
        script = self._translate()
        try:
            compile_command(script.command)
        except UnsafeCommand as error:
            self.use_variables = True
            self.prelude.clear()
            script = self._translate()
            script.warning = error.message
        return script

    def _translate(self) -> TranslatedScript:
        parts: list[str] = []
        start = 0
        text = self.expand_quoted_documents()
        contexts = find_contexts(text)
        for match in TOKEN.finditer(text):
            parts.append(text[start : match.start()])
            parts.append(self.translate_token(match, contexts(match.start())))
            start = match.end()
        parts.append(text[start:])
        env = script_environment(set(VARIABLE_NAME.findall(self.script)), self.scope)
        command = folder_prelude(env) + "".join(parts)
        return TranslatedScript(
            command, env | {name: f"{{{{ {value} }}}}" for name, value in self.prelude.items()}
        )

    def expand_quoted_documents(self) -> str:
        """Return the script with the here-documents whose delimiter is quoted as text of variables.

        Archon puts outputs also into these, where the shell expands nothing.
        """
        script = self.script
        for document in reversed(find_quoted_documents(script)):
            body = script[document.body_start : document.body_end].removesuffix("\n")
            if any(is_output(match) or match["name"] in ENGINE_VARIABLES for match in TOKEN.finditer(body)):
                before, between = script[: document.start], script[document.end : document.body_start]
                after = script[document.body_end :]
                script = f"{before}{document.delimiter}{between}{self.document_text(body)}\n{after}"
        return script

    def document_text(self, body: str) -> str:
        """Return the body of a here-document whose expansion is this literal text with its outputs."""
        parts: list[str] = []
        values: list[str] = []

        def end_value() -> None:
            if values:
                parts.append(f"${{{self.variable_of(' + '.join(values))}}}")
                values.clear()

        start = 0
        for match in TOKEN.finditer(body):
            if is_output(match) or match["name"] in ENGINE_VARIABLES:
                if match.start() > start:
                    values.append(quote(body[start : match.start()]))
                start = match.end()
            if is_output(match):
                values.append(f"({self.output_in_quotes(match)})")
            elif match["name"] in ENGINE_VARIABLES:
                end_value()
                parts.append(match[0])
        if start < len(body):
            values.append(quote(body[start:]))
        end_value()
        return "".join(parts)

    def output_text(self, match: re.Match[str]) -> str:
        """Return the expression of an output as one word of the script."""
        if match["previous"] is not None:
            return self.scope.token_expression(match)
        return word_text(self.scope.find_node(match["node"]), match["field"])

    def output_in_quotes(self, match: re.Match[str]) -> str:
        """Return the expression of the text that Archon puts into a script for an output."""
        if match["previous"] is not None:
            return single_quoted(f"String({self.scope.token_expression(match)})")
        return quoted_text(self.scope.find_node(match["node"]), match["field"])

    def translate_token(self, match: re.Match[str], context: Context) -> str:
        """Return what replaces a reference or variable."""
        if match["braces"] is not None:
            return "\\{{"
        if match["name"] in ENGINE_VARIABLES:
            return self.translate_engine_variable(match, context)
        if not is_output(match):
            return match[0]
        if context == "comment":
            return match[0].removeprefix("$")
        if context in ("word", "single"):
            text = self.output_text(match)
            word = f'"${{{self.variable_of(text)}}}"' if self.use_variables else f"{{{{ {text} }}}}"
            return word if context == "word" else f"'{word}'"
        if context == "quoted document":
            message = f"'{match[0]}' is in a here-document whose delimiter is quoted"
            raise UnreadableReference(message, "Assign it to a variable before it, and read the variable.")
        quoted = self.output_in_quotes(match)
        if context == "double" and not self.use_variables:
            return f"{{{{ {quoted} }}}}"
        return f"${{{self.variable_of(quoted)}}}"

    def variable_of(self, value: str) -> str:
        """Return the variable from which the script reads a value."""
        name = next((name for name, known in self.prelude.items() if known == value), None)
        if name is None:
            name = f"OUTPUT_{len(self.prelude) + 1}"
            self.prelude[name] = value
        return name

    def translate_engine_variable(self, match: re.Match[str], context: Context) -> str:
        name = match["name"]
        if context == "single":
            return f"'\"${name}\"'"
        if context == "quoted document":
            message = f"'${name}' is in a here-document whose delimiter is quoted"
            raise UnreadableReference(message, f"Read {name} from the environment there.")
        return f"${{{name}}}"


def is_output(match: re.Match[str]) -> bool:
    """Return whether a token is an output of a node, also of the previous iteration."""
    return match["node"] is not None or match["previous"] is not None


def script_environment(names: Collection[str], scope: TextScope) -> dict[str, str]:
    """Return the environment variables of Archon among the names in a script, with their templates."""
    env = {}
    for name in (*ENGINE_VARIABLES, *USER_VARIABLES):
        if name in names:
            expression = scope.variable(name)
            is_literal = re.fullmatch(r"'[^'\\]*'", expression)
            env[name] = expression[1:-1] if is_literal else f"{{{{ {expression} }}}}"
    for name in scope.input_names:
        if (variable := input_variable(name)) in names:
            env[variable] = f"{{{{ {scope.input(name)} ?? '' }}}}"
    return env


def input_variable(name: str) -> str:
    """Return the environment variable of an input."""
    return "INPUTS_" + name.replace("-", "_").upper()


def folder_prelude(env: Collection[str]) -> str:
    """Return the commands that create the folders which a script uses."""
    return "".join(FOLDER_PRELUDE.format(name) for name in ("ARTIFACTS_DIR", "STATE_DIR") if name in env)


def word_text(node: NodeOutput, name: str | None) -> str:
    """Return the expression of what a reference is as one word of a script."""
    if name is None:
        return node.text()
    value = node.field_value(name)
    return value if node.fields is not None else f"{value} ?? 'null'"


def quoted_text(node: NodeOutput, name: str | None) -> str:
    """Return the expression of the text that Archon puts into a script: in quotes, unless it is a number."""
    value = word_text(node, name)
    declared = "string" if name is None else node.field_type(name)
    if declared in ("number", "integer", "boolean"):
        return value
    if declared == "string":
        return single_quoted(f"({value})")
    is_plain = f"typeof ({value}) === 'number' || typeof ({value}) === 'boolean'"
    text = f"(typeof ({value}) === 'string' ? ({value}) : JSON.stringify({value}))"
    return f"{is_plain} ? {value} : {single_quoted(text)}"


def single_quoted(text: str) -> str:
    """Return the expression of a text as a word in single quotes of the shell."""
    return f'"\'" + {text}.replaceAll("\'", "\'\\\\\'\'") + "\'"'


@dataclass(slots=True)
class QuotedDocument:
    """A here-document whose delimiter is quoted: the places of its delimiter and its body in a script."""

    delimiter: str
    """The delimiter without its quotes."""
    start: int
    end: int
    body_start: int
    body_end: int


def parse_marked(script: str) -> tuple[Node, list[int]]:
    """Return the tree of a script with its tokens as words, and the byte at which each character starts."""
    marked = TOKEN.sub(lambda match: "x" * len(match[0]), script)
    starts = [0]
    for letter in marked:
        starts.append(starts[-1] + len(letter.encode()))
    return parse_bash(marked), starts


def find_quoted_documents(script: str) -> list[QuotedDocument]:
    """Return the here-documents with a quoted delimiter that is one plain word, in their order."""
    if "<<" not in script:
        return []
    root, starts = parse_marked(script)
    found: list[QuotedDocument] = []
    pending = [root]
    while pending:
        node = pending.pop()
        pending.extend(node.children)
        parts = {child.type: child for child in node.children}
        begin, body = parts.get("heredoc_start"), parts.get("heredoc_body")
        if begin is None or body is None or not is_quoted_document(body) or "<<-" in parts:
            continue
        places = [bisect_right(starts, byte) - 1 for part in (begin, body) for byte in part.byte_range]
        delimiter = re.sub(r"['\"\\]", "", script[places[0] : places[1]])
        if re.fullmatch(r"[\w.-]+", delimiter):
            found.append(QuotedDocument(delimiter, *places))
    return sorted(found, key=lambda document: document.start)


def find_contexts(script: str) -> Callable[[int], Context]:
    """Return a function from an offset in a script to the context of the shell there."""
    root, starts = parse_marked(script)

    def context_at(offset: int) -> Context:
        position = starts[offset]
        context: Context = "word"
        node = root
        while True:
            children = node.children
            index = bisect_right([child.start_byte for child in children], position) - 1
            if index < 0 or children[index].end_byte <= position:
                return context
            node = children[index]
            context = CONTEXT_BY_NODE.get(node.type, context)
            if node.type == "heredoc_body" and is_quoted_document(node):
                context = "quoted document"

    return context_at
