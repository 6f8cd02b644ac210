"""What a pattern is compiled into: shapes that values fit or do not fit."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from nerve.dataspace.canonical_json import Json, encode_canonical
from nerve.dataspace.errors import NotAPattern

ANY, MORE, ESCAPE = "_", "...", "\\"
CAPTURE_NAME = re.compile(r"[^\W\d][\w/.-]{0,63}")
"""Names of captures."""
NO_LITERAL = object()
"""What a shape gives as its one value when several would fit."""


class Matcher(Protocol):
    def matches(self, value: Json, captures: dict[str, Json]) -> bool:
        """Whether the value fits; what is captured on the way is added."""

    def literal_value(self) -> Json:
        """The one value that fits, or NOTHING if that cannot be said."""


@dataclass(frozen=True, slots=True)
class AnyMatcher:
    def matches(self, value: Json, captures: dict[str, Json]) -> bool:
        return True

    def literal_value(self) -> Json:
        return NO_LITERAL


@dataclass(frozen=True, slots=True)
class CaptureMatcher:
    name: str

    def matches(self, value: Json, captures: dict[str, Json]) -> bool:
        if self.name in captures:
            return encode_canonical(captures[self.name]) == encode_canonical(value)
        captures[self.name] = value
        return True

    def literal_value(self) -> Json:
        return NO_LITERAL


@dataclass(frozen=True, slots=True)
class ScalarMatcher:
    value: Json

    def matches(self, value: Json, captures: dict[str, Json]) -> bool:
        # To Python 1 == True, so the types are compared too.
        return type(value) is type(self.value) and value == self.value

    def literal_value(self) -> Json:
        return self.value


@dataclass(frozen=True, slots=True)
class ListMatcher:
    """A list; an open one may go on behind the last shape."""

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
class ObjectMatcher:
    """An object; an open one may have other keys too."""

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
    """The shape of a plain JSON value that stands in a pattern."""
    if isinstance(pattern, str):
        return _compile_text_matcher(pattern)
    if isinstance(pattern, list):
        return compile_list_matcher(pattern)
    if isinstance(pattern, dict):
        return compile_object_matcher(pattern)
    return ScalarMatcher(pattern)


def _compile_text_matcher(pattern: str) -> Matcher:
    if pattern == ANY:
        return AnyMatcher()
    if pattern == MORE:
        raise NotAPattern(
            '"..." may only be the last of the fields or items; for the text itself write "\\..."'
        )
    if pattern.startswith("?"):
        return _compile_capture(pattern)
    return ScalarMatcher(unescape_pattern_text(pattern))


def _compile_capture(pattern: str) -> CaptureMatcher:
    if not CAPTURE_NAME.fullmatch(pattern[1:]):
        raise NotAPattern(f'{pattern!r} is no capture: write "?name", or "\\{pattern}" for the text itself')
    return CaptureMatcher(pattern[1:])


def compile_list_matcher(pattern: Sequence[Json]) -> ListMatcher:
    is_open = bool(pattern) and pattern[-1] == MORE
    return ListMatcher(tuple(compile_matcher(item) for item in pattern[: len(pattern) - is_open]), is_open)


def compile_object_matcher(pattern: Mapping[str, Json]) -> ObjectMatcher:
    """Other keys are not looked at, unless the pattern says `"...": false`."""
    is_open = pattern.get(MORE, True)
    if not isinstance(is_open, bool):
        raise NotAPattern(
            f'"..." of an object must be true or false, not {is_open!r}; for the key write "\\..."'
        )
    matchers = {
        unescape_pattern_text(key): compile_matcher(item) for key, item in pattern.items() if key != MORE
    }
    if len(matchers) != len(pattern.keys() - {MORE}):
        raise NotAPattern(f"a key is there twice, once with a backslash: {', '.join(pattern)}")
    return ObjectMatcher(matchers, is_open)


def unescape_pattern_text(text: str) -> str:
    return text[1:] if text.startswith(ESCAPE) else text


def escape_pattern_text(text: str) -> str:
    """The text as a pattern that only it fits."""
    special = text in (ANY, MORE) or text.startswith(("?", ESCAPE))
    return ESCAPE + text if special else text


def escape_pattern_key(key: str) -> str:
    """The key of an object as a pattern's key that only it fits."""
    return ESCAPE + key if key == MORE or key.startswith(ESCAPE) else key


def literal(value: Json) -> Json:
    """A value as a pattern that only it fits."""
    if isinstance(value, str):
        return escape_pattern_text(value)
    if isinstance(value, list | tuple):
        return [literal(item) for item in value]
    if isinstance(value, Mapping):
        return {**{escape_pattern_key(key): literal(item) for key, item in value.items()}, MORE: False}
    return value
