"""Parse tokens into a syntax tree by operator precedence."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from typing import NoReturn, TypeVar

from nerve.expr import ast, reserved_names
from nerve.expr.errors import ExprError, did_you_mean
from nerve.expr.frame import EvaluationLimits
from nerve.expr.lexer import Token
from nerve.expr.library import CONSTANTS, FUNCTIONS, METHODS, NAMESPACES, LibraryFunction

Item = TypeVar("Item")


class TokenCursor:
    """Advance through the tokens of one source and track the nesting depth."""

    def __init__(self, source: str, tokens: Sequence[Token], limits: EvaluationLimits) -> None:
        self.source, self.tokens, self.limits = source, tokens, limits
        self.position = 0
        self.depth = 0

    @property
    def token(self) -> Token:
        return self.tokens[self.position]

    def peek(self, count: int) -> Token:
        return self.tokens[min(self.position + count, len(self.tokens) - 1)]

    def is_operator(self, *texts: str) -> bool:
        token = self.tokens[self.position]
        return token.kind == "operator" and token.text in texts

    def advance(self) -> Token:
        token = self.tokens[self.position]
        self.position += 1
        return token

    def accept(self, text: str) -> bool:
        if self.is_operator(text):
            self.position += 1
            return True
        return False

    def expect(self, text: str) -> Token:
        if not self.is_operator(text):
            if self.token.kind == "end":
                self.fail(f"`{text}` is missing at the end")
            self.fail_unexpected(f"Expected `{text}`")
        return self.advance()

    def fail(self, message: str, token: Token | None = None) -> NoReturn:
        token = token or self.token
        raise ExprError(message, self.source, token.offset, len(token.text))

    def fail_unexpected(self, expected: str = "") -> NoReturn:
        token = self.token
        if token.kind == "end":
            self.fail("Unexpected end of the expression")
        reason = (
            reserved_names.OPERATOR_MESSAGES.get(token.text)
            if token.kind == "operator"
            else reserved_names.KEYWORD_MESSAGES.get(token.text)
        )
        hint = reserved_names.OTHER_LANGUAGE_HINTS.get(token.text, "") if token.kind == "name" else ""
        self.fail(reason or (not hint and expected) or f"Unexpected `{token.text}`{hint}")

    @contextmanager
    def enter_nesting(self) -> Iterator[None]:
        self.depth += 1
        if self.depth > self.limits.nesting:
            self.fail(f"Nested deeper than {self.limits.nesting} levels")
        yield
        self.depth -= 1

    def is_at_end(self) -> bool:
        return self.token.kind == "end"

    def items_until(self, closing: str, parse_item: Callable[[int], Item]) -> tuple[Item, ...]:
        """Parse items between commas and the closing bracket; `parse_item` gets the number of the item."""
        items: list[Item] = []
        while not self.is_operator(closing):
            items.append(parse_item(len(items)))
            if not self.accept(","):
                break
        self.expect(closing)
        return tuple(items)


PRECEDENCE = {
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
LOGICAL_OPERATORS = frozenset({"&&", "||", "??"})
UNARY_OPERATOR_NAMES = frozenset({"!", "-", "+", "typeof"})


class Parser(TokenCursor):
    """Parse the tokens of one expression; `names` are the allowed free names, None for any."""

    def __init__(
        self, source: str, tokens: Sequence[Token], names: Collection[str] | None, limits: EvaluationLimits
    ) -> None:
        super().__init__(source, tokens, limits)
        self.names = names
        self.slots = 0
        self.locals: dict[str, int] = {}
        self.in_parentheses: set[int] = set()

    def parse(self) -> ast.Node:
        """Parse the whole expression."""
        if self.is_at_end():
            self.fail("Expected an expression")
        node = self.expression()
        if not self.is_at_end():
            self.fail_unexpected()
        return node

    # Operators

    def expression(self) -> ast.Node:
        with self.enter_nesting():
            test = self.binary(1)
            if not self.is_operator("?"):
                return test
            offset = self.advance().offset
            then = self.expression()
            self.expect(":")
            return ast.Conditional(test, then, self.expression(), offset)

    def binary(self, min_precedence: int) -> ast.Node:
        left = self.unary()
        while (precedence := self.precedence()) >= min_precedence:
            token = self.advance()
            right = self.binary(precedence + 1)
            if token.text in LOGICAL_OPERATORS:
                for side in (left, right):
                    if (
                        isinstance(side, ast.Logical)
                        and id(side) not in self.in_parentheses
                        and (side.operator == "??") != (token.text == "??")
                    ):
                        self.fail("`??` mixed with `||` or `&&` needs parentheses", token)
                left = ast.Logical(token.text, left, right, token.offset)
            else:
                left = ast.Binary(token.text, left, right, token.offset)
        return left

    def precedence(self) -> int:
        token = self.token
        return PRECEDENCE.get(token.text, 0) if token.kind == "operator" or token.text == "in" else 0

    def unary(self) -> ast.Node:
        token = self.token
        if token.kind not in ("operator", "name") or token.text not in UNARY_OPERATOR_NAMES:
            return self.power()
        self.advance()
        with self.enter_nesting():
            operand = self.unary()
        if isinstance(operand, ast.Binary) and id(operand) not in self.in_parentheses:
            self.fail(f"Put parentheses around `{token.text}…` or around the power", token)
        return ast.Unary(token.text, operand, token.offset)

    def power(self) -> ast.Node:
        base = self.chain()
        if not self.is_operator("**"):
            return base
        offset = self.advance().offset
        with self.enter_nesting():
            return ast.Binary("**", base, self.unary(), offset)

    # Chains

    def chain(self) -> ast.Node:
        start = self.token.offset
        base = self.primary()
        links: list[ast.Link] = []
        while self.is_operator(".", "?.", "[", "("):
            links.append(self.link(base, links))
        if self.token.kind == "template":
            self.fail("Tagged templates are not supported")
        return ast.Chain(base, tuple(links), start) if links else base

    def link(self, base: ast.Node, links: list[ast.Link]) -> ast.Link:
        token = self.advance()
        optional = token.text == "?."
        if token.text == "(" or (optional and self.is_operator("(")):
            self.fail("Only built-in functions and methods can be called", token)
        if token.text == "[" or (optional and self.accept("[")):
            return self.index(optional, token.offset)
        name = self.property_name()
        if not self.is_operator("(", "?."):
            return ast.PropertyAccess(name.text, optional, token.offset)
        if self.is_operator("?."):
            if self.peek(1).text == "(":
                self.fail("`?.(` is not supported; write `?.` before the name of the method")
            return ast.PropertyAccess(name.text, optional, token.offset)
        return self.method(name, base, links, optional)

    def index(self, optional: bool, offset: int) -> ast.IndexAccess:
        key = self.expression()
        self.expect("]")
        if isinstance(key, ast.Literal) and key.value in reserved_names.FORBIDDEN_PROPERTIES:
            raise ExprError(
                reserved_names.forbidden_property_message(key.value),
                self.source,
                key.offset,
                len(key.value) + 2,
            )
        return ast.IndexAccess(key, optional, offset)

    def property_name(self) -> Token:
        if self.token.kind != "name":
            self.fail_unexpected("Expected a property name after the dot")
        token = self.advance()
        if token.text in reserved_names.FORBIDDEN_PROPERTIES:
            self.fail(reserved_names.forbidden_property_message(token.text), token)
        return token

    def method(self, name: Token, base: ast.Node, links: list[ast.Link], optional: bool) -> ast.MethodCall:
        if name.text not in METHODS:
            hint = reserved_names.METHOD_HINTS.get(name.text) or did_you_mean(name.text, METHODS)
            self.fail(f"Unknown method `{name.text}`{hint}", name)
        if name.text in reserved_names.COPYING_METHOD_BY_NAME and not is_fresh_array(base, links):
            self.fail(
                f"`{name.text}` changes its array in place; use "
                f"`{reserved_names.COPYING_METHOD_BY_NAME[name.text]}`",
                name,
            )
        arguments = self.arguments(METHODS[name.text], name)
        return ast.MethodCall(name.text, arguments, optional, name.offset)

    def arguments(self, entry: LibraryFunction, name: Token) -> tuple[ast.Argument, ...]:
        """Parse the arguments in parentheses, with an arrow function where the function takes one."""

        def parse_argument(number: int) -> ast.Argument:
            return self.callback(name) if entry.callback_position == number else self.spread_or(self.argument)

        self.expect("(")
        arguments = self.items_until(")", parse_argument)
        if len(arguments) < entry.required_arguments:
            self.fail(f"`{name.text}` takes an arrow function, such as `x => x.name`", name)
        return arguments

    def argument(self) -> ast.Node:
        if self.is_at_arrow():
            self.fail("An arrow function can only be passed to a method like `map` or `filter`")
        return self.expression()

    def spread_or(self, parse_item: Callable[[], Item]) -> Item | ast.Spread:
        if not self.is_operator("..."):
            return parse_item()
        offset = self.advance().offset
        return ast.Spread(self.expression(), offset)

    def callback(self, name: Token) -> ast.Argument:
        if self.is_at_arrow():
            return self.arrow()
        token = self.token
        if function := self.function_name():
            return ast.FunctionName(function, token.offset)
        return self.fail(f"`{name.text}` takes an arrow function here, such as `x => x.name`", token)

    def function_name(self) -> str:
        """Consume a built-in function that is not called and return its name, or an empty string."""
        token = self.token
        name, length = token.text, 1
        if token.kind != "name" or not self.is_global(name):
            return ""
        if name in NAMESPACES and self.peek(1).text == ".":
            name, length = f"{name}.{self.peek(2).text}", 3
        following = self.peek(length)
        if (
            name not in FUNCTIONS
            or FUNCTIONS[name].callback_position is not None
            or following.text not in (")", ",")
        ):
            return ""
        self.position += length
        return name

    # Arrow functions

    def is_at_arrow(self) -> bool:
        token = self.token
        if token.kind == "name":
            return self.peek(1).text == "=>"
        if token.kind != "operator" or token.text != "(":
            return False
        depth = 0
        for index in range(self.position, len(self.tokens)):
            other = self.tokens[index]
            if other.kind == "operator":
                depth += (other.text in "([{") - (other.text in ")]}")
                if depth == 0:
                    return self.tokens[index + 1].text == "=>"
        return False

    def arrow(self) -> ast.Arrow:
        start = self.token.offset
        outer = dict(self.locals)
        names: set[str] = set()
        parameters = self.parameters(names)
        self.expect("=>")
        if self.is_operator("{"):
            self.fail("The body of an arrow function must be one expression; for an object write `({…})`")
        body = self.expression()
        self.locals = outer
        return ast.Arrow(parameters, body, start)

    def parameters(self, names: set[str]) -> tuple[ast.Parameter, ...]:
        if self.token.kind == "name":
            return (self.bind_name(names),)
        self.expect("(")
        return self.items_until(")", lambda _: self.parameter(names))

    def parameter(self, names: set[str]) -> ast.Parameter:
        if self.accept("["):
            return ast.Elements(self.items_until("]", lambda _: self.bind_name(names)))
        if self.accept("{"):
            return ast.Fields(self.items_until("}", lambda _: self.field_binding(names)))
        return self.bind_name(names)

    def field_binding(self, names: set[str]) -> tuple[str, int]:
        key = self.token.text
        if self.peek(1).text == ":":
            self.property_name()
            self.expect(":")
        return key, self.bind_name(names)

    def bind_name(self, names: set[str]) -> int:
        """Parse a parameter name and return a new slot for it."""
        token = self.advance()
        if token.kind != "name":
            self.position -= 1
            self.fail_unexpected("Expected a parameter name; defaults and `...` are not supported")
        if (
            token.text in reserved_names.KEYWORD_MESSAGES
            or token.text in reserved_names.FORBIDDEN_GLOBALS
            or token.text in reserved_names.LITERAL_VALUES
        ):
            self.fail(f"`{token.text}` cannot be a parameter name", token)
        if token.text in names:
            self.fail(f"Duplicate parameter `{token.text}`", token)
        names.add(token.text)
        self.locals[token.text] = self.slots
        self.slots += 1
        return self.slots - 1

    # Operands

    def primary(self) -> ast.Node:
        token = self.token
        if token.kind in ("number", "string"):
            self.advance()
            return ast.Literal(token.value, token.offset)
        if token.kind == "template":
            return self.template(self.advance())
        if token.kind == "name":
            return self.name()
        if token.text == "(":
            if self.is_at_arrow():
                self.fail("An arrow function can only be passed to a method like `map` or `filter`")
            self.advance()
            node = self.expression()
            self.expect(")")
            self.in_parentheses.add(id(node))
            return node
        if token.text == "[":
            return self.array()
        if token.text == "{":
            return self.object()
        if token.text in ("/", "/="):
            self.fail("Regular expressions are not supported; use `includes`, `startsWith` or `split`")
        return self.fail_unexpected()

    def template(self, token: Token) -> ast.Node:
        parts = (
            ast.Literal(part, token.offset) if isinstance(part, str) else self.inner(part)
            for part in token.value
        )
        return ast.TemplateLiteral(tuple(parts), token.offset)

    def inner(self, tokens: list[Token]) -> ast.Node:
        """Parse the expression inside `${ }` with the same names."""
        outer, position = self.tokens, self.position
        self.tokens, self.position = tokens, 0
        with self.enter_nesting():
            node = self.parse()
        self.tokens, self.position = outer, position
        return node

    def array(self) -> ast.Node:
        def parse_element(_: int) -> ast.Node | ast.Spread:
            if self.is_operator(","):
                self.fail("Missing value between two commas; write `null` or `undefined`")
            return self.spread_or(self.argument)

        offset = self.advance().offset
        return ast.ArrayLiteral(self.items_until("]", parse_element), offset)

    def object(self) -> ast.Node:
        offset = self.advance().offset
        return ast.ObjectLiteral(self.items_until("}", lambda _: self.spread_or(self.entry)), offset)

    def entry(self) -> ast.ObjectEntry:
        token = self.token
        if self.accept("["):
            key = self.expression()
            self.expect("]")
        elif token.kind == "name":
            self.advance()
            key = ast.Literal(token.text, token.offset)
            if self.is_operator(",", "}") and token.text not in ("true", "false", "null"):
                self.position -= 1
                return ast.ObjectEntry(key, self.name(), token.offset)
        elif token.kind in ("string", "number"):
            self.advance()
            key = ast.Literal(token.value, token.offset)
        elif self.is_operator("{"):
            self.fail("`{{` inside an expression; remove the braces")
        else:
            self.fail_unexpected("Expected a key")
        if isinstance(key, ast.Literal) and key.value == "__proto__":
            self.fail(reserved_names.forbidden_property_message("__proto__"), token)
        if self.is_operator("("):
            self.fail("An object cannot have methods; its values are data")
        self.expect(":")
        return ast.ObjectEntry(key, self.argument(), token.offset)

    # Names

    def name(self) -> ast.Node:
        token = self.advance()
        name = token.text
        if name in self.locals:
            return ast.Local(self.locals[name], token.offset)
        if name in reserved_names.LITERAL_VALUES:
            return ast.Literal(reserved_names.LITERAL_VALUES[name], token.offset)
        if name in reserved_names.KEYWORD_MESSAGES:
            self.fail(reserved_names.KEYWORD_MESSAGES[name], token)
        if self.is_global(name):
            return self.from_library(token)
        if self.is_operator("("):
            hint = reserved_names.FUNCTION_HINTS.get(name) or did_you_mean(name, FUNCTIONS)
            self.fail(f"Unknown function `{name}`{hint}", token)
        return self.free_name(token)

    def is_global(self, name: str) -> bool:
        if name in self.locals or (self.names is not None and name in self.names):
            return False
        return name in NAMESPACES or name in FUNCTIONS

    def free_name(self, token: Token) -> ast.Name:
        name = token.text
        if self.is_operator("=>"):
            self.fail("An arrow function can only be passed to a method like `map` or `filter`", token)
        if self.names is not None and name in self.names and name not in reserved_names.FORBIDDEN_VARIABLES:
            return ast.Name(name, token.offset)
        if name in reserved_names.FORBIDDEN_GLOBALS:
            self.fail(f"`{name}` is not part of the language", token)
        if self.names is not None:
            known = set(self.names) | set(self.locals) | NAMESPACES
            hint = reserved_names.OTHER_LANGUAGE_HINTS.get(name) or did_you_mean(name, known)
            self.fail(f"Unknown name `{name}`{hint}", token)
        return ast.Name(name, token.offset)

    def from_library(self, token: Token) -> ast.Node:
        name = token.text
        if name in NAMESPACES and self.is_operator("."):
            self.advance()
            member = self.property_name()
            name = f"{name}.{member.text}"
            if name in CONSTANTS and not self.is_operator("("):
                return ast.Literal(CONSTANTS[name], token.offset)
            if name not in FUNCTIONS:
                self.fail(f"Unknown function `{name}`{did_you_mean(name, [*FUNCTIONS, *CONSTANTS])}", member)
        if name not in FUNCTIONS or not self.is_operator("("):
            example = next(other for other in FUNCTIONS if other == name or other.startswith(name + "."))
            self.fail(f"`{name}` can only be called, as in `{example}(…)`", token)
        arguments = self.arguments(FUNCTIONS[name], token)
        if name == "Object.assign" and not (arguments and isinstance(arguments[0], ast.ObjectLiteral)):
            self.fail(
                "`Object.assign` changes its first argument; start with `{}` or write `{...a, ...b}`", token
            )
        return ast.FunctionCall(name, arguments, token.offset)


def is_fresh_array(base: ast.Node, links: Sequence[ast.Link]) -> bool:
    """Whether the array that a chain has created so far is not visible elsewhere."""
    if links:
        return isinstance(links[-1], ast.MethodCall) and links[-1].name in reserved_names.FRESH_METHODS
    match base:
        case ast.ArrayLiteral():
            return True
        case ast.FunctionCall(function=function):
            return function in reserved_names.FRESH_FUNCTIONS
        case ast.Chain(inner, inner_links):
            return is_fresh_array(inner, inner_links)
        case _:
            return False
