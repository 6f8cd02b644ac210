"""Matchers: the compiled form of patterns."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from nerve.dataspace.errors import NotAPattern
from nerve.dataspace.record import Json, encode_canonical
from nerve.lazy_dataclass import dataclass

ANY, MORE, ESCAPE = "_", "...", "\\"
CAPTURE_NAME = re.compile(r"[^\W\d][\w/.-]{0,63}")
"""Valid names of captures."""
NO_LITERAL = object()
"""The literal value of a matcher that matches several values."""


class Matcher:
    """Matches any value."""

    __slots__ = ()

    def matches(self, value: Json, captures: dict[str, Json]) -> bool:
        """Whether the value matches; adds captures to `captures`."""
        return True

    def literal_value(self) -> Json:
        """Return the only value that matches, or NO_LITERAL."""
        return NO_LITERAL


@dataclass(frozen=True, slots=True)
class CaptureMatcher(Matcher):
    name: str

    def matches(self, value: Json, captures: dict[str, Json]) -> bool:
        if self.name in captures:
            return encode_canonical(captures[self.name]) == encode_canonical(value)
        captures[self.name] = value
        return True


@dataclass(frozen=True, slots=True)
class ScalarMatcher(Matcher):
    value: Json

    def matches(self, value: Json, captures: dict[str, Json]) -> bool:
        # In Python 1 == True, so the types are compared too.
        return type(value) is type(self.value) and value == self.value

    def literal_value(self) -> Json:
        return self.value


@dataclass(frozen=True, slots=True)
class ListMatcher(Matcher):
    """Matches a list; an open one may have more items."""

    matchers: tuple[Matcher, ...]
    is_open: bool

    def matches(self, value: Json, captures: dict[str, Json]) -> bool:
        if not isinstance(value, list | tuple) or len(value) < len(self.matchers):
            return False
        if not self.is_open and len(value) > len(self.matchers):
            return False
        return all(
            matcher.matches(item, captures) for matcher, item in zip(self.matchers, value, strict=False)
        )

    def literal_value(self) -> Json:
        inner = [matcher.literal_value() for matcher in self.matchers]
        return NO_LITERAL if self.is_open or NO_LITERAL in inner else inner


@dataclass(frozen=True, slots=True)
class ObjectMatcher(Matcher):
    """Matches an object; an open one may have other keys."""

    matchers: Mapping[str, Matcher]
    is_open: bool

    def matches(self, value: Json, captures: dict[str, Json]) -> bool:
        if not isinstance(value, Mapping) or (not self.is_open and len(value) != len(self.matchers)):
            return False
        return all(
            key in value and matcher.matches(value[key], captures) for key, matcher in self.matchers.items()
        )

    def literal_value(self) -> Json:
        inner = {key: matcher.literal_value() for key, matcher in self.matchers.items()}
        return NO_LITERAL if self.is_open or NO_LITERAL in inner.values() else inner


def compile_matcher(pattern: Json) -> Matcher:
    """Return the matcher of a JSON value in a pattern."""
    if isinstance(pattern, str):
        if pattern == ANY:
            return Matcher()
        if pattern == MORE:
            raise NotAPattern(
                '"..." is only allowed as the last field or item; for the literal string write "\\..."'
            )
        if pattern.startswith("?"):
            if not CAPTURE_NAME.fullmatch(pattern[1:]):
                raise NotAPattern(
                    f'{pattern!r} is not a valid capture: write "?name",'
                    f' or "\\{pattern}" for the literal string'
                )
            return CaptureMatcher(pattern[1:])
        return ScalarMatcher(unescape_pattern_text(pattern))
    if isinstance(pattern, list):
        return compile_list_matcher(pattern)
    if isinstance(pattern, dict):
        return compile_object_matcher(pattern)
    return ScalarMatcher(pattern)


def compile_list_matcher(pattern: Sequence[Json]) -> ListMatcher:
    is_open = bool(pattern) and pattern[-1] == MORE
    return ListMatcher(tuple(compile_matcher(item) for item in pattern[: len(pattern) - is_open]), is_open)


def compile_object_matcher(pattern: Mapping[str, Json]) -> ObjectMatcher:
    """Return the matcher of an object; it ignores other keys unless the pattern has `"...": false`."""
    is_open = pattern.get(MORE, True)
    if not isinstance(is_open, bool):
        raise NotAPattern(
            f'"..." of an object must be true or false, got {is_open!r}; for the key write "\\..."'
        )
    matchers = {
        unescape_pattern_text(key): compile_matcher(item) for key, item in pattern.items() if key != MORE
    }
    if len(matchers) != len(pattern.keys() - {MORE}):
        raise NotAPattern(f"Duplicate key, once with a backslash: {', '.join(pattern)}")
    return ObjectMatcher(matchers, is_open)


def unescape_pattern_text(text: str) -> str:
    return text[1:] if text.startswith(ESCAPE) else text


def escape_pattern_text(text: str) -> str:
    """Return a pattern that matches only this string."""
    special = text in (ANY, MORE) or text.startswith(("?", ESCAPE))
    return ESCAPE + text if special else text


def escape_pattern_key(key: str) -> str:
    """Return a pattern key that matches only this key."""
    return ESCAPE + key if key == MORE or key.startswith(ESCAPE) else key


def literal(value: Json) -> Json:
    """Return a pattern that matches only this value."""
    if isinstance(value, str):
        return escape_pattern_text(value)
    if isinstance(value, list | tuple):
        return [literal(item) for item in value]
    if isinstance(value, Mapping):
        return {**{escape_pattern_key(key): literal(item) for key, item in value.items()}, MORE: False}
    return value
