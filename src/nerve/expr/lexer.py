"""Split the source of an expression into tokens."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Literal, NoReturn

from nerve.expr import numbers, utf16
from nerve.expr.errors import ExprError
from nerve.expr.frame import EvaluationLimits
from nerve.expr.values import Value
from nerve.lazy_dataclass import dataclass

TokenKind = Literal["number", "string", "template", "name", "operator", "end"]

WHITESPACE_PATTERN = re.compile(f"[{numbers.WHITESPACE_CHARS}]+")
NAME_PATTERN = re.compile(r"[^\W\d]\w*(?:\$\w*)*|\$[\w$]*")
NAME_PART_PATTERN = re.compile(r"[\w$]")
NUMBER_PATTERN = re.compile(
    r"0[xX][0-9a-fA-F]+(?:_[0-9a-fA-F]+)*|0[oO][0-7]+(?:_[0-7]+)*|0[bB][01]+(?:_[01]+)*"
    r"|(?:(?:0|[1-9][0-9]*(?:_[0-9]+)*)(?:\.(?:[0-9]+(?:_[0-9]+)*)?)?|\.[0-9]+(?:_[0-9]+)*)"
    r"(?:[eE][+-]?[0-9]+(?:_[0-9]+)*)?"
)
OPERATOR_PATTERN = re.compile(
    r">>>=|\.\.\.|===|!==|\*\*=|<<=|>>=|>>>|&&=|\|\|=|\?\?=|=>|==|!=|<=|>=|&&|\|\||\?\?|\?\.(?![0-9])"
    r"|\+\+|--|\+=|-=|\*=|/=|%=|&=|\|=|\^=|<<|>>|\*\*|[{}()\[\].;,<>+\-*/%&|^!~?:=]"
)
PLAIN_IN_STRING = {quote: re.compile(rf"[^{quote}\\\n\r]+") for quote in "'\""}
PLAIN_IN_TEMPLATE = re.compile(r"[^`\\$\r]+")
ESCAPES = {"n": "\n", "t": "\t", "b": "\b", "r": "\r", "f": "\f", "v": "\v"}
CODE_POINT_PATTERN = re.compile(r"x([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|u\{0*([0-9a-fA-F]{1,6})\}")
UNCLOSED_MESSAGES = {
    "}}": "`{{` is not closed; add `}}`, or write `\\{{` for the braces themselves",
    "}": "`${` is not closed; add `}`",
}
OPERAND_ENDS = frozenset({")", "]", "}"})


@dataclass(frozen=True, slots=True)
class Token:
    """A token of the source; `value` is the value of a literal."""

    kind: TokenKind
    text: str
    offset: int
    value: Value = None


class Lexer:
    """Read tokens from `offset` to the end, or to the `closing` of a `{{` or `${`."""

    def __init__(
        self,
        source: str,
        offset: int = 0,
        *,
        limits: EvaluationLimits,
        hyphens: Collection[str] = (),
        closing: str = "",
        nesting: int = 0,
    ) -> None:
        self.source, self.start, self.offset = source, offset, offset
        self.limits, self.hyphens, self.closing, self.nesting = limits, hyphens, closing, nesting
        self.tokens: list[Token] = []

    def tokens_to_end(self) -> list[Token]:
        """Return all tokens and an end token; `offset` is then after the last token."""
        braces = 0
        while True:
            self.skip_space()
            if self.offset - self.start > self.limits.source:
                self.fail(f"An expression can have at most {self.limits.source:,} characters", self.start)
            if self.offset == len(self.source):
                if self.closing:
                    self.fail(UNCLOSED_MESSAGES[self.closing], self.start - 2, 2)
                break
            token = self.token()
            if token.kind == "operator":
                braces += {"{": 1, "}": -1}.get(token.text, 0)
                if braces < 0 and self.closing and self.source.startswith(self.closing, token.offset):
                    self.offset = token.offset
                    break
            self.tokens.append(token)
        self.tokens.append(Token("end", "", self.offset))
        return self.tokens

    def skip_space(self) -> None:
        if match := WHITESPACE_PATTERN.match(self.source, self.offset):
            self.offset = match.end()

    def token(self) -> Token:
        source, offset = self.source, self.offset
        character = source[offset]
        if character in "'\"":
            return self.string(character)
        if character == "`":
            return self.template()
        last = self.tokens[-1] if self.tokens else None
        is_after_dot = last is not None and last.kind == "operator" and last.text in (".", "?.")
        if is_after_dot and (known := self.hyphenated_name_at(offset)):
            return self.make_token("name", known)
        if match := NAME_PATTERN.match(source, offset):
            return self.name(match[0])
        if character.isdigit() or (character == "." and source[offset + 1 : offset + 2].isdigit()):
            return self.dot_or_number()
        if match := OPERATOR_PATTERN.match(source, offset):
            return self.operator(match[0])
        return self.fail(f"Unexpected character {character!r}", offset)

    def make_token(self, kind: TokenKind, text: str, value: Value = None) -> Token:
        token = Token(kind, text, self.offset, value)
        self.offset += len(text)
        return token

    def hyphenated_name_at(self, offset: int) -> str:
        """Return the longest known id with hyphens at `offset`."""
        candidates = [known for known in self.hyphens if self.source.startswith(known, offset)]
        following = {known: self.source[offset + len(known) :][:1] for known in candidates}
        ended = [known for known, next in following.items() if not NAME_PART_PATTERN.match(next)]
        return max(ended, key=len, default="")

    def name(self, text: str) -> Token:
        if not text.replace("$", "_").isidentifier():
            self.fail(f"`{text}` is not a valid name", self.offset)
        return self.make_token("name", text)

    def operator(self, text: str) -> Token:
        if text == "/" and self.source[self.offset + 1 : self.offset + 2] in ("/", "*"):
            self.fail("Comments are not part of the language", self.offset, 2)
        return self.make_token("operator", text)

    def dot_or_number(self) -> Token:
        """Read a number, or the dot before an id that starts with a digit."""
        last = self.tokens[-1] if self.tokens else None
        follows_operand = last is not None and (
            last.kind in ("name", "string", "template") or last.text in OPERAND_ENDS
        )
        if self.source[self.offset] == "." and follows_operand and self.hyphenated_name_at(self.offset + 1):
            return self.make_token("operator", ".")
        match = NUMBER_PATTERN.match(self.source, self.offset)
        if not match:
            self.fail(f"Unexpected character {self.source[self.offset]!r}", self.offset)
        end = match.end()
        following = self.source[end : end + 1]
        if following == "n":
            self.fail("BigInt numbers are not supported; remove the `n`", self.offset, len(match[0]) + 1)
        if match[0] == "0" and following.isdigit():
            self.fail("A number cannot start with 0; write octal numbers as 0o17", self.offset)
        if following.isalnum() or (following in ("_", "$") and following):
            self.fail(f"`{following}` directly after a number", end)
        text = match[0].replace("_", "")
        return self.make_token("number", match[0], numbers.parse_number(text))

    def string(self, quote: str) -> Token:
        start, pieces = self.offset, []
        self.offset += 1
        while True:
            if match := PLAIN_IN_STRING[quote].match(self.source, self.offset):
                pieces.append(match[0])
                self.offset = match.end()
            following = self.source[self.offset : self.offset + 1]
            if following == quote:
                self.offset += 1
                text = self.source[start : self.offset]
                return Token("string", text, start, utf16.join_surrogates("".join(pieces)))
            if following != "\\":
                self.fail(f"The string is not closed; add {quote}", start)
            pieces.append(self.escape())

    def escape(self) -> str:
        """Read the escape at `offset` and return its character."""
        start = self.offset
        following = self.source[start + 1 : start + 2]
        if match := CODE_POINT_PATTERN.match(self.source, start + 1):
            self.offset = match.end()
            code = int(match[1] or match[2] or match[3], 16)
            if code > 0x10FFFF:
                self.fail("Code point out of range; the largest is \\u{10FFFF}", start, self.offset - start)
            return chr(code)
        if following in ("x", "u"):
            self.fail("Invalid escape; write \\x41, \\u0041 or \\u{41}", start, 2)
        if following.isdigit() and (following != "0" or self.source[start + 2 : start + 3].isdigit()):
            self.fail("Octal escapes are not supported; write \\x41", start, 2)
        if not following or following in "\r\n\u2028\u2029":
            self.fail("A string must end on the line where it starts; write \\n for a line break", start)
        self.offset += 2
        return "\0" if following == "0" else ESCAPES.get(following, following)

    def template(self) -> Token:
        """Read a template literal: its strings, and the tokens between `${` and `}`."""
        start = self.offset
        parts: list[str | list[Token]] = []
        text = ""
        self.offset += 1
        while True:
            if match := PLAIN_IN_TEMPLATE.match(self.source, self.offset):
                text += match[0]
                self.offset = match.end()
            following = self.source[self.offset : self.offset + 1]
            if following == "`":
                self.offset += 1
                parts.append(utf16.join_surrogates(text))
                return Token("template", self.source[start : self.offset], start, parts)
            if not following:
                self.fail("The template literal is not closed; add `", start)
            if self.source.startswith("${", self.offset):
                if self.nesting >= self.limits.nesting:
                    self.fail(f"Nested deeper than {self.limits.nesting} levels", self.offset)
                inner = Lexer(
                    self.source,
                    self.offset + 2,
                    limits=self.limits,
                    hyphens=self.hyphens,
                    closing="}",
                    nesting=self.nesting + 1,
                )
                tokens = inner.tokens_to_end()
                self.offset = inner.offset + 1
                parts += [utf16.join_surrogates(text), tokens]
                text = ""
            elif following == "\\":
                text += self.escape()
            elif following == "\r":
                self.fail("Carriage return in a template literal; write \\r", self.offset)
            else:
                text += following
                self.offset += 1

    def fail(self, message: str, offset: int, length: int = 1) -> NoReturn:
        raise ExprError(message, self.source, offset, length)
