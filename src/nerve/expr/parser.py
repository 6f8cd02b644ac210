"""Tokens into a tree, by the strength of operators."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from nerve.expr import nodes, words
from nerve.expr.cursor import Cursor
from nerve.expr.errors import ExprError, did_you_mean
from nerve.expr.lexer import Token
from nerve.expr.library import CONSTANTS, FUNCTIONS, METHODS, NAMESPACES, Entry
from nerve.expr.limits import Limits

STRENGTH = {
    "??": 1,
    "||": 2,
    "&&": 3,
    "==": 4,
    "!=": 4,
    "===": 4,
    "!==": 4,
    "<": 5,
    ">": 5,
    "<=": 5,
    ">=": 5,
    "in": 5,
    "+": 6,
    "-": 6,
    "*": 7,
    "/": 7,
    "%": 7,
}
LOGICAL = frozenset({"&&", "||", "??"})
UNARY = frozenset({"!", "-", "+", "typeof"})


class Parser(Cursor):
    """Parses the tokens of one expression; `names` are the free names in sight, None for any."""

    def __init__(
        self, source: str, tokens: Sequence[Token], names: Collection[str] | None, limits: Limits
    ) -> None:
        super().__init__(source, tokens, limits)
        self.names = names
        self.slots = 0
        self.locals: dict[str, int] = {}
        self.in_parentheses: set[int] = set()

    def parse(self) -> nodes.Node:
        """The whole expression."""
        if self.ended():
            self.fail("an expression is expected here")
        node = self.expression()
        if not self.ended():
            self.fail_unexpected()
        return node

    # Operators

    def expression(self) -> nodes.Node:
        with self.nested():
            test = self.binary(1)
            if not self.operator("?"):
                return test
            offset = self.take().offset
            then = self.expression()
            self.expect(":")
            return nodes.Conditional(test, then, self.expression(), offset)

    def binary(self, weakest: int) -> nodes.Node:
        left = self.unary()
        while (strength := self.strength()) >= weakest:
            token = self.take()
            right = self.binary(strength + 1)
            if token.text in LOGICAL:
                self.check_mixture(token, left, right)
                left = nodes.Logical(token.text, left, right, token.offset)
            else:
                left = nodes.Binary(token.text, left, right, token.offset)
        return left

    def strength(self) -> int:
        token = self.token
        return STRENGTH.get(token.text, 0) if token.kind == "operator" or token.text == "in" else 0

    def check_mixture(self, token: Token, *sides: nodes.Node) -> None:
        for side in sides:
            if not isinstance(side, nodes.Logical) or id(side) in self.in_parentheses:
                continue
            if (side.operator == "??") != (token.text == "??"):
                self.fail("`??` beside `||` or `&&` needs parentheses", token)

    def unary(self) -> nodes.Node:
        token = self.token
        if token.kind not in ("operator", "name") or token.text not in UNARY:
            return self.power()
        self.take()
        with self.nested():
            operand = self.unary()
        if isinstance(operand, nodes.Binary) and id(operand) not in self.in_parentheses:
            self.fail(f"put parentheses around `{token.text}…` or around the power", token)
        return nodes.Unary(token.text, operand, token.offset)

    def power(self) -> nodes.Node:
        base = self.chain()
        if not self.operator("**"):
            return base
        offset = self.take().offset
        with self.nested():
            return nodes.Binary("**", base, self.unary(), offset)

    # Chains

    def chain(self) -> nodes.Node:
        start = self.token.offset
        base = self.primary()
        links: list[nodes.Link] = []
        while self.operator(".", "?.", "[", "("):
            links.append(self.link(base, links))
        if self.token.kind == "template":
            self.fail("tagged templates are not supported")
        return nodes.Chain(base, tuple(links), start) if links else base

    def link(self, base: nodes.Node, links: list[nodes.Link]) -> nodes.Link:
        token = self.take()
        optional = token.text == "?."
        if token.text == "(" or (optional and self.operator("(")):
            self.fail("only the functions and methods of the language can be called", token)
        if token.text == "[" or (optional and self.took("[")):
            return self.index(optional, token.offset)
        name = self.property_name()
        if not self.operator("(", "?."):
            return nodes.Property(name.text, optional, token.offset)
        if self.operator("?."):
            if self.ahead(1).text == "(":
                self.fail("`?.(` is not supported; a method is either there or not")
            return nodes.Property(name.text, optional, token.offset)
        return self.method(name, base, links, optional)

    def index(self, optional: bool, offset: int) -> nodes.Index:
        key = self.expression()
        self.expect("]")
        if isinstance(key, nodes.Literal) and key.value in words.NEVER_READ:
            raise ExprError(words.no_property(key.value), self.source, key.offset, len(key.value) + 2)
        return nodes.Index(key, optional, offset)

    def property_name(self) -> Token:
        if self.token.kind != "name":
            self.fail_unexpected("a property's name is expected after the dot")
        token = self.take()
        if token.text in words.NEVER_READ:
            self.fail(words.no_property(token.text), token)
        return token

    def method(self, name: Token, base: nodes.Node, links: list[nodes.Link], optional: bool) -> nodes.Method:
        if name.text not in METHODS:
            hint = words.METHOD_HINTS.get(name.text) or did_you_mean(name.text, METHODS)
            self.fail(f"there is no method `{name.text}`{hint}", name)
        if name.text in words.IN_PLACE and not is_fresh(base, links):
            self.fail(f"`{name.text}` changes its array in place; use `{words.IN_PLACE[name.text]}`", name)
        arguments = self.arguments(METHODS[name.text], name)
        return nodes.Method(name.text, arguments, optional, name.offset)

    def arguments(self, entry: Entry, name: Token) -> tuple[nodes.Argument, ...]:
        """What stands between the parentheses, with an arrow function where the entry has one."""
        self.expect("(")
        found: list[nodes.Argument] = []
        while not self.operator(")"):
            if entry.callback == len(found):
                found.append(self.callback(name))
            else:
                found.append(self.spread() if self.operator("...") else self.argument())
            if not self.took(","):
                break
        self.expect(")")
        if len(found) < entry.required:
            self.fail(f"`{name.text}` takes an arrow function, such as `x => x.name`", name)
        return tuple(found)

    def argument(self) -> nodes.Node:
        if self.at_arrow():
            self.fail("an arrow function can only be given to a method like `map` or `filter`")
        return self.expression()

    def spread(self) -> nodes.Spread:
        offset = self.expect("...").offset
        return nodes.Spread(self.expression(), offset)

    def callback(self, name: Token) -> nodes.Argument:
        if self.at_arrow():
            return self.arrow()
        token = self.token
        if function := self.function_name():
            return nodes.FunctionName(function, token.offset)
        return self.fail(f"`{name.text}` takes an arrow function here, such as `x => x.name`", token)

    def function_name(self) -> str:
        """The function of the table that stands here without being called."""
        token = self.token
        name, length = token.text, 1
        if token.kind != "name" or not self.is_global(name):
            return ""
        if name in NAMESPACES and self.ahead(1).text == ".":
            name, length = f"{name}.{self.ahead(2).text}", 3
        following = self.ahead(length)
        if name not in FUNCTIONS or FUNCTIONS[name].callback is not None or following.text not in (")", ","):
            return ""
        self.at += length
        return name

    # Arrow functions

    def at_arrow(self) -> bool:
        token = self.token
        if token.kind == "name":
            return self.ahead(1).text == "=>"
        if token.kind != "operator" or token.text != "(":
            return False
        depth = 0
        for place in range(self.at, len(self.tokens)):
            other = self.tokens[place]
            if other.kind == "operator":
                depth += (other.text in "([{") - (other.text in ")]}")
                if depth == 0:
                    return self.tokens[place + 1].text == "=>"
        return False

    def arrow(self) -> nodes.Arrow:
        start = self.token.offset
        outer = dict(self.locals)
        names: set[str] = set()
        parameters = self.parameters(names)
        self.expect("=>")
        if self.operator("{"):
            self.fail("an arrow function has one expression and no statements; for an object write `({…})`")
        body = self.expression()
        self.locals = outer
        return nodes.Arrow(parameters, body, start)

    def parameters(self, names: set[str]) -> tuple[nodes.Parameter, ...]:
        if self.token.kind == "name":
            return (self.bind(names),)
        self.expect("(")
        found: list[nodes.Parameter] = []
        while not self.operator(")"):
            found.append(self.parameter(names))
            if not self.took(","):
                break
        self.expect(")")
        return tuple(found)

    def parameter(self, names: set[str]) -> nodes.Parameter:
        if self.took("["):
            return nodes.Elements(tuple(slot for _, slot in self.bindings("]", names)))
        if self.took("{"):
            return nodes.Fields(tuple(self.bindings("}", names)))
        return self.bind(names)

    def bindings(self, closing: str, names: set[str]) -> list[tuple[str, int]]:
        found = []
        while not self.operator(closing):
            key = self.token.text
            if closing == "}" and self.ahead(1).text == ":":
                self.property_name()
                self.expect(":")
            found.append((key, self.bind(names)))
            if not self.took(","):
                break
        self.expect(closing)
        return found

    def bind(self, names: set[str]) -> int:
        """A new slot for the parameter whose name stands here."""
        token = self.take()
        if token.kind != "name":
            self.at -= 1
            self.fail_unexpected("a parameter's name is expected here; defaults and `...` are not supported")
        if token.text in words.KEYWORDS or token.text in words.FORBIDDEN or token.text in words.VALUES:
            self.fail(f"`{token.text}` cannot be a parameter's name", token)
        if token.text in names:
            self.fail(f"the parameter `{token.text}` is there twice", token)
        names.add(token.text)
        self.locals[token.text] = self.slots
        self.slots += 1
        return self.slots - 1

    # Operands

    def primary(self) -> nodes.Node:
        token = self.token
        if token.kind in ("number", "string"):
            self.take()
            return nodes.Literal(token.value, token.offset)
        if token.kind == "template":
            return self.template(self.take())
        if token.kind == "name":
            return self.name()
        if token.text == "(":
            return self.parenthesised()
        if token.text == "[":
            return self.array()
        if token.text == "{":
            return self.object()
        if token.text in ("/", "/="):
            self.fail("regular expressions are not supported; use `includes`, `startsWith` or `split`")
        return self.fail_unexpected()

    def parenthesised(self) -> nodes.Node:
        if self.at_arrow():
            self.fail("an arrow function can only be given to a method like `map` or `filter`")
        self.take()
        node = self.expression()
        self.expect(")")
        self.in_parentheses.add(id(node))
        return node

    def template(self, token: Token) -> nodes.Node:
        parts: list[nodes.Node] = []
        for part in token.value:
            if isinstance(part, str):
                parts.append(nodes.Literal(part, token.offset))
            else:
                parts.append(self.inner(part))
        return nodes.TemplateLiteral(tuple(parts), token.offset)

    def inner(self, tokens: list[Token]) -> nodes.Node:
        """The expression inside `${ }`, with the same names in sight."""
        outer, at = self.tokens, self.at
        self.tokens, self.at = tokens, 0
        with self.nested():
            node = self.parse()
        self.tokens, self.at = outer, at
        return node

    def array(self) -> nodes.Node:
        offset = self.take().offset
        items: list[nodes.Node | nodes.Spread] = []
        while not self.operator("]"):
            if self.operator(","):
                self.fail("an array without a value between two commas; write `null` or `undefined`")
            items.append(self.spread() if self.operator("...") else self.argument())
            if not self.took(","):
                break
        self.expect("]")
        return nodes.ArrayLiteral(tuple(items), offset)

    def object(self) -> nodes.Node:
        offset = self.take().offset
        entries: list[nodes.Entry | nodes.Spread] = []
        while not self.operator("}"):
            entries.append(self.spread() if self.operator("...") else self.entry())
            if not self.took(","):
                break
        self.expect("}")
        return nodes.ObjectLiteral(tuple(entries), offset)

    def entry(self) -> nodes.Entry:
        token = self.token
        if self.took("["):
            key = self.expression()
            self.expect("]")
        elif token.kind == "name":
            self.take()
            key = nodes.Literal(token.text, token.offset)
            if self.operator(",", "}") and token.text not in ("true", "false", "null"):
                self.at -= 1
                return nodes.Entry(key, self.name(), token.offset)
        elif token.kind in ("string", "number"):
            self.take()
            key = nodes.Literal(token.value, token.offset)
        elif self.operator("{"):
            self.fail("`{{` inside an expression; write it without the braces")
        else:
            self.fail_unexpected("a key is expected here")
        if isinstance(key, nodes.Literal) and key.value == "__proto__":
            self.fail(words.no_property("__proto__"), token)
        if self.operator("("):
            self.fail("an object's values are data; it cannot have methods")
        self.expect(":")
        return nodes.Entry(key, self.argument(), token.offset)

    # Names

    def name(self) -> nodes.Node:
        token = self.take()
        name = token.text
        if name in self.locals:
            return nodes.Local(self.locals[name], token.offset)
        if name in words.VALUES:
            return nodes.Literal(words.VALUES[name], token.offset)
        if name in words.KEYWORDS:
            self.fail(words.KEYWORDS[name], token)
        if self.is_global(name):
            return self.from_library(token)
        if self.operator("("):
            hint = words.FUNCTION_HINTS.get(name) or did_you_mean(name, FUNCTIONS)
            self.fail(f"there is no function `{name}`{hint}", token)
        return self.free(token)

    def is_global(self, name: str) -> bool:
        if name in self.locals or (self.names is not None and name in self.names):
            return False
        return name in NAMESPACES or name in FUNCTIONS

    def free(self, token: Token) -> nodes.Name:
        name = token.text
        if self.operator("=>"):
            self.fail("an arrow function can only be given to a method like `map` or `filter`", token)
        if self.names is not None and name in self.names and name not in words.NEVER_NAMES:
            return nodes.Name(name, token.offset)
        if name in words.FORBIDDEN:
            self.fail(f"`{name}` is not part of the language", token)
        if self.names is not None:
            known = set(self.names) | set(self.locals) | NAMESPACES
            hint = words.ELSEWHERE.get(name) or did_you_mean(name, known)
            self.fail(f"there is no `{name}` here{hint}", token)
        return nodes.Name(name, token.offset)

    def from_library(self, token: Token) -> nodes.Node:
        name = token.text
        if name in NAMESPACES and self.operator("."):
            self.take()
            member = self.property_name()
            name = f"{name}.{member.text}"
            if name in CONSTANTS and not self.operator("("):
                return nodes.Literal(CONSTANTS[name], token.offset)
            if name not in FUNCTIONS:
                self.fail(f"there is no `{name}`{did_you_mean(name, [*FUNCTIONS, *CONSTANTS])}", member)
        if name not in FUNCTIONS or not self.operator("("):
            self.fail(f"`{name}` can only be called, as in `{example(name)}`", token)
        arguments = self.arguments(FUNCTIONS[name], token)
        if name == "Object.assign" and not (arguments and isinstance(arguments[0], nodes.ObjectLiteral)):
            self.fail(
                "`Object.assign` changes its first argument; begin with `{}` or write `{...a, ...b}`", token
            )
        return nodes.Call(name, arguments, token.offset)


def example(name: str) -> str:
    return (
        f"{name}(…)"
        if name in FUNCTIONS
        else next(f"{other}(…)" for other in FUNCTIONS if other.startswith(name + "."))
    )


def is_fresh(base: nodes.Node, links: Sequence[nodes.Link]) -> bool:
    """Whether nobody else can see the array that a chain has made so far."""
    if links:
        return isinstance(links[-1], nodes.Method) and links[-1].name in words.FRESH_METHODS
    match base:
        case nodes.ArrayLiteral():
            return True
        case nodes.Call(function=function):
            return function in words.FRESH_FUNCTIONS
        case nodes.Chain(inner, inner_links):
            return is_fresh(inner, inner_links)
        case _:
            return False
