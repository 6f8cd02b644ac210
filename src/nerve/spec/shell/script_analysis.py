"""Taint analysis of bash scripts: reject scripts in which a value could become code.

Every string of a script has a level: `LITERAL` is written in the script, `OUTSIDE` comes from other
programs or files, and `VALUE` can contain a `{{ }}` value. A script may evaluate only `LITERAL` strings.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import cache
from itertools import pairwise, takewhile
from posixpath import normpath
from typing import TYPE_CHECKING, NoReturn

from nerve.spec.shell.programs import (
    ASSIGNING_COMMANDS,
    EVALUATED_VARIABLES,
    EVALUATING_BUILTINS,
    LITERAL_OUTPUT_PROGRAMS,
    PLAIN_PROGRAMS,
    QUERY_PROGRAMS,
    SCRIPT_BUILTINS,
    UNTRACKED_VARIABLE_PATTERN,
    ShellProgram,
    lookup_program,
)

if TYPE_CHECKING:
    from tree_sitter import Node, Parser

LITERAL, OUTSIDE, VALUE = 0, 1, 2

SYNTAX_FIX = "Check its quotes and brackets, or run a script file, `bash script.sh {{ … }}`."
QUOTES_FIX = "Write it inside double quotes."
NAME_FIX = "Write the name itself here."
ENVIRONMENT_FIX = "Write `export value={{ … }}` before it, and read that variable in the code."
AWK_FIX = 'Write `export value={{ … }}` before it, and use ENVIRON["value"] in single-quoted awk code.'
INNER_SHELL_FIX = 'Write `export value={{ … }}` before it, and "$value" in the single-quoted code.'
SSH_FIX = "Send it on standard input, `printf %s {{ … }} | ssh host 'cat > file'`."
SCRIPT_FILE_FIX = "Run a script file that takes the value as an argument, `bash script.sh {{ … }}`."
COMPUTE_FIX = "Compute it inside the braces, `{{ … + 1 }}`."
COMPARE_FIX = "Compare with `[ … ]` and double quotes, which evaluates nothing."
SEPARATE_ASSIGNMENT_FIX = "Write `name={{ … }}` as a command of its own."
OTHER_VARIABLE_FIX = "Use another variable."

ARITHMETIC_MESSAGE = "Bash evaluates strings in arithmetic as code"
INDEX_MESSAGE = "Bash evaluates the index of an array"

VARIABLE_NAME_PATTERN = re.compile(r"[A-Za-z_]\w*")
ENVIRONMENT_WORD_PATTERN = re.compile(r"([A-Za-z_]\w*)=")
REFERENCE_PATTERN = re.compile(r"\$[{!#]*([A-Za-z_]\w*|[0-9@*])")
EVALUATION_PATTERN = re.compile(r"\$\(|\$\[|`|\$\{!|\$\{\w+\[|\$\{\w+:[^-=?+]|@P\}")
BUILTIN_FIXES = {
    "eval": "Write the command without `eval`.",
    "trap": 'Write `value={{ … }}` before it, and "$value" in the single-quoted code.',
    "let": COMPUTE_FIX,
    **dict.fromkeys(("declare", "typeset", "local", "export", "readonly"), SEPARATE_ASSIGNMENT_FIX),
}
OPAQUE_NODES = frozenset({"regex", "extglob_pattern", "heredoc_body", "heredoc_content"})
"""Nodes in which the parser does not find every expansion."""
EXPANSION_NODES = frozenset({"simple_expansion", "expansion", "command_substitution"})
NUMERIC_OPERATORS = frozenset({"-eq", "-ne", "-lt", "-le", "-gt", "-ge"})
OUTPUT_OPERATORS = frozenset({">", ">>", "&>", "&>>", ">|", "<>"})
EXPRESSION_NODES = frozenset({"binary_expression", "unary_expression", "parenthesized_expression"})
SPLITTING_NODES = frozenset({"command", "for_statement", "array", "command_name", "file_redirect"})
MAX_SCRIPT_DEPTH = 500


class UnsafePosition(Exception):
    """Why a value may not be used between two bytes of the script, and the fix."""

    def __init__(self, start: int, end: int, message: str, fix: str) -> None:
        super().__init__(message)
        self.start, self.end, self.message, self.fix = start, end, message, fix


@cache
def load_bash_parser() -> Parser:
    """Return the parser; importing it lazily keeps workflows without such commands fast."""
    import tree_sitter
    import tree_sitter_bash

    return tree_sitter.Parser(tree_sitter.Language(tree_sitter_bash.language()))


def parse_bash(text: str) -> Node:
    return load_bash_parser().parse(text.encode()).root_node


def node_text(node: Node) -> str:
    return (node.text or b"").decode()


def descend_nodes(node: Node) -> Iterator[Node]:
    """Yield a node and its descendants in source order."""
    stack = [node]
    while stack:
        node = stack.pop()
        yield node
        stack.extend(reversed(node.children))


def literal_word(node: Node) -> str | None:
    """Return a word without its quotes; None if a part of it is only known at run time."""
    match node.type:
        case "word" | "number" | "variable_name" | "test_operator":
            return re.sub(r"\\(.)", r"\1", node_text(node), flags=re.DOTALL)
        case "raw_string":
            return node_text(node)[1:-1]
        case "ansi_c_string":
            return node_text(node)[2:-1]
        case "string" | "concatenation" | "command_name" | "brace_expression":
            pieces = [literal_word(child) for child in node.children if child.is_named]
            if node.type == "brace_expression" or None in pieces:
                return None if None in pieces else node_text(node)
            return "".join(piece or "" for piece in pieces)
        case "string_content":
            return re.sub(r"\\([$`\"\\])", r"\1", node_text(node))
    return None if node.is_named else node_text(node)


def literal_prefix(node: Node) -> str:
    """Return the part of a word before the first expansion."""
    if node.type in ("concatenation", "string", "command_name"):
        start = ""
        for child in node.children:
            if child.is_named:
                start += literal_prefix(child)
                if literal_word(child) is None:
                    break
        return start
    return literal_word(node) or ""


def program_name(node: Node) -> str:
    """Return the program that a word names; empty if it comes from a variable."""
    known = literal_word(node)
    if known is None:
        known = node_text(node).rstrip('"').rsplit("/", 1)[-1]
        known = "" if "$" in known or "`" in known else known
    return known.rsplit("/", 1)[-1]


def refuse_node(node: Node, message: str, fix: str) -> NoReturn:
    raise UnsafePosition(node.start_byte, node.end_byte, message, fix)


class ScriptAnalysis:
    """The analysis of one script; `value_variables` hold values when the script starts."""

    def __init__(self, text: str, value_variables: frozenset[str]) -> None:
        self.value_variables = value_variables
        self.levels: dict[str, int] = {}
        self.sources: dict[str, list[Node | int]] = {}
        self.functions: set[str] = set()
        """The functions of the script; their arguments are `$1` and so on."""
        self.written_files: set[str] = set()
        """The files that it writes."""
        self.warnings: list[UnsafePosition] = []
        self.root = parse_bash(text)
        self.inner_scripts: dict[int, Node] = {}
        """The scripts inside words of this one, by the id of the word that runs them."""
        self.collect_assignments(self.root)
        self.propagate_levels()

    # -- levels of variables ----------------------------------------------------------------------

    def collect_assignments(self, root: Node, depth: int = 0) -> None:
        """Record what is assigned to each name."""
        if root.has_error:
            refuse_node(root, "This script cannot be parsed as bash", SYNTAX_FIX)
        for node in descend_nodes(root):
            match node.type:
                case "variable_assignment":
                    name, value = node.child_by_field_name("name"), node.child_by_field_name("value")
                    if name is not None and value is not None:
                        self.assign(assigned_name(name), value)
                case "for_statement":
                    name = node.child_by_field_name("variable")
                    if name is not None:
                        values: list[Node | int] = [*node.children_by_field_name("value")]
                        self.assign(node_text(name), *(values or [VALUE]))
                case "function_definition":
                    name, body = node.child_by_field_name("name"), node.child_by_field_name("body")
                    if name is not None and body is not None:
                        self.assign(f"{node_text(name)}()", body)
                        self.functions.add(node_text(name))
                case "expansion":
                    if operators(node)[:1] in (["="], [":="]):
                        self.assign(node_text(node.named_children[0]), *node.named_children[1:])
                case "command":
                    self.collect_command(node, depth)
                case "file_redirect" if any(child.type in OUTPUT_OPERATORS for child in node.children):
                    self.record_written_files(node.named_children)

    def assign(self, name: str, *sources: Node | int) -> None:
        self.sources.setdefault(name, []).extend(sources)

    def collect_command(self, node: Node, depth: int) -> None:
        words = command_words(node)
        if not words:
            return
        name = program_name(words[0])
        self.assign("@" if name in ("set", "") else f"@{name}", *words[1:])
        if name in ("tee", "cp", "mv", "dd", "ln"):
            self.record_written_files(words[1:])
        for number, word in enumerate(words):
            if assigned := ENVIRONMENT_WORD_PATTERN.match(literal_prefix(word)):
                self.assign(assigned[1], word)
            if program_name(word) in ASSIGNING_COMMANDS:
                for other in words[number + 1 :]:
                    if (name_word := literal_word(other)) and VARIABLE_NAME_PATTERN.fullmatch(name_word):
                        self.assign(name_word, VALUE)
            if (code := inner_script_text(words, number)) is not None and word.id not in self.inner_scripts:
                if depth > 3:
                    refuse_node(node, "Scripts are nested too deeply here", SCRIPT_FILE_FIX)
                self.inner_scripts[word.id] = root = parse_bash(code)
                try:
                    self.collect_assignments(root, depth + 1)
                except UnsafePosition as refusal:
                    refuse_node(word, refusal.message, refusal.fix)

    def record_written_files(self, words: list[Node]) -> None:
        self.written_files.update(
            path for path in map(literal_path, words) if path and not path.startswith("/dev/")
        )

    def propagate_levels(self) -> None:
        """Set the level of every name to the highest level assigned to it."""
        uses: dict[str, set[str]] = {f"@{name}": {"@"} for name in self.functions}
        for name, sources in self.sources.items():
            for source in sources:
                if isinstance(source, int):
                    self.levels[name] = max(self.levels.get(name, 0), source)
                    continue
                level, names = self.own_level_and_names(source)
                self.levels[name] = max(self.levels.get(name, 0), level)
                for used in names:
                    uses.setdefault(used, set()).add(name)
        waiting = [*self.levels, *uses]
        while waiting:
            used = waiting.pop()
            level = self.level_of_name(used)
            for name in uses.get(used, ()):
                if self.levels.get(name, 0) < level:
                    self.levels[name] = level
                    waiting.append(name)

    def level_of_name(self, name: str) -> int:
        if name in self.value_variables or UNTRACKED_VARIABLE_PATTERN.fullmatch(name):
            return VALUE
        return self.levels.get(name, LITERAL)

    def own_level_and_names(self, node: Node, evaluated: bool = False) -> tuple[int, set[str]]:
        """Return the own level of a node, and the names whose values it contains."""
        level, names = LITERAL, set[str]()
        stack = [node]
        while stack:
            node = stack.pop()
            kind = node.type
            if kind == "arithmetic_expansion" and not evaluated:
                continue
            if kind in OPAQUE_NODES:
                if not is_quoted_document(node):
                    evaluates = EVALUATION_PATTERN.search(node_text(node))
                    names |= set(
                        (VARIABLE_NAME_PATTERN if evaluates else REFERENCE_PATTERN).findall(node_text(node))
                    )
                    level = max(level, OUTSIDE if evaluates else level)
            elif (kind == "variable_name" and (evaluated or is_variable_read(node))) or node_text(node) in (
                "@",
                "*",
                "_",
            ):
                names.add(node_text(node))
            elif kind == "word":
                level = max(level, OUTSIDE if re.search(r"(?<!\\)[*?\[]", node_text(node)) else level)
                if evaluated and VARIABLE_NAME_PATTERN.fullmatch(node_text(node)):
                    names.add(node_text(node))
            elif kind == "expansion":
                signs = operators(node)
                if signs[:1] == ["#"]:
                    continue
                if signs[:1] == ["!"] and node.named_children[0].type != "subscript":
                    level = VALUE
            elif kind in ("command_substitution", "process_substitution"):
                if has_literal_output(node):
                    known = [self.own_level_and_names(word) for word in command_words(last_command(node))]
                    level = max([level, *(word_level for word_level, _ in known)])
                    names = names.union(*(word_names for _, word_names in known))
                    continue
                reads_written_file = any(
                    literal_path(part) in self.written_files for part in descend_nodes(node)
                )
                level = max(level, VALUE if reads_written_file else OUTSIDE)
            elif kind == "command" and (words := command_words(node)):
                names.add(f"{program_name(words[0])}()")
            stack.extend(node.children)
        return level, {"@" if name.isdigit() or name == "*" else name for name in names} - {"0"}

    def level_of(self, node: Node, evaluated: bool = False) -> int:
        level, names = self.own_level_and_names(node, evaluated)
        return max([level, *map(self.level_of_name, names)])

    # -- checks ------------------------------------------------------------------------------------

    def check(self, root: Node | None = None, stdin_has_value: bool = False) -> None:
        """Raise UnsafePosition if a value could become code, in the script or in one inside it."""
        stack = [(self.root if root is None else root, stdin_has_value, 0)]
        while stack:
            node, stdin_has_value, depth = stack.pop()
            if depth > MAX_SCRIPT_DEPTH:
                refuse_node(node, "Commands are nested too deeply here", SCRIPT_FILE_FIX)
            stdin_has_value = stdin_has_value or node.type == "function_definition"
            stdin_has_value = self.check_node(node, stdin_has_value)
            passing = stdin_has_value
            for child in node.children:
                stack.append((child, passing, depth + 1))
                if node.type == "pipeline":
                    passing = passing or self.level_of(child) == VALUE

    def check_node(self, node: Node, stdin_has_value: bool) -> bool:
        """Check one node; return whether the standard input of its children contains a value."""
        match node.type:
            case "redirected_statement" | "heredoc_redirect" | "command":
                stdin_has_value = stdin_has_value or any(self.feeds_value(child) for child in node.children)
                if node.type == "command":
                    self.check_command(command_words(node), stdin_has_value)
            case "word" if "`" in node_text(node).replace("\\`", ""):
                refuse_node(node, "This script cannot be parsed as bash", SYNTAX_FIX)
            case "test_command" if node.children[0].type != "((":
                words = list(test_operands(node))
                double = node.children[0].type == "[["
                for number, word in enumerate(words):
                    sign = literal_word(word) or ""
                    neighbours = words[max(number - 1, 0) : number] + words[number + 1 : number + 2]
                    if sign in ("-v", "-R") and any(map(self.level_of, neighbours[-1:])):
                        refuse_node(word, f"`{sign}` evaluates the name of a variable", NAME_FIX)
                    if double and sign in NUMERIC_OPERATORS and self.level_of_code(neighbours):
                        refuse_node(word, f"`[[ … {sign} … ]]` evaluates its operands as code", COMPARE_FIX)
                if not double:
                    self.check_shape(words)
            case "variable_assignment":
                self.check_assignment(node)
            case "declaration_command":
                self.check_declaration(node)
            case "unset_command":
                self.check_command(list(node.children), stdin_has_value)
            case kind if kind in OPAQUE_NODES and not is_quoted_document(node):
                if EVALUATION_PATTERN.search(node_text(node)) and (
                    self.level_of(node) == VALUE or (kind != "heredoc_content" and not node.children)
                ):
                    refuse_node(node, "Bash evaluates an expansion in this text", COMPUTE_FIX)
        for level, message, fix in self.evaluated_levels(node):
            if level:
                refuse_node(node, message, fix)
        if node.type in EXPANSION_NODES:
            self.check_split(node)
        return stdin_has_value

    def evaluated_levels(self, node: Node) -> Iterator[tuple[int, str, str]]:
        """Yield the levels of the texts that bash evaluates in a node, each with a message and the fix."""
        parts = [child for child in node.children if child.is_named and child.type != "do_group"]
        signs = operators(node)
        match node.type:
            case "arithmetic_expansion" | "c_style_for_statement":
                yield self.level_of_code(parts), ARITHMETIC_MESSAGE, COMPUTE_FIX
            case "compound_statement" | "test_command" if node.children[0].type == "((":
                yield self.level_of_code(parts), ARITHMETIC_MESSAGE, COMPUTE_FIX
            case "command_substitution" if node_text(node).startswith("$(("):
                # The parser treats arithmetic as a subshell inside ${…}.
                names = VARIABLE_NAME_PATTERN.findall(node_text(node))
                yield max(map(self.level_of_name, names), default=0), ARITHMETIC_MESSAGE, COMPUTE_FIX
            case "subscript":
                index = node.child_by_field_name("index")
                if index is not None and node_text(index) not in "@*":
                    yield self.level_of_code([index]), INDEX_MESSAGE, COMPUTE_FIX
            case "expansion" if signs[:1] == ["!"] and node.named_children[0].type != "subscript":
                names = REFERENCE_PATTERN.findall(node_text(node))
                level = max(map(self.level_of_name, names), default=VALUE)
                yield level, "Bash evaluates the name of a variable in ${!…}", NAME_FIX
            case "expansion" if signs[:2] == ["@", "P"]:
                yield self.level_of(node), "Bash evaluates the text in ${…@P}", "Remove @P."
            case "expansion" if signs[:1] == [":"]:
                level = self.level_of_code(node.named_children[1:])
                yield level, "Bash evaluates the numbers in ${…:…}", COMPUTE_FIX

    def level_of_code(self, parts: Iterable[Node]) -> int:
        """Return the level of parts that bash evaluates, in which a bare word is the name of a variable."""
        return max((self.level_of(part, True) for part in parts), default=LITERAL)

    def feeds_value(self, node: Node) -> bool:
        """Whether a redirection passes a value to the standard input or another descriptor of a command."""
        match node.type:
            case "herestring_redirect" | "heredoc_redirect" | "heredoc_body":
                return self.level_of(node) == VALUE
            case "file_redirect":
                reads = node_text(node).lstrip("0123456789").startswith("<")
                names = {literal_path(child) for child in node.named_children}
                return reads and (self.level_of(node) == VALUE or bool(names & self.written_files))
        return False

    def check_split(self, node: Node) -> None:
        """Reject a value that bash would split into words."""
        around = node.parent
        while around is not None and around.type == "concatenation":
            around = around.parent
        splits = around is not None and (around.type in SPLITTING_NODES or is_within_test(around, "["))
        if splits and self.level_of(node) == VALUE:
            message = "Bash splits this into several words, but a value must stay one word"
            refuse_node(node, message, QUOTES_FIX)

    def check_assignment(self, node: Node) -> None:
        name, value = node.child_by_field_name("name"), node.child_by_field_name("value")
        if name is None or value is None:
            return
        if assigned_name(name) in EVALUATED_VARIABLES and self.level_of(value) == VALUE:
            message = f"Bash or other programs evaluate the variable `{node_text(name)}`"
            refuse_node(node, message, OTHER_VARIABLE_FIX)
        for item in value.named_children if value.type == "array" else ():
            if literal_prefix(item).startswith("[") and item.type == "concatenation":
                for part in takewhile(lambda part: not node_text(part).startswith("]"), item.children):
                    if self.level_of(part, True) and node_text(part) != "[":
                        refuse_node(part, INDEX_MESSAGE, COMPUTE_FIX)

    def check_declaration(self, node: Node) -> None:
        """Reject attributes that make bash evaluate an assignment, and words that it evaluates."""
        command, words = node_text(node.children[0]), node.children[1:]
        special = any(re.match(r"-\w*[aAin]", node_text(word)) for word in words) and command != "export"
        for word in words:
            value, name = word.child_by_field_name("value"), assigned_name(word)
            is_scalar = value is None or value.type != "array"
            if special and is_scalar and self.level_of_name(name):
                refuse_node(word, f"`{command}` with this option evaluates `{name}`", "Remove the option.")
            sources = self.sources.get(name, ())
            holds_array = any(not isinstance(source, int) and source.type == "array" for source in sources)
            evaluated = word.type != "variable_assignment" or (holds_array and is_scalar)
            if evaluated and self.level_of(word):
                refuse_node(word, f"`{command}` evaluates this word", SEPARATE_ASSIGNMENT_FIX)

    def check_shape(self, words: list[Node]) -> None:
        """Reject a `[ … ]` in which a value could act as an operator."""
        while words and literal_word(words[0]) == "!":
            words = words[1:]
        if not any(map(self.level_of, words)):
            return
        for word in words:
            parts = word.children if word.type == "concatenation" else [word]
            if self.level_of(word) and any(part.type in EXPANSION_NODES for part in parts):
                message = "Bash splits this into several words, and `[` evaluates some of them"
                refuse_node(word, message, QUOTES_FIX)
        signs = [literal_word(word) is not None for word in words]
        if len(words) > 3 or (len(words) == 3 and not signs[1]) or (len(words) == 2 and not signs[0]):
            message = "`[` could interpret a value as an operator"
            refuse_node(words[0], message, "Write one `[ … ]` for each comparison.")

    # -- commands ----------------------------------------------------------------------------------

    def check_command(self, words: list[Node], stdin_has_value: bool) -> None:
        if not words:
            return
        if self.level_of(words[0]) and literal_word(words[0]) is None:
            refuse_node(words[0], "A value could become the name of a program here", NAME_FIX)
        if literal_path(words[0]) in self.written_files:
            refuse_node(words[0], "This runs a file that the script writes", SCRIPT_FILE_FIX)
        name, rest = program_name(words[0]), words[1:]
        if node_text(words[0]).strip('"') in ("$BASH", "$SHELL", "${BASH}", "${SHELL}"):
            name = "bash"
        if name in EVALUATING_BUILTINS:
            self.check_builtin(name, words, stdin_has_value)
        elif name == "printf":
            self.check_printf(rest)
        elif name == "test":
            if rest and literal_word(rest[0]) in ("-v", "-R") and any(map(self.level_of, rest)):
                refuse_node(rest[0], "`test -v` evaluates the name of a variable", NAME_FIX)
            self.check_shape(rest)
        elif (program := lookup_program(name)) is not None:
            self.check_program(name, program, words, stdin_has_value)
        elif name not in PLAIN_PROGRAMS:
            self.check_unknown_program(name, words, stdin_has_value)
        word = self.first_value_word(rest) if name in QUERY_PROGRAMS else None
        if word is not None and node_text(word)[:3] != '"${':
            message = f"A value in the query of `{name}` can change what the query does"
            fix = "Pass it as a parameter of the query."
            self.warnings.append(UnsafePosition(word.start_byte, word.end_byte, message, fix))

    def first_value_word(self, words: list[Node]) -> Node | None:
        return next((word for word in words if self.level_of(word) == VALUE), None)

    def refuse_value_in(self, words: list[Node], message: str, fix: str) -> None:
        if (word := self.first_value_word(words)) is not None:
            refuse_node(word, message, fix)

    def check_builtin(self, name: str, words: list[Node], stdin_has_value: bool) -> None:
        for word in words[1:]:
            evaluated = name == "let" and any(
                map(self.level_of_name, VARIABLE_NAME_PATTERN.findall(node_text(word)))
            )
            if self.level_of(word) or evaluated:
                refuse_node(word, f"`{name}` evaluates this word", BUILTIN_FIXES.get(name, NAME_FIX))
        if name in ("source", ".") and len(words) > 1:
            path = literal_path(words[1])
            if path in self.written_files or path.startswith(("/dev/", "/proc/")):
                refuse_node(words[1], f"`{name}` runs a file that can contain a value", SCRIPT_FILE_FIX)
        self.check_inner_script(words[0], stdin_has_value)

    def check_inner_script(self, word: Node, stdin_has_value: bool) -> None:
        if (root := self.inner_scripts.get(word.id)) is not None:
            try:
                self.check(root, stdin_has_value)
            except UnsafePosition as refusal:
                refuse_node(word, refusal.message, refusal.fix)

    def check_printf(self, words: list[Node]) -> None:
        if words and literal_word(words[0]) == "-v":
            words = words[2:] if not (len(words) > 1 and self.level_of(words[1])) else words[1:]
        words = words[1:] if words and literal_word(words[0]) == "--" else words
        if words and (self.level_of(words[0]) or "%n" in (literal_word(words[0]) or "")):
            refuse_node(words[0], "`printf` uses this word as its format", "Write `printf %s {{ … }}`.")

    def check_unknown_program(self, name: str, words: list[Node], stdin_has_value: bool) -> None:
        """Check an unknown program: any of its words may be a program that it runs."""
        if not name and stdin_has_value:
            message = "This program could run its standard input, which contains a value"
            refuse_node(words[0], message, SCRIPT_FILE_FIX)
        for number, word in enumerate(words[1:], 1):
            known = literal_word(word)
            inner = lookup_program(program_name(word)) if known and not known.startswith("-") else None
            if inner is not None and (inner.kind not in ("options", "prefix") or stdin_has_value):
                self.check_program(program_name(word), inner, words[number:], stdin_has_value)
                return
            if not name and word.type == "process_substitution" and self.level_of(word) == VALUE:
                refuse_node(word, "This program could run a file that contains a value", SCRIPT_FILE_FIX)
            if not name and known in ("-c", "-e", "--eval"):
                self.refuse_value_in(words[number:], "This program runs the word as code", INNER_SHELL_FIX)

    def check_program(
        self, name: str, program: ShellProgram, words: list[Node], stdin_has_value: bool
    ) -> None:
        match program.kind:
            case "words":
                fix = SSH_FIX if name == "ssh" else ENVIRONMENT_FIX
                self.refuse_value_in(words[1:], f"`{name}` runs its words as code", fix)
                if stdin_has_value and name == "ssh":
                    # A remote command of known plain programs only reads its standard input as data.
                    remote = re.findall(r"[\w./-]+", literal_word(words[-1]) or "")
                    if len(remote) < 2 or any(lookup_program(word.rsplit("/", 1)[-1]) for word in remote):
                        refuse_stdin(name, words)
                elif stdin_has_value and program.runs_stdin:
                    refuse_stdin(name, words)
            case "options":
                for before, word in pairwise(words):
                    option = literal_word(before) or ""
                    is_letter = option[:2] != "--" and option[-1:] in {*program.code_options}
                    is_code = option[:1] == "-" and (option in program.long_code_options or is_letter)
                    is_joined = literal_prefix(word).split("=")[0] in program.long_code_options
                    if is_code or is_joined:
                        self.refuse_value_in([word], f"`{name}` runs this word as code", ENVIRONMENT_FIX)
                if name not in PLAIN_PROGRAMS:
                    self.check_unknown_program(name, words, stdin_has_value)
            case "prefix":
                if name == "xargs" and stdin_has_value:
                    fix = "Use `while IFS= read -r line; do … done`."
                    refuse_node(words[0], "`xargs` splits a value into words", fix)
                self.check_prefix(name, program, words, stdin_has_value)
            case _:
                self.check_interpreter(name, program, words, stdin_has_value)

    def skip_options(self, program: ShellProgram, words: list[Node]) -> tuple[int, set[str]]:
        """Return the index of the first operand and the options before it: letters and long code options."""
        position, options = 1, set[str]()
        while position < len(words):
            option = literal_prefix(words[position])
            if option == "--" or (
                option == "-" and program.kind == "shell" and literal_word(words[position])
            ):
                return position + 1, options
            if not re.match(r"[-+].", option):
                break
            if option.startswith("--"):
                if option.split("=")[0] in program.long_code_options:
                    options.add(option.split("=")[0])
                    position += "=" not in option
            else:
                for index, letter in enumerate(option[1:], 2):
                    options.add(letter)
                    if letter in program.code_options or letter in program.word_options:
                        position += index == len(option) and literal_word(words[position]) is not None
                        break
            position += 1
        return position, options

    def check_prefix(
        self, name: str, program: ShellProgram, words: list[Node], stdin_has_value: bool
    ) -> None:
        """Check a program that runs another program: the rest of its words is a command."""
        position, letters = self.skip_options(program, words)
        options, operands = words[1:position], words[position:]
        while name in ("env", "sudo") and operands and re.match(r"\w+=", literal_prefix(operands[0])):
            variable = literal_prefix(operands[0]).split("=")[0]
            if variable in EVALUATED_VARIABLES:
                message = f"Programs evaluate the variable `{variable}`"
                self.refuse_value_in(operands[:1], message, OTHER_VARIABLE_FIX)
            operands = operands[1:]
        if name == "command" and any(re.match("-[vV]", literal_prefix(word)) for word in options):
            return
        inner = operands[program.skipped_operands :]
        inner = inner[1:] if inner and literal_word(inner[0]) == "--" else inner
        code_letters = [f"-{letter}" for letter in program.code_options]
        if is_coded(program, letters) or (inner and literal_word(inner[0]) in code_letters):
            self.refuse_value_in(words[1:], f"`{name}` runs this word as code", INNER_SHELL_FIX)
        if stdin_has_value and not inner and name in ("sudo", "doas", "chroot"):
            refuse_stdin(name, words)
        self.check_command(inner, stdin_has_value)

    def check_interpreter(
        self, name: str, program: ShellProgram, words: list[Node], stdin_has_value: bool
    ) -> None:
        """Check a shell, an interpreter, `awk` or `sed`: code is an option, a file or standard input."""
        position, letters = self.skip_options(program, words)
        options, operands = words[1:position], words[position:]
        is_filter, coded = program.kind == "filter", is_coded(program, letters)
        message = f"`{name}` runs this word as code"
        fix = {"shell": INNER_SHELL_FIX, "filter": AWK_FIX}.get(program.kind, ENVIRONMENT_FIX)
        self.refuse_value_in(options, message, fix)
        if coded and not is_filter:
            self.refuse_value_in(operands, message, fix)
        self.check_inner_script(words[0], stdin_has_value)
        if coded or (is_filter and "f" in letters):
            return
        self.refuse_value_in(operands[:1], message, AWK_FIX if is_filter else SCRIPT_FILE_FIX)
        if is_filter:
            return
        path = literal_path(operands[0]) if operands else "-"
        if path in self.written_files:
            refuse_node(operands[0], f"`{name}` runs a file that the script writes", SCRIPT_FILE_FIX)
        reads_stdin = path == "-" or path.startswith(("/dev/", "/proc/"))
        if program.kind == "shell":
            reads_stdin |= any(re.match("-[a-z]*s", literal_prefix(word)) for word in options)
        if stdin_has_value and reads_stdin:
            refuse_stdin(name, words)


def is_coded(program: ShellProgram, options: set[str]) -> bool:
    """Whether one of these options of a program takes code."""
    return bool(options & {*program.code_options, *program.long_code_options})


def refuse_stdin(name: str, words: list[Node]) -> NoReturn:
    message = f"`{name}` runs its standard input, which contains a value"
    refuse_node(words[0], message, SCRIPT_FILE_FIX)


# -- syntax tree helpers -------------------------------------------------------------------------------


def literal_path(node: Node) -> str:
    """Return the file that a word names; empty if it is only known at run time."""
    word = literal_word(node) if node.is_named else None
    return normpath(word) if word else ""


def command_words(node: Node | None) -> list[Node]:
    """Return the name of a command and its arguments."""
    if node is None:
        return []
    name = node.child_by_field_name("name")
    return [*([name] if name is not None else []), *node.children_by_field_name("argument")]


def inner_script_text(words: list[Node], number: int) -> str | None:
    """Return the literal script after a word that names `eval`, `trap` or a shell, or None."""
    name = program_name(words[number])
    program = lookup_program(name)
    if name not in SCRIPT_BUILTINS and (program is None or program.kind != "shell"):
        return None
    rest = words[number + 1 :]
    if name in SCRIPT_BUILTINS:
        code = [literal_word(word) for word in (rest[:1] if name == "trap" else rest)]
        return None if None in code or code == ["-"] else " ".join(part or "" for part in code)
    for option, word in pairwise(rest):
        if re.fullmatch(r"-[A-Za-z]*c[A-Za-z]*", literal_word(option) or ""):
            return literal_word(word)
    return None


def operators(node: Node) -> list[str]:
    """Return the operators of an expansion, such as `:` and `-`."""
    return [node_text(operator) for operator in node.children_by_field_name("operator")]


def assigned_name(word: Node) -> str:
    """Return the name of a variable at the start of a word, without an index or a value."""
    return re.split(r"\W", node_text(word))[0]


def is_variable_read(node: Node) -> bool:
    return node.parent is not None and node.parent.type in ("simple_expansion", "expansion", "subscript")


def is_quoted_document(node: Node) -> bool:
    """Whether a node is the body of a here-document without expansion."""
    around = node.parent
    if node.type != "heredoc_body" or around is None:
        return False
    starts = (node_text(child) for child in around.children if child.type == "heredoc_start")
    return any(re.search(r"['\"\\]", start) for start in starts)


def is_within_test(node: Node, bracket: str) -> bool:
    """Whether a node is part of `[[ … ]]`, or of `[ … ]`."""
    around: Node | None = node
    while around is not None and around.type in EXPRESSION_NODES:
        around = around.parent
    return around is not None and around.type == "test_command" and around.children[0].type == bracket


def test_operands(node: Node) -> Iterator[Node]:
    """Yield the words of `[ … ]` or `[[ … ]]` in order, without the brackets."""
    stack = list(reversed(node.children[1:-1]))
    while stack:
        word = stack.pop()
        if word.type in EXPRESSION_NODES:
            stack.extend(reversed(word.children))
        else:
            yield word


def last_command(node: Node) -> Node | None:
    """Return the command that produces the output of a substitution, or None."""
    inner = [child for child in node.named_children if child.type != "comment"]
    while len(inner) == 1 and inner[0].type == "pipeline":
        inner = inner[0].named_children[-1:]
    return inner[0] if len(inner) == 1 and inner[0].type == "command" else None


def has_literal_output(node: Node) -> bool:
    """Whether the output of a substitution contains a value only if its last command has one as a word."""
    words = command_words(last_command(node))
    if not words or node.type != "command_substitution":
        return False
    if program_name(words[0]) == "git":
        return len(words) > 1 and literal_word(words[1]) in ("rev-parse", "rev-list")
    return program_name(words[0]) in LITERAL_OUTPUT_PROGRAMS
