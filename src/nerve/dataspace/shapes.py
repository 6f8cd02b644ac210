"""What a pattern is compiled into: shapes that values fit or do not fit."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from nerve.dataspace.errors import NotAPattern
from nerve.dataspace.plain import Json, canonical

ANY, MORE, ESCAPE = "_", "...", "\\"
NAME = re.compile(r"[^\W\d][\w/.-]{0,63}")
"""Names of captures."""
NOTHING = object()
"""What a shape gives as its one value when several would fit."""


class Shape(Protocol):
    def fits(self, value: Json, captures: dict[str, Json]) -> bool:
        """Whether the value fits; what is captured on the way is added."""

    def only(self) -> Json:
        """The one value that fits, or NOTHING if that cannot be said."""


@dataclass(frozen=True, slots=True)
class Anything:
    def fits(self, value: Json, captures: dict[str, Json]) -> bool:
        return True

    def only(self) -> Json:
        return NOTHING


@dataclass(frozen=True, slots=True)
class Capture:
    name: str

    def fits(self, value: Json, captures: dict[str, Json]) -> bool:
        if self.name in captures:
            return canonical(captures[self.name]) == canonical(value)
        captures[self.name] = value
        return True

    def only(self) -> Json:
        return NOTHING


@dataclass(frozen=True, slots=True)
class Scalar:
    value: Json

    def fits(self, value: Json, captures: dict[str, Json]) -> bool:
        # To Python 1 == True, so the types are compared too.
        return type(value) is type(self.value) and value == self.value

    def only(self) -> Json:
        return self.value


@dataclass(frozen=True, slots=True)
class Items:
    """A list; an open one may go on behind the last shape."""

    shapes: tuple[Shape, ...]
    open: bool

    def fits(self, value: Json, captures: dict[str, Json]) -> bool:
        if not isinstance(value, list | tuple) or len(value) < len(self.shapes):
            return False
        if not self.open and len(value) > len(self.shapes):
            return False
        return all(shape.fits(item, captures) for shape, item in zip(self.shapes, value, strict=False))

    def only(self) -> Json:
        inner = [shape.only() for shape in self.shapes]
        return NOTHING if self.open or NOTHING in inner else inner


@dataclass(frozen=True, slots=True)
class Object:
    """An object; an open one may have other keys too."""

    shapes: Mapping[str, Shape]
    open: bool

    def fits(self, value: Json, captures: dict[str, Json]) -> bool:
        if not isinstance(value, Mapping) or (not self.open and len(value) != len(self.shapes)):
            return False
        return all(key in value and shape.fits(value[key], captures) for key, shape in self.shapes.items())

    def only(self) -> Json:
        inner = {key: shape.only() for key, shape in self.shapes.items()}
        return NOTHING if self.open or NOTHING in inner.values() else inner


def shape_of(pattern: Json) -> Shape:
    """The shape of a plain JSON value that stands in a pattern."""
    if isinstance(pattern, str):
        return _text(pattern)
    if isinstance(pattern, list):
        return items_of(pattern)
    if isinstance(pattern, dict):
        return object_of(pattern)
    return Scalar(pattern)


def _text(pattern: str) -> Shape:
    if pattern == ANY:
        return Anything()
    if pattern == MORE:
        raise NotAPattern(
            '"..." may only be the last of the fields or items; for the text itself write "\\..."'
        )
    if pattern.startswith("?"):
        return _capture(pattern)
    return Scalar(unescaped(pattern))


def _capture(pattern: str) -> Capture:
    if not NAME.fullmatch(pattern[1:]):
        raise NotAPattern(f'{pattern!r} is no capture: write "?name", or "\\{pattern}" for the text itself')
    return Capture(pattern[1:])


def items_of(pattern: Sequence[Json]) -> Items:
    more = bool(pattern) and pattern[-1] == MORE
    return Items(tuple(shape_of(item) for item in pattern[: len(pattern) - more]), more)


def object_of(pattern: Mapping[str, Json]) -> Object:
    """Other keys are not looked at, unless the pattern says `"...": false`."""
    more = pattern.get(MORE, True)
    if not isinstance(more, bool):
        raise NotAPattern(
            f'"..." of an object must be true or false, not {more!r}; for the key write "\\..."'
        )
    shapes = {unescaped(key): shape_of(item) for key, item in pattern.items() if key != MORE}
    if len(shapes) != len(pattern.keys() - {MORE}):
        raise NotAPattern(f"a key is there twice, once with a backslash: {', '.join(pattern)}")
    return Object(shapes, more)


def unescaped(text: str) -> str:
    return text[1:] if text.startswith(ESCAPE) else text


def escaped(text: str) -> str:
    """The text as a pattern that only it fits."""
    special = text in (ANY, MORE) or text.startswith(("?", ESCAPE))
    return ESCAPE + text if special else text


def escaped_key(key: str) -> str:
    """The key of an object as a pattern's key that only it fits."""
    return ESCAPE + key if key == MORE or key.startswith(ESCAPE) else key


def literal(value: Json) -> Json:
    """A value as a pattern that only it fits."""
    if isinstance(value, str):
        return escaped(value)
    if isinstance(value, list | tuple):
        return [literal(item) for item in value]
    if isinstance(value, Mapping):
        return {**{escaped_key(key): literal(item) for key, item in value.items()}, MORE: False}
    return value
