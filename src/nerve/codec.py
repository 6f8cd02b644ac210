"""Codecs: how payloads are transformed before they are stored, and the form in which stores keep them."""

from __future__ import annotations

import re
from binascii import Error as Base64Error
from binascii import a2b_base64, b2a_base64
from typing import Protocol

from nerve.errors import PayloadUnreadable

ENCODED_START, ENCODED_END = '{"nerve:encoded":"', '"}'
"""Around the name of the codec and the encoded data: valid JSON, because SQL reads the data of events."""

CODECS_PROPERTY = "codecs"
"""The property of a store with the names under which its data is stored, and a short encoded text of each."""

_NAME_PATTERN = re.compile(r"[A-Za-z0-9._:-]{1,100}")


class Codec(Protocol):
    """Transforms every payload between a session and its store.

    It is called from several threads at once. `place` is the kind and the identity of the row, such as the
    run and number of an event; a codec that authenticates data binds it to its place.
    """

    @property
    def name(self) -> str:
        """How new data is encoded, such as `aes-gcm:2025-11`; it is stored readable with the data."""

    def encode(self, data: bytes, place: bytes) -> bytes: ...

    def decode(self, data: bytes, name: str, place: bytes) -> bytes:
        """Return data that was encoded under a name; PayloadUnreadable says why it cannot be.

        Without the key of the name, raise `KeyMissing`.
        """


def check_codec(codec: Codec) -> Codec:
    """Return a codec; ValueError if it lacks a method or its name cannot be stored."""
    for method in ("encode", "decode"):
        if not callable(getattr(codec, method, None)):
            raise ValueError(f"codec must have the method {method}, got {type(codec).__name__}")
    name = getattr(codec, "name", None)
    if not isinstance(name, str) or not _NAME_PATTERN.fullmatch(name):
        raise ValueError(
            f"The name of a codec must be up to 100 letters, digits and '._:-', got {name!r:.120}"
        )
    return codec


def encode_text(codec: Codec, text: str, *place: object) -> str:
    """Return the stored form of a text, which belongs to a place."""
    data = b2a_base64(codec.encode(text.encode(), _join_place(place)), newline=False).decode("ascii")
    return f"{ENCODED_START}{codec.name} {data}{ENCODED_END}"


def decode_text(codec: Codec, stored: str, *place: object) -> str:
    """Return a text from its stored form; one that was stored without a codec is returned as it is."""
    if not stored.startswith(ENCODED_START):
        return stored
    name, _, data = stored[len(ENCODED_START) : -len(ENCODED_END)].partition(" ")
    try:
        return decode_data(codec, a2b_base64(data, strict_mode=True), name, _join_place(place)).decode()
    except (Base64Error, UnicodeError):
        raise PayloadUnreadable("The stored data is damaged. Restore the file from a backup.") from None


def decode_data(codec: Codec, data: bytes, name: str, place: bytes) -> bytes:
    """Return decoded data; any error of the codec becomes PayloadUnreadable, which lists of runs survive."""
    try:
        return codec.decode(data, name, place)
    except PayloadUnreadable:
        raise
    except Exception as error:
        kind = type(error).__name__
        raise PayloadUnreadable(
            f"The codec failed with {kind}: {error}. Open the store with '{name}'."
        ) from error


def is_encoded(stored: str) -> bool:
    return stored.startswith(ENCODED_START)


def is_encoded_with(codec: Codec, stored: str) -> bool:
    """Return whether a stored text was encoded with the current key of a codec."""
    return stored.startswith(f"{ENCODED_START}{codec.name} ")


def _join_place(place: tuple[object, ...]) -> bytes:
    return "\0".join(map(str, place)).encode()
