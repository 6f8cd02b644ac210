"""What a bash script does with the values in it, read from its syntax tree; what it may not do is refused.

Every text of a script has a level: `LITERAL` is spelt out in the script, `OUTSIDE` comes from other
programs or files, and `VALUE` can hold a `{{ }}` value. This shell evaluates `LITERAL` texts only.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from itertools import pairwise
from posixpath import normpath
from typing import TYPE_CHECKING, NoReturn

from nerve.spec.shell_programs import (
    EVALUATED,
    EVALUATES,
    NAMES_VARIABLES,
    PLAIN,
    QUERIES,
    RUNS,
    SPELT_OUT,
    UNKNOWN,
    Program,
    program_named,
)

if TYPE_CHECKING:
    from tree_sitter import Node, Parser

LITERAL, OUTSIDE, VALUE = 0, 1, 2

SYNTAX = "Check its quotes and brackets, or run a script file, `bash script.sh {{ … }}`."
QUOTES = "Write it inside double quotes."
NAMED = "Write the name itself here."
ENVIRONMENT = "Write `export value={{ … }}` before it, and let the code read that variable."
AWK = 'Write `export value={{ … }}` before it, and use ENVIRON["value"] in single-quoted awk code.'
INNER = 'Write `export value={{ … }}` before it, and "$value" in the single-quoted code.'
SSH = "Send it on standard input, `printf %s {{ … }} | ssh host 'cat > file'`."
SENT = "Run a script file that takes the value as an argument, `bash script.sh {{ … }}`."
COMPUTED = "Compute it inside the braces, `{{ … + 1 }}`."
COMPARED = "Compare with `[ … ]` and double quotes, which evaluates nothing."
ALONE = "Write `name={{ … }}` as a command of its own."
OTHER = "Use another variable."

NAME = re.compile(r"[A-Za-z_]\w*")
ENVIRONMENT_WORD = re.compile(r"([A-Za-z_]\w*)=")
REFERENCE = re.compile(r"\$[{!#]*([A-Za-z_]\w*|[0-9@*])")
EVALUATION = re.compile(r"\$\(|\$\[|`|\$\{!|\$\{\w+\[|\$\{\w+:[^-=?+]|@P\}")
BUILTIN_FIXES = {
    "eval": "Write the command without `eval`.",
    "trap": 'Write `value={{ … }}` before it, and "$value" in the single-quoted code.',
    "let": COMPUTED,
    **dict.fromkeys(("declare", "typeset", "local", "export", "readonly"), ALONE),
}
OPAQUE = frozenset({"regex", "extglob_pattern", "heredoc_body", "heredoc_content"})
"""Tokens in which the parser does not find every expansion."""
EXPANSIONS = frozenset({"simple_expansion", "expansion", "command_substitution"})
NUMERIC = frozenset({"-eq", "-ne", "-lt", "-le", "-gt", "-ge"})
OUTPUTS = frozenset({">", ">>", "&>", "&>>", ">|", "<>"})
EXPRESSIONS = frozenset({"binary_expression", "unary_expression", "parenthesized_expression"})
SPLIT = frozenset({"command", "for_statement", "array", "command_name", "file_redirect"})
DEEP = 500


class Refusal(Exception):
    """Why a value may not be used between two bytes of the script, and the fix."""

    def __init__(self, start: int, end: int, message: str, fix: str) -> None:
        super().__init__(message)
        self.start, self.end, self.message, self.fix = start, end, message, fix


@cache
def load_parser() -> Parser:
    """Return the parser; it is imported with the first command that has a value."""
    import tree_sitter
    import tree_sitter_bash

    return tree_sitter.Parser(tree_sitter.Language(tree_sitter_bash.language()))


def parse(text: str) -> Node:
    return load_parser().parse(text.encode()).root_node


def text_of(node: Node) -> str:
    return (node.text or b"").decode()


def descend(node: Node) -> Iterator[Node]:
    """A node and everything below it, in the order of the text."""
    stack = [node]
    while stack:
        node = stack.pop()
        yield node
        stack.extend(reversed(node.children))


def spell(node: Node) -> str | None:
    """The text of a word without its quotes, or None if a part of it is known only when it runs."""
    match node.type:
        case "word" | "number" | "variable_name" | "test_operator":
            return re.sub(r"\\(.)", r"\1", text_of(node), flags=re.DOTALL)
        case "raw_string":
            return text_of(node)[1:-1]
        case "ansi_c_string":
            return text_of(node)[2:-1]
        case "string" | "concatenation" | "command_name" | "brace_expression":
            pieces = [spell(child) for child in node.children if child.is_named]
            if node.type == "brace_expression" or None in pieces:
                return None if None in pieces else text_of(node)
            return "".join(piece or "" for piece in pieces)
        case "string_content":
            return re.sub(r"\\([$`\"\\])", r"\1", text_of(node))
    return None if node.is_named else text_of(node)


def begin(node: Node) -> str:
    """The part of a word before the first expansion."""
    if node.type in ("concatenation", "string", "command_name"):
        start = ""
        for child in node.children:
            if child.is_named:
                start += begin(child)
                if spell(child) is None:
                    break
        return start
    return spell(node) or ""


def base_name(node: Node) -> str:
    """The name of the program that a word names; empty if only a variable says it."""
    known = spell(node)
    if known is None:
        known = text_of(node).rstrip('"').rsplit("/", 1)[-1]
        known = "" if "$" in known or "`" in known else known
    return known.rsplit("/", 1)[-1]


def refuse(node: Node, message: str, fix: str) -> NoReturn:
    raise Refusal(node.start_byte, node.end_byte, message, fix)


class Script:
    """A script as it is handed to bash; `names` are variables that hold values from the beginning."""

    def __init__(self, text: str, names: frozenset[str]) -> None:
        self.names = names
        self.levels: dict[str, int] = {}
        self.sources: dict[str, list[Node | int]] = {}
        self.calls: set[str] = set()
        """The functions of the script; their arguments are `$1` and so on."""
        self.written: set[str] = set()
        """The files into which it writes."""
        self.warnings: list[Refusal] = []
        self.root = parse(text)
        self.inner: dict[int, Node] = {}
        """The scripts that are words of this one, by the word that runs them."""
        self.collect(self.root)
        self.settle()

    # -- what variables hold -----------------------------------------------------------------------

    def collect(self, root: Node, depth: int = 0) -> None:
        """Note what is assigned to which name."""
        if root.has_error:
            refuse(root, "this script cannot be parsed as bash", SYNTAX)
        for node in descend(root):
            match node.type:
                case "variable_assignment":
                    self.collect_assignment(node)
                case "for_statement":
                    name = node.child_by_field_name("variable")
                    if name is not None:
                        values: list[Node | int] = [*node.children_by_field_name("value")]
                        self.assign(text_of(name), *(values or [VALUE]))
                case "function_definition":
                    name, body = node.child_by_field_name("name"), node.child_by_field_name("body")
                    if name is not None and body is not None:
                        self.assign(f"{text_of(name)}()", body)
                        self.calls.add(text_of(name))
                case "expansion":
                    operators = [text_of(each) for each in node.children_by_field_name("operator")]
                    if operators and operators[0] in ("=", ":="):
                        name = node.named_children[0]
                        self.assign(text_of(name), *node.named_children[1:])
                case "command":
                    self.collect_command(node, depth)
                case "file_redirect" if any(child.type in OUTPUTS for child in node.children):
                    self.note_written(node.named_children)

    def assign(self, name: str, *sources: Node | int) -> None:
        self.sources.setdefault(name, []).extend(sources)

    def collect_assignment(self, node: Node) -> None:
        name, value = node.child_by_field_name("name"), node.child_by_field_name("value")
        if name is not None and value is not None:
            self.assign(re.split(r"\W", text_of(name))[0], value)

    def collect_command(self, node: Node, depth: int) -> None:
        words = words_of(node)
        if not words:
            return
        name = base_name(words[0])
        self.assign("@" if name in ("set", "") else f"@{name}", *words[1:])
        if name in ("tee", "cp", "mv", "dd", "ln"):
            self.note_written(words[1:])
        for number, word in enumerate(words):
            if assigned := ENVIRONMENT_WORD.match(begin(word)):
                self.assign(assigned[1], word)
            if base_name(word) in NAMES_VARIABLES:
                for other in words[number + 1 :]:
                    if (spelt := spell(other)) and NAME.fullmatch(spelt):
                        self.assign(spelt, VALUE)
            if (code := code_after(words, number)) is not None and word.id not in self.inner:
                if depth > 3:
                    refuse(node, "scripts are nested too deeply here", SENT)
                self.inner[word.id] = root = parse(code)
                try:
                    self.collect(root, depth + 1)
                except Refusal as refusal:
                    refuse(word, refusal.message, refusal.fix)

    def note_written(self, words: list[Node]) -> None:
        self.written.update(path for path in map(path_of, words) if path and not path.startswith("/dev/"))

    def settle(self) -> None:
        """Give every name its level: the highest of what is assigned to it."""
        uses: dict[str, set[str]] = {f"@{name}": {"@"} for name in self.calls}
        for name, sources in self.sources.items():
            for source in sources:
                if isinstance(source, int):
                    self.levels[name] = max(self.levels.get(name, 0), source)
                    continue
                level, names = self.refer(source)
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
        if name in self.names or UNKNOWN.fullmatch(name):
            return VALUE
        return self.levels.get(name, LITERAL)

    def refer(self, node: Node, evaluated: bool = False) -> tuple[int, set[str]]:
        """The level that a text has by itself, and the names whose values it holds."""
        level, names = LITERAL, set[str]()
        stack = [node]
        while stack:
            node = stack.pop()
            kind = node.type
            if kind == "arithmetic_expansion" and not evaluated:
                continue
            if kind in OPAQUE:
                if not is_quoted_document(node):
                    evaluates = EVALUATION.search(text_of(node))
                    names |= set((NAME if evaluates else REFERENCE).findall(text_of(node)))
                    level = max(level, OUTSIDE if evaluates else level)
            elif (kind == "variable_name" and (evaluated or is_read(node))) or text_of(node) in (
                "@",
                "*",
                "_",
            ):
                names.add(text_of(node))
            elif kind == "word":
                level = max(level, OUTSIDE if re.search(r"(?<!\\)[*?\[]", text_of(node)) else level)
                if evaluated and NAME.fullmatch(text_of(node)):
                    names.add(text_of(node))
            elif kind == "expansion":
                signs = [text_of(each) for each in node.children_by_field_name("operator")]
                if signs[:1] == ["#"]:
                    continue
                if signs[:1] == ["!"] and node.named_children[0].type != "subscript":
                    level = VALUE
            elif kind in ("command_substitution", "process_substitution"):
                if is_spelt_out(node):
                    known = [self.refer(word) for word in words_of(last_command(node))]
                    level = max([level, *(each for each, _ in known)])
                    names = names.union(*(each for _, each in known))
                    continue
                written = any(path_of(part) in self.written for part in descend(node))
                level = max(level, VALUE if written else OUTSIDE)
            elif kind == "command" and (words := words_of(node)):
                names.add(f"{base_name(words[0])}()")
            stack.extend(node.children)
        return level, {"@" if each.isdigit() or each == "*" else each for each in names} - {"0"}

    def level(self, node: Node, evaluated: bool = False) -> int:
        level, names = self.refer(node, evaluated)
        return max([level, *map(self.level_of_name, names)])

    # -- what the script does with them ------------------------------------------------------------

    def check(self) -> None:
        """Raise Refusal if a value could become code."""
        self.check_tree(self.root)

    def check_tree(self, root: Node, fed: bool = False) -> None:
        stack = [(root, fed, 0)]
        while stack:
            node, fed, depth = stack.pop()
            if depth > DEEP:
                refuse(node, "commands are nested too deeply here", SENT)
            fed = fed or node.type == "function_definition"
            fed = self.check_node(node, fed)
            passing = fed
            for child in node.children:
                stack.append((child, passing, depth + 1))
                if node.type == "pipeline":
                    passing = passing or self.level(child) == VALUE

    def check_node(self, node: Node, fed: bool) -> bool:
        """Check a node by itself; returns whether what is in it reads a value."""
        match node.type:
            case "redirected_statement" | "heredoc_redirect" | "command":
                fed = fed or any(self.feeds(child) for child in node.children)
                if node.type == "command":
                    self.check_command(words_of(node), fed)
            case "arithmetic_expansion" | "c_style_for_statement":
                self.check_arithmetic(node, [child for child in node.children if child.type != "do_group"])
            case "compound_statement" | "test_command" if node.children[0].type == "((":
                self.check_arithmetic(node, node.children)
            case "command_substitution" if text_of(node).startswith("$(("):
                # The parser takes arithmetic for a subshell inside of ${…}.
                if any(map(self.level_of_name, NAME.findall(text_of(node)))):
                    refuse(node, "bash evaluates the texts in arithmetic as code", COMPUTED)
            case "word" if "`" in text_of(node).replace("\\`", ""):
                refuse(node, "this script cannot be parsed as bash", SYNTAX)
            case "subscript":
                index = node.child_by_field_name("index")
                if index is not None and text_of(index) not in "@*" and self.level(index, True):
                    refuse(node, "bash evaluates the index of an array", COMPUTED)
            case "expansion":
                self.check_expansion(node)
            case "test_command":
                self.check_test(node)
            case "variable_assignment":
                self.check_assignment(node)
            case "declaration_command":
                self.check_declaration(node)
            case "unset_command":
                self.check_command(list(node.children), fed)
            case kind if kind in OPAQUE and not is_quoted_document(node):
                if EVALUATION.search(text_of(node)) and (
                    self.level(node) == VALUE or (kind != "heredoc_content" and not node.children)
                ):
                    refuse(node, "bash evaluates an expansion in this text", COMPUTED)
        if node.type in EXPANSIONS:
            self.check_split(node)
        return fed

    def feeds(self, node: Node) -> bool:
        """Whether a redirection gives a value to the standard input, or another file, of a command."""
        match node.type:
            case "herestring_redirect" | "heredoc_redirect" | "heredoc_body":
                return self.level(node) == VALUE
            case "file_redirect":
                reads = text_of(node).lstrip("0123456789").startswith("<")
                names = {path_of(child) for child in node.named_children}
                return reads and (self.level(node) == VALUE or bool(names & self.written))
        return False

    def check_arithmetic(self, node: Node, parts: list[Node]) -> None:
        if any(self.level(part, True) for part in parts if part.is_named):
            refuse(node, "bash evaluates the texts in arithmetic as code", COMPUTED)

    def check_expansion(self, node: Node) -> None:
        signs = [text_of(each) for each in node.children_by_field_name("operator")]
        if signs[:1] == ["!"] and node.named_children[0].type != "subscript" and self.level_of_text(node):
            refuse(node, "bash evaluates the name of a variable in ${!…}", NAMED)
        if signs[:2] == ["@", "P"] and self.level(node):
            refuse(node, "bash evaluates the text in ${…@P}", "Leave out @P.")
        if signs[:1] == [":"] and any(self.level(part, True) for part in node.named_children[1:]):
            refuse(node, "bash evaluates the numbers in ${…:…}", COMPUTED)

    def level_of_text(self, node: Node) -> int:
        return max(map(self.level_of_name, REFERENCE.findall(text_of(node))), default=VALUE)

    def check_split(self, node: Node) -> None:
        """Refuse a value that bash would split into words."""
        around = node.parent
        while around is not None and around.type == "concatenation":
            around = around.parent
        if around is not None and (around.type in SPLIT or within(around, "[")) and self.level(node) == VALUE:
            refuse(node, "bash splits this into several words, and a value is one word", QUOTES)

    def check_assignment(self, node: Node) -> None:
        name, value = node.child_by_field_name("name"), node.child_by_field_name("value")
        if name is None or value is None:
            return
        if re.split(r"\W", text_of(name))[0] in EVALUATED and self.level(value) == VALUE:
            refuse(node, f"bash or other programs evaluate the variable `{text_of(name)}`", OTHER)
        if value.type == "array":
            for item in value.named_children:
                if begin(item).startswith("[") and item.type == "concatenation":
                    for part in item.children:
                        if text_of(part).startswith("]"):
                            break
                        if self.level(part, True) and text_of(part) != "[":
                            refuse(part, "bash evaluates the index of an array", COMPUTED)

    def check_declaration(self, node: Node) -> None:
        """Refuse attributes by which bash evaluates what is assigned, and words that it evaluates."""
        command, words = text_of(node.children[0]), node.children[1:]
        special = any(re.match(r"-\w*[aAin]", text_of(word)) for word in words) and command != "export"
        for word in words:
            value, name = word.child_by_field_name("value"), re.split(r"\W", text_of(word))[0]
            if special and self.level_of_name(name) and (value is None or value.type != "array"):
                refuse(word, f"`{command}` with this option evaluates `{name}`", "Leave out the option.")
            arrays = [each for each in self.sources.get(name, ()) if not isinstance(each, int)]
            array = any(each.type == "array" for each in arrays) and (value is None or value.type != "array")
            if self.level(word) and (word.type != "variable_assignment" or array):
                refuse(word, f"`{command}` evaluates this word", ALONE)

    def check_test(self, node: Node) -> None:
        words = list(operands(node))
        double = node.children[0].type == "[["
        for number, word in enumerate(words):
            sign = spell(word) or ""
            beside = words[max(number - 1, 0) : number] + words[number + 1 : number + 2]
            if sign in ("-v", "-R") and any(map(self.level, beside[-1:])):
                refuse(word, f"`{sign}` evaluates the name of a variable", NAMED)
            if double and sign in NUMERIC and any(self.level(each, True) for each in beside):
                refuse(word, f"`[[ … {sign} … ]]` evaluates what it compares as code", COMPARED)
        if not double:
            self.check_shape(words)

    def check_shape(self, words: list[Node]) -> None:
        """Refuse a `[ … ]` in which a value could be taken for an operator."""
        while words and spell(words[0]) == "!":
            words = words[1:]
        if not any(map(self.level, words)):
            return
        loose = [word for word in words if self.level(word) and is_loose(word)]
        if loose:
            refuse(loose[0], "bash splits this into several words, and `[` evaluates some", QUOTES)
        signs = [spell(word) is not None for word in words]
        if len(words) > 3 or (len(words) == 3 and not signs[1]) or (len(words) == 2 and not signs[0]):
            refuse(
                words[0], "`[` could take a value for an operator", "Write one `[ … ]` for each comparison."
            )

    # -- commands ----------------------------------------------------------------------------------

    def check_command(self, words: list[Node], fed: bool) -> None:
        if not words:
            return
        if self.level(words[0]) and spell(words[0]) is None:
            refuse(words[0], "a value could be the name of a program here", NAMED)
        if path_of(words[0]) in self.written:
            refuse(words[0], "this runs a file that the script has written", SENT)
        name, rest = base_name(words[0]), words[1:]
        if text_of(words[0]).strip('"') in ("$BASH", "$SHELL", "${BASH}", "${SHELL}"):
            name = "bash"
        if name in EVALUATES:
            self.check_builtin(name, words, fed)
        elif name == "printf":
            self.check_printf(rest)
        elif name == "test":
            self.check_test_command(rest)
        elif (program := program_named(name)) is not None:
            self.check_program(name, program, words, fed)
        elif name not in PLAIN:
            self.check_any(name, words, fed)
        if name in QUERIES and (found := self.first_value(rest)) is not None and text_of(found)[:3] != '"${':
            message = f"a value in the query of `{name}` can change what the query does"
            fix = "Pass it as a parameter of the query."
            self.warnings.append(Refusal(found.start_byte, found.end_byte, message, fix))

    def first_value(self, words: list[Node]) -> Node | None:
        return next((word for word in words if self.level(word) == VALUE), None)

    def check_builtin(self, name: str, words: list[Node], fed: bool) -> None:
        for word in words[1:]:
            evaluated = name == "let" and any(map(self.level_of_name, NAME.findall(text_of(word))))
            if self.level(word) or evaluated:
                refuse(word, f"`{name}` evaluates this word", BUILTIN_FIXES.get(name, NAMED))
        if name in ("source", ".") and len(words) > 1:
            path = path_of(words[1])
            if path in self.written or path.startswith(("/dev/", "/proc/")):
                refuse(words[1], f"`{name}` runs a text in which a value can be", SENT)
        self.check_inner(words[0], fed)

    def check_inner(self, word: Node, fed: bool) -> None:
        if (root := self.inner.get(word.id)) is not None:
            try:
                self.check_tree(root, fed)
            except Refusal as refusal:
                refuse(word, refusal.message, refusal.fix)

    def check_printf(self, words: list[Node]) -> None:
        if words and spell(words[0]) == "-v":
            words = words[2:] if not (len(words) > 1 and self.level(words[1])) else words[1:]
        words = words[1:] if words and spell(words[0]) == "--" else words
        if words and (self.level(words[0]) or "%n" in (spell(words[0]) or "")):
            refuse(words[0], "`printf` takes this word for its format", "Write `printf %s {{ … }}`.")

    def check_test_command(self, words: list[Node]) -> None:
        if words and spell(words[0]) in ("-v", "-R") and any(map(self.level, words)):
            refuse(words[0], "`test -v` evaluates the name of a variable", NAMED)
        self.check_shape(words)

    def check_any(self, name: str, words: list[Node], fed: bool) -> None:
        """Check a program of which nothing is known: any of its words can be a program that it runs."""
        if not name and fed:
            refuse(words[0], "this program could run its standard input, in which a value is", SENT)
        for number, word in enumerate(words[1:], 1):
            known = spell(word)
            inner = program_named(base_name(word)) if known and not known.startswith("-") else None
            if inner is not None and (inner.kind not in ("options", "prefix") or fed):
                self.check_program(base_name(word), inner, words[number:], fed)
                return
            if not name and word.type == "process_substitution" and self.level(word) == VALUE:
                refuse(word, "this program could run a file in which a value is", SENT)
            if not name and known in ("-c", "-e", "--eval") and self.first_value(words[number:]) is not None:
                refuse(words[number + 1], "this program takes the word for code", INNER)

    def check_program(self, name: str, program: Program, words: list[Node], fed: bool) -> None:
        found = self.first_value(words[1:])
        if program.kind == "words":
            if found is not None:
                refuse(found, f"`{name}` takes its words for code", SSH if name == "ssh" else ENVIRONMENT)
            remote = re.findall(r"[\w./-]+", spell(words[-1]) or "")
            sends = len(remote) > 1 and not any(program_named(each.rsplit("/", 1)[-1]) for each in remote)
            if fed and (program.reads or (name == "ssh" and not sends)):
                refuse(words[0], f"`{name}` runs its standard input, in which a value is", SENT)
            return
        if program.kind == "options":
            for before, word in pairwise(words):
                option = spell(before) or ""
                code = option in program.long or (option[:2] != "--" and option[-1:] in {*program.code})
                joined = begin(word).split("=")[0] in program.long
                if self.level(word) == VALUE and (joined or (option[:1] == "-" and code)):
                    refuse(word, f"`{name}` takes this word for code", ENVIRONMENT)
            if name not in PLAIN:
                self.check_any(name, words, fed)
            return
        if name == "xargs" and fed:
            refuse(words[0], "`xargs` makes words of a value", "Use `while IFS= read -r line; do … done`.")
        self.check_words(name, program, words, fed)

    def skip_options(self, program: Program, words: list[Node]) -> tuple[int, set[str]]:
        """Where the operands begin, and the options before them: letters, and long ones that are code."""
        at, found = 1, set[str]()
        while at < len(words):
            option = begin(words[at])
            if option == "--" or (option == "-" and program.kind == "shell" and spell(words[at])):
                return at + 1, found
            if not re.match(r"[-+].", option):
                break
            if option.startswith("--"):
                if option.split("=")[0] in program.long:
                    found.add(option.split("=")[0])
                    at += "=" not in option
            else:
                for place, letter in enumerate(option[1:], 2):
                    found.add(letter)
                    if letter in program.code or letter in program.takes:
                        at += place == len(option) and spell(words[at]) is not None
                        break
            at += 1
        return at, found

    def check_words(self, name: str, program: Program, words: list[Node], fed: bool) -> None:
        at, letters = self.skip_options(program, words)
        options, operands = words[1:at], words[at:]
        coded = bool(letters & {*program.code, *program.long})
        if program.kind == "prefix":
            while operands and re.match(r"\w+=", begin(operands[0])) and name in ("env", "sudo"):
                if begin(operands[0]).split("=")[0] in EVALUATED and self.level(operands[0]) == VALUE:
                    refuse(operands[0], f"programs evaluate the variable `{begin(operands[0])[:-1]}`", OTHER)
                operands = operands[1:]
            if name == "command" and any(re.match("-[vV]", begin(word)) for word in options):
                return
            inner = operands[program.skip :]
            inner = inner[1:] if inner and spell(inner[0]) == "--" else inner
            coded = coded or any(spell(word) in [f"-{each}" for each in program.code] for word in inner[:1])
            if coded and (found := self.first_value(words[1:])) is not None:
                refuse(found, f"`{name}` takes this word for code", INNER)
            if fed and not inner and name in ("sudo", "doas", "chroot"):
                refuse(words[0], f"`{name}` runs its standard input, in which a value is", SENT)
            self.check_command(inner, fed)
            return
        fix = {"shell": INNER, "filter": AWK}.get(program.kind, ENVIRONMENT)
        found = self.first_value(options)
        if found is None and coded and program.kind != "filter":
            found = self.first_value(operands)
        if found is not None:
            refuse(found, f"`{name}` takes this word for code", fix)
        self.check_inner(words[0], fed)
        if coded or (program.kind == "filter" and "f" in letters):
            return
        first = operands[0] if operands else None
        if first is not None and self.level(first) == VALUE:
            refuse(first, f"`{name}` takes this word for code", AWK if program.kind == "filter" else SENT)
        path = path_of(first) if first is not None else "-"
        if program.kind == "filter":
            return
        if path in self.written:
            refuse(first or words[0], f"`{name}` runs a file that the script has written", SENT)
        is_input = path == "-" or path.startswith(("/dev/", "/proc/"))
        is_input = is_input or (
            program.kind == "shell" and any(re.match("-[a-z]*s", begin(word)) for word in options)
        )
        if fed and is_input:
            refuse(words[0], f"`{name}` runs its standard input, in which a value is", SENT)


# -- the shapes of the tree ----------------------------------------------------------------------------


def path_of(node: Node) -> str:
    """The file that a word names; empty if it is known only when the script runs."""
    spelt = spell(node) if node.is_named else None
    return normpath(spelt) if spelt else ""


def words_of(node: Node | None) -> list[Node]:
    """The name of a command and its arguments."""
    if node is None:
        return []
    name = node.child_by_field_name("name")
    return [*([name] if name is not None else []), *node.children_by_field_name("argument")]


def code_after(words: list[Node], number: int) -> str | None:
    """The script that is spelt out after a word which names `eval`, `trap` or a shell."""
    name = base_name(words[number])
    program = program_named(name)
    if name not in RUNS and (program is None or program.kind != "shell"):
        return None
    rest = words[number + 1 :]
    if name in RUNS:
        code = [spell(word) for word in (rest[:1] if name == "trap" else rest)]
        return None if None in code or code == ["-"] else " ".join(each or "" for each in code)
    for option, word in pairwise(rest):
        if re.fullmatch(r"-[A-Za-z]*c[A-Za-z]*", spell(option) or ""):
            return spell(word)
    return None


def is_read(node: Node) -> bool:
    return node.parent is not None and node.parent.type in ("simple_expansion", "expansion", "subscript")


def is_quoted_document(node: Node) -> bool:
    """Whether a node is the body of a here-document in which nothing is expanded."""
    around = node.parent
    if node.type != "heredoc_body" or around is None:
        return False
    starts = (text_of(child) for child in around.children if child.type == "heredoc_start")
    return any(re.search(r"['\"\\]", start) for start in starts)


def is_loose(word: Node) -> bool:
    """Whether bash splits what a word expands to."""
    return word.type in EXPANSIONS or (
        word.type == "concatenation" and any(part.type in EXPANSIONS for part in word.children)
    )


def within(node: Node, bracket: str) -> bool:
    """Whether a node is part of `[[ … ]]`, or of `[ … ]`."""
    around: Node | None = node
    while around is not None and around.type in EXPRESSIONS:
        around = around.parent
    return around is not None and around.type == "test_command" and around.children[0].type == bracket


def operands(node: Node) -> Iterator[Node]:
    """The words of `[ … ]` or `[[ … ]]` in their order, without the brackets."""
    stack = list(reversed(node.children[1:-1]))
    while stack:
        word = stack.pop()
        if word.type in EXPRESSIONS:
            stack.extend(reversed(word.children))
        else:
            yield word


def last_command(node: Node) -> Node | None:
    """The command whose output a substitution gives."""
    inner = [child for child in node.named_children if child.type != "comment"]
    while len(inner) == 1 and inner[0].type == "pipeline":
        inner = inner[0].named_children[-1:]
    return inner[0] if len(inner) == 1 and inner[0].type == "command" else None


def is_spelt_out(node: Node) -> bool:
    """Whether a substitution gives nothing of a value that is not among the words of its last command."""
    words = words_of(last_command(node))
    if not words or node.type != "command_substitution":
        return False
    if base_name(words[0]) == "git":
        return len(words) > 1 and spell(words[1]) in ("rev-parse", "rev-list")
    return base_name(words[0]) in SPELT_OUT
